// etcd_gateway.cc: requests and answers as JSON, and the choice of the member.
#include "platform/kv/etcd_gateway.h"

#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/clock.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/net/address.h"

namespace ff::kv {

namespace {

using Json = nlohmann::json;

// After this time a member counts as failed and the next one is used. Longer than an election.
constexpr int64_t kAnswerNs = 3 * kSecond;
constexpr int kDefaultPort = 2379;

// gRPC status codes that the gateway forwards.
enum Code : int {
  kUnknown = 2,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kAborted = 10,
  kOutOfRange = 11,
  kInternal = 13,
  kUnavailable = 14,
  kUnauthenticated = 16,
};

std::string encode(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

Error nonsense(std::string_view what) {
  return fail(Errc::failed, "etcd sent an invalid answer: {}", what);
}

Result<std::string> decode(const std::string& text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (text.size() % 4 != 0 || size < 0) return nonsense("a byte string that is not base64");
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') padding++;
  bytes.resize(static_cast<size_t>(size) - padding);
  return bytes;
}

// A member of a JSON object, or an empty value: the gateway omits zero, false and empty values.
const Json& member(const Json& object, const char* name) {
  static const Json kNothing;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? *found : kNothing;
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : ""; }

int64_t number_of(const Json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  const std::string text = text_of(value);
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Result<EtcdGateway::Value> value_of(const Json& kv, size_t prefix) {
  EtcdGateway::Value value;
  FF_TRY(value.key, decode(text_of(member(kv, "key"))));
  FF_TRY(value.value, decode(text_of(member(kv, "value"))));
  if (value.key.size() < prefix) return nonsense("a key that was not asked for");
  value.key.erase(0, prefix);
  value.revision = number_of(member(kv, "mod_revision"));
  return value;
}

// Converts an error reply. `endpoint` is put before etcd's message.
Error refusal(const HttpThread::Reply& reply, const Json& json, const std::string& endpoint) {
  const std::string words = text_of(member(json, "error"));
  if (words.empty()) {
    Error error = fail(Errc::failed, "{}: HTTP status {} instead of an answer of etcd", endpoint,
                       reply.status);
    error.hint = "Name the client addresses of etcd 3.4 or later (port 2379 by default).";
    return error;
  }
  const auto error = [&](Errc code) { return fail(code, "{}: {}", endpoint, words); };
  const bool full = words.find("database space exceeded") != std::string::npos;
  switch (number_of(member(json, "code"))) {
    case kUnknown:
    case kDeadlineExceeded:
    case kAborted:
    case kInternal:
    case kUnavailable: return error(Errc::unreachable);
    case kNotFound: return error(Errc::not_found);
    case kOutOfRange:
      return error(words.find("future") != std::string::npos ? Errc::busy : Errc::not_found);
    case kPermissionDenied:
    case kUnauthenticated: return error(Errc::refused);
    case kResourceExhausted: {
      if (!full) return error(Errc::unreachable);  // too many requests: retry
      Error quota = error(Errc::disk_full);
      quota.hint = "Compact and defragment etcd, then 'etcdctl alarm disarm'.";
      return quota;
    }
    default: return error(Errc::failed);
  }
}

Json range_request(const Range& range, const std::string& prefix, int64_t revision, bool local) {
  Json request = {{"key", encode(prefix + range.begin)}};
  if (!range.end.empty()) {
    request["range_end"] = encode(prefix + range.end);
    request["limit"] = std::to_string(range.limit);
  }
  if (revision != 0) request["revision"] = std::to_string(revision);
  if (local) request["serializable"] = true;
  return {{"request_range", std::move(request)}};
}

Json compare_request(const EtcdGateway::Compare& compare, const std::string& key) {
  return {{"key", encode(key)},
          {"target", "MOD"},
          {"result", "EQUAL"},
          {"mod_revision", std::to_string(compare.revision)}};
}

}  // namespace

Result<EtcdOptions> parse_etcd_url(std::string_view url) {
  const auto bad = [&](std::string_view why) {
    return Error{Errc::usage, fmt::format("'{}': {}", printable(url), why),
                 "An etcd cluster is named etcd://HOST:PORT,HOST:PORT,HOST:PORT/PREFIX, a database "
                 "postgres://USER@HOST,HOST/DATABASE."};
  };
  const bool tls = url.starts_with("etcds://");
  if (!tls && !url.starts_with("etcd://")) return bad("does not begin with etcd:// or etcds://");
  std::string_view rest = url.substr(url.find("://") + 3);
  EtcdOptions options;
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view prefix = rest.substr(slash + 1);
    if (prefix.find('/') != std::string_view::npos) return bad("the prefix holds a '/'");
    if (!prefix.empty()) options.prefix = prefix;
    rest = rest.substr(0, slash);
  }
  for (const std::string_view host : split(rest, ',')) {
    if (host.empty()) return bad("a host is missing");
    const size_t colon = host.rfind(':');
    const bool port = colon != host.npos && host.find(']', colon) == host.npos;
    const auto full = port ? std::string(host) : fmt::format("{}:{}", host, kDefaultPort);
    const auto address = net::parse_address(full);
    if (!address || address->host.empty() || address->host.find_first_of("?#@") != host.npos) {
      return bad(fmt::format("'{}' is no HOST:PORT", printable(host)));
    }
    options.endpoints.push_back(fmt::format("{}://{}", tls ? "https" : "http", full));
  }
  return options;
}

EtcdGateway::EtcdGateway(EtcdOptions options)
    : options_(std::move(options)),
      data_prefix_(options_.prefix + "/k/"),
      fence_prefix_(options_.prefix + "/f/"),
      http_(options_.tls) {
  FF_CHECK(!options_.endpoints.empty());
}

// Rejects answers of another etcd cluster: its revisions are unrelated.
Result<void> EtcdGateway::check_cluster(const std::string& id, const std::string& endpoint) {
  const std::lock_guard lock(mutex_);
  if (cluster_id_.empty()) cluster_id_ = id;
  if (cluster_id_ == id) return {};
  return Error{Errc::refused,
               fmt::format("{}: a member of etcd cluster {}, but others are of cluster {}",
                           endpoint, id, cluster_id_),
               "Name members of one etcd cluster only."};
}

void EtcdGateway::switch_member(size_t endpoint, const Error& why) {
  const size_t next = (endpoint + 1) % options_.endpoints.size();
  current_.compare_exchange_strong(endpoint, next);
  const std::lock_guard lock(mutex_);
  if (!std::exchange(failing_, true)) log_warning("etcd does not answer", {{"error", why.message}});
}

void EtcdGateway::note_success(size_t endpoint) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(failing_, false)) return;
  log_info("etcd answers again", {{"endpoint", options_.endpoints[endpoint]}});
}

