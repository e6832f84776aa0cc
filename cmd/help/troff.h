// Escapes text for manual pages in man(7) macros.
#pragma once

#include <string>
#include <string_view>

namespace ff::cmd {

// Text without requests and escapes, with hyphens that can be copied into a shell.
std::string escape(std::string_view text);
// A macro argument, quoted to keep its spaces.
std::string macro_argument(std::string_view text);
// A paragraph, wrapped to lines that mandoc(1) does not report as long.
std::string filled(std::string_view text);

}  // namespace ff::cmd
