// reader.cc: lists and opens files, and reads a batch of samples with many reads in flight.
#include "training/record/reader.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace ff::record {

namespace {

constexpr uint64_t kPieceBytes = 4 * kMiB;  // a longer sample is read by several reads at once

Error no_such_sample(uint64_t sample, uint64_t samples) {
  return fail(Errc::usage, "there is no sample {}: there are {}, counted from 0", sample, samples);
}

}  // namespace

Result<std::vector<std::string>> record_files(io::Disk& disk,
                                              const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    const auto entries = disk.list(path);
    if (!entries) {  // no directory: opening it says more
      files.push_back(path);
      continue;
    }
    const size_t before = files.size();
    for (const io::DirEntry& entry : *entries) {
      if (entry.name.ends_with(kSuffix) && entry.kind != io::FileKind::directory) {
        files.push_back(path + "/" + entry.name);
      }
    }
    if (files.size() == before) {
      return fail(Errc::not_found, "{}: the directory has no file *{}", path, kSuffix);
    }
  }
  return files;
}

Result<std::unique_ptr<Reader>> Reader::open(io::Disk& disk, const std::vector<std::string>& files,
                                             Options options) {
  std::unique_ptr<Reader> reader(new Reader(disk, options));
  for (const std::string& path : files) {
    FF_TRY(auto file, disk.open(path, {}));
    FF_TRY(auto index, read_index(*file));
    const uint64_t first = reader->samples_;
    reader->samples_ += index.samples();
    reader->files_.push_back({std::move(file), std::move(index), first});
  }
  return reader;
}

Reader::Place Reader::find(uint64_t sample) const {
  FF_CHECK(sample < samples_);
  // The last file that begins at it or before it; empty files before that have the same begin.
  const auto after =
      std::upper_bound(files_.begin(), files_.end(), sample,
                       [](uint64_t number, const File& file) { return number < file.first; });
  const File& file = *(after - 1);
  return {file, sample - file.first};
}

Result<uint64_t> Reader::bytes_of(uint64_t sample) const {
  if (sample >= samples_) return no_such_sample(sample, samples_);
  const Place place = find(sample);
  return place.file.index.bytes_of(place.number);
}

// The reads of one call.
class Reader::Batch {
 public:
  Batch(const Reader& reader, std::span<const uint64_t> samples, std::span<std::byte* const> places)
      : reader_(reader), samples_(samples), places_(places), missing_(samples.size()) {}

  Result<void> run(io::IoQueue& queue) {
    while (start_some(queue) || queue.in_flight() > 0) {
      if (queue.in_flight() > 0) queue.run();
    }
    if (error_) return *std::move(error_);
    return {};
  }

 private:
  // Starts reads while the queue has room. False: all have been started, or one has failed.
  bool start_some(io::IoQueue& queue) {
    while (!error_ && next_ < samples_.size()) {
      const auto [file, number] = reader_.find(samples_[next_]);
      const uint64_t bytes = file.index.bytes_of(number);
      if (begun_ == bytes && bytes > 0) {
        next_++;
        begun_ = 0;
        continue;
      }
      if (bytes == 0) {
        check(next_++);
        continue;
      }
      if (queue.in_flight() == queue.depth()) return true;
      if (begun_ == 0) missing_[next_] = bytes;
      const uint64_t length = std::min(kPieceBytes, bytes - begun_);
      queue.read(*file.open, {places_[next_] + begun_, length}, file.index.offsets[number] + begun_,
                 [this, which = next_, length](Result<size_t> got) { done(which, length, got); });
      begun_ += length;
    }
    return false;
  }

  void done(size_t which, uint64_t length, const Result<size_t>& got) {
    if (!got) {
      if (!error_) error_ = got.error();
      return;
    }
    if (*got < length) return set_corrupt(which, "the file became shorter");
    missing_[which] -= length;
    if (missing_[which] == 0) check(which);
  }

  void check(size_t which) {
    if (!reader_.options_.check) return;
    const auto [file, number] = reader_.find(samples_[which]);
    const ByteView bytes(places_[which], file.index.bytes_of(number));
    const uint32_t found = crc32(0, bytes);
    const uint32_t wanted = file.index.checksums[number];
    if (found != wanted) {
      set_corrupt(which, fmt::format("its CRC-32 is {:08x}, and should be {:08x}", found, wanted));
    }
  }

  void set_corrupt(size_t which, std::string_view cause) {
    if (error_) return;
    const auto [file, number] = reader_.find(samples_[which]);
    error_ = Error{Errc::corrupt,
                   fmt::format("{}: sample {} is damaged: {}", file.open->path(), number, cause),
                   "'ff record verify' lists all damaged samples."};
  }

  const Reader& reader_;
  const std::span<const uint64_t> samples_;
  const std::span<std::byte* const> places_;
  std::vector<uint64_t> missing_;  // bytes of each sample that have not been read
  size_t next_ = 0;                // the sample whose reads are being started
  uint64_t begun_ = 0;             // bytes of it whose reads have been started
  std::optional<Error> error_;     // the first one
};

Result<void> Reader::read(std::span<const uint64_t> samples, std::span<std::byte* const> places) {
  FF_CHECK(samples.size() == places.size());
  for (const uint64_t sample : samples) {
    if (sample >= samples_) return no_such_sample(sample, samples_);
  }
  std::unique_ptr<io::IoQueue> queue;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_queues_.empty()) {
      queue = std::move(idle_queues_.back());
      idle_queues_.pop_back();
    }
  }
  if (queue == nullptr) queue = disk_.make_queue({.depth = options_.depth, .loop = nullptr});
  auto result = Batch(*this, samples, places).run(*queue);
  const std::lock_guard lock(mutex_);
  idle_queues_.push_back(std::move(queue));
  return result;
}

}  // namespace ff::record
