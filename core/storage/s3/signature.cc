// signature.cc: the steps of "Authenticating Requests (AWS Signature Version 4)" of the S3 API
// Reference.
#include "storage/s3/signature.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "platform/base/text.h"
#include "platform/http/exchange.h"
#include "storage/s3/hash.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr int64_t kExpiresMaxS = 7 * 24 * 3600;
constexpr size_t kSignatureDigits = 64;

Error bad_authorization(std::string_view what) {
  return s3_error(S3Code::authorization_malformed, "The authorization is not valid: {}.", what);
}

Error bad_query(std::string_view what) {
  return s3_error(S3Code::authorization_query_error, "The signature of the URL is not valid: {}.",
                  what);
}

// "KEY/20130524/us-east-1/s3/aws4_request"
bool parse_credential(std::string_view text, SignatureClaim& claim) {
  const auto parts = split(text, '/');
  if (parts.size() != 5 || parts[4] != "aws4_request") return false;
  claim.access_key = parts[0];
  claim.day = parts[1];
  claim.region = parts[2];
  claim.service = parts[3];
  return true;
}

void parse_signed_fields(std::string_view text, SignatureClaim& claim) {
  for (const std::string_view name : split(text, ';')) claim.signed_fields.emplace_back(name);
}

Result<void> check_claim(const SignatureClaim& claim) {
  if (claim.service != "s3") return bad_authorization("its service is not s3");
  if (!claim.time.starts_with(claim.day) || claim.day.size() != 8) {
    return bad_authorization("its day is not that of the request");
  }
  if (!parse_signature_time(claim.time)) {
    return s3_error(S3Code::access_denied, "The request has no valid X-Amz-Date.");
  }
  if (claim.signature.size() != kSignatureDigits) {
    return bad_authorization("its signature has not 64 digits");
  }
  if (std::ranges::find(claim.signed_fields, "host") == claim.signed_fields.end()) {
    return bad_authorization("it does not cover the field host");
  }
  return {};
}

Result<SignatureClaim> parse_authorization(const http::RequestHead& head, std::string_view text) {
  SignatureClaim claim;
  if (!text.starts_with(kAlgorithm)) {
    return s3_error(S3Code::invalid_request,
                    "This server takes signatures of version 4 only (AWS4-HMAC-SHA256).");
  }
  text.remove_prefix(kAlgorithm.size());
  for (std::string_view part : split(text, ',')) {
    while (part.starts_with(' ')) part.remove_prefix(1);
    const size_t equals = std::min(part.find('='), part.size());
    const std::string_view name = part.substr(0, equals);
    const std::string_view value = part.substr(std::min(equals + 1, part.size()));
    if (name == "Credential" && !parse_credential(value, claim)) {
      return bad_authorization("its credential is not KEY/DAY/REGION/s3/aws4_request");
    }
    if (name == "SignedHeaders") parse_signed_fields(value, claim);
    if (name == "Signature") claim.signature = value;
  }
  claim.time = head.value("x-amz-date");
  if (claim.time.empty()) {
    const auto seconds = http::parse_date(head.value("date"));
    const time_t time = seconds.value_or(0);
    tm parts = {};
    ::gmtime_r(&time, &parts);
    char buffer[32] = {};
    if (seconds && ::strftime(buffer, sizeof buffer, "%Y%m%dT%H%M%SZ", &parts) > 0) {
      claim.time = buffer;
    }
  }
  claim.payload = head.value("x-amz-content-sha256");
  if (claim.payload.empty()) {
    return s3_error(S3Code::invalid_request, "The request has no x-amz-content-sha256.");
  }
  FF_TRY(check_claim(claim));
  return claim;
}

Result<SignatureClaim> parse_presigned(const http::RequestHead& head, const RequestTarget& target) {
  const auto value = [&target](std::string_view name) {
    const std::string* const found = target.find(name);
    return found == nullptr ? std::string() : *found;
  };
  SignatureClaim claim;
  claim.presigned = true;
  if (value("X-Amz-Algorithm") != kAlgorithm) return bad_query("its algorithm is not SHA-256");
  if (!parse_credential(value("X-Amz-Credential"), claim)) {
    return bad_query("its credential is not KEY/DAY/REGION/s3/aws4_request");
  }
  claim.time = value("X-Amz-Date");
  const auto expires = parse_u64(value("X-Amz-Expires"));
  if (!expires || *expires == 0 || *expires > kExpiresMaxS) {
    return bad_query("X-Amz-Expires is not from 1 second to 7 days");
  }
  claim.expires_s = static_cast<int64_t>(*expires);
  parse_signed_fields(value("X-Amz-SignedHeaders"), claim);
  claim.signature = value("X-Amz-Signature");
  claim.payload = value("X-Amz-Content-Sha256");
  if (claim.payload.empty()) claim.payload = head.value("x-amz-content-sha256");
  if (claim.payload.empty()) claim.payload = kUnsignedPayload;
  FF_TRY(check_claim(claim));
  return claim;
}

