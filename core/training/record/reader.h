// Reads samples of FFRecord files (format.h), which count as one list: those of the first file,
// then those of the second, and so on.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "platform/base/result.h"
#include "platform/io/disk.h"
#include "training/record/format.h"

namespace ff::record {

// The files that `paths` name: of a directory, those in it whose names end with .ffr, by name.
// Errc::not_found: there is none.
Result<std::vector<std::string>> record_files(io::Disk& disk,
                                              const std::vector<std::string>& paths);

class Reader {
 public:
  struct Options {
    bool check = true;    // compare each sample that is read with its CRC-32
    unsigned depth = 64;  // most reads of one call in flight
  };
  struct File {
    std::unique_ptr<io::File> open;
    RecordIndex index;
    uint64_t first = 0;  // the number of its first sample in the list
  };

  // `files`: as record_files() returns them. The disk outlives the reader.
  static Result<std::unique_ptr<Reader>> open(io::Disk& disk, const std::vector<std::string>& files,
                                              Options options);

  uint64_t samples() const { return samples_; }
  const std::vector<File>& files() const { return files_; }
  // Where a sample is; there must be such a sample.
  struct Place {
    const File& file;
    uint64_t number = 0;  // of the sample in the file
  };
  Place find(uint64_t sample) const;
  // Errc::usage: there is no such sample.
  Result<uint64_t> bytes_of(uint64_t sample) const;

  // Reads `samples` into `places`, which have the room for them (bytes_of()); all reads are in
  // flight together. Several threads may call it at the same time. Errc::corrupt: a sample does
  // not match its CRC-32, or its file became shorter. After an error the places hold anything.
  Result<void> read(std::span<const uint64_t> samples, std::span<std::byte* const> places);

 private:
  class Batch;
  Reader(io::Disk& disk, Options options) : disk_(disk), options_(options) {}

  io::Disk& disk_;
  const Options options_;
  std::vector<File> files_;
  uint64_t samples_ = 0;
  std::mutex mutex_;
  std::vector<std::unique_ptr<io::IoQueue>> idle_queues_;  // a call takes one, or makes one
};

}  // namespace ff::record
