// xid.cc: the table of Xids. Classes and counts are those of the paper, actions those of the NVIDIA
// catalogue.
#include "ops/validate/xid.h"

#include <algorithm>
#include <array>

#include "platform/base/text.h"

namespace ff::validate {

namespace {

using enum XidClass;

constexpr std::array kTable = {
    Xid{13, "graphics engine exception", "RESTART_APP", "WORKFLOW_XID_13", software, 45},
    Xid{31, "GPU memory page fault", "RESTART_APP", "WORKFLOW_XID_31", software, 2487},
    Xid{43, "GPU stopped processing", "IGNORE", "CONTACT_SUPPORT", software, 4342},
    Xid{44, "graphics engine fault during context switch", "IGNORE", "CONTACT_SUPPORT",
        uncorrectable, 1},
    Xid{45, "preemptive cleanup, due to previous errors", "WORKFLOW_XID_45", "", software, 240},
    Xid{46, "GPU stopped processing", "RESET_GPU", "", none, 0},
    Xid{48, "double bit ECC error", "WORKFLOW_XID_48", "", uncorrectable, 2},
    Xid{61, "internal micro-controller breakpoint or warning", "CONTACT_SUPPORT", "", uncorrectable,
        13},
    Xid{62, "internal micro-controller halt", "RESET_GPU", "CONTACT_SUPPORT", uncorrectable, 3},
    Xid{63, "row remapping or page retirement recorded", "IGNORE", "IGNORE", memory_ecc, 245},
    Xid{64, "row remapping or page retirement could not be recorded", "RESET_GPU",
        "CONTACT_SUPPORT", memory_ecc, 2},
    Xid{69, "graphics engine class error", "RESTART_APP", "CHECK_APP", uncorrectable, 1},
    Xid{74, "NVLink error", "WORKFLOW_NVLINK_ERR", "CONTACT_SUPPORT", nvlink, 5521},
    Xid{79, "GPU has fallen off the bus", "RESTART_BM", "CONTACT_SUPPORT", uncorrectable, 37},
    Xid{94, "contained ECC error", "RESTART_APP", "IGNORE", memory_ecc, 13},
    Xid{95, "uncontained ECC error", "RESET_GPU", "IGNORE", memory_ecc, 17},
    Xid{119, "GSP does not answer", "RESET_GPU", "INVESTIGATE_SW", gsp, 1},
    Xid{120, "GSP error", "RESET_GPU", "INVESTIGATE_SW", gsp, 0},
};

bool is(std::string_view action, std::string_view which) { return action == which; }

bool wants_reset(const Xid& xid) {
  const std::string_view now = xid.immediate;
  return is(now, "RESET_GPU") || is(now, "RESTART_BM") || is(now, "CONTACT_SUPPORT") ||
         xid.of == uncorrectable || xid.of == gsp;
}

}  // namespace

std::string_view xid_class_name(XidClass of) {
  switch (of) {
    case none: return "not in the paper's table";
    case software: return "software causes";
    case nvlink: return "NVLink error";
    case memory_ecc: return "memory ECC error";
    case uncorrectable: return "uncorrectable GPU failure";
    case gsp: return "GSP failure";
  }
  return "";
}

std::string_view xid_class_action(XidClass of) {
  switch (of) {
    case none: return "";
    case software: return "check the program first; if it is correct, test the GPU memory";
    case nvlink: return "stress-test the links, and drain nodes where it recurs";
    case memory_ecc: return "reset the GPU: remapped rows work as well as before";
    case uncorrectable: return "reset the GPU or restart the node";
    case gsp: return "run a field diagnosis: most need replacement";
  }
  return "";
}

std::span<const Xid> xid_table() { return kTable; }

const Xid* find_xid(int code) {
  const auto found = std::ranges::find(kTable, code, &Xid::code);
  return found == kTable.end() ? nullptr : &*found;
}

Verdict xid_verdict(const Xid& xid) {
  if (wants_reset(xid)) return Verdict::fail;
  if (xid.of == memory_ecc || xid.of == nvlink) return Verdict::degraded;
  return Verdict::pass;
}

std::string xid_hint(const Xid& xid) {
  if (is(xid.immediate, "RESTART_BM")) return "Restart the node; if it recurs, contact support.";
  if (is(xid.immediate, "RESET_GPU") && xid.of == gsp) {
    return "Reset the GPU and run a field diagnosis: most of these need replacement.";
  }
  if (is(xid.immediate, "RESET_GPU") || xid.of == uncorrectable) {
    return "Reset the GPU or restart the node; if it recurs, contact support.";
  }
  if (xid.of == memory_ecc) return "Reset the GPU when it is idle, so that bad rows are remapped.";
  if (xid.of == nvlink) return "Stress-test the links of the GPU; drain the node if it recurs.";
  return "Check the program that was running; if it is correct, test the GPU memory.";
}

std::optional<XidLine> parse_xid(std::string_view line) {
  constexpr std::string_view kMark = "NVRM: Xid (";
  const size_t at = line.find(kMark);
  if (at == line.npos) return std::nullopt;
  line.remove_prefix(at + kMark.size());
  const size_t close = line.find("): ");
  if (close == line.npos) return std::nullopt;
  std::string_view device = line.substr(0, close);
  if (device.starts_with("PCI:")) device.remove_prefix(4);
  line.remove_prefix(close + 3);
  const auto code = parse_u64(line.substr(0, line.find_first_not_of("0123456789")));
  if (!code || *code > 9999) return std::nullopt;
  return XidLine{.device = printable(device), .code = static_cast<int>(*code)};
}

}  // namespace ff::validate
