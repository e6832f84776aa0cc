// Reads a JSON text (RFC 8259) from its front to its end without a tree of its values: strings
// without escapes are views of the text. For bodies that are long and have known members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "platform/base/result.h"

namespace ff::kvcache {

// Errors: Errc::usage, with the offset.
class JsonCursor {
 public:
  static constexpr int kDepthMax = 32;  // of values that are skipped

  // The text outlives the cursor and the strings.
  explicit JsonCursor(std::string_view text) : text_(text) {}

  // '{' or '['.
  Result<void> enter(char open);
  // Whether a member or an element follows; else the end, '}' or ']', has been read. `first`: no
  // member or element has been read; set to false.
  Result<bool> more(bool& first, char close);
  // A string and the colon behind it.
  Result<std::string_view> member();
  // A string; valid while the cursor is.
  Result<std::string_view> string();
  // A number without fraction and exponent.
  Result<int64_t> integer();
  // Any value.
  Result<void> skip(int depth = 0);
  // Only spaces are left.
  Result<void> finish();

 private:
  Error error(std::string_view what) const;
  void skip_spaces();
  // Skips spaces; 0: the text has ended.
  char peek();
  Result<std::string_view> string_with_escapes(size_t begin);
  Result<void> append_escape(std::string& to);
  Result<uint32_t> hex4();
  Result<void> skip_number();

  const std::string_view text_;
  size_t at_ = 0;
  std::deque<std::string> owned_;  // strings with escapes
};

}  // namespace ff::kvcache
