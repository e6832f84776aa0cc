// storage.cc: what the kernel knows of disks and file systems.
#include "check/storage.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "check/inventory.h"
#include "io/files.h"

namespace ff::check {

namespace {

constexpr const char* kReplace = "Save its data elsewhere and replace the disk.";

std::string trimmed(std::string text) {
  const size_t last = text.find_last_not_of(' ');
  text.erase(last == text.npos ? 0 : last + 1);
  return text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
}

// "rw,relatime" has "ro"?
bool has_option(std::string_view options, std::string_view which) {
  const auto all = split(options, ',');
  return std::ranges::find(all, which) != all.end();
}

// Whether somebody wants it like that. Where no table tells, nobody is taken to.
bool wants_read_only(const Tree& tree, std::string_view dir) {
  const std::string table = tree.maybe_text("/etc/fstab").value_or("");
  for (const std::string_view one : split(table, '\n')) {
    std::string line(one);
    std::ranges::replace(line, '\t', ' ');
    std::vector<std::string_view> words = split(line, ' ');
    std::erase(words, "");
    if (words.size() >= 4 && words[1] == dir) return has_option(words[3], "ro");
  }
  return false;
}

}  // namespace

std::vector<Mounted> mounted_disks(const Tree& tree) {
  constexpr std::array kKinds = {"ext4", "ext3", "ext2", "xfs", "btrfs", "zfs", "f2fs"};
  std::map<std::string, Mounted> by_device;
  const std::string mounts = tree.maybe_text("/proc/mounts").value_or("");
  for (const std::string_view line : split(mounts, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() < 4 || std::ranges::find(kKinds, words[2]) == kKinds.end()) continue;
    Mounted one{.device = printable(words[0]),
                .dir = printable(words[1]),
                .kind = std::string(words[2]),
                .options = printable(words[3])};
    by_device.try_emplace(one.device, std::move(one));
  }
  std::vector<Mounted> found;
  for (auto& [device, one] : by_device) found.push_back(std::move(one));
  return found;
}

std::vector<DiskFacts> disks(const Tree& tree) {
  std::vector<DiskFacts> found;
  for (const std::string& name : tree.list("/sys/block")) {
    const std::string at = fmt::format("/sys/block/{}/device", name);
    if (!tree.exists(at)) continue;
    DiskFacts disk{.name = name};
    disk.model = trimmed(printable(tree.maybe_text(at + "/model").value_or("disk")));
    for (const char* const path : {"/device/serial", "/serial", "/wwid", "/device/wwid"}) {
      if (!disk.serial.empty()) break;
      disk.serial = trimmed(printable(tree.maybe_text("/sys/block/" + name + path).value_or("")));
    }
    disk.state = trimmed(printable(tree.maybe_text(at + "/state").value_or("")));
    found.push_back(std::move(disk));
  }
  return found;
}

void check_storage_fs(const Context& context) {
  bool any = false;
  for (const std::string& name : context.tree.list("/sys/fs/ext4")) {
    const auto errors =
        context.tree.maybe_number(fmt::format("/sys/fs/ext4/{}/errors_count", name));
    if (!errors) continue;
    any = true;
    Finding finding{.name = "storage.fs", .part = fmt::format("ext4 on {}", name)};
    finding.value = *errors;
    finding.found = fmt::format("{:.0f} errors", *errors);
    finding.expected = "none since it was last checked";
    finding.source = "the file system's superblock";
    finding.verdict = *errors > 0 ? Verdict::fail : Verdict::pass;
    if (*errors > 0) finding.hint = "Unmount it and run e2fsck; look at the disk under it.";
    context.report(std::move(finding));
  }
  for (const Mounted& one : mounted_disks(context.tree)) {
    any = true;
    const bool read_only = has_option(one.options, "ro") && !wants_read_only(context.tree, one.dir);
    const bool down =
        has_option(one.options, "shutdown") || has_option(one.options, "emergency_ro");
    if (!read_only && !down) {
      context.report({.name = "storage.fs",
                      .part = one.dir,
                      .verdict = Verdict::pass,
                      .found = fmt::format("{}, mounted {}", one.kind,
                                           has_option(one.options, "ro") ? "ro" : "rw")});
      continue;
    }
    context.report({.name = "storage.fs",
                    .part = one.dir,
                    .verdict = Verdict::fail,
                    .found = down ? "was shut down after an error" : "is read-only",
                    .expected = "as /etc/fstab has it",
                    .source = "/proc/mounts",
                    .hint = "Look in the kernel's log; unmount it and check it."});
  }
  if (any) return;
  context.report(nothing_of(context, "storage.fs", "fs", "no file system on a disk is mounted"));
}

void check_storage_disks(const Context& context) {
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
    if (!good) finding.hint = kReplace;
    context.report(std::move(finding));
  }
  if (any) return;
  context.report(nothing_of(context, "storage.disks", "disk-state",
                            "no disk tells its state (those of guests often do not)"));
}

}  // namespace ff::check
