// request_head.cc: the grammar of RFC 9112, sections 2 to 6.
#include "platform/http/request_head.h"

#include <algorithm>
#include <array>
#include <ranges>

#include "platform/base/text.h"

namespace ff::http {

namespace {

constexpr std::string_view kLineBreak = "\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";

Error bad_head(std::string_view what) { return fail(Errc::corrupt, "{}", what); }

// RFC 9110, 5.6.2.
bool is_token(std::string_view text) {
  const auto is_token_char = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  };
  return !text.empty() && std::ranges::all_of(text, is_token_char);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return lower;
}

std::string_view trim_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

Result<void> parse_request_line(std::string_view line, RequestHead& head) {
  const auto words = split(line, ' ');
  if (words.size() != 3) return bad_head("the request line has not three words");
  if (!is_token(words[0])) return bad_head("the method is no word");
  const auto is_visible = [](char c) { return static_cast<unsigned char>(c) > ' ' && c != 0x7F; };
  if (words[1].empty() || !std::ranges::all_of(words[1], is_visible)) {
    return bad_head("the target of the request has a character that is not allowed there");
  }
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") {
    return bad_head("the version is neither HTTP/1.1 nor HTTP/1.0");
  }
  head.method = words[0];
  head.target = words[1];
  head.minor = words[2].back() - '0';
  return {};
}

// Whether a list like "close, te" has the word.
bool has_word(std::string_view list, std::string_view word) {
  return std::ranges::any_of(split(list, ','), [word](std::string_view one) {
    return lower_case(trim_blanks(one)) == word;
  });
}

}  // namespace

const std::string* find_field(const std::vector<Field>& fields, std::string_view name) {
  const auto found = std::ranges::find(fields, name, &Field::name);
  return found == fields.end() ? nullptr : &found->value;
}

std::string_view RequestHead::value(std::string_view name) const {
  const std::string* const found = find(name);
  return found == nullptr ? std::string_view() : std::string_view(*found);
}

std::optional<size_t> head_end(std::string_view text) {
  const size_t end = text.find(kHeadEnd);
  if (end == text.npos) return std::nullopt;
  return end + kHeadEnd.size();
}

Result<Field> parse_field(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == line.npos) return bad_head("a header field has no colon");
  if (!is_token(line.substr(0, colon))) return bad_head("the name of a header field is no word");
  const std::string_view value = trim_blanks(line.substr(colon + 1));
  const auto is_control = [](char c) {
    return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 0x7F;
  };
  if (std::ranges::any_of(value, is_control)) {
    return bad_head("a header field has a control character");
  }
  return Field{lower_case(line.substr(0, colon)), std::string(value)};
}

Result<RequestHead> parse_head(std::string_view text) {
  if (!text.ends_with(kHeadEnd)) return bad_head("the head has no end");
  text.remove_suffix(kLineBreak.size());
  RequestHead head;
  for (bool first = true; !text.empty(); first = false) {
    const size_t end = text.find(kLineBreak);
    if (end == text.npos) return bad_head("a line has no end");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + kLineBreak.size());
    if (first) {
      FF_TRY(parse_request_line(line, head));
    } else if (head.fields.size() >= kFieldsMax) {
      return bad_head("the request has too many header fields");
    } else {
      FF_TRY(auto field, parse_field(line));
      head.fields.push_back(std::move(field));
    }
  }
  if (head.method.empty()) return bad_head("the head has no request line");
  if (std::ranges::count(head.fields, "host", &Field::name) > 1) {
    return bad_head("the request names several hosts");
  }
  return head;
}

Result<std::optional<uint64_t>> body_length(const RequestHead& head) {
  const auto lengths = std::ranges::count(head.fields, "content-length", &Field::name);
  const auto codings = std::ranges::count(head.fields, "transfer-encoding", &Field::name);
  if (lengths > 1 || codings > 1 || (lengths == 1 && codings == 1)) {
    return bad_head("the request says more than once how long it is");
  }
  if (codings == 1) {
    if (head.minor == 0 || lower_case(head.value("transfer-encoding")) != "chunked") {
      return bad_head("the transfer coding of the request is not 'chunked'");
    }
    return std::optional<uint64_t>();
  }
  if (lengths == 0) return std::optional<uint64_t>(0);
  const auto length = parse_u64(head.value("content-length"));
  if (!length || *length > INT64_MAX) return bad_head("the Content-Length is not a number");
  return std::optional(*length);
}

bool keeps_connection(const RequestHead& head) {
  const std::string_view connection = head.value("connection");
  if (has_word(connection, "close")) return false;
  return head.minor == 1 || has_word(connection, "keep-alive");
}

bool is_from_program(const RequestHead& head) {
  std::string_view host = head.value("host");
  if (!host.ends_with(']')) host = host.substr(0, std::min(host.rfind(':'), host.size()));
  const bool numeric = host.find_first_not_of("0123456789.") == host.npos || host.starts_with('[');
  return (numeric || host == "localhost") && head.find("origin") == nullptr;
}

}  // namespace ff::http
