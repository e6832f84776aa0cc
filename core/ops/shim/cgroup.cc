// cgroup.cc: the subset of Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst that a
// rank needs.
#include "ops/shim/cgroup.h"

#include <algorithm>
#include <utility>

#include "platform/base/bytes.h"
#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::shim {
namespace {

constexpr uint64_t kTextMax = 16 * kMiB;  // /proc/self/mountinfo of a host with many containers

Result<void> write_file(io::Disk& disk, const std::string& path, std::string_view text) {
  FF_TRY(auto file, disk.open(path, {.access = io::AccessMode::write}));
  return file->write_at(as_bytes(text), 0);
}

bool has_word(std::string_view text, std::string_view word) {
  for (const std::string_view line : split(text, '\n')) {
    for (const std::string_view one : split(line, ' ')) {
      if (one == word) return true;
    }
  }
  return false;
}

// Finds the line "NAME 12".
std::optional<uint64_t> number_of(std::string_view text, std::string_view name) {
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with(name) && line.substr(name.size()).starts_with(' ')) {
      return parse_u64(line.substr(name.size() + 1));
    }
  }
  return std::nullopt;
}

// "a\040b" -> "a b": decodes escapes of mountinfo.
std::string unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); i++) {
    const auto octal = [&](size_t at) {
      return i + at < text.size() && text[i + at] >= '0' && text[i + at] <= '7' ? text[i + at] - '0'
                                                                                : -1;
    };
    if (text[i] != '\\' || octal(1) < 0 || octal(2) < 0 || octal(3) < 0) {
      plain += text[i];
      continue;
    }
    plain += static_cast<char>(octal(1) * 64 + octal(2) * 8 + octal(3));
    i += 3;
  }
  return plain;
}

// Creates `plan.parent`; in version 2, with the memory controller enabled for its children.
Result<std::string> make_parent(io::Disk& disk, const Hierarchy& root, const CgroupSpec& plan) {
  std::string path = root.path;
  std::vector<std::string_view> parts = split(plan.parent, '/');
  parts.push_back("");  // so that the loop includes the last folder
  for (const std::string_view part : parts) {
    if (root.kind == CgroupKind::v2) {
      const std::string control = path + "/cgroup.subtree_control";
      FF_TRY(const std::string has, io::read_file(disk, control, kTextMax));
      if (!has_word(has, "memory")) FF_TRY(write_file(disk, control, "+memory"));
    }
    if (part.empty()) continue;
    path = io::join(path, part);
    auto made = disk.make_dir(path, 0755);
    if (!made && made.error().code != Errc::exists) return std::move(made).error();
  }
  return path;
}

Result<void> limit(io::Disk& disk, const Hierarchy& root, const std::string& path, uint64_t bytes) {
  if (bytes == 0) return {};
  const bool v2 = root.kind == CgroupKind::v2;
  const std::string text = fmt::to_string(bytes);
  FF_TRY(write_file(disk, path + (v2 ? "/memory.max" : "/memory.limit_in_bytes"), text));
  // Disallow swap. Kernels without swap accounting have no such file.
  const std::string swap = path + (v2 ? "/memory.swap.max" : "/memory.memsw.limit_in_bytes");
  auto limited = write_file(disk, swap, v2 ? "0" : text);
  if (!limited && limited.error().code == Errc::not_found) return {};
  return limited;
}

Result<std::string> make_in(io::Disk& disk, const Hierarchy& root, const CgroupSpec& plan) {
  FF_TRY(const std::string parent, make_parent(disk, root, plan));
  const std::string path = io::join(parent, plan.name);
  auto made = disk.make_dir(path, 0755);
  if (!made && made.error().code != Errc::exists) return std::move(made).error();
  auto limited = limit(disk, root, path, plan.memory_limit);
  if (limited) return path;
  (void)disk.remove_dir(path);
  return std::move(limited).error();
}

}  // namespace

std::string_view cgroup_kind_name(CgroupKind kind) {
  switch (kind) {
    case CgroupKind::none: return "none";
    case CgroupKind::v1: return "v1";
    case CgroupKind::v2: return "v2";
  }
  return "none";
}

