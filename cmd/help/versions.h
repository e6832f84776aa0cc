// Versions of the linked libraries, queried by a call of each: proof that each one works.
#pragma once

#include <string>
#include <vector>

namespace ff::cmd {

struct LibraryVersion {
  std::string name;     // "sqlite"
  std::string version;  // "3.40.1"
  std::string detail;   // result of the call: "2 providers, 0 devices"
};

// Calls every library; sorted by name. Never fails: `detail` reports errors of a library.
std::vector<LibraryVersion> library_versions();

}  // namespace ff::cmd
