// Texts of replies, and conditions and ranges of requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "platform/base/result.h"
#include "platform/http/request_head.h"
#include "storage/s3/object_store.h"

namespace ff::s3 {

std::string quoted(std::string_view etag);
// Without quotes.
std::string_view unquoted(std::string_view etag);
// "2026-11-28T17:38:00.000Z".
std::string format_xml_time(int64_t seconds);

// Bytes of an object, [begin, end).
struct ByteRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool operator==(const ByteRange&) const = default;
};
// Of "bytes=0-99", "bytes=100-" or "bytes=-100". Empty: it is no such text, and has no effect (RFC
// 9110, 14.2). The error is S3's InvalidRange: the object has none of these bytes.
Result<std::optional<ByteRange>> parse_range(std::string_view text, uint64_t size);

// Checks If-Match, If-None-Match, If-Modified-Since and If-Unmodified-Since, with `prefix` in front
// of their names. Errors are S3's NotModified and PreconditionFailed.
Result<void> check_conditions(const http::RequestHead& head, std::string_view prefix,
                              const ObjectInfo& object);

}  // namespace ff::s3
