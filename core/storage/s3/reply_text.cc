// reply_text.cc: RFC 9110, sections 13 (conditions) and 14 (ranges).
#include "storage/s3/reply_text.h"

#include <algorithm>
#include <ctime>

#include "platform/base/text.h"
#include "platform/http/exchange.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

namespace {

// Whether a list like "\"a\", \"b\"" or "*" has the ETag.
bool matches(std::string_view list, std::string_view etag) {
  return std::ranges::any_of(split(list, ','), [etag](std::string_view one) {
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    return one == "*" || unquoted(one) == etag;
  });
}

}  // namespace

std::string quoted(std::string_view etag) { return fmt::format("\"{}\"", etag); }

std::string_view unquoted(std::string_view etag) {
  if (etag.size() >= 2 && etag.starts_with('"') && etag.ends_with('"')) {
    return etag.substr(1, etag.size() - 2);
  }
  return etag;
}

std::string format_xml_time(int64_t seconds) {
  const time_t time = seconds;
  tm parts = {};
  ::gmtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.000Z", 1900 + parts.tm_year,
                     1 + parts.tm_mon, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

Result<std::optional<ByteRange>> parse_range(std::string_view text, uint64_t size) {
  constexpr std::string_view kBytes = "bytes=";
  const auto none = std::optional<ByteRange>();
  if (!text.starts_with(kBytes)) return none;
  text.remove_prefix(kBytes.size());
  const size_t dash = text.find('-');
  if (dash == text.npos) return none;
  const auto first = parse_u64(text.substr(0, dash)), last = parse_u64(text.substr(dash + 1));
  ByteRange range;
  if (dash == 0) {
    if (!last) return none;
    range = {size - std::min(*last, size), size};
  } else {
    if (!first || (dash + 1 < text.size() && !last) || (last && *last < *first)) return none;
    range = {*first, last ? std::min(*last, size - 1) + 1 : size};
    if (size == 0) range.end = 0;
  }
  if (range.begin >= range.end) {
    return s3_error(S3Code::invalid_range, "The requested range is not satisfiable");
  }
  return std::optional(range);
}

Result<void> check_conditions(const http::RequestHead& head, std::string_view prefix,
                              const ObjectInfo& object) {
  const auto value = [&](std::string_view name) {
    return head.value(std::string(prefix) + std::string(name));
  };
  const Error failed = s3_error(S3Code::precondition_failed,
                                "At least one of the pre-conditions you specified did not hold");
  const std::string_view match = value("if-match"), none_match = value("if-none-match");
  const int64_t mtime_s = object.mtime_s();
  if (!match.empty()) {
    if (!matches(match, object.attributes.etag)) return failed;
  } else if (const auto since = http::parse_date(value("if-unmodified-since"));
             since && mtime_s > *since) {
    return failed;
  }
  // Of the source of a copy there is no "not modified".
  const Error unchanged = prefix.empty() ? s3_error(S3Code::not_modified, "Not Modified") : failed;
  if (!none_match.empty()) {
    if (matches(none_match, object.attributes.etag)) return unchanged;
  } else if (const auto since = http::parse_date(value("if-modified-since"));
             since && mtime_s <= *since) {
    return unchanged;
  }
  return {};
}

}  // namespace ff::s3
