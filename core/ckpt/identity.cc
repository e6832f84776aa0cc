// identity.cc: the user by number and name, and the environment of a job's ranks.
#include "ckpt/identity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/units.h"
#include "io/files.h"

namespace ff::ckpt {
namespace {

constexpr uint64_t kPasswdMax = 16 * kMiB;

std::string user_name(io::Disk& disk, uint32_t uid) {
  const auto passwd = io::read_file(disk, "/etc/passwd", kPasswdMax);
  std::string_view rest = passwd ? std::string_view(*passwd) : std::string_view();
  const std::string id = std::to_string(uid);
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const size_t name_end = line.find(':');
    const size_t password_end = name_end == line.npos ? line.npos : line.find(':', name_end + 1);
    if (password_end == line.npos) continue;
    if (line.substr(password_end + 1).starts_with(id + ":")) {
      return std::string(line.substr(0, name_end));
    }
  }
  return "uid-" + id;
}

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

Identity identity_of(io::Disk& disk, std::string host, std::string ff_version) {
  const uint32_t uid = ::geteuid();
  return {.user = user_name(disk, uid),
          .host = std::move(host),
          .uid = uid,
          .ff_version = std::move(ff_version)};
}

std::string attempt_of_environment() {
  if (const auto given = variable("FF_ATTEMPT"); !given.empty()) return std::string(given);
  const auto run = variable("TORCHELASTIC_RUN_ID");
  if (run.empty()) return {};
  const auto restarts = variable("TORCHELASTIC_RESTART_COUNT");
  return fmt::format("{}.{}", run, restarts.empty() ? "0" : restarts);
}

}  // namespace ff::ckpt
