// environment.cc: variables to numbers, each with an error of its own.
#include "training/collective/environment.h"

#include <unistd.h>

#include "platform/base/text.h"
#include "platform/simd/digest.h"

namespace ff::collective {

namespace {

constexpr uint32_t kPortStep = 5;

std::optional<std::string> variable(const Variables& get, const char* name) {
  const char* const value = get(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

Result<std::string> needed(const Variables& get, const char* name) {
  if (auto value = variable(get, name)) return std::move(*value);
  Error error = fail(Errc::usage, "{} is not set", name);
  error.hint =
      "Start it with torchrun, or set what torchrun sets: RANK, WORLD_SIZE, MASTER_ADDR, "
      "MASTER_PORT.";
  return error;
}

Result<uint32_t> number_of(const char* name, const std::string& text, uint64_t most) {
  const auto number = parse_u64(text);
  if (number && *number <= most) return static_cast<uint32_t>(*number);
  return fail(Errc::usage, "{}={} is no number from 0 to {}", name, text, most);
}
Result<uint32_t> number(const Variables& get, const char* name, uint64_t most) {
  FF_TRY(const std::string text, needed(get, name));
  return number_of(name, text, most);
}
Result<uint32_t> number_or(const Variables& get, const char* name, uint64_t most, uint32_t other) {
  const auto text = variable(get, name);
  if (!text) return other;
  return number_of(name, *text, most);
}

// Where on its host the rank is.
Result<void> place(const Variables& get, std::optional<uint32_t> here, HostRank& self,
                   uint32_t ranks) {
  FF_TRY(const uint32_t rank, number(get, "RANK", kWorldRanksMax));
  if (rank >= ranks) {
    return fail(Errc::usage, "RANK={} is not below WORLD_SIZE={}", rank, ranks);
  }
  self.ranks = here.value_or(ranks);
  if (!here) {
    FF_TRY(self.ranks, number_or(get, "LOCAL_WORLD_SIZE", kHostRanksMax, ranks));
    const uint32_t local = self.ranks == ranks ? rank : UINT32_MAX;
    FF_TRY(self.rank, number_or(get, "LOCAL_RANK", kHostRanksMax, local));
    if (self.rank == UINT32_MAX) return fail(Errc::usage, "LOCAL_RANK is not set");
  }
  if (self.ranks == 0 || self.rank >= self.ranks || self.rank > rank ||
      rank - self.rank + self.ranks > ranks) {
    return fail(Errc::usage, "rank {} of {} is local rank {} of {}: these do not fit", rank, ranks,
                self.rank, self.ranks);
  }
  self.first_rank = rank - self.rank;
  return {};
}

// Of one that is 0 or 1.
Result<bool> flag_or(const Variables& get, const char* name, bool other) {
  const auto text = variable(get, name);
  if (!text) return other;
  if (*text != "0" && *text != "1") return fail(Errc::usage, "{}={}: 0 or 1", name, *text);
  return *text == "1";
}

Result<void> read_flow(const Variables& get, FlowOptions& flow) {
  if (const auto text = variable(get, "FF_ALGO")) {
    const auto algorithm = algorithm_of(*text);
    if (!algorithm) return fail(Errc::usage, "FF_ALGO={}: auto, tree or ring", *text);
    flow.algorithm = *algorithm;
  }
  if (const auto text = variable(get, "FF_WIRE")) {
    const auto wire = simd::wire_of(*text);
    if (!wire) return fail(Errc::usage, "FF_WIRE={}: none, bf16 or fp8", *text);
    flow.wire = *wire;
  }
  FF_TRY(flow.deterministic, flag_or(get, "FF_DETERMINISTIC", flow.deterministic));
  return {};
}

}  // namespace

bool names_job(const Variables& get) { return variable(get, "WORLD_SIZE").has_value(); }

Result<bool> pins(const Variables& get) { return flag_or(get, "FF_PIN", true); }

Result<auth::Key> read_job_key(io::Disk& disk, const std::string& path) {
  if (path != "-") return auth::read_key_file(disk, path);
  std::string digits(2 * auth::kKeyBytes, '\0');
  for (size_t at = 0; at < digits.size();) {
    const ssize_t got = ::read(STDIN_FILENO, digits.data() + at, digits.size() - at);
    if (got <= 0) return fail(Errc::refused, "no key came on standard input");
    at += static_cast<size_t>(got);
  }
  const auto key = auth::parse_key(digits);
  if (!key) return fail(Errc::corrupt, "what came on standard input is no key of 64 hex digits");
  return *key;
}

Result<JobPart> job_of(const Variables& get, std::optional<uint32_t> here, io::Disk& disk) {
  JobPart part;
  FF_TRY(part.network.ranks, number(get, "WORLD_SIZE", kWorldRanksMax));
  FF_TRY(place(get, here, part.self, part.network.ranks));
  FF_TRY(part.network.at.host, needed(get, "MASTER_ADDR"));
  FF_TRY(const uint32_t master_port, number(get, "MASTER_PORT", UINT16_MAX));
  // In a few characters, whatever the host is called.
  const std::string meeting = fmt::format("{}:{}", part.network.at.host, master_port);
  const auto digest = simd::fingerprint(simd::DigestKind::xxh128, as_bytes(meeting)).digest.hex();
  part.self.job = fmt::format("{}-{}", digest, part.self.first_rank);
  if (part.network.ranks == part.self.ranks) return part;
  FF_TRY(const uint32_t port, number_or(get, "FF_PORT", UINT16_MAX, master_port + kPortStep));
  if (port > UINT16_MAX) {
    return fail(Errc::usage, "MASTER_PORT={} leaves no port above it: set FF_PORT", master_port);
  }
  part.network.at.port = static_cast<uint16_t>(port);
  FF_TRY(part.network.zone, number_or(get, "FF_ZONE", UINT32_MAX - 1, 0));
  FF_TRY(read_flow(get, part.network.flow));
  if (const auto text = variable(get, "FF_NET")) {
    if (*text != "auto" && *text != "tcp" && *text != "verbs") {
      return fail(Errc::usage, "FF_NET={}: auto, tcp or verbs", *text);
    }
    if (*text == "tcp") part.network.transport.use = net::NetUse::tcp;
    if (*text == "verbs") part.network.transport.use = net::NetUse::verbs;
  }
  if (const auto path = variable(get, "FF_KEY_FILE")) {
    FF_TRY(part.network.transport.key, read_job_key(disk, *path));
  }
  return part;
}

}  // namespace ff::collective
