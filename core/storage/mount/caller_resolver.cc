// caller_resolver.cc: reads /proc/PID/status, "Groups:" and "Tgid:", and /proc/PID/stat.
#include "storage/mount/caller_resolver.h"

#include <algorithm>
#include <utility>

#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::mount {

namespace {

constexpr int64_t kGroupsCacheNs = kSecond;
constexpr size_t kCachedMax = 1024;
constexpr size_t kStatusMax = 64 * kKiB;

}  // namespace

std::vector<uint32_t> CallerResolver::groups_of(uint32_t pid) {
  std::vector<uint32_t> groups;
  const auto status = io::read_file(disk_, fmt::format("/proc/{}/status", pid), kStatusMax);
  if (!status) return groups;
  for (const std::string_view line : split(*status, '\n')) {
    if (!line.starts_with("Groups:")) continue;
    const size_t begin = std::min(line.find_first_of("0123456789"), line.size());
    for (const std::string_view word : split(line.substr(begin), ' ')) {
      const auto group = parse_u64(word);
      if (group && *group <= UINT32_MAX) groups.push_back(static_cast<uint32_t>(*group));
    }
  }
  if (groups.size() > meta::kGroupsMax) groups.resize(meta::kGroupsMax);
  return groups;
}

uint32_t CallerResolver::process_of(uint32_t thread) {
  if (thread == 0) return 0;
  const auto status = io::read_file(disk_, fmt::format("/proc/{}/status", thread), kStatusMax);
  if (!status) return 0;
  for (const std::string_view line : split(*status, '\n')) {
    if (!line.starts_with("Tgid:")) continue;
    const size_t begin = std::min(line.find_first_of("0123456789"), line.size());
    const auto process = parse_u64(line.substr(begin));
    if (process && *process <= UINT32_MAX) return static_cast<uint32_t>(*process);
  }
  return 0;
}

std::optional<size_t> CallerResolver::cpu_of(uint32_t thread) {
  if (thread == 0) return std::nullopt;
  const auto stat = io::read_file(disk_, fmt::format("/proc/{}/stat", thread), kStatusMax);
  // The name, in parentheses, may contain anything. "processor" is the 37th field after it.
  const size_t end = stat ? stat->rfind(')') : std::string::npos;
  if (end == std::string::npos) return std::nullopt;
  constexpr size_t kProcessor = 37;
  const auto fields = split(std::string_view(*stat).substr(end), ' ');
  if (fields.size() <= kProcessor) return std::nullopt;
  const auto cpu = parse_u64(fields[kProcessor]);
  return cpu ? std::optional<size_t>(*cpu) : std::nullopt;
}

meta::Caller CallerResolver::caller(uint32_t uid, uint32_t gid, uint32_t pid) {
  meta::Caller caller{.uid = uid, .gid = gid, .groups = {}};
  if (uid == 0 || pid == 0) return caller;
  const int64_t now_ns = clock_.steady_ns();
  const Key key{pid, uid, gid};
  const auto found = cached_.find(key);
  if (found != cached_.end() && now_ns - found->second.read_ns < kGroupsCacheNs) {
    caller.groups = found->second.groups;
    return caller;
  }
  if (cached_.size() >= kCachedMax) cached_.clear();
  caller.groups = groups_of(pid);
  cached_[key] = {caller.groups, now_ns};
  return caller;
}

}  // namespace ff::mount
