// TempDir: a temporary directory for a test; the destructor removes it with its content.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "platform/base/check.h"

namespace ff::io {

class TempDir {
 public:
  TempDir() {
    const char* base = std::getenv("TMPDIR");
    path_ = std::string(base != nullptr ? base : "/tmp") + "/ff_test_XXXXXX";
    FF_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace ff::io
