// Text as troff wants it, for manual pages in man(7) macros.
#pragma once

#include <string>
#include <string_view>

namespace ff::cmd {

// No requests, no escapes, hyphens that can be copied into a shell.
std::string escape(std::string_view text);
// An argument of a macro: quoted, so that spaces stay.
std::string macro_word(std::string_view text);
// Running text, in lines that mandoc does not call long.
std::string filled(std::string_view text);

}  // namespace ff::cmd