// Several blanks count as one.
std::string squeeze(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c != ' ' || text.empty() || text.back() != ' ') text += c;
  }
  return text;
}

std::string canonical_query(const RequestTarget& target, bool presigned) {
  std::vector<std::pair<std::string, std::string>> encoded;
  for (const auto& [name, value] : target.query) {
    if (presigned && name == "X-Amz-Signature") continue;
    encoded.emplace_back(percent_encode(name, false), percent_encode(value, false));
  }
  std::ranges::sort(encoded);
  std::string text;
  for (const auto& [name, value] : encoded) {
    text += fmt::format("{}{}={}", text.empty() ? "" : "&", name, value);
  }
  return text;
}

std::string canonical_fields(const http::RequestHead& head, const SignatureClaim& claim) {
  std::string text;
  for (const std::string& name : claim.signed_fields) {
    std::string values;
    bool first = true;
    for (const http::Field& field : head.fields) {
      if (field.name != name) continue;
      if (!std::exchange(first, false)) values += ',';
      values += squeeze(field.value);
    }
    text += fmt::format("{}:{}\n", name, values);
  }
  return text;
}

ByteView key_bytes(const auth::Key& key) { return {key.data(), key.size()}; }

}  // namespace

std::string SignatureClaim::scope() const {
  return fmt::format("{}/{}/{}/aws4_request", day, region, service);
}

std::optional<int64_t> parse_signature_time(std::string_view text) {
  tm parts = {};
  const std::string copy(text);
  const char* const end = ::strptime(copy.c_str(), "%Y%m%dT%H%M%SZ", &parts);
  if (end == nullptr || *end != '\0' || copy.size() != 16) return std::nullopt;
  return ::timegm(&parts);
}

Result<std::optional<SignatureClaim>> parse_claim(const http::RequestHead& head,
                                                  const RequestTarget& target) {
  const std::string* const authorization = head.find("authorization");
  if (authorization != nullptr) {
    FF_TRY(auto claim, parse_authorization(head, *authorization));
    return std::optional(std::move(claim));
  }
  if (target.has("X-Amz-Algorithm")) {
    FF_TRY(auto claim, parse_presigned(head, target));
    return std::optional(std::move(claim));
  }
  return std::optional<SignatureClaim>();
}

std::string canonical_request(const http::RequestHead& head, const RequestTarget& target,
                              const SignatureClaim& claim) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", head.method, percent_encode(target.path, true),
                     canonical_query(target, claim.presigned), canonical_fields(head, claim),
                     fmt::join(claim.signed_fields, ";"), claim.payload);
}

std::string string_to_sign(const SignatureClaim& claim, std::string_view canonical) {
  return fmt::format("{}\n{}\n{}\n{}", kAlgorithm, claim.time, claim.scope(),
                     sha256_hex(canonical));
}

auth::Key signing_key(std::string_view secret, const SignatureClaim& claim) {
  std::string first = "AWS4";
  first += secret;
  const auth::Key day = hmac_sha256(as_bytes(first), claim.day);
  auth::cleanse(first.data(), first.size());
  const auth::Key region = hmac_sha256(key_bytes(day), claim.region);
  const auth::Key service = hmac_sha256(key_bytes(region), claim.service);
  return hmac_sha256(key_bytes(service), "aws4_request");
}

std::string sign(const auth::Key& key, std::string_view text) {
  return hex(key_bytes(hmac_sha256(key_bytes(key), text)));
}

std::string chunk_string_to_sign(const SignatureClaim& claim, std::string_view before,
                                 std::string_view chunk_sha256_hex) {
  return fmt::format("{}-PAYLOAD\n{}\n{}\n{}\n{}\n{}", kAlgorithm, claim.time, claim.scope(),
                     before, sha256_hex(""), chunk_sha256_hex);
}

std::string trailer_string_to_sign(const SignatureClaim& claim, std::string_view before,
                                   std::string_view lines) {
  return fmt::format("{}-TRAILER\n{}\n{}\n{}\n{}", kAlgorithm, claim.time, claim.scope(), before,
                     sha256_hex(lines));
}

}  // namespace ff::s3
