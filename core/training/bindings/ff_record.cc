// ff_record.cc: reads and writes FFRecord files, behind the C interface.
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/base/stop_token.h"
#include "platform/io/system_disk.h"
#include "training/bindings/checkpoint.h"
#include "training/bindings/ff.h"
#include "training/bindings/last_error.h"
#include "training/record/reader.h"
#include "training/record/shuffle.h"
#include "training/record/writer.h"

using ff::Errc;
using ff::Result;
using ff::bindings::failed;
using ff::bindings::outcome;

namespace {

// The disk of some paths.
struct RecordDisk {
  const pid_t process = ::getpid();
  ff::SystemClock clock = {};
  ff::StopToken stop{clock};
  ff::io::SystemDisk local = {};
  std::optional<ff::bindings::OpenStore> store = {};

  // Makes the paths those of `store`.
  Result<void> open(std::vector<std::string>& paths) {
    std::string first = paths.front();
    for (const std::string& path : paths) {
      if (path.starts_with("ff://")) {
        first = path;
        break;
      }
    }
    FF_TRY(store, ff::bindings::OpenStore::open(stop, local, std::move(first)));
    for (std::string& path : paths) {
      FF_TRY(path, store->path_of(path));
    }
    return {};
  }
};

}  // namespace

struct ff_record_reader {
  RecordDisk disk = {};
  std::unique_ptr<ff::record::Reader> reader = {};
};

struct ff_record_writer {
  RecordDisk disk = {};
  ff::SeededRng rng{ff::system_seed()};
  std::unique_ptr<ff::record::Writer> writer = {};
};

namespace {

Result<void> check_reader(const ff_record_reader* reader) {
  if (reader == nullptr) return ff::fail(Errc::usage, "the reader is null");
  return ff::bindings::check_process("reader", reader->disk.process);
}

Result<void> check_writer(const ff_record_writer* writer) {
  if (writer == nullptr) return ff::fail(Errc::usage, "the writer is null");
  return ff::bindings::check_process("writer", writer->disk.process);
}

Result<void> check_samples(const void* samples, size_t count, const void* results) {
  if (count == 0 || (samples != nullptr && results != nullptr)) return {};
  return ff::fail(Errc::usage, "the array of samples, or that for the results, is null");
}

Result<void> open_reader(ff_record_reader& made, const char* const* given, size_t count,
                         int check) {
  std::vector<std::string> paths;
  for (size_t i = 0; i < count; i++) {
    if (given == nullptr || given[i] == nullptr) return ff::fail(Errc::usage, "a path is null");
    paths.emplace_back(given[i]);
  }
  if (paths.empty()) return ff::fail(Errc::usage, "no file is named");
  FF_TRY(made.disk.open(paths));
  ff::io::Disk& disk = made.disk.store->disk();
  FF_TRY(const auto files, ff::record::record_files(disk, paths));
  FF_TRY(made.reader, ff::record::Reader::open(disk, files, {.check = check != 0}));
  return {};
}

Result<void> read_sizes(const ff_record_reader* reader, const uint64_t* samples, size_t count,
                        uint64_t* sizes) {
  FF_TRY(check_reader(reader));
  FF_TRY(check_samples(samples, count, sizes));
  for (size_t i = 0; i < count; i++) {
    FF_TRY(sizes[i], reader->reader->bytes_of(samples[i]));
  }
  return {};
}

Result<void> read_samples(ff_record_reader* reader, const uint64_t* samples, size_t count,
                          void* const* places) {
  FF_TRY(check_reader(reader));
  FF_TRY(check_samples(samples, count, places));
  std::vector<std::byte*> into;
  for (size_t i = 0; i < count; i++) {
    FF_TRY(const uint64_t bytes, reader->reader->bytes_of(samples[i]));
    if (places[i] == nullptr && bytes > 0) {
      return ff::fail(Errc::usage, "the memory for sample {} is null", samples[i]);
    }
    into.push_back(static_cast<std::byte*>(places[i]));
  }
  return reader->reader->read({samples, count}, into);
}

Result<void> create_writer(ff_record_writer& made, const char* path, uint64_t samples,
                           int replace) {
  if (path == nullptr) return ff::fail(Errc::usage, "the path is null");
  std::vector<std::string> paths = {path};
  FF_TRY(made.disk.open(paths));
  FF_TRY(made.writer, ff::record::Writer::create(made.disk.store->disk(), made.rng,
                                                 std::move(paths.front()), samples, replace != 0));
  return {};
}

Result<void> write_sample(ff_record_writer* writer, const void* data, size_t bytes) {
  FF_TRY(check_writer(writer));
  if (data == nullptr && bytes > 0) return ff::fail(Errc::usage, "the sample is null");
  return writer->writer->add({static_cast<const std::byte*>(data), bytes});
}

Result<void> finish_writer(ff_record_writer* writer) {
  FF_TRY(check_writer(writer));
  return writer->writer->finish();
}

Result<void> shuffle(uint64_t total, uint64_t seed, uint64_t epoch, uint64_t first, size_t count,
                     uint64_t* samples) {
  if (samples == nullptr && count > 0) return ff::fail(Errc::usage, "the array is null");
  if (first > total || count > total - first) {
    return ff::fail(Errc::usage, "positions {} to {} are not within {} samples", first,
                    first + count, total);
  }
  const ff::record::Shuffle order(total, seed, epoch);
  for (size_t i = 0; i < count; i++) samples[i] = order.at(first + i);
  return {};
}

}  // namespace

int ff_record_open(ff_record_reader** reader, const char* const* paths, size_t count, int check) {
  if (reader == nullptr) return failed(ff::fail(Errc::usage, "reader is null"));
  *reader = nullptr;
  auto made = std::make_unique<ff_record_reader>();
  if (auto opened = open_reader(*made, paths, count, check); !opened) return outcome(opened);
  *reader = made.release();
  return FF_OK;
}

void ff_record_close(ff_record_reader* reader) {
  if (reader != nullptr && reader->disk.process == ::getpid()) delete reader;
}

uint64_t ff_record_samples(const ff_record_reader* reader) {
  return reader != nullptr ? reader->reader->samples() : 0;
}

int ff_record_sizes(const ff_record_reader* reader, const uint64_t* samples, size_t count,
                    uint64_t* sizes) {
  return outcome(read_sizes(reader, samples, count, sizes));
}

int ff_record_read(ff_record_reader* reader, const uint64_t* samples, size_t count,
                   void* const* places) {
  return outcome(read_samples(reader, samples, count, places));
}

int ff_record_create(ff_record_writer** writer, const char* path, uint64_t samples, int replace) {
  if (writer == nullptr) return failed(ff::fail(Errc::usage, "writer is null"));
  *writer = nullptr;
  auto made = std::make_unique<ff_record_writer>();
  if (auto begun = create_writer(*made, path, samples, replace); !begun) return outcome(begun);
  *writer = made.release();
  return FF_OK;
}

int ff_record_write(ff_record_writer* writer, const void* data, size_t bytes) {
  return outcome(write_sample(writer, data, bytes));
}

int ff_record_finish(ff_record_writer* writer) { return outcome(finish_writer(writer)); }

void ff_record_free(ff_record_writer* writer) {
  if (writer != nullptr && writer->disk.process == ::getpid()) delete writer;
}

int ff_record_shuffle(uint64_t total, uint64_t seed, uint64_t epoch, uint64_t first, size_t count,
                      uint64_t* samples) {
  return outcome(shuffle(total, seed, epoch, first, count, samples));
}
