// rank_lease.cc: the single line of the file.
#include "ops/shim/rank_lease.h"

#include <fmt/format.h>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/simd/crc32c.h"

namespace ff::shim {
namespace {

constexpr uint64_t kMost = 4096;  // bytes; a file of an older agent may be longer

std::string sum_of(std::string_view text) {
  return fmt::format("{:08x}", simd::crc32c(as_bytes(text)));
}

}  // namespace

std::string lease_text(const RankLease& lease) {
  const std::string text =
      fmt::format("{} {:020} {:020}", lease.boot, lease.renewed_ns, lease.lease_ns);
  return text + " " + sum_of(text) + "\n";
}

std::optional<RankLease> parse_lease(std::string_view text, std::string_view boot) {
  const size_t end = text.find('\n');
  if (end == text.npos) return std::nullopt;
  text = text.substr(0, end);
  const auto words = split(text, ' ');
  if (words.size() != 4 || words[0] != boot) return std::nullopt;
  if (words[3] != sum_of(text.substr(0, text.rfind(' ')))) return std::nullopt;
  const auto renewed_ns = parse_u64(words[1]);
  const auto lease_ns = parse_u64(words[2]);
  if (!renewed_ns || !lease_ns) return std::nullopt;
  if (*renewed_ns > INT64_MAX / 2 || *lease_ns > INT64_MAX / 2) return std::nullopt;
  return RankLease{.boot = std::string(boot),
                   .renewed_ns = static_cast<int64_t>(*renewed_ns),
                   .lease_ns = static_cast<int64_t>(*lease_ns)};
}

std::optional<RankLease> read_lease(io::Disk& disk, const std::string& path,
                                    std::string_view boot) {
  const auto text = io::read_file(disk, path, kMost);
  if (!text) return std::nullopt;
  return parse_lease(*text, boot);
}

}  // namespace ff::shim
