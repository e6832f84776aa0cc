// What is linked into ff, asked from the libraries themselves: the proof that each is really there.
#pragma once

#include <string>
#include <vector>

namespace ff::cmd {

struct LibraryVersion {
  std::string name;     // "sqlite"
  std::string version;  // "3.40.1"
  std::string detail;   // what the library said when it was called: "2 providers, 0 devices"
};

// Calls every library, sorted by name. Never fails: what a machine forbids is said in `detail`.
std::vector<LibraryVersion> library_versions();

}  // namespace ff::cmd
