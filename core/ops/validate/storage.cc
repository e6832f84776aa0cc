// storage.cc: disks and file systems as the kernel shows them.
#include "ops/validate/storage.h"

#include <algorithm>
#include <array>
#include <map>

#include "ops/validate/inventory.h"
#include "ops/validate/smart.h"
#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::validate {

namespace {

std::string trimmed(std::string text) {
  const size_t last = text.find_last_not_of(' ');
  text.erase(last == text.npos ? 0 : last + 1);
  return text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
}

// Decodes the octal escapes of /proc/mounts: "/mnt/a\040b".
std::string unescaped(std::string_view path) {
  std::string made;
  for (size_t i = 0; i < path.size(); i++) {
    const auto is_octal = [&](size_t at) { return path[at] >= '0' && path[at] <= '7'; };
    if (path[i] != '\\' || i + 3 >= path.size() || !is_octal(i + 1) || !is_octal(i + 2) ||
        !is_octal(i + 3)) {
      made.push_back(path[i]);
      continue;
    }
    made.push_back(static_cast<char>((path[i + 1] - '0') * 64 + (path[i + 2] - '0') * 8 +
                                     (path[i + 3] - '0')));
    i += 3;
  }
  return made;
}

// Whether options such as "rw,relatime" contain "ro".
bool has_option(std::string_view options, std::string_view which) {
  const auto all = split(options, ',');
  return std::ranges::find(all, which) != all.end();
}

// Whether the mount is meant to be read-only. Without an fstab it is not.
bool wants_read_only(const SystemTree& tree, std::string_view dir) {
  const std::string table = tree.maybe_text("/etc/fstab").value_or("");
  for (const std::string_view one : split(table, '\n')) {
    std::string line(one);
    std::ranges::replace(line, '\t', ' ');
    std::vector<std::string_view> words = split(line, ' ');
    std::erase(words, "");
    if (words.size() >= 4 && unescaped(words[1]) == dir) return has_option(words[3], "ro");
  }
  return false;
}

// "live", "running"; empty: unknown. A dual-port NVMe disk belongs to a subsystem: the worst state
// of its controllers.
std::string state_of(const SystemTree& tree, const std::string& device) {
  const auto own = tree.maybe_text(device + "/state");
  std::string state = trimmed(printable(own.value_or("")));
  if (own) return state;
  for (const std::string& name : tree.list(device, "nvme")) {
    const auto controller = tree.maybe_text(fmt::format("{}/{}/state", device, name));
    if (controller && (state.empty() || state == "live")) state = trimmed(printable(*controller));
  }
  return state;
}

// Error counts of superblocks: one finding for each file system that has one.
std::vector<Finding> of_ext4(const SystemTree& tree, const std::vector<MountedDisk>& mounted) {
  constexpr const char* kAll = "/sys/fs/ext4";
  std::vector<Finding> findings;
  for (const std::string& name : tree.list(kAll)) {
    if (name == "features") continue;
    const std::string path = fmt::format("{}/{}/errors_count", kAll, name);
    const auto errors = tree.maybe_number(path);
    Finding& finding = findings.emplace_back();
    finding = {.name = "storage.fs", .part = fmt::format("ext4 on {}", name)};
    if (!errors) {
      finding.found = "its errors cannot be read";
      finding.hint = fmt::format("Look at {}.", path);
      continue;
    }
    finding.value = *errors;
    finding.found = fmt::format("{:.0f} errors", *errors);
    finding.expected = "none since it was last checked";
    finding.source = "the file system's superblock";
    finding.verdict = *errors > 0 ? Verdict::fail : Verdict::pass;
    if (*errors > 0) finding.hint = "Unmount it and run e2fsck; check its disk.";
  }
  const auto wanted = static_cast<size_t>(std::ranges::count(mounted, "ext4", &MountedDisk::kind));
  if (findings.size() >= wanted) return findings;
  findings.push_back(
      {.name = "storage.fs",
       .part = "ext4",
       .found = fmt::format("{} mounted, of which {} report their errors", wanted, findings.size()),
       .hint = fmt::format("Look at {}.", kAll)});
  return findings;
}

Finding of_mount(const SystemTree& tree, const MountedDisk& one) {
  const bool is_read_only = has_option(one.options, "ro");
  Finding finding{.name = "storage.fs", .part = printable(one.dir)};
  finding.expected = "as /etc/fstab has it";
  finding.source = "/proc/mounts";
  if (has_option(one.options, "shutdown") || has_option(one.options, "emergency_ro")) {
    finding.verdict = Verdict::fail;
    finding.found = "was shut down after an error";
  } else if (is_read_only && !wants_read_only(tree, one.dir)) {
    finding.verdict = Verdict::fail;
    finding.found = "is read-only";
  } else {
    finding.verdict = Verdict::pass;
    finding.found = fmt::format("{}, mounted {}", one.kind, is_read_only ? "ro" : "rw");
    return finding;
  }
  finding.hint = "See the kernel log; unmount it and check it.";
  return finding;
}

}  // namespace

