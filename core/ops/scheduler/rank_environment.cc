// rank_environment.cc: variables of a rank, and the key of its attempt.
#include "ops/scheduler/rank_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "ops/shim/spawn.h"
#include "platform/base/bytes.h"

namespace ff::scheduler {
namespace {

// Paths of secrets of the submitting user.
constexpr std::array<std::string_view, 2> kSecrets = {"FF_KEY", "FF_TOKEN_FILE"};

using Variables = std::vector<std::pair<std::string, std::string>>;

// The place of the rank, and the variables of ff.
Variables variables_of(const RankInfo& place) {
  Variables own = {
      {"WORLD_SIZE", fmt::to_string(uint64_t{place.nodes} * place.processes)},
      {"RANK", fmt::to_string(place.rank())},
      {"LOCAL_RANK", fmt::to_string(place.local_rank)},
      {"LOCAL_WORLD_SIZE", fmt::to_string(place.processes)},
      {"NNODES", fmt::to_string(place.nodes)},
      {"NODE_RANK", fmt::to_string(place.node_rank)},
      {"MASTER_ADDR", place.first_address},
      {"MASTER_PORT", fmt::to_string(place.port)},
      {"FF_TASK", fmt::to_string(place.task)},
      {"FF_TASK_OF", place.scheduler},
      {"FF_TASK_ATTEMPT", fmt::to_string(place.attempt)},
      {"FF_TASK_RANK", fmt::format("{}.{}.{}", place.task, place.attempt, place.rank())},
      {"FF_TASK_DIR", place.task_dir},
  };
  if (!place.zone.empty()) own.emplace_back("FF_ZONE", place.zone);
  if (place.key_file) own.emplace_back("FF_KEY_FILE", *place.key_file);
  return own;
}

// What a login would set.
Variables login_variables(const RankInfo& place) {
  Variables login = {{"PATH", std::string(shim::kDefaultPath)}};
  if (!place.login) return login;
  login.emplace_back("HOME", place.login->home);
  login.emplace_back("USER", place.login->name);
  login.emplace_back("LOGNAME", place.login->name);
  login.emplace_back("SHELL", place.login->shell);
  return login;
}

}  // namespace

std::vector<std::string> rank_environment(const std::vector<std::string>& submitted,
                                          const RankInfo& place) {
  const Variables own = variables_of(place);
  Variables missing = login_variables(place);
  std::vector<std::string> all;
  for (const std::string& variable : submitted) {
    const std::string_view name = std::string_view(variable).substr(0, variable.find('='));
    std::erase_if(missing, [&](const auto& one) { return one.first == name; });
    const bool is_own =
        std::ranges::any_of(own, [&](const auto& one) { return one.first == name; });
    if (is_own || std::ranges::find(kSecrets, name) != kSecrets.end()) continue;
    all.push_back(variable);
  }
  for (const auto& [name, value] : missing) all.push_back(fmt::format("{}={}", name, value));
  for (const auto& [name, value] : own) all.push_back(fmt::format("{}={}", name, value));
  return all;
}

std::string rank_marker(const RankInfo& place) {
  return fmt::format("FF_TASK_RANK_OF={}.{}.{}.{}", place.scheduler, place.task, place.attempt,
                     place.rank());
}

auth::Key attempt_key(const auth::Key& cluster, const AttemptIdentity& job) {
  std::array<std::byte, sizeof(uint64_t) + sizeof(uint32_t)> numbers;
  store_le<uint64_t>(numbers.data(), job.task);
  store_le<uint32_t>(numbers.data() + sizeof(uint64_t), job.attempt);
  std::string message = "ff job|";
  message += as_text(numbers);
  message += job.scheduler;
  return auth::hmac_sha256(cluster, as_bytes(message));
}

}  // namespace ff::scheduler
