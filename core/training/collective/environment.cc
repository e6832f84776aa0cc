// environment.cc: parsing of variables; each error names its variable.
#include "training/collective/environment.h"

#include <unistd.h>

#include "platform/base/text.h"
#include "platform/simd/digest.h"

namespace ff::collective {

namespace {

constexpr uint32_t kPortStep = 5;

std::optional<std::string> variable(const GetVariable& get, const char* name) {
  const char* const value = get(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

Result<std::string> required(const GetVariable& get, const char* name) {
  if (auto value = variable(get, name)) return std::move(*value);
  Error error = fail(Errc::usage, "{} is not set", name);
  error.hint =
      "Start the program with torchrun, or set its variables: RANK, WORLD_SIZE, MASTER_ADDR, "
      "MASTER_PORT.";
  return error;
}

Result<uint32_t> number_of(const char* name, const std::string& text, uint64_t max) {
  const auto number = parse_u64(text);
  if (number && *number <= max) return static_cast<uint32_t>(*number);
  return fail(Errc::usage, "{}={} is not a number from 0 to {}", name, text, max);
}
Result<uint32_t> number(const GetVariable& get, const char* name, uint64_t max) {
  FF_TRY(const std::string text, required(get, name));
  return number_of(name, text, max);
}
Result<uint32_t> number_or(const GetVariable& get, const char* name, uint64_t max,
                           uint32_t otherwise) {
  const auto text = variable(get, name);
  if (!text) return otherwise;
  return number_of(name, *text, max);
}

// The local rank, and the ranks of this host.
Result<void> read_rank(const GetVariable& get, std::optional<uint32_t> local_ranks, HostRank& self,
                       uint32_t ranks) {
  FF_TRY(const uint32_t rank, number(get, "RANK", kWorldRanksMax));
  if (rank >= ranks) {
    return fail(Errc::usage, "RANK={} is not below WORLD_SIZE={}", rank, ranks);
  }
  self.ranks = local_ranks.value_or(ranks);
  if (!local_ranks) {
    FF_TRY(self.ranks, number_or(get, "LOCAL_WORLD_SIZE", kHostRanksMax, ranks));
    const uint32_t local = self.ranks == ranks ? rank : UINT32_MAX;
    FF_TRY(self.rank, number_or(get, "LOCAL_RANK", kHostRanksMax, local));
    if (self.rank == UINT32_MAX) return fail(Errc::usage, "LOCAL_RANK is not set");
  }
  if (self.ranks == 0 || self.rank >= self.ranks || self.rank > rank ||
      rank - self.rank + self.ranks > ranks) {
    return fail(Errc::usage, "rank {} of {} is local rank {} of {}: these do not fit together",
                rank, ranks, self.rank, self.ranks);
  }
  self.first_rank = rank - self.rank;
  return {};
}

// Of a variable that is 0 or 1.
Result<bool> flag_or(const GetVariable& get, const char* name, bool otherwise) {
  const auto text = variable(get, name);
  if (!text) return otherwise;
  if (*text != "0" && *text != "1") return fail(Errc::usage, "{}={}: expected 0 or 1", name, *text);
  return *text == "1";
}

Result<void> read_pipeline_options(const GetVariable& get, PipelineOptions& pipeline) {
  if (const auto text = variable(get, "FF_ALGO")) {
    const auto algorithm = algorithm_of(*text);
    if (!algorithm) return fail(Errc::usage, "FF_ALGO={}: expected auto, tree or ring", *text);
    pipeline.algorithm = *algorithm;
  }
  if (const auto text = variable(get, "FF_WIRE")) {
    const auto wire = simd::wire_type_of(*text);
    if (!wire) return fail(Errc::usage, "FF_WIRE={}: expected none, bf16 or fp8", *text);
    pipeline.wire = *wire;
  }
  FF_TRY(pipeline.deterministic, flag_or(get, "FF_DETERMINISTIC", pipeline.deterministic));
  return {};
}

}  // namespace

bool has_job(const GetVariable& get) { return variable(get, "WORLD_SIZE").has_value(); }

Result<bool> read_pin_threads(const GetVariable& get) { return flag_or(get, "FF_PIN", true); }

Result<auth::Key> read_job_key(io::Disk& disk, const std::string& path) {
  if (path != "-") return auth::read_key_file(disk, path);
  auth::SecretText digits(2 * auth::kKeyBytes, '\0');
  for (size_t at = 0; at < digits.size();) {
    const ssize_t got = ::read(STDIN_FILENO, digits.data() + at, digits.size() - at);
    if (got <= 0) return fail(Errc::refused, "standard input has no key");
    at += static_cast<size_t>(got);
  }
  const auto key = auth::parse_key(digits);
  if (!key) return fail(Errc::corrupt, "standard input is not a key of 64 hex digits");
  return *key;
}

Result<JobConfig> read_job_config(const GetVariable& get, std::optional<uint32_t> local_ranks,
                                  io::Disk& disk) {
  JobConfig config;
  FF_TRY(config.network.ranks, number(get, "WORLD_SIZE", kWorldRanksMax));
  FF_TRY(read_rank(get, local_ranks, config.self, config.network.ranks));
  FF_TRY(config.network.at.host, required(get, "MASTER_ADDR"));
  FF_TRY(const uint32_t master_port, number(get, "MASTER_PORT", UINT16_MAX));
  // A short name, however long the host name is.
  const std::string endpoint = fmt::format("{}:{}", config.network.at.host, master_port);
  const auto digest = simd::fingerprint(simd::DigestKind::xxh128, as_bytes(endpoint)).digest.hex();
  config.self.job = fmt::format("{}-{}", digest, config.self.first_rank);
  if (config.network.ranks == config.self.ranks) return config;
  FF_TRY(const uint32_t port, number_or(get, "FF_PORT", UINT16_MAX, master_port + kPortStep));
  if (port > UINT16_MAX) {
    return fail(Errc::usage, "MASTER_PORT={} leaves no port above it: set FF_PORT", master_port);
  }
  config.network.at.port = static_cast<uint16_t>(port);
  config.network.zone = variable(get, "FF_ZONE").value_or("0");
  if (config.network.zone.size() > kZoneNameMax) {
    return fail(Errc::usage, "FF_ZONE={}: a name has at most {} bytes", config.network.zone,
                kZoneNameMax);
  }
  FF_TRY(read_pipeline_options(get, config.network.pipeline));
  if (const auto text = variable(get, "FF_NET")) {
    if (*text != "auto" && *text != "tcp" && *text != "verbs") {
      return fail(Errc::usage, "FF_NET={}: expected auto, tcp or verbs", *text);
    }
    if (*text == "tcp") config.network.transport.mode = net::NetMode::tcp;
    if (*text == "verbs") config.network.transport.mode = net::NetMode::verbs;
  }
  if (const auto text = variable(get, "FF_NET_SECURITY")) {
    if (*text != "tls" && *text != "trusted-network") {
      return fail(Errc::usage, "FF_NET_SECURITY={}: expected tls or trusted-network", *text);
    }
    config.network.transport.trusted_network = *text == "trusted-network";
  }
  if (const auto path = variable(get, "FF_KEY_FILE")) {
    FF_TRY(config.network.key, read_job_key(disk, *path));
  }
  return config;
}

}  // namespace ff::collective
