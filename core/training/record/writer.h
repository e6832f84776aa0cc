// Writes an FFRecord file (format.h), whose number of samples is known before. The file gets its
// name only when it is complete and on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/atomic_file.h"
#include "platform/io/disk.h"
#include "training/record/format.h"

namespace ff::record {

class Writer {
 public:
  // Errc::usage: the name of `path` does not end with .ffr. Errc::refused: it exists, and
  // `replace` is not set. Disk and rng outlive the writer.
  static Result<std::unique_ptr<Writer>> create(io::Disk& disk, Rng& rng, std::string path,
                                                uint64_t samples, bool replace);

  // Appends to the current sample.
  Result<void> append(ByteView part);
  // Errc::usage: the file would have more samples than create() was told.
  Result<void> end_sample();
  Result<void> add(ByteView sample);
  // Writes the index and gives the file its name. Errc::usage: samples are missing.
  Result<void> finish();

  uint64_t samples() const { return index_.samples(); }  // that have ended

 private:
  Writer(io::Disk& disk, Rng& rng, std::string path, uint64_t samples, bool replace);
  Result<void> flush();

  io::AtomicFile final_;
  const std::string path_;
  const uint64_t wanted_;
  const bool replace_;
  std::unique_ptr<io::File> file_;
  RecordIndex index_;
  std::string buffer_;  // not yet written
  uint64_t written_;    // bytes of the file before `buffer_`
  uint64_t begin_;      // of the current sample in the file
  uint32_t crc_ = 0;    // of the current sample
};

}  // namespace ff::record
