// record_checksum.cc: the checksum suffix of stored values.
#include "platform/kv/record_checksum.h"

#include <bit>
#include <cerrno>

#include "platform/base/bytes.h"
#include "platform/base/text.h"
#include "platform/simd/crc32c.h"

namespace ff::kv {

namespace {

constexpr uint32_t kRecordChecksumMagic = 0x01766607;
// The suffix of a damaged record differs from the magic in at most so many bits. An old value
// without checksum differs in more, with a probability of all but one in a million.
constexpr int kFlippedMax = 3;
constexpr size_t kPrefix = 4;

uint32_t magic_of(std::string_view stored) {
  return load_le<uint32_t>(as_bytes(stored.substr(stored.size() - kRecordChecksumBytes, 4)).data());
}

}  // namespace

std::string with_checksum(std::string_view key, std::string_view value) {
  std::string stored;
  stored.reserve(value.size() + kRecordChecksumBytes);
  stored.append(value);
  append_le(stored, kRecordChecksumMagic);
  append_le(stored, simd::crc32c(as_bytes(stored), simd::crc32c(as_bytes(key))));
  return stored;
}

bool checksum_matches(std::string_view key, std::string_view stored) {
  if (stored.size() < kRecordChecksumBytes || magic_of(stored) != kRecordChecksumMagic)
    return false;
  const std::string_view covered = stored.substr(0, stored.size() - 4);
  const auto crc = load_le<uint32_t>(as_bytes(stored.substr(covered.size())).data());
  return crc == simd::crc32c(as_bytes(covered), simd::crc32c(as_bytes(key)));
}

Result<std::string> verified_value(std::string_view key, std::string stored) {
  if (!checksum_matches(key, stored)) return damaged_record(key);
  stored.resize(stored.size() - kRecordChecksumBytes);
  return stored;
}

bool lacks_checksum(std::string_view stored) {
  return stored.size() < kRecordChecksumBytes ||
         std::popcount(magic_of(stored) ^ kRecordChecksumMagic) > kFlippedMax;
}

Error damaged_record(std::string_view key) {
  Error error = fail(Errc::corrupt, "the store's record {} is damaged", key_text(key));
  error.hint = std::string(
      "Check the whole store with ff admin fsck; restore it with ff admin restore --name.");
  error.sys = EIO;
  return error;
}

// Most begin with four letters and a number (meta/keys.h).
std::string key_text(std::string_view key) {
  if (key.size() < kPrefix + 8) return fmt::format("\"{}\"", printable(key));
  const auto number = __builtin_bswap64(load_le<uint64_t>(as_bytes(key.substr(kPrefix, 8)).data()));
  const std::string_view rest = key.substr(kPrefix + 8);
  const std::string more = rest.empty() ? "" : fmt::format(" \"{}\"", printable(rest));
  return fmt::format("{} {}{}", printable(key.substr(0, kPrefix)), number, more);
}

}  // namespace ff::kv
