// writer.cc: collects samples in a buffer, writes it when it is full, and the index at the end.
#include "training/record/writer.h"

#include <utility>

namespace ff::record {

namespace {

constexpr size_t kBufferBytes = 4 * kMiB;

}  // namespace

Writer::Writer(io::Disk& disk, Rng& rng, std::string path, uint64_t samples, bool replace)
    : final_(disk, rng, path),
      path_(std::move(path)),
      wanted_(samples),
      replace_(replace),
      written_(index_bytes(samples)),
      begin_(written_) {}

Result<std::unique_ptr<Writer>> Writer::create(io::Disk& disk, Rng& rng, std::string path,
                                               uint64_t samples, bool replace) {
  if (!path.ends_with(kSuffix)) {
    return fail(Errc::usage, "{}: the name of an FFRecord file ends with {}", path, kSuffix);
  }
  FF_TRY(io::AtomicFile::check(disk, path, replace));
  std::unique_ptr<Writer> writer(new Writer(disk, rng, std::move(path), samples, replace));
  FF_TRY(writer->file_,
         disk.open(writer->final_.temp_path(),
                   {.access = io::AccessMode::write, .create = true, .exclusive = true}));
  writer->index_.checksums.reserve(samples);
  writer->index_.offsets.reserve(samples + 1);
  return writer;
}

Result<void> Writer::append(ByteView part) {
  crc_ = crc32(crc_, part);
  if (part.size() >= kBufferBytes) {
    FF_TRY(flush());
    FF_TRY(file_->write_at(part, written_));
    written_ += part.size();
    return {};
  }
  buffer_.append(as_text(part));
  return buffer_.size() >= kBufferBytes ? flush() : Result<void>();
}

Result<void> Writer::flush() {
  FF_TRY(file_->write_at(as_bytes(buffer_), written_));
  written_ += buffer_.size();
  buffer_.clear();
  return {};
}

Result<void> Writer::end_sample() {
  if (samples() == wanted_) {
    return fail(Errc::usage, "{}: there are more samples than the {} it was made for", path_,
                wanted_);
  }
  index_.checksums.push_back(crc_);
  index_.offsets.push_back(begin_);
  begin_ = written_ + buffer_.size();
  crc_ = 0;
  return {};
}

Result<void> Writer::add(ByteView sample) {
  FF_TRY(append(sample));
  return end_sample();
}

Result<void> Writer::finish() {
  if (samples() < wanted_) {
    return fail(Errc::usage, "{}: there are {} samples, and it was made for {}", path_, samples(),
                wanted_);
  }
  FF_TRY(flush());
  if (written_ != begin_) return fail(Errc::usage, "{}: the last sample was not ended", path_);
  FF_TRY(file_->write_at(as_bytes(encode_index(index_)), 0));
  FF_TRY(file_->sync());
  return final_.commit(replace_);
}

}  // namespace ff::record
