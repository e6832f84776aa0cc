// A file that appears under its name when it is whole: written under a name beside it that tells
// what a leftover is, and removed unless it is committed.
#pragma once

#include <string>

#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::io {

class NewFile {
 public:
  // Whether there may be one at `path`. Errc::refused: one is there already (unless `replace`), or
  // a directory.
  static Result<void> check(Disk& disk, const std::string& path, bool replace);

  NewFile(Disk& disk, Rng& rng, std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // Where to write it; its maker syncs it.
  const std::string& unfinished() const { return unfinished_; }
  // Gives it its name, durably. Errc::refused: somebody else has taken it meanwhile, and `replace`
  // is not set.
  Result<void> commit(bool replace);

 private:
  Disk& disk_;
  const std::string path_;
  const std::string unfinished_;
  bool committed_ = false;
};

}  // namespace ff::io
