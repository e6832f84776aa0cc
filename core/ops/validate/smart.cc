// smart.cc: parses health pages and judges them.
#include "ops/validate/smart.h"

#include "ops/validate/inventory.h"
#include "platform/base/bytes.h"

namespace ff::validate {

namespace {

// A 16-byte counter; the upper bytes stay 0 in the life of a disk.
double wide(const SmartPage& page, size_t at) {
  return static_cast<double>(load_le<uint64_t>(page.data() + at));
}

void report_counter(const CheckContext& context, const std::string& disk, double count) {
  Finding finding{.name = "storage.media-errors", .part = disk, .verdict = Verdict::pass};
  finding.value = count;
  const CounterDelta growth = counter_delta(context, finding);
  finding.found = fmt::format("{:.0f} in its life", count);
  if (growth.since_run) finding.found += fmt::format(", {:.0f} of them new", growth.more);
  finding.expected = "none since the last run";
  finding.source = "the disk";
  if (growth.since_run && growth.more > 0) {
    finding.verdict = Verdict::degraded;
    finding.hint = kSaveAndReplaceDisk;
  }
  context.report(std::move(finding));
}

void check_one(const CheckContext& context, const std::string& disk) {
  const bool is_nvme = disk.starts_with("nvme");
  const auto unread = [&](const Error& error) {
    const bool refused = error.code == Errc::refused;
    context.report({.name = "storage.health",
                    .part = disk,
                    .found = error.message,
                    .hint = refused ? "Only root may query it: run it as root." : error.hint});
  };
  if (is_nvme) {
    const auto page = nvme_health_log("/dev/" + disk);
    if (!page) return unread(page.error());
    const NvmeHealth health = parse_nvme_health(*page);
    context.report(nvme_finding(disk, health));
    return report_counter(context, disk, health.media_errors);
  }
  const auto health = ata_health("/dev/" + disk);
  if (!health) return unread(health.error());
  const AtaFacts facts = parse_ata_health(*health);
  context.report(ata_finding(disk, facts));
  if (facts.reallocated) report_counter(context, disk, static_cast<double>(*facts.reallocated));
}

}  // namespace

NvmeHealth parse_nvme_health(const SmartPage& page) {
  constexpr double kZero = 273.15;
  NvmeHealth health;
  health.warnings = std::to_integer<uint8_t>(page[0]);
  health.celsius = load_le<uint16_t>(page.data() + 1) - kZero;
  health.spare_percent = std::to_integer<int>(page[3]);
  health.spare_least_percent = std::to_integer<int>(page[4]);
  health.used_percent = std::to_integer<int>(page[5]);
  health.power_on_hours = wide(page, 128);
  health.media_errors = wide(page, 160);
  return health;
}

Finding nvme_finding(const std::string& disk, const NvmeHealth& health) {
  constexpr uint8_t kSpare = 1, kHot = 2, kUnreliable = 4, kReadOnly = 8, kBackup = 16;
  Finding finding{.name = "storage.health", .part = disk, .verdict = Verdict::pass};
  finding.value = health.used_percent;
  finding.unit = "%";
  finding.found = fmt::format("{} % worn, {} % spare, {:.0f} C", health.used_percent,
                              health.spare_percent, health.celsius);
  finding.expected = fmt::format("no warning, {} % spare or more, less than 100 % worn",
                                 health.spare_least_percent);
  finding.source = "the disk";
  const auto is = [&](uint8_t bit) { return (health.warnings & bit) != 0; };
  const auto say = [&](Verdict verdict, const char* what, const char* hint) {
    if (finding.verdict < verdict) finding.hint = hint;
    finding.verdict = std::max(finding.verdict, verdict);
    finding.found += fmt::format(", {}", what);
  };
  if (is(kReadOnly)) say(Verdict::fail, "read-only", kSaveAndReplaceDisk);
  if (is(kUnreliable)) say(Verdict::fail, "no longer reliable", kSaveAndReplaceDisk);
  if (is(kSpare) || health.spare_percent < health.spare_least_percent) {
    say(Verdict::fail, "too few spare blocks", kSaveAndReplaceDisk);
  }
  if (is(kBackup)) say(Verdict::degraded, "its cache is no longer backed up", kSaveAndReplaceDisk);
  if (is(kHot))
    say(Verdict::degraded, "too hot or too cold", "Check fans, filters and room temperature.");
  if (health.used_percent >= 100) say(Verdict::degraded, "worn out", kSaveAndReplaceDisk);
  return finding;
}

AtaFacts parse_ata_health(const AtaHealth& health) {
  constexpr size_t kFirst = 2, kEach = 12, kCount = 30, kRawAt = 5;
  constexpr uint8_t kReallocated = 5, kPending = 197, kUncorrectable = 198;
  AtaFacts facts{.failing = health.failing};
  for (size_t i = 0; i < kCount; i++) {
    const std::byte* const at = health.data.data() + kFirst + i * kEach;
    // 48 bits, of which vendors use the upper ones for other data.
    const uint64_t raw = load_le<uint32_t>(at + kRawAt);
    switch (std::to_integer<uint8_t>(at[0])) {
      case kReallocated: facts.reallocated = raw; break;
      case kPending: facts.pending = raw; break;
      case kUncorrectable: facts.uncorrectable = raw; break;
      default: break;
    }
  }
  return facts;
}

Finding ata_finding(const std::string& disk, const AtaFacts& facts) {
  Finding finding{.name = "storage.health", .part = disk, .verdict = Verdict::pass};
  finding.found = fmt::format("{} sectors reallocated, {} waiting to be, {} cannot be read",
                              facts.reallocated.value_or(0), facts.pending.value_or(0),
                              facts.uncorrectable.value_or(0));
  finding.expected = "no threshold passed, no sector that cannot be read";
  finding.source = "the disk (SMART)";
  if (facts.failing) {
    finding.verdict = Verdict::fail;
    finding.found = "predicts its failure; " + finding.found;
    finding.hint = kSaveAndReplaceDisk;
  } else if (facts.pending.value_or(0) > 0 || facts.uncorrectable.value_or(0) > 0) {
    finding.verdict = Verdict::degraded;
    finding.hint = kSaveAndReplaceDisk;
  }
  return finding;
}

std::vector<std::string> smart_disks(const SystemTree& tree) {
  std::vector<std::string> names;
  for (const std::string& name : tree.list("/sys/class/nvme", "nvme")) names.push_back(name);
  for (const std::string& name : tree.list("/sys/block", "sd")) {
    const auto vendor = tree.maybe_text(fmt::format("/sys/block/{}/device/vendor", name));
    if (vendor && vendor->starts_with("ATA")) names.push_back(name);
  }
  return names;
}

void check_storage_health(const CheckContext& context) {
  const std::vector<std::string> names = smart_disks(context.tree);
  if (names.empty()) {
    return context.report(missing_finding(context, "storage.health", "smart",
                                          "no disk that reports its health (NVMe, ATA)"));
  }
  for (const std::string& name : names) {
    if (context.tree.is_machine()) {
      check_one(context, name);
      continue;
    }
    context.report({.name = "storage.health",
                    .part = name,
                    .found = "a recorded tree does not contain the answers of disks",
                    .hint = "Run it on the machine itself."});
  }
}

}  // namespace ff::validate
