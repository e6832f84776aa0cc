// AtomicFile: a file that gets its name only when it is complete. It is written under a temporary
// name beside it (PATH.ff-unfinished-ID), which the destructor removes unless commit() succeeded.
#pragma once

#include <string>

#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::io {

class AtomicFile {
 public:
  // Checks early whether commit() could succeed. Errc::refused if `path` is a directory, or if it
  // exists and `replace` is not set.
  static Result<void> check(Disk& disk, const std::string& path, bool replace);

  AtomicFile(Disk& disk, Rng& rng, std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // The caller writes the file here and syncs it before commit().
  const std::string& temp_path() const { return temp_path_; }
  // Renames the file to its final name, durably. Errc::refused if another process created `path`
  // meanwhile and `replace` is not set.
  Result<void> commit(bool replace);

 private:
  Disk& disk_;
  const std::string path_;
  const std::string temp_path_;
  bool committed_ = false;
};

}  // namespace ff::io
