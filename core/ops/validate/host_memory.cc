// host_memory.cc: memory size per NUMA node, modules, and error counters of memory controllers.
#include <algorithm>
#include <set>

#include "ops/validate/host.h"
#include "ops/validate/inventory.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/files.h"

namespace ff::validate {

namespace {

constexpr const char* kEdac = "/sys/devices/system/edac/mc";
constexpr const char* kAsRoot = "Only root may read the firmware table: run it as root.";
constexpr const char* kSmbios = "/sys/firmware/dmi/entries";
// Offsets in a structure of type 17 (SMBIOS 3.x, 7.18).
constexpr size_t kSizeAt = 0x0c, kSlotAt = 0x10, kBankAt = 0x11, kSpeedAt = 0x15,
                 kExtendedAt = 0x1c, kConfiguredAt = 0x20;
constexpr uint16_t kSizeUnknown = 0xffff, kSizeExtended = 0x7fff, kInKib = 0x8000;

uint16_t word_at(std::string_view raw, size_t at) {
  return load_le<uint16_t>(as_bytes(raw).data() + at);
}

// The string with this number after the formatted part; numbers start at 1.
std::string string_at(std::string_view raw, size_t length, unsigned number) {
  std::string_view rest = raw.substr(std::min(length, raw.size()));
  for (unsigned i = 1; number > 0 && !rest.empty(); i++) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    if (i == number) return printable(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return "";
}

}  // namespace

std::optional<uint64_t> meminfo(const SystemTree& tree, std::string_view key) {
  const std::string text = tree.maybe_text("/proc/meminfo").value_or("");
  for (const std::string_view line : split(text, '\n')) {
    if (!line.starts_with(key) || !line.substr(key.size()).starts_with(':')) continue;
    std::string_view rest = line.substr(key.size() + 1);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const auto number = parse_u64(rest.substr(0, rest.find(' ')));
    if (!number) return std::nullopt;
    return rest.ends_with("kB") ? *number * kKiB : *number;
  }
  return std::nullopt;
}

std::optional<Dimm> parse_dimm(std::string_view raw) {
  constexpr unsigned char kMemoryDevice = 17;
  if (raw.size() < 2 || static_cast<unsigned char>(raw[0]) != kMemoryDevice) return std::nullopt;
  const size_t length = static_cast<unsigned char>(raw[1]);
  if (length < kSpeedAt + 2 || raw.size() < length) return std::nullopt;
  const uint16_t size = word_at(raw, kSizeAt);
  Dimm dimm{.is_present = size != 0};
  if (size == kSizeExtended && length >= kExtendedAt + 4) {
    dimm.bytes = uint64_t{load_le<uint32_t>(as_bytes(raw).data() + kExtendedAt)} * kMiB;
  } else if (size != kSizeUnknown) {
    dimm.bytes = (size & kInKib) != 0 ? (size & ~kInKib) * kKiB : size * kMiB;
  }
  dimm.slot = string_at(raw, length, static_cast<unsigned char>(raw[kSlotAt]));
  dimm.bank = string_at(raw, length, static_cast<unsigned char>(raw[kBankAt]));
  dimm.rated_mts = word_at(raw, kSpeedAt);
  if (length >= kConfiguredAt + 2) dimm.configured_mts = word_at(raw, kConfiguredAt);
  return dimm;
}

Result<std::vector<Dimm>> dimms(const SystemTree& tree) {
  std::vector<Dimm> found;
  for (const std::string& entry : tree.list(kSmbios, "17-")) {
    FF_TRY(const std::string raw, tree.bytes(fmt::format("{}/{}/raw", kSmbios, entry)));
    auto dimm = parse_dimm(raw);
    if (!dimm) return fail(Errc::failed, "{}/{}/raw describes no memory module", kSmbios, entry);
    found.push_back(std::move(*dimm));
  }
  // Some boards use the same slot names for both sockets, also for empty slots: a slot must keep
  // its name when another loses its module.
  std::multiset<std::string> names;
  for (const Dimm& dimm : found) names.insert(dimm.slot);
  for (Dimm& dimm : found) {
    if (names.count(dimm.slot) > 1) dimm.slot = fmt::format("{} {}", dimm.bank, dimm.slot);
  }
  std::erase_if(found, [](const Dimm& dimm) { return !dimm.is_present; });
  return found;
}

size_t numa_nodes(const SystemTree& tree) { return tree.list(kNumaNodes, "node").size(); }

std::vector<std::string> memory_controllers(const SystemTree& tree) {
  return tree.list(kEdac, "mc");
}

void check_host_memory(const CheckContext& context) {
  Finding finding{.name = "host.memory"};
  const auto total = meminfo(context.tree, "MemTotal");
  if (!total) {
    finding.found = "/proc/meminfo cannot be read";
    finding.hint = "Check that /proc is mounted here.";
    return context.report(std::move(finding));
  }
  const uint64_t huge = meminfo(context.tree, "Hugetlb").value_or(0);
  finding.value = static_cast<double>(*total);
  finding.unit = "B";
  finding.better = Better::higher;
  finding.found = fmt::format("{} on {} NUMA nodes", format_size(*total),
                              std::max<size_t>(numa_nodes(context.tree), 1));
  if (huge > 0) finding.found += fmt::format(", {} of them huge pages", format_size(huge));
  const auto modules = dimms(context.tree);
  if (!modules) {
    finding.found += fmt::format("; {}", modules.error().message);
    finding.hint = kAsRoot;
    return context.report(std::move(finding));
  }
  uint64_t installed = 0;
  for (const Dimm& dimm : *modules) installed += dimm.bytes;
  if (modules->empty()) {
    const Finding none = missing_finding(context, "host.memory", "dimm", "");
    const bool adopted = none.verdict == Verdict::skipped;  // a guest
    finding.verdict = adopted ? Verdict::pass : none.verdict;
    finding.found += ", the firmware names no module";
    finding.expected = none.expected;
    finding.source = none.source;
    finding.hint = none.hint;
  } else if (installed > 0) {
    finding.verdict = Verdict::pass;
    // The kernel and the firmware reserve a few percent.
    constexpr double kUsable = 0.9;
    finding.expected = format_size(installed);
    finding.source = "the modules (SMBIOS)";
    const bool less = static_cast<double>(*total) < kUsable * static_cast<double>(installed);
    if (less) {
      finding.verdict = Verdict::degraded;
      finding.hint = "A module may have been disabled: see the event log of the firmware.";
    }
  }
  context.report(std::move(finding));
}

void check_host_dimms(const CheckContext& context) {
  const auto modules = dimms(context.tree);
  if (!modules) {
    return context.report(
        {.name = "host.dimms", .found = modules.error().message, .hint = kAsRoot});
  }
  if (modules->empty()) {
    return context.report(missing_finding(context, "host.dimms", "dimm",
                                          "the firmware names no module (a virtual machine?)"));
  }
  for (const Dimm& dimm : *modules) {
    Finding finding{.name = "host.dimms", .part = dimm.slot};
    finding.found = fmt::format("{}, {} MT/s", format_size(dimm.bytes), dimm.configured_mts);
    finding.value = dimm.configured_mts;
    finding.unit = "MT/s";
    if (dimm.configured_mts == 0) {
      finding.found = fmt::format("{}, speed unknown", format_size(dimm.bytes));
      finding.hint = "The firmware reports no speed: see dmidecode -t memory";
      context.report(std::move(finding));
      continue;
    }
    // With slower modules or two per channel, reduced speed is by design: what counts is that all
    // modules run at the same speed.
    const uint32_t best = std::ranges::max(*modules, {}, &Dimm::configured_mts).configured_mts;
    finding.expected = fmt::format("{} MT/s", best);
    finding.source = "the fastest of this node's modules";
    finding.verdict = dimm.configured_mts < best ? Verdict::degraded : Verdict::pass;
    if (finding.verdict != Verdict::pass)
      finding.hint = "Check the slot and the memory settings of the firmware.";
    context.report(std::move(finding));
  }
}

void check_memory_edac(const CheckContext& context) {
  const auto controllers = memory_controllers(context.tree);
  for (const std::string& controller : controllers) {
    const std::string at = io::join(kEdac, controller);
    const auto corrected = context.tree.maybe_number(at + "/ce_count");
    const auto uncorrected = context.tree.maybe_number(at + "/ue_count");
    Finding finding{.name = "memory.edac", .part = controller};
    if (!corrected || !uncorrected) {
      finding.found = "its counters cannot be read";
      finding.hint = fmt::format("Look at {}.", at);
      context.report(std::move(finding));
      continue;
    }
    finding.value = *corrected + *uncorrected;
    const CounterDelta growth = counter_delta(context, finding);
    finding.found = fmt::format("{:.0f} corrected, {:.0f} uncorrected since the boot", *corrected,
                                *uncorrected);
    if (growth.since_run) finding.found += fmt::format(", {:.0f} of them new", growth.more);
    finding.expected = fmt::format("none uncorrected, none {}", growth.since());
    finding.source = "the memory controller (EDAC)";
    finding.verdict = *uncorrected > 0  ? Verdict::fail
                      : growth.more > 0 ? Verdict::degraded
                                        : Verdict::pass;
    std::vector<std::string> where;
    // Drivers that only know chip-select rows, such as that of AMD, call them ranks.
    std::vector<std::string> modules = context.tree.list(at, "dimm");
    if (modules.empty()) modules = context.tree.list(at, "rank");
    for (const std::string& dimm : modules) {
      const std::string module = io::join(at, dimm);
      const double errors = context.tree.maybe_number(module + "/dimm_ce_count").value_or(0) +
                            context.tree.maybe_number(module + "/dimm_ue_count").value_or(0);
      if (errors == 0) continue;
      where.push_back(printable(context.tree.maybe_text(module + "/dimm_label").value_or(dimm)));
    }
    if (!where.empty()) finding.found += fmt::format(" ({})", fmt::join(where, ", "));
    if (finding.verdict != Verdict::pass)
      finding.hint = "Run a memory test; replace the DIMM that is named.";
    context.report(std::move(finding));
  }
  if (!controllers.empty()) return;
  context.report(missing_finding(
      context, "memory.edac", "edac",
      "no memory controller counts errors (no ECC, no driver, or a virtual machine)"));
}

}  // namespace ff::validate
