// log_rules.cc: the words, as drivers of Linux 5.10 to 6.12 write them.
#include "ops/validate/log_rules.h"

#include <algorithm>
#include <array>
#include <set>

#include "ops/validate/xid.h"
#include "platform/base/text.h"

namespace ff::validate {

namespace {

using enum Verdict;

constexpr const char* kReplaceDimm = "Run a memory test; replace the DIMM that is named.";
constexpr const char* kReplaceDisk =
    "Look at the disk's health (validate, group storage); replace it.";
constexpr const char* kReseat = "Reseat the card or its cable; look at pci.link and pci.aer.";
constexpr const char* kTakeOut =
    "Take the node out and look at the event with mcelog or rasdaemon.";
constexpr const char* kLookAtEvent = "Look at the event with mcelog or rasdaemon.";
constexpr const char* kResetCard =
    "Reset the card or restart the node; if it comes back, replace it.";
constexpr const char* kCheckCable = "Look at the cable, its transceivers and the switch's port.";
constexpr const char* kStuck =
    "Look at the lines behind it; update the kernel or the driver that is named.";
constexpr int64_t kStartingNs = 300 * kSecond;
constexpr const char* kCheckFs = "Unmount it and run fsck; look at the disk under it.";

// The first that fits counts: what is worse comes first.
constexpr std::array kRules = {
    LogRule{"log.mce",
            {"mce: [Hardware Error]: CPU", "Machine Check Exception"},
            fail,
            "machine check exception",
            kTakeOut},
    LogRule{"log.mce",
            {"mce: Uncorrected hardware memory error"},
            fail,
            "a program met bad memory",
            kReplaceDimm},
    LogRule{"log.mce",
            {"Hardware Error]: event severity: fatal"},
            fail,
            "fatal hardware error",
            "Take the node out and ask its maker."},
    LogRule{"log.mce",
            {"Hardware Error]: event severity: recoverable"},
            fail,
            "uncorrected hardware error",
            kTakeOut},
    LogRule{"log.mce",
            {"Hardware Error]: event severity: corrected"},
            degraded,
            "corrected hardware errors",
            kLookAtEvent},
    // AMD's, decoded.
    LogRule{"log.mce",
            {"[Hardware Error]: System Fatal error"},
            fail,
            "fatal hardware error",
            kTakeOut},
    LogRule{"log.mce",
            {"[Hardware Error]: Uncorrected, "},
            fail,
            "uncorrected hardware error",
            kTakeOut},
    LogRule{"log.mce",
            {"[Hardware Error]: Deferred error"},
            degraded,
            "deferred hardware errors",
            kLookAtEvent},
    LogRule{"log.mce",
            {"[Hardware Error]: Corrected error"},
            degraded,
            "corrected hardware errors",
            kLookAtEvent},
    LogRule{"log.mce", {"mce: [Hardware Error]"}, degraded, "machine check", kLookAtEvent},
    LogRule{"log.mce",
            {"temperature ", "above threshold, cpu clock "},
            degraded,
            "CPU too hot",
            "Look at fans, filters and the room."},
    LogRule{"log.edac", {"EDAC", " UE "}, fail, "uncorrected memory error", kReplaceDimm},
    LogRule{"log.edac", {"EDAC", " CE "}, degraded, "corrected memory errors", kReplaceDimm},
    LogRule{"log.edac", {"Memory failure: "}, fail, "a page of memory was given up", kReplaceDimm},
    // "Corrected" until Linux 6.8, "Correctable" since.
    LogRule{"log.pcie",
            {"PCIe Bus Error: severity=Uncorrect"},
            fail,
            "uncorrected PCIe error",
            kReseat},
    LogRule{"log.pcie",
            {"PCIe Bus Error: severity=Correct"},
            degraded,
            "corrected PCIe errors",
            kReseat},
    LogRule{"log.pcie",
            {"DPC: containment event"},
            fail,
            "a PCIe link was cut off after an error",
            kReseat},
    LogRule{"log.pcie", {"pciehp", "Link Down"}, fail, "a PCIe link went down", kReseat},
    LogRule{"log.nvme",
            {"nvme", "controller is down"},
            fail,
            "an NVMe controller went down",
            kReplaceDisk},
    LogRule{"log.nvme",
            {"nvme", "Device not ready; aborting"},
            fail,
            "an NVMe disk does not start",
            kReplaceDisk},
    LogRule{"log.nvme",
            {"nvme", "Removing after probe failure"},
            fail,
            "an NVMe disk is gone",
            kReplaceDisk},
    LogRule{"log.nvme",
            {"nvme", "Disabling device after reset failure"},
            fail,
            "an NVMe disk is gone",
            kReplaceDisk},
    LogRule{
        "log.nvme", {"nvme", "QID", " timeout"}, degraded, "an NVMe disk was late", kReplaceDisk},
    // Drives of media that come and go.
    LogRule{"log.disk", {"error, dev fd"}, skipped, "", ""},
    LogRule{"log.disk", {"error, dev sr"}, skipped, "", ""},
    LogRule{"log.disk", {"critical medium error"}, fail, "a disk cannot read", kReplaceDisk},
    LogRule{"log.disk", {"I/O error, dev "}, fail, "a disk failed", kReplaceDisk},
    LogRule{"log.disk", {"exception Emask"}, degraded, "errors on a disk's link", kReplaceDisk},
    LogRule{"log.fs", {"Remounting", "read-only"}, fail, "a file system went read-only", kCheckFs},
    LogRule{"log.fs", {"EXT4-fs error"}, fail, "a file system is damaged", kCheckFs},
    LogRule{"log.fs", {"XFS (", "orruption"}, fail, "a file system is damaged", kCheckFs},
    LogRule{"log.fs", {"XFS (", "I/O error"}, fail, "a file system met a disk's error", kCheckFs},
    LogRule{"log.fs", {"XFS (", "hutting down"}, fail, "a file system was shut down", kCheckFs},
    LogRule{"log.fs", {"BTRFS critical (device "}, fail, "a file system is damaged", kCheckFs},
    LogRule{"log.fs", {"BTRFS error (device "}, fail, "a file system is damaged", kCheckFs},
    LogRule{"log.ib",
            {"mlx5_core", "health compromised"},
            fail,
            "a network card has failed",
            kResetCard},
    LogRule{"log.ib",
            {"mlx5_core", "Fatal error ", " detected"},
            fail,
            "a network card has failed",
            kResetCard},
    LogRule{"log.ib",
            {"mlx5_core", "Port module event[error]"},
            degraded,
            "a cable or transceiver failed",
            kCheckCable},
    LogRule{"log.ib",
            {"mlx5_core", "insufficient power"},
            degraded,
            "a slot gives too little power",
            kReseat},
    LogRule{"log.ib",
            {"mlx5_core", "Link down"},
            degraded,
            "an InfiniBand or Ethernet link went down",
            kCheckCable,
            false},
    LogRule{"log.gpu",
            {"NVRM: ", "RmInitAdapter failed"},
            fail,
            "a GPU does not start",
            "Start the node again; if it does not start then, ask support."},
    LogRule{"log.gpu",
            {"nvidia-nvswitch", "SXid (", ", Fatal"},
            fail,
            "fatal error of an NVSwitch",
            "Reset all GPUs and NVSwitches of the node; if it comes back, ask support."},
    LogRule{"log.gpu",
            {"nvidia-nvswitch", "SXid ("},
            degraded,
            "errors of an NVSwitch",
            "Look it up in NVIDIA's guide of Fabric Manager, and whether it goes on."},
    LogRule{"log.kernel",
            {"Out of memory: Killed process"},
            degraded,
            "a program was killed for memory",
            "Look at what ran: memory of the node was used up."},
    LogRule{"log.kernel",
            {"detected hard LOCKUP"},
            fail,
            "a core was stuck with interrupts off",
            kStuck},
    LogRule{"log.kernel", {"BUG: soft lockup"}, degraded, "a core was stuck in the kernel", kStuck},
    LogRule{"log.kernel",
            {"rcu", "detected stall"},
            degraded,
            "a core was stuck in the kernel",
            kStuck},
    LogRule{"log.kernel",
            {"blocked for more than", "seconds"},
            degraded,
            "a task hung",
            "Look at the disk or file system that it waited for."},
};

bool fits(const LogRule& rule, std::string_view text) {
  for (const char* const word : rule.words) {
    if (word == nullptr) return true;
    const size_t at = text.find(word);
    if (at == text.npos) return false;
    text.remove_prefix(at + std::string_view(word).size());
  }
  return true;
}

}  // namespace

std::span<const LogRule> log_rules() { return kRules; }

const LogRule* find_rule(std::string_view text) {
  const auto found =
      std::ranges::find_if(kRules, [&](const LogRule& rule) { return fits(rule, text); });
  return found == kRules.end() || found->verdict == skipped ? nullptr : &*found;
}

void LogJudge::Met::add(const LogLine& line) {
  count++;
  last = line.text;
}

std::string LogJudge::Met::told() const {
  constexpr size_t kShown = 200;
  std::string line = printable(std::string_view(last).substr(0, kShown));
  return count == 1 ? line : fmt::format("{} times, last: {}", count, line);
}

Finding LogJudge::of_xid(const XidLine& seen, const Met& met) {
  const Xid* const known = find_xid(seen.code);
  Finding finding{.name = "log.xid", .part = seen.device};
  finding.value = static_cast<double>(met.count);
  finding.expected = "none";
  if (known == nullptr) {
    finding.verdict = degraded;
    finding.found = fmt::format("Xid {}: {}", seen.code, met.told());
    finding.source = "NVIDIA's driver";
    finding.hint = "Look it up in NVIDIA's catalogue of Xid errors.";
    return finding;
  }
  finding.verdict = xid_verdict(*known);
  finding.found = fmt::format("Xid {}, {}: {}", seen.code, known->about, met.told());
  finding.source =
      fmt::format("NVIDIA: {}; paper: {}", known->immediate, xid_class_name(known->of));
  finding.hint = xid_hint(*known);
  return finding;
}

void LogJudge::add(const LogLine& line) {
  if (line.text.empty()) return;
  lines_++;
  timed_ |= line.has_time();
  if (const auto xid = parse_xid(line.text)) {
    xids_[{xid->device, xid->code}].add(line);
  } else if (const LogRule* const rule = find_rule(line.text)) {
    const bool starting = line.boot_ns && *line.boot_ns < kStartingNs;
    if (rule->while_starting || !starting) met_[rule].add(line);
  }
}

std::vector<Finding> LogJudge::findings() const {
  std::vector<Finding> findings;
  std::set<std::string_view> bad;
  for (const auto& [rule, what] : met_) {
    bad.insert(rule->name);
    findings.push_back({.name = rule->name,
                        .part = rule->about,
                        .verdict = rule->verdict,
                        .found = what.told(),
                        .value = static_cast<double>(what.count),
                        .expected = "none",
                        .source = "the kernel's log",
                        .hint = rule->hint});
  }
  for (const auto& [seen, what] : xids_) {
    bad.insert("log.xid");
    findings.push_back(of_xid({.device = seen.first, .code = seen.second}, what));
  }
  std::set<std::string_view> names{"log.xid"};
  for (const LogRule& rule : kRules) names.insert(rule.name);
  for (const std::string_view name : names) {
    if (bad.contains(name)) continue;
    findings.push_back({.name = std::string(name),
                        .verdict = pass,
                        .found = fmt::format("nothing in {} lines", lines_),
                        .value = 0,
                        .expected = "none",
                        .source = "the kernel's log"});
  }
  std::ranges::stable_sort(findings, {}, &Finding::name);
  return findings;
}

}  // namespace ff::validate
