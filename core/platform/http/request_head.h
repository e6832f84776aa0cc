// The head of an HTTP/1.x request (RFC 9112): the request line and the header fields. Strict, since
// what two programs understand differently is how requests are smuggled: no folded lines, no bare
// line feeds, no spaces before colons, one length at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::http {

constexpr size_t kHeadMax = 64 * kKiB;  // bytes of a head
constexpr size_t kFieldsMax = 200;      // header fields of a request

struct Field {
  std::string name;   // in lower case
  std::string value;  // without spaces around it
  bool operator==(const Field&) const = default;
};

// The value of the first field of this name (in lower case); null: there is none.
const std::string* find_field(const std::vector<Field>& fields, std::string_view name);

struct RequestHead {
  std::string method;
  std::string target;  // as it was sent: "/bucket/a%20b?list-type=2"
  int minor = 1;       // of the version: HTTP/1.0 or HTTP/1.1
  std::vector<Field> fields;

  const std::string* find(std::string_view name) const { return find_field(fields, name); }
  // The value of a field; empty: there is none.
  std::string_view value(std::string_view name) const;
  bool operator==(const RequestHead&) const = default;
};

// Where the head ends in `text`, behind its empty line; empty: it is not complete.
std::optional<size_t> head_end(std::string_view text);
// `text`: a whole head, with its empty line. Errc::corrupt: no valid head.
Result<RequestHead> parse_head(std::string_view text);
// One line "name: value" without its end, of a head or of trailers. Errc::corrupt.
Result<Field> parse_field(std::string_view line);

// How many bytes follow the head; empty: as many as the chunked transfer coding says.
// Errc::corrupt: the fields contradict each other or name another coding.
Result<std::optional<uint64_t>> body_length(const RequestHead& head);
// Whether the connection is to stay open after the reply.
bool keeps_connection(const RequestHead& head);

// For servers that ask nobody for a key and listen on this machine only: whether the request can
// come from no page that a browser of this machine shows, neither a page of another site nor one
// that the name of its own site leads here (DNS rebinding).
bool is_from_program(const RequestHead& head);

}  // namespace ff::http