// One request to one member.
Task<Result<void>> EtcdGateway::call(Loop& loop, std::string path, std::string body,
                                     int64_t deadline_ns, Parse parse) {
  const size_t asked = current_.load();
  const std::string& endpoint = options_.endpoints[asked];
  const int64_t left_ns = deadline_ns - loop.now_ns();
  if (left_ns <= 0)
    co_return fail(Errc::deadline, "{}: the deadline passed before the request", endpoint);
  auto reply =
      co_await http_.post(loop, endpoint + path, std::move(body), std::min(left_ns, kAnswerNs));
  if (!reply) {
    if (reply.error().code == Errc::unreachable) switch_member(asked, reply.error());
    co_return reply.error();
  }
  const Json json = Json::parse(reply->body, nullptr, false);
  const std::string id = text_of(member(member(json, "header"), "cluster_id"));
  if (reply->status != 200 || id.empty()) {
    Error error = refusal(*reply, json, endpoint);
    if (error.code == Errc::unreachable) switch_member(asked, error);
    co_return error;
  }
  note_success(asked);
  FF_CO_TRY(check_cluster(id, endpoint));
  co_return parse(json);
}

Task<Result<EtcdGateway::Snapshot>> EtcdGateway::read(Loop& loop, Reads reads,
                                                      int64_t deadline_ns) {
  Json body = {{"success", Json::array()}};
  for (const Range& range : reads.ranges) {
    body["success"].push_back(range_request(range, data_prefix_, reads.revision, reads.local));
  }
  Snapshot snapshot;
  Parse parse = [&](const Json& json) -> Result<void> {
    snapshot.revision = reads.revision != 0 ? reads.revision
                                            : number_of(member(member(json, "header"), "revision"));
    const Json& responses = member(json, "responses");
    if (responses.size() != reads.ranges.size()) return nonsense("not as many ranges as asked for");
    for (const Json& response : responses) {
      auto& found = snapshot.found.emplace_back();
      for (const Json& kv : member(member(response, "response_range"), "kvs")) {
        FF_TRY(auto value, value_of(kv, data_prefix_.size()));
        found.push_back(std::move(value));
      }
    }
    return {};
  };
  FF_CO_TRY(co_await call(loop, "/v3/kv/txn", body.dump(), deadline_ns, std::move(parse)));
  co_return snapshot;
}