std::optional<CgroupKind> cgroup_kind_of(std::string_view name) {
  for (const CgroupKind kind : {CgroupKind::none, CgroupKind::v1, CgroupKind::v2}) {
    if (name == cgroup_kind_name(kind)) return kind;
  }
  return std::nullopt;
}

std::vector<Hierarchy> parse_mountinfo(std::string_view text) {
  std::vector<Hierarchy> found;
  for (const std::string_view line : split(text, '\n')) {
    // "36 35 98:0 /root /mnt/point rw,noatime master:1 - cgroup source rw,memory"
    const size_t mark = line.find(" - ");
    if (mark == line.npos) continue;
    const auto before = split(line.substr(0, mark), ' ');
    const auto after = split(line.substr(mark + 3), ' ');
    if (before.size() < 5 || after.size() < 3) continue;
    if (after[0] == "cgroup2") found.push_back({CgroupKind::v2, unescape(before[4])});
    const auto options = split(after[2], ',');
    if (after[0] == "cgroup" && std::ranges::find(options, "memory") != options.end()) {
      found.push_back({CgroupKind::v1, unescape(before[4])});
    }
  }
  // Version 2 first: a controller belongs to one hierarchy only.
  std::ranges::stable_sort(found, [](const Hierarchy& a, const Hierarchy& b) {
    return static_cast<int>(a.kind) > static_cast<int>(b.kind);
  });
  return found;
}

Cgroup Cgroup::none(io::Disk& disk, std::string why) {
  Cgroup cgroup(disk, CgroupKind::none, "");
  cgroup.why_ = std::move(why);
  return cgroup;
}

Cgroup Cgroup::make(io::Disk& disk, const CgroupSpec& plan) {
  if (plan.parent.empty()) return none(disk, "none was asked for");
  const auto mounts = io::read_file(disk, "/proc/self/mountinfo", kTextMax);
  if (!mounts) return none(disk, mounts.error().message);
  std::string why = "no hierarchy with memory is mounted";
  for (const Hierarchy& root : parse_mountinfo(*mounts)) {
    if (root.kind == CgroupKind::v2) {
      const auto has = io::read_file(disk, root.path + "/cgroup.controllers", kTextMax);
      if (!has || !has_word(*has, "memory")) continue;
    }
    auto made = make_in(disk, root, plan);
    if (made) return Cgroup(disk, root.kind, *std::move(made));
    why = made.error().message;
  }
  return none(disk, std::move(why));
}

Result<void> Cgroup::add(pid_t pid) {
  if (kind_ == CgroupKind::none) return {};
  return write_file(*disk_, path_ + "/cgroup.procs", fmt::to_string(pid));
}

std::optional<std::string> Cgroup::read(const char* file) const {
  if (kind_ == CgroupKind::none) return std::nullopt;
  auto text = io::read_file(*disk_, io::join(path_, file), kTextMax);
  if (!text) return std::nullopt;
  return *std::move(text);
}

std::vector<pid_t> Cgroup::members() const {
  std::vector<pid_t> all;
  const auto text = read("cgroup.procs");
  if (!text) return all;
  for (const std::string_view line : split(*text, '\n')) {
    const auto pid = parse_u64(line);
    // 0: a process of another pid namespace.
    if (pid && *pid > 0 && *pid <= INT32_MAX) all.push_back(static_cast<pid_t>(*pid));
  }
  return all;
}

bool Cgroup::kill_all() {
  return kind_ == CgroupKind::v2 && write_file(*disk_, path_ + "/cgroup.kill", "1").ok();
}

std::optional<uint64_t> Cgroup::peak_memory() const {
  auto text = read(kind_ == CgroupKind::v2 ? "memory.peak" : "memory.max_usage_in_bytes");
  if (!text) return std::nullopt;
  while (text->ends_with('\n')) text->pop_back();
  return parse_u64(*text);
}

std::optional<bool> Cgroup::oom_killed() const {
  const auto text = read(kind_ == CgroupKind::v2 ? "memory.events" : "memory.oom_control");
  if (!text) return std::nullopt;
  const auto times = number_of(*text, "oom_kill");
  if (!times) return std::nullopt;
  return *times > 0;
}

bool Cgroup::remove() {
  if (kind_ == CgroupKind::none) return true;
  const auto removed = disk_->remove_dir(path_);
  return removed.ok() || removed.error().code == Errc::not_found;
}

}  // namespace ff::shim
