// authenticator.cc: from the access key to its identity, its secret and the signature.
#include "storage/s3/authenticator.h"

#include <algorithm>
#include <utility>

#include "platform/auth/revocations.h"
#include "storage/s3/access_key.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

namespace {

constexpr std::string_view kAmazonFields = "x-amz-";

Error unknown_access_key() {
  return s3_error(S3Code::invalid_access_key_id,
                  "The access key is not known here, has expired or was revoked. 'ff admin user "
                  "s3-key' prints the keys of a token.");
}

Result<void> check_no_page(const http::RequestHead& head) {
  if (http::is_from_program(head)) return {};
  return s3_error(
      S3Code::access_denied,
      "Without keys (--insecure), requests must be for 127.0.0.1 or localhost, and come "
      "from no web page.");
}

// A field that the signature does not cover could be anybody's.
Result<void> check_covered(const http::RequestHead& head, const SignatureClaim& claim) {
  for (const http::Field& field : head.fields) {
    if (!field.name.starts_with(kAmazonFields)) continue;
    if (std::ranges::find(claim.signed_fields, field.name) != claim.signed_fields.end()) continue;
    return s3_error(S3Code::access_denied, "The signature does not cover the field {}.",
                    field.name);
  }
  return {};
}

}  // namespace

UserTable::UserTable(Loop& loop, meta::MetaClient& metadata)
    : loop_(loop), metadata_(metadata), reading_(loop, 1) {}

Task<Result<void>> UserTable::refresh() {
  FF_CO_TRY(const auto users, co_await metadata_.users());
  users_.clear();
  for (const auto& user : users) {
    meta::Caller& caller = users_[user.uid()];
    caller.uid = user.uid();
    caller.gid = user.gid();
    caller.groups.assign(user.groups().begin(), user.groups().end());
  }
  read_ns_ = loop_.now_ns();
  co_return Result<void>();
}

Task<Result<meta::Caller>> UserTable::find(uint32_t uid) {
  FF_CO_TRY(const auto permit, co_await reading_.acquire(1));
  const bool fresh = read_ns_ != INT64_MIN && loop_.now_ns() - read_ns_ < kUserTableNs;
  if (!fresh || !users_.contains(uid)) {
    FF_CO_TRY(co_await refresh());
  }
  const auto found = users_.find(uid);
  if (found == users_.end()) co_return fail(Errc::not_found, "there is no user {}", uid);
  co_return found->second;
}

Result<void> Authenticator::check_time(const SignatureClaim& claim) const {
  const int64_t now_s = clock_.wall_ns() / kSecond;
  const int64_t signed_s = parse_signature_time(claim.time).value_or(0);
  if (claim.presigned) {
    if (now_s > signed_s + claim.expires_s) {
      return s3_error(S3Code::access_denied, "Request has expired");
    }
    if (now_s < signed_s - kSkewS) {
      return s3_error(S3Code::access_denied, "Request is not valid yet");
    }
    return {};
  }
  if (now_s > signed_s + kSkewS || now_s < signed_s - kSkewS) {
    return s3_error(S3Code::request_time_too_skewed,
                    "The time of the request, {}, differs from that of the server by more than 15 "
                    "minutes.",
                    claim.time);
  }
  return {};
}

Result<auth::Entity> Authenticator::verify(const http::RequestHead& head,
                                           const RequestTarget& target,
                                           Authentication& made) const {
  const SignatureClaim& claim = made.claim;
  auto entity = parse_access_key(claim.access_key);
  if (!entity) return unknown_access_key();
  const int64_t now_s = clock_.wall_ns() / kSecond;
  const bool valid = auth::kFileClients.contains(entity->role) &&
                     auth::check_valid(*keyring_->revocations(), *entity, now_s).ok();
  if (!valid) return unknown_access_key();
  auto client = keyring_->key_of(*entity);
  if (!client) return unknown_access_key();
  made.key = signing_key(secret_key_of(*client), claim);
  const std::string text = string_to_sign(claim, canonical_request(head, target, claim));
  const std::string right = sign(*made.key, text);
  if (!auth::constant_time_equal(as_bytes(right), as_bytes(claim.signature))) {
    return s3_error(S3Code::signature_does_not_match,
                    "The signature does not match. Check the secret key and how requests are "
                    "signed (signature version 4, path style).");
  }
  FF_TRY(check_time(claim));
  FF_TRY(check_covered(head, claim));
  return std::move(*entity);
}

Task<Result<Requester>> Authenticator::requester_of(auth::Entity entity) {
  Requester requester{
      .caller = {}, .name = entity.full_name(), .read_only = entity.read_only, .top = entity.path};
  if (entity.role != auth::Role::user) {
    requester.caller.uid = entity.uids.empty() ? 0 : entity.uids.front().first;
    requester.caller.gid = requester.caller.uid;
    co_return requester;
  }
  auto caller = co_await users_.find(entity.uids.empty() ? UINT32_MAX : entity.uids.front().first);
  if (!caller && caller.error().code == Errc::not_found) co_return unknown_access_key();
  FF_CO_TRY(requester.caller, std::move(caller));
  co_return requester;
}

Task<Result<Authentication>> Authenticator::check(const http::RequestHead& head,
                                                  const RequestTarget& target) {
  Authentication made;
  auto claim = parse_claim(head, target);
  if (keyring_ == nullptr) {
    FF_CO_TRY(check_no_page(head));
    made.requester.caller = self_;
    if (claim && *claim) {
      made.claim = std::move(**claim);
    } else {
      made.claim.payload = head.value("x-amz-content-sha256");
    }
    if (made.claim.payload.empty()) made.claim.payload = kUnsignedPayload;
    co_return made;
  }
  if (!claim) co_return std::move(claim).error();
  if (!*claim) {
    co_return s3_error(S3Code::access_denied, "The request is not signed.");
  }
  made.claim = std::move(**claim);
  FF_CO_TRY(auto entity, verify(head, target, made));
  FF_CO_TRY(made.requester, co_await requester_of(std::move(entity)));
  co_return made;
}

}  // namespace ff::s3