Task<Result<EtcdGateway::Outcome>> EtcdGateway::commit(Loop& loop, Commit commit,
                                                       int64_t deadline_ns) {
  Json body = {{"compare", Json::array()}, {"success", Json::array()}};
  body["compare"].push_back(compare_request(commit.fence, commit.fence.key));
  for (const Compare& compare : commit.compares) {
    body["compare"].push_back(compare_request(compare, stored_key(compare.key)));
  }
  for (const auto& [key, value] : *commit.writes) {
    Json request = {{"key", encode(stored_key(key))}};
    if (value) request["value"] = encode(*value);
    const char* const kind = value ? "request_put" : "request_delete_range";
    body["success"].push_back(Json{{kind, std::move(request)}});
  }
  body["failure"].push_back(Json{{"request_range", {{"key", encode(commit.fence.key)}}}});
  Outcome outcome;
  Parse parse = [&](const Json& json) -> Result<void> {
    const Json& succeeded = member(json, "succeeded");
    outcome.committed = succeeded.is_boolean() && succeeded.get<bool>();
    if (outcome.committed) return {};
    for (const Json& response : member(json, "responses")) {
      for (const Json& kv : member(member(response, "response_range"), "kvs")) {
        outcome.fence = number_of(member(kv, "mod_revision"));
      }
    }
    return {};
  };
  FF_CO_TRY(co_await call(loop, "/v3/kv/txn", body.dump(), deadline_ns, std::move(parse)));
  co_return outcome;
}

Task<Result<std::string>> EtcdGateway::grant(Loop& loop, int64_t seconds, int64_t deadline_ns) {
  std::string lease;
  Parse parse = [&](const Json& json) -> Result<void> {
    lease = text_of(member(json, "ID"));
    if (lease.empty()) return nonsense("a lease without a number");
    return {};
  };
  auto calling = call(loop, "/v3/lease/grant", Json{{"TTL", std::to_string(seconds)}}.dump(),
                      deadline_ns, std::move(parse));
  FF_CO_TRY(co_await std::move(calling));
  co_return lease;
}

Task<Result<int64_t>> EtcdGateway::put_leased(Loop& loop, std::string key, std::string lease,
                                              int64_t deadline_ns) {
  int64_t revision = 0;
  Parse parse = [&](const Json& json) -> Result<void> {
    revision = number_of(member(member(json, "header"), "revision"));
    return {};
  };
  const Json body = {{"key", encode(key)}, {"lease", lease}};
  FF_CO_TRY(co_await call(loop, "/v3/kv/put", body.dump(), deadline_ns, std::move(parse)));
  co_return revision;
}

}  // namespace ff::kv
