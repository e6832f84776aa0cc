// Xid messages: errors that the NVIDIA driver writes to the kernel log about a GPU, as classified
// by two sources. The Fire-Flyer paper sorts the Xids of its cluster into classes (Tables V and
// VI); the catalogue of NVIDIA names an action for each. They do not always agree: both are shown,
// and the stricter one decides.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ops/validate/check.h"

namespace ff::validate {

// Classes of Table V of the paper.
enum class XidClass : uint8_t { none, software, nvlink, memory_ecc, uncorrectable, gsp };
std::string_view xid_class_name(XidClass of);
// The action that the paper recommends.
std::string_view xid_class_action(XidClass of);

struct Xid {
  int code;
  const char* about;      // a short description
  const char* immediate;  // immediate action of NVIDIA: "RESET_GPU"; "": none is given
  const char* further;    // action for an investigation: "CONTACT_SUPPORT"; "": none is given
  XidClass of;            // class of the paper, or by analogy
  int count;              // of 12,970 in a year in the cluster of the paper; 0: none
};

// The whole catalogue, by code.
std::span<const Xid> xid_table();
const Xid* find_xid(int code);

// The verdict for a node with this Xid. `message`: the line after the code; some lines say whether
// the error was fatal (144 to 150), or what the GPU needs (154). Without it, the worst case.
Verdict xid_verdict(const Xid& xid, std::string_view message = {});
// The stricter action of both, as text.
std::string xid_hint(const Xid& xid);
// Who has to act: "the operator", "the owner of the program".
std::string_view xid_actor(const Xid& xid);

// Parses a line of the driver: "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, …".
struct XidLine {
  std::string device;  // "0000:3b:00"
  int code = 0;
  std::string_view message = {};  // of the parsed line: ", pid=1234, …"
};
std::optional<XidLine> parse_xid(std::string_view line);

}  // namespace ff::validate
