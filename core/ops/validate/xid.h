// Xid messages: what NVIDIA's driver writes to the kernel's log about a GPU, as two sources read
// them. The paper sorts those that its cluster saw into classes (Tables V and VI); NVIDIA's
// catalogue names an action for each. They do not always agree: both are shown, and the stricter
// one decides.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ops/validate/check.h"

namespace ff::validate {

// Of the paper's Table V.
enum class XidClass : uint8_t { none, software, nvlink, memory_ecc, uncorrectable, gsp };
std::string_view xid_class_name(XidClass of);
// What the paper says to do about it.
std::string_view xid_class_action(XidClass of);

struct Xid {
  int code;
  const char* about;      // in a few words
  const char* immediate;  // NVIDIA's immediate action: "RESET_GPU"
  const char* further;    // what it names for an investigation: "CONTACT_SUPPORT"; "": nothing
  XidClass of;            // the paper's class
  int count;              // of 12,970 in a year of the paper's cluster; 0: none
};

// Those that are known, by code.
std::span<const Xid> xid_table();
const Xid* find_xid(int code);

// What one seen on a node means for it: fail when either source wants the GPU reset, the node
// restarted, or support; degraded for what NVIDIA leaves to further work (its NVLink and ECC
// workflows); pass where both see the program at fault.
Verdict xid_verdict(const Xid& xid);
// The stricter action of both, in words.
std::string xid_hint(const Xid& xid);

// A line of the driver: "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, …".
struct XidLine {
  std::string device;  // "0000:3b:00"
  int code = 0;
};
std::optional<XidLine> parse_xid(std::string_view line);

}  // namespace ff::validate
