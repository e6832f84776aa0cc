// xid.cc: what each action of NVIDIA's catalogue and each class of the paper means for a node.
#include "ops/validate/xid.h"

#include <algorithm>
#include <array>

#include "platform/base/text.h"

namespace ff::validate {

namespace {

using enum XidClass;

constexpr const char* kNobody = "nobody";
constexpr const char* kOwner = "the owner of the program";
constexpr const char* kOperator = "the operator";
constexpr const char* kSupport = "the support of NVIDIA or of the vendor";
constexpr const char* kReset = "Reset the GPU or restart the node; if it recurs, contact support.";

// The consequence of one source.
struct XidAction {
  Verdict verdict;
  const char* actor;
  const char* hint;
};

// An immediate action of the catalogue (its "resolution buckets").
struct CatalogueAction {
  std::string_view name;
  XidAction action;
};
constexpr std::array kActions = {
    CatalogueAction{"RESTART_APP",
                    {Verdict::degraded, kOwner,
                     "Restart the program; if it recurs, check the PCIe link of the GPU "
                     "(pci.link, pci.aer) and contact support."}},
    CatalogueAction{"IGNORE", {Verdict::pass, kNobody, "Nothing; if it recurs, contact support."}},
    CatalogueAction{"INFORMATIONAL", {Verdict::pass, kNobody, "Nothing."}},
    CatalogueAction{"RESET_GPU", {Verdict::fail, kOperator, kReset}},
    CatalogueAction{"RESTART_BM",
                    {Verdict::fail, kOperator, "Restart the node; if it recurs, contact support."}},
    CatalogueAction{"RESTART_VM",
                    {Verdict::fail, kOperator,
                     "Restart the virtual machine that owns the GPU; if it recurs, contact "
                     "support."}},
    CatalogueAction{"CHECK_MECHANICALS",
                    {Verdict::fail, kOperator,
                     "Check the power cables and the seat of the GPU; if it recurs, contact "
                     "support."}},
    CatalogueAction{"CONTACT_SUPPORT",
                    {Verdict::fail, kSupport, "Drain the node and contact support."}},
    CatalogueAction{"UNUSED",
                    {Verdict::degraded, kSupport,
                     "GPUs since A100 do not use this code: if this one is newer, contact "
                     "support."}},
    CatalogueAction{"UPDATE_SWFW",
                    {Verdict::degraded, kOperator, "Update the driver on the host and the guest."}},
    CatalogueAction{"CHECK_UVM",
                    {Verdict::degraded, kOperator,
                     "Reset the GPU if programs use unified memory or virtual GPUs."}},
    CatalogueAction{"WORKFLOW_XID_45",
                    {Verdict::pass, kOwner, "See the Xid before it, which has ended the program."}},
    CatalogueAction{"WORKFLOW_XID_48", {Verdict::fail, kOperator, kReset}},
    CatalogueAction{"WORKFLOW_NVLINK_ERR",
                    {Verdict::degraded, kOperator,
                     "Stress-test the links of the GPU; drain the node if it recurs."}},
    CatalogueAction{"WORKFLOW_NVLINK5_ERR",
                    {Verdict::fail, kOperator,
                     "If the line says Fatal, drain the node and reset its GPUs; else check the "
                     "link if it recurs."}},
    CatalogueAction{"XID_154",
                    {Verdict::fail, kOperator,
                     "Do what the line demands last: stop the programs that use NVLink, reset the "
                     "GPU, or restart the node."}},
    CatalogueAction{"",
                    {Verdict::degraded, kOperator,
                     "NVIDIA names no action: watch the GPU; if it recurs, contact support."}},
};

XidAction action_of(XidClass of) {
  switch (of) {
    case none: break;
    case software:
      return {Verdict::pass, kOwner,
              "Check the program that was running; if it is correct, test the GPU memory."};
    case nvlink:
      return {Verdict::degraded, kOperator,
              "Stress-test the links of the GPU; drain the node if it recurs."};
    case memory_ecc:
      return {Verdict::degraded, kOperator,
              "Reset the GPU when it is idle, so that bad rows are remapped."};
    case uncorrectable: return {Verdict::fail, kOperator, kReset};
    case gsp:
      return {Verdict::fail, kOperator,
              "Reset the GPU and run a field diagnosis: most of these need replacement."};
  }
  return {Verdict::skipped, kNobody, ""};
}

XidAction action_of(const Xid& xid) {
  const auto found = std::ranges::find(kActions, xid.immediate, &CatalogueAction::name);
  const XidAction catalogue = found == kActions.end() ? kActions.back().action : found->action;
  const XidAction paper = action_of(xid.of);
  // A program that only has to be restarted is no fault of the node.
  if (xid.of == software && catalogue.verdict < Verdict::fail) return paper;
  // The catalogue says more of what to do about uncorrectable failures.
  const bool as_strict = paper.verdict == catalogue.verdict && xid.of != uncorrectable;
  return paper.verdict > catalogue.verdict || as_strict ? paper : catalogue;
}

// "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)". The numbers are those
// of nvmlDeviceGpuRecoveryAction_t.
Verdict verdict_of_recovery(std::string_view message) {
  constexpr std::string_view kTo = " to 0x";
  const size_t at = message.rfind(kTo);
  if (at == message.npos || at + kTo.size() == message.size()) return Verdict::fail;
  switch (message[at + kTo.size()]) {
    case '0': return Verdict::pass;
    case '4': return Verdict::degraded;  // it works until its programs have ended
    default: return Verdict::fail;
  }
}

}  // namespace

std::string_view xid_class_name(XidClass of) {
  switch (of) {
    case none: return "none of the paper's classes";
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

const Xid* find_xid(int code) {
  const auto found = std::ranges::find(xid_table(), code, &Xid::code);
  return found == xid_table().end() ? nullptr : &*found;
}

Verdict xid_verdict(const Xid& xid, std::string_view message) {
  const std::string_view immediate = xid.immediate;
  if (immediate == "XID_154") return verdict_of_recovery(message);
  if (immediate == "WORKFLOW_NVLINK5_ERR" && message.find("Nonfatal") != message.npos) {
    return Verdict::degraded;
  }
  return action_of(xid).verdict;
}

std::string xid_hint(const Xid& xid) { return action_of(xid).hint; }

std::string_view xid_actor(const Xid& xid) { return action_of(xid).actor; }

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
  const size_t end = std::min(line.find_first_not_of("0123456789"), line.size());
  const auto code = parse_u64(line.substr(0, end));
  if (!code || *code > 9999) return std::nullopt;
  return XidLine{
      .device = printable(device), .code = static_cast<int>(*code), .message = line.substr(end)};
}

}  // namespace ff::validate
