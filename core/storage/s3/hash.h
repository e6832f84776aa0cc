// The digests and checksums of S3: MD5 (ETag, Content-MD5), SHA-1, SHA-256, CRC-32, CRC32C and
// CRC-64/NVME; and the HMAC of signatures.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "platform/auth/key.h"
#include "platform/base/bytes.h"
#include "platform/simd/md5.h"

// As <openssl/evp.h> has it.
struct evp_md_ctx_st;

namespace ff::s3 {

enum class HashKind : uint8_t { md5, sha1, sha256, crc32, crc32c, crc64nvme };

// Computes one of them incrementally.
class Hasher {
 public:
  explicit Hasher(HashKind kind);
  ~Hasher();
  Hasher(Hasher&& other) noexcept;
  Hasher& operator=(Hasher&& other) noexcept;

  void update(ByteView data);
  // The bytes of the digest, most significant first. Starts over.
  std::string finish();
  // Null: it is another digest. What is added to it counts.
  simd::Md5* md5() { return kind_ == HashKind::md5 ? &md5_ : nullptr; }

 private:
  void restart();

  HashKind kind_;
  evp_md_ctx_st* context_ = nullptr;  // null: MD5, or a CRC
  simd::Md5 md5_;
  uint64_t crc_ = 0;
};

std::string hash_of(HashKind kind, std::string_view text);
// In lower-case hex digits.
std::string sha256_hex(std::string_view text);
auth::Key hmac_sha256(ByteView key, std::string_view text);

std::string base64(std::string_view bytes);
// Empty: not valid base64.
std::optional<std::string> parse_base64(std::string_view text);
// Of hex digits in either case; empty: not valid.
std::optional<std::string> parse_hex(std::string_view text);

}  // namespace ff::s3
