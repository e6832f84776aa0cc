// AWS Signature Version 4: how clients of S3 prove that they know their secret key. The signature
// of a request covers its method, path, query, some header fields and the digest of its body; it
// comes in the Authorization field or in the query (a presigned URL). Bodies may come in chunks
// with signatures of their own, each of which covers the one before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/auth/key.h"
#include "platform/base/result.h"
#include "platform/http/request_head.h"
#include "storage/s3/uri.h"

namespace ff::s3 {

// What a signed request says about its signature.
struct SignatureClaim {
  std::string access_key;
  std::string day;                         // "20130524"
  std::string region;                      // "us-east-1"
  std::string service;                     // "s3"
  std::string time;                        // "20130524T000000Z"
  std::vector<std::string> signed_fields;  // names in lower case, in order
  std::string signature;                   // 64 hex digits
  std::string payload;                     // the digest of the body, or a word in its place
  bool presigned = false;
  int64_t expires_s = 0;  // a presigned URL: for how long from `time` on

  // "20130524/us-east-1/s3/aws4_request".
  std::string scope() const;
};

// Words in place of the digest of the body.
constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";
constexpr std::string_view kSignedChunks = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
constexpr std::string_view kSignedChunksTrailer = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
constexpr std::string_view kUnsignedChunksTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

// Empty: the request is not signed. Errors are S3's (s3_error.h).
Result<std::optional<SignatureClaim>> parse_claim(const http::RequestHead& head,
                                                  const RequestTarget& target);

std::string canonical_request(const http::RequestHead& head, const RequestTarget& target,
                              const SignatureClaim& claim);
std::string string_to_sign(const SignatureClaim& claim, std::string_view canonical);
// The key of one day, region and service.
auth::Key signing_key(std::string_view secret, const SignatureClaim& claim);
// 64 hex digits.
std::string sign(const auth::Key& key, std::string_view text);

// What signatures of chunks cover; `before`: the signature of the chunk or request before.
std::string chunk_string_to_sign(const SignatureClaim& claim, std::string_view before,
                                 std::string_view chunk_sha256_hex);
// The same for trailers: `lines` has each as "name:value\n".
std::string trailer_string_to_sign(const SignatureClaim& claim, std::string_view before,
                                   std::string_view lines);

// Seconds since 1970 of "20130524T000000Z"; empty: not such a time.
std::optional<int64_t> parse_signature_time(std::string_view text);

}  // namespace ff::s3