std::vector<MountedDisk> mounted_disks(const SystemTree& tree) {
  constexpr std::array kKinds = {"ext4", "ext3", "ext2", "xfs", "btrfs", "zfs", "f2fs"};
  std::map<std::string, MountedDisk> by_device;
  const std::string mounts = tree.maybe_text("/proc/mounts").value_or("");
  for (const std::string_view line : split(mounts, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() < 4 || std::ranges::find(kKinds, words[2]) == kKinds.end()) continue;
    MountedDisk one{.device = printable(words[0]),
                    .dir = unescaped(words[1]),
                    .kind = std::string(words[2]),
                    .options = printable(words[3])};
    by_device.try_emplace(one.device, std::move(one));
  }
  std::vector<MountedDisk> found;
  for (auto& [device, one] : by_device) found.push_back(std::move(one));
  return found;
}

std::vector<DiskFacts> disks(const SystemTree& tree) {
  std::vector<DiskFacts> found;
  for (const std::string& name : tree.list("/sys/block")) {
    const std::string at = fmt::format("/sys/block/{}/device", name);
    // Optical discs and virtual media of a BMC come and go.
    const bool removable = tree.maybe_text("/sys/block/" + name + "/removable") == "1";
    if (!tree.exists(at) || removable) continue;
    DiskFacts disk{.name = name};
    disk.model = trimmed(printable(tree.maybe_text(at + "/model").value_or("disk")));
    for (const char* const path : {"/device/serial", "/serial", "/wwid", "/device/wwid"}) {
      if (!disk.serial.empty()) break;
      disk.serial = trimmed(printable(tree.maybe_text("/sys/block/" + name + path).value_or("")));
    }
    disk.state = state_of(tree, at);
    found.push_back(std::move(disk));
  }
  return found;
}

void check_storage_fs(const CheckContext& context) {
  const auto mounted = mounted_disks(context.tree);
  for (const Finding& one : of_ext4(context.tree, mounted)) context.report(one);
  for (const MountedDisk& one : mounted) context.report(of_mount(context.tree, one));
  if (!mounted.empty()) return;
  context.report(
      missing_finding(context, "storage.fs", "fs", "no file system on a disk is mounted"));
}

void check_storage_disks(const CheckContext& context) {
  bool any = false;
  for (const DiskFacts& disk : disks(context.tree)) {
    if (disk.state.empty()) continue;
    any = true;
    Finding finding{.name = "storage.disks", .part = disk.name};
    finding.found = fmt::format("{}, {}", disk.state, disk.model);
    finding.expected = "live or running";
    finding.source = "the driver";
    const bool good = disk.state == "live" || disk.state == "running";
    finding.verdict = good ? Verdict::pass : Verdict::fail;
    if (!good) finding.hint = kSaveAndReplaceDisk;
    context.report(std::move(finding));
  }
  if (any) return;
  context.report(
      missing_finding(context, "storage.disks", "disk-state",
                      "no disk reports its state (disks of virtual machines often do not)"));
}

}  // namespace ff::validate
