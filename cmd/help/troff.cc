// troff.cc: escapes backslashes and the control characters at line starts.
#include "cmd/help/troff.h"

#include <fmt/format.h>

#include "cmd/cli/help_page.h"

namespace ff::cmd {

std::string escape(std::string_view text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    line_start = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '~') {
      out += "\\(ti";
    } else if (c == '^') {
      out += "\\(ha";
    } else if (c == '`') {
      out += "\\(ga";
    } else if (c == '\'') {
      out += "\\(aq";
    } else {
      out += c;
    }
  }
  return out;
}

std::string macro_argument(std::string_view text) {
  std::string out = "\"";
  for (const char c : escape(text)) {
    if (c == '"') {
      out += "\\(dq";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string filled(std::string_view text) {
  std::string out;
  for (const std::string& line : wrap(text, 72)) out += escape(line) + "\n";
  return out;
}

}  // namespace ff::cmd
