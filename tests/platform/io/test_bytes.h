// Test content that differs at every offset, and helpers to write files and read them back.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::io {

inline std::vector<std::byte> random_bytes(size_t count, uint64_t seed) {
  SeededRng rng(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.next());
  return bytes;
}

// The error code of a Result that must have failed; Errc::usage, which no Disk returns, if it did
// not.
template <class T>
Errc code_of(const Result<T>& result) {
  return result.ok() ? Errc::usage : result.error().code;
}

// A gtest assertion that a Result succeeded; prints the error if not.
template <class T>
testing::AssertionResult ok(const Result<T>& result) {
  if (result.ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << result.error().message;
}

inline Result<void> put(Disk& disk, const std::string& path, std::string_view text,
                        bool sync = false) {
  FF_TRY(auto file,
         disk.open(path, {.access = AccessMode::write, .create = true, .truncate = true}));
  FF_TRY(file->write_at(as_bytes(text), 0));
  return sync ? file->sync() : Result<void>();
}

// The content of a small file; "(CODE)" if it cannot be read.
inline std::string get(Disk& disk, const std::string& path) {
  auto file = disk.open(path, {.access = AccessMode::read});
  if (!file) return "(" + std::string(errc_name(file.error().code)) + ")";
  std::string text(256 * kKiB, '\0');
  auto got = (*file)->read_at({reinterpret_cast<std::byte*>(text.data()), text.size()}, 0);
  if (!got) return "(" + std::string(errc_name(got.error().code)) + ")";
  text.resize(*got);
  return text;
}

}  // namespace ff::io
