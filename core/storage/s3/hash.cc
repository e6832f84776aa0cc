// hash.cc: OpenSSL's digests; MD5 and CRCs of our own, and one of libdeflate.
#include "storage/s3/hash.h"

#include <libdeflate.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/text.h"
#include "platform/simd/crc32c.h"
#include "storage/s3/uri.h"

namespace ff::s3 {

namespace {

// Null: not of OpenSSL.
const EVP_MD* digest_of(HashKind kind) {
  switch (kind) {
    case HashKind::sha1: return EVP_sha1();
    case HashKind::sha256: return EVP_sha256();
    case HashKind::md5:
    case HashKind::crc32:
    case HashKind::crc32c:
    case HashKind::crc64nvme: return nullptr;
  }
  return nullptr;
}

// CRC-64/NVME: the polynomial 0xAD93D23594C93659, reflected. Eight bytes at a time ("slicing by
// 8"): table i has the CRC of a byte with i zero bytes behind it.
constexpr uint64_t kCrc64Polynomial = 0x9A6C9329AC4BC9B5;
using Crc64Tables = std::array<std::array<uint64_t, 256>, 8>;

constexpr Crc64Tables make_crc64_tables() {
  Crc64Tables tables = {};
  for (uint64_t byte = 0; byte < 256; byte++) {
    uint64_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCrc64Polynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t i = 1; i < tables.size(); i++) {
    for (size_t byte = 0; byte < 256; byte++) {
      const uint64_t before = tables[i - 1][byte];
      tables[i][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}
constexpr Crc64Tables kCrc64Tables = make_crc64_tables();

uint64_t crc64nvme(ByteView data, uint64_t seed) {
  uint64_t crc = ~seed;
  for (; data.size() >= 8; data = data.subspan(8)) {
    const uint64_t word = crc ^ load_le<uint64_t>(data.data());
    crc = 0;
    for (size_t i = 0; i < 8; i++) crc ^= kCrc64Tables[7 - i][(word >> (8 * i)) & 0xFF];
  }
  for (const std::byte byte : data) {
    crc = (crc >> 8) ^ kCrc64Tables[0][(crc ^ static_cast<uint64_t>(byte)) & 0xFF];
  }
  return ~crc;
}

const unsigned char* byte_data(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

Hasher::Hasher(HashKind kind) : kind_(kind) {
  if (digest_of(kind) != nullptr) {
    context_ = EVP_MD_CTX_new();
    FF_CHECK(context_ != nullptr);
  }
  restart();
}

Hasher::~Hasher() { EVP_MD_CTX_free(context_); }

Hasher::Hasher(Hasher&& other) noexcept
    : kind_(other.kind_),
      context_(std::exchange(other.context_, nullptr)),
      md5_(other.md5_),
      crc_(other.crc_) {}

Hasher& Hasher::operator=(Hasher&& other) noexcept {
  std::swap(kind_, other.kind_);
  std::swap(context_, other.context_);
  std::swap(md5_, other.md5_);
  std::swap(crc_, other.crc_);
  return *this;
}

void Hasher::restart() {
  crc_ = 0;
  md5_ = simd::Md5();
  if (context_ != nullptr) FF_CHECK(EVP_DigestInit_ex(context_, digest_of(kind_), nullptr) == 1);
}

void Hasher::update(ByteView data) {
  if (context_ != nullptr) {
    FF_CHECK(EVP_DigestUpdate(context_, data.data(), data.size()) == 1);
  } else if (kind_ == HashKind::md5) {
    md5_.update(data);
  } else if (kind_ == HashKind::crc32) {
    crc_ = ::libdeflate_crc32(static_cast<uint32_t>(crc_), data.data(), data.size());
  } else if (kind_ == HashKind::crc32c) {
    crc_ = simd::crc32c(data, static_cast<uint32_t>(crc_));
  } else {
    crc_ = crc64nvme(data, crc_);
  }
}

std::string Hasher::finish() {
  std::string bytes;
  if (context_ != nullptr) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
    unsigned size = 0;
    FF_CHECK(EVP_DigestFinal_ex(context_, digest.data(), &size) == 1);
    bytes.assign(reinterpret_cast<const char*>(digest.data()), size);
  } else if (kind_ == HashKind::md5) {
    bytes = as_text(md5_.finish());
  } else {
    const int bits = kind_ == HashKind::crc64nvme ? 64 : 32;
    for (int shift = bits - 8; shift >= 0; shift -= 8) bytes += static_cast<char>(crc_ >> shift);
  }
  restart();
  return bytes;
}

std::string hash_of(HashKind kind, std::string_view text) {
  Hasher hasher(kind);
  hasher.update(as_bytes(text));
  return hasher.finish();
}

std::string sha256_hex(std::string_view text) {
  return hex(as_bytes(hash_of(HashKind::sha256, text)));
}

auth::Key hmac_sha256(ByteView key, std::string_view text) {
  auth::Key mac;
  unsigned size = 0;
  FF_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), byte_data(text),
                text.size(), reinterpret_cast<unsigned char*>(mac.data()), &size) != nullptr);
  FF_CHECK(size == mac.size());
  return mac;
}

std::string base64(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), byte_data(bytes),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

std::optional<std::string> parse_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()), byte_data(text),
                                   static_cast<int>(text.size()));
  if (size != static_cast<int>(bytes.size())) return std::nullopt;
  if (text.ends_with("==")) bytes.pop_back();
  if (text.ends_with('=')) bytes.pop_back();
  if (base64(bytes) != text) return std::nullopt;  // blanks around it, other padding
  return bytes;
}

std::optional<std::string> parse_hex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string escaped;
  for (size_t i = 0; i < text.size(); i += 2) escaped.append("%").append(text.substr(i, 2));
  return percent_decode(escaped);
}

}  // namespace ff::s3
