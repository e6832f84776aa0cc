// resp_writer.cc: each reply is a type, a number or a line, and perhaps bytes behind it.
#include "storage/gateway/resp_writer.h"

#include <array>
#include <charconv>

namespace ff::gateway {

namespace {

void append_line(std::string& out, std::string_view text) {
  for (const char c : text) out += c == '\r' || c == '\n' ? ' ' : c;
  out += "\r\n";
}

}  // namespace

void RespWriter::head(char type, int64_t number) {
  std::array<char, 24> digits;
  char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out_ += type;
  out_.append(digits.data(), end);
  out_ += "\r\n";
}

void RespWriter::simple(std::string_view text) {
  out_ += '+';
  append_line(out_, text);
}

void RespWriter::error(std::string_view text) {
  out_ += '-';
  append_line(out_, text);
}

void RespWriter::integer(int64_t value) { head(':', value); }

void RespWriter::bulk(std::string_view bytes) {
  head('$', static_cast<int64_t>(bytes.size()));
  out_ += bytes;
  out_ += "\r\n";
}

void RespWriter::null() { out_ += version_ == 2 ? "$-1\r\n" : "_\r\n"; }

void RespWriter::null_array() { out_ += version_ == 2 ? "*-1\r\n" : "_\r\n"; }

void RespWriter::array(size_t elements) { head('*', static_cast<int64_t>(elements)); }

void RespWriter::set(size_t elements) {
  head(version_ == 2 ? '*' : '~', static_cast<int64_t>(elements));
}

void RespWriter::map(size_t pairs) {
  head(version_ == 2 ? '*' : '%', static_cast<int64_t>(version_ == 2 ? 2 * pairs : pairs));
}

void RespWriter::verbatim(std::string_view text) {
  if (version_ == 2) return bulk(text);
  head('=', static_cast<int64_t>(text.size()) + 4);
  out_ += "txt:";
  out_ += text;
  out_ += "\r\n";
}

}  // namespace ff::gateway
