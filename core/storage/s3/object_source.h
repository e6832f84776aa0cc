// Where the bytes of a new object come from: the body of a request, another object, or parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/task.h"

namespace ff::s3 {

class ObjectSource {
 public:
  virtual ~ObjectSource() = default;
  // How many bytes there are; empty: it is not known before the end.
  virtual std::optional<uint64_t> size() const = 0;
  // Reads until `into` is full or the source ends; returns the bytes read. The end is returned only
  // if everything that the source is checked against matches.
  virtual Task<Result<size_t>> read(ByteSpan into) = 0;
  // The MD5 (16 bytes) that all bytes are checked against by their end; empty: there is none.
  virtual std::string checked_md5() const { return {}; }
};

}  // namespace ff::s3
