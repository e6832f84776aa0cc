// Which ff this is. The values are compiled in from the source tree alone (no date, no host), so
// that two builds of one commit print the same.
#pragma once

#include <string_view>

namespace ff::cmd {

struct BuildInfo {
  std::string_view version;  // "0.1.0"
  std::string_view commit;   // `git describe --always --dirty`, or "unknown" outside git
  std::string_view type;     // "Release"
};
extern const BuildInfo kBuildInfo;  // defined by build_info.cmake

}  // namespace ff::cmd
