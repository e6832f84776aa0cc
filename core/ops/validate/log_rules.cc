// log_rules.cc: the rules, with the words of drivers of Linux 5.10 to 6.12.
#include "ops/validate/log_rules.h"

#include <algorithm>
#include <array>
#include <set>

#include "ops/validate/xid.h"
#include "platform/base/text.h"

namespace ff::validate {

namespace {

constexpr const char* kReplaceDimm = "Run a memory test; replace the DIMM that is named.";
constexpr const char* kReplaceDisk =
    "Check the health of the disk (validate, group storage); replace it.";
constexpr const char* kReseat = "Reseat the card or its cable; see pci.link and pci.aer.";
constexpr const char* kDrainNode = "Drain the node and read the event with mcelog or rasdaemon.";
constexpr const char* kCheckEvent = "Read the event with mcelog or rasdaemon.";
constexpr const char* kResetCard =
    "Reset the card or restart the node; if it comes back, replace it.";
constexpr const char* kCheckCable = "Check the cable, its transceivers and the switch port.";
constexpr const char* kStuck = "Read the following lines; update the kernel or the named driver.";
constexpr int64_t kStartingNs = 300 * kSecond;
constexpr const char* kCheckFs = "Unmount it and run fsck; check its disk.";

// The first matching rule counts: worse ones come first.
constexpr std::array kRules = {
    LogRule{"log.mce",
            {"mce: [Hardware Error]: CPU", "Machine Check Exception"},
            Verdict::fail,
            "machine check exception",
            kDrainNode},
    LogRule{"log.mce",
            {"mce: Uncorrected hardware memory error"},
            Verdict::fail,
            "a program hit bad memory",
            kReplaceDimm},
    LogRule{"log.mce",
            {"Hardware Error]: event severity: fatal"},
            Verdict::fail,
            "fatal hardware error",
            "Drain the node and contact its vendor."},
    LogRule{"log.mce",
            {"Hardware Error]: event severity: recoverable"},
            Verdict::fail,
            "uncorrected hardware error",
            kDrainNode},
    LogRule{"log.mce",
            {"Hardware Error]: event severity: corrected"},
            Verdict::degraded,
            "corrected hardware errors",
            kCheckEvent},
    // Decoded messages of AMD.
    LogRule{"log.mce",
            {"[Hardware Error]: System Fatal error"},
            Verdict::fail,
            "fatal hardware error",
            kDrainNode},
    LogRule{"log.mce",
            {"[Hardware Error]: Uncorrected, "},
            Verdict::fail,
            "uncorrected hardware error",
            kDrainNode},
    LogRule{"log.mce",
            {"[Hardware Error]: Deferred error"},
            Verdict::degraded,
            "deferred hardware errors",
            kCheckEvent},
    LogRule{"log.mce",
            {"[Hardware Error]: Corrected error"},
            Verdict::degraded,
            "corrected hardware errors",
            kCheckEvent},
    LogRule{"log.mce", {"mce: [Hardware Error]"}, Verdict::degraded, "machine check", kCheckEvent},
    LogRule{"log.mce",
            {"temperature ", "above threshold, cpu clock "},
            Verdict::degraded,
            "CPU too hot",
            "Check fans, filters and room temperature."},
    LogRule{"log.edac", {"EDAC", " UE "}, Verdict::fail, "uncorrected memory error", kReplaceDimm},
    LogRule{
        "log.edac", {"EDAC", " CE "}, Verdict::degraded, "corrected memory errors", kReplaceDimm},
    LogRule{"log.edac",
            {"Memory failure: "},
            Verdict::fail,
            "a page of memory was given up",
            kReplaceDimm},
    // "Corrected" until Linux 6.8, "Correctable" since.
    LogRule{"log.pcie",
            {"PCIe Bus Error: severity=Uncorrect"},
            Verdict::fail,
            "uncorrected PCIe error",
            kReseat},
    LogRule{"log.pcie",
            {"PCIe Bus Error: severity=Correct"},
            Verdict::degraded,
            "corrected PCIe errors",
            kReseat},
    LogRule{"log.pcie",
            {"DPC: containment event"},
            Verdict::fail,
            "a PCIe link was cut off after an error",
            kReseat},
    LogRule{"log.pcie", {"pciehp", "Link Down"}, Verdict::fail, "a PCIe link went down", kReseat},
    LogRule{"log.nvme",
            {"nvme", "controller is down"},
            Verdict::fail,
            "an NVMe controller failed",
            kReplaceDisk},
    LogRule{"log.nvme",
            {"nvme", "Device not ready; aborting"},
            Verdict::fail,
            "an NVMe disk does not start",
            kReplaceDisk},
    LogRule{"log.nvme",
            {"nvme", "Removing after probe failure"},
            Verdict::fail,
            "an NVMe disk is gone",
            kReplaceDisk},
    LogRule{"log.nvme",
            {"nvme", "Disabling device after reset failure"},
            Verdict::fail,
            "an NVMe disk is gone",
            kReplaceDisk},
    LogRule{"log.nvme",
            {"nvme", "QID", " timeout"},
            Verdict::degraded,
            "an NVMe disk timed out",
            kReplaceDisk},
    // Drives of removable media.
    LogRule{"log.disk", {"error, dev fd"}, Verdict::skipped, "", ""},
    LogRule{"log.disk", {"error, dev sr"}, Verdict::skipped, "", ""},
    LogRule{
        "log.disk", {"critical medium error"}, Verdict::fail, "a disk cannot read", kReplaceDisk},
    LogRule{"log.disk", {"I/O error, dev "}, Verdict::fail, "a disk failed", kReplaceDisk},
    LogRule{"log.disk",
            {"exception Emask"},
            Verdict::degraded,
            "errors on a disk's link",
            kReplaceDisk},
    LogRule{"log.fs",
            {"Remounting", "read-only"},
            Verdict::fail,
            "a file system went read-only",
            kCheckFs},
    LogRule{"log.fs", {"EXT4-fs error"}, Verdict::fail, "a file system is damaged", kCheckFs},
    LogRule{"log.fs", {"XFS (", "orruption"}, Verdict::fail, "a file system is damaged", kCheckFs},
    LogRule{"log.fs",
            {"XFS (", "I/O error"},
            Verdict::fail,
            "a file system met a disk's error",
            kCheckFs},
    LogRule{"log.fs",
            {"XFS (", "hutting down"},
            Verdict::fail,
            "a file system was shut down",
            kCheckFs},
    LogRule{
        "log.fs", {"BTRFS critical (device "}, Verdict::fail, "a file system is damaged", kCheckFs},
    LogRule{
        "log.fs", {"BTRFS error (device "}, Verdict::fail, "a file system is damaged", kCheckFs},
    LogRule{"log.ib",
            {"mlx5_core", "health compromised"},
            Verdict::fail,
            "a network card has failed",
            kResetCard},
    LogRule{"log.ib",
            {"mlx5_core", "Fatal error ", " detected"},
            Verdict::fail,
            "a network card has failed",
            kResetCard},
    LogRule{"log.ib",
            {"mlx5_core", "Port module event[error]"},
            Verdict::degraded,
            "a cable or transceiver failed",
            kCheckCable},
    LogRule{"log.ib",
            {"mlx5_core", "insufficient power"},
            Verdict::degraded,
            "a slot gives too little power",
            kReseat},
    LogRule{"log.ib",
            {"mlx5_core", "Link down"},
            Verdict::degraded,
            "an InfiniBand or Ethernet link went down",
            kCheckCable,
            false},
    LogRule{"log.gpu",
            {"NVRM: ", "RmInitAdapter failed"},
            Verdict::fail,
            "a GPU does not start",
            "Restart the node; if the GPU still does not start, contact support."},
    LogRule{"log.gpu",
            {"nvidia-nvswitch", "SXid (", ", Fatal"},
            Verdict::fail,
            "fatal error of an NVSwitch",
            "Reset all GPUs and NVSwitches of the node; if it recurs, contact support."},
    LogRule{"log.gpu",
            {"nvidia-nvswitch", "SXid ("},
            Verdict::degraded,
            "errors of an NVSwitch",
            "See the Fabric Manager guide of NVIDIA, and watch whether it continues."},
    LogRule{"log.kernel",
            {"Out of memory: Killed process"},
            Verdict::degraded,
            "a program was killed for memory",
            "Check which program used up the memory of the node."},
    LogRule{"log.kernel",
            {"detected hard LOCKUP"},
            Verdict::fail,
            "a core was stuck with interrupts off",
            kStuck},
    LogRule{"log.kernel",
            {"BUG: soft lockup"},
            Verdict::degraded,
            "a core was stuck in the kernel",
            kStuck},
    LogRule{"log.kernel",
            {"rcu", "detected stall"},
            Verdict::degraded,
            "a core was stuck in the kernel",
            kStuck},
    LogRule{"log.kernel",
            {"blocked for more than", "seconds"},
            Verdict::degraded,
            "a task hung",
            "Check the disk or file system that it waited for."},
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
  return found == kRules.end() || found->verdict == Verdict::skipped ? nullptr : &*found;
}

void LogAnalyzer::RuleMatch::add(const KernelLogLine& line) {
  count++;
  last = line.text;
}

std::string LogAnalyzer::RuleMatch::text() const {
  constexpr size_t kShown = 200;
  std::string line = printable(std::string_view(last).substr(0, kShown));
  return count == 1 ? line : fmt::format("{} times, last: {}", count, line);
}

Finding LogAnalyzer::xid_finding(const XidLine& seen, const RuleMatch& met) {
  const Xid* const known = find_xid(seen.code);
  Finding finding{.name = "log.xid", .part = seen.device};
  finding.value = static_cast<double>(met.count);
  finding.expected = "none";
  if (known == nullptr) {
    finding.verdict = Verdict::degraded;
    finding.found = fmt::format("Xid {}: {}", seen.code, met.text());
    finding.source = "NVIDIA's driver";
    finding.hint = "See the Xid catalogue of NVIDIA.";
    return finding;
  }
  finding.verdict = xid_verdict(*known);
  finding.found = fmt::format("Xid {}, {}: {}", seen.code, known->about, met.text());
  finding.source =
      fmt::format("NVIDIA: {}; paper: {}", known->immediate, xid_class_name(known->of));
  finding.hint = xid_hint(*known);
  return finding;
}

void LogAnalyzer::add(const KernelLogLine& line) {
  if (line.text.empty()) return;
  lines_++;
  timed_ |= line.has_time();
  if (const auto xid = parse_xid(line.text)) {
    xids_[{xid->device, xid->code}].add(line);
  } else if (const LogRule* const rule = find_rule(line.text)) {
    const bool starting = line.boot_ns && *line.boot_ns < kStartingNs;
    if (rule->while_starting || !starting) matches_[rule].add(line);
  }
}

std::vector<Finding> LogAnalyzer::findings() const {
  std::vector<Finding> findings;
  std::set<std::string_view> bad;
  for (const auto& [rule, what] : matches_) {
    bad.insert(rule->name);
    findings.push_back({.name = rule->name,
                        .part = rule->about,
                        .verdict = rule->verdict,
                        .found = what.text(),
                        .value = static_cast<double>(what.count),
                        .expected = "none",
                        .source = "the kernel's log",
                        .hint = rule->hint});
  }
  for (const auto& [seen, what] : xids_) {
    bad.insert("log.xid");
    findings.push_back(xid_finding({.device = seen.first, .code = seen.second}, what));
  }
  std::set<std::string_view> names{"log.xid"};
  for (const LogRule& rule : kRules) names.insert(rule.name);
  for (const std::string_view name : names) {
    if (bad.contains(name)) continue;
    findings.push_back({.name = std::string(name),
                        .verdict = Verdict::pass,
                        .found = fmt::format("nothing in {} lines", lines_),
                        .value = 0,
                        .expected = "none",
                        .source = "the kernel's log"});
  }
  std::ranges::stable_sort(findings, {}, &Finding::name);
  return findings;
}

}  // namespace ff::validate
