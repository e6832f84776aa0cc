// Where the bytes of a new object come from: the body of a request, another object, or parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "storage/s3/hash_threads.h"

namespace ff::s3 {

class ObjectSource {
 public:
  virtual ~ObjectSource() = default;
  // How many bytes there are; empty: it is not known before the end.
  virtual std::optional<uint64_t> size() const = 0;
  // Reads until `into` is full or the source ends, or fewer bytes; returns how many. 0: the end.
  virtual Task<Result<size_t>> read(ByteSpan into) = 0;
  // What must be computed of the `bytes` that the last read() has returned, also at the end; the
  // jobs of one read in any order, those of the next one when they are done.
  virtual std::vector<HashJob> take_jobs(ByteView bytes);
  // When read() has returned 0 and all jobs are done: whether everything that the bytes are checked
  // against matches. Before, they may be any bytes.
  virtual Result<void> check() { return {}; }
  // The MD5 (16 bytes) that check() compares the bytes with; empty: there is none.
  virtual std::string checked_md5() const { return {}; }
};

inline std::vector<HashJob> ObjectSource::take_jobs(ByteView) { return {}; }

}  // namespace ff::s3
