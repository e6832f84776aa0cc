// cache_service.cc: from a request to its operation, and from errors to replies.
#include "storage/kvcache/cache_service.h"

#include <algorithm>
#include <utility>

#include "platform/base/audit.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "storage/s3/hash.h"

namespace ff::kvcache {

namespace {

// A standby takes a pool over within 10 s; SGLang's client asks three times more, after so long.
constexpr std::string_view kRetryAfterS = "4";

struct CacheTarget {
  uint32_t rank = 0;
  const CacheOperation* operation = nullptr;
};

// "/RANK/OPERATION".
std::optional<CacheTarget> parse_cache_target(std::string_view target) {
  target = target.substr(0, target.find('?'));
  const size_t slash = target.rfind('/');
  if (slash == target.npos || slash == 0 || target[0] != '/') return std::nullopt;
  const auto rank = parse_u64(target.substr(1, slash - 1));
  const auto found =
      std::ranges::find(cache_operations(), target.substr(slash + 1), &CacheOperation::name);
  if (!rank || *rank > INT32_MAX || found == cache_operations().end()) return std::nullopt;
  return CacheTarget{.rank = static_cast<uint32_t>(*rank), .operation = &*found};
}

struct Credentials {
  std::string user;
  std::string password;
};

bool is_scheme(std::string_view word, std::string_view scheme) {
  return std::ranges::equal(word, scheme, [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? a + ('a' - 'A') : a) == b;
  });
}

// Of the field Authorization: a bearer token, or a name and a password.
std::optional<Credentials> parse_credentials(std::string_view value) {
  const size_t space = value.find(' ');
  if (space == value.npos) return std::nullopt;
  const std::string_view scheme = value.substr(0, space);
  if (is_scheme(scheme, "bearer")) {
    return Credentials{.user = "default", .password = std::string(value.substr(space + 1))};
  }
  if (!is_scheme(scheme, "basic")) return std::nullopt;
  const auto text = s3::parse_base64(value.substr(space + 1));
  const size_t colon = text ? text->find(':') : std::string::npos;
  if (colon == std::string::npos) return std::nullopt;
  return Credentials{.user = text->substr(0, colon), .password = text->substr(colon + 1)};
}

// "NOPERM user/ann may not read the folder of the store": without the word that Redis has.
std::string without_code(std::string_view message) {
  return std::string(message.substr(std::min(message.find(' '), message.size() - 1) + 1));
}

int status_of_error(const Error& error) {
  switch (error.code) {
    case Errc::usage: return 400;
    case Errc::refused: return 403;
    case Errc::not_found: return 404;
    case Errc::disk_full: return 507;
    case Errc::corrupt: return 500;
    default: return 503;
  }
}

std::string detail_of(std::string_view text) {
  std::string body = "{\"detail\":";
  append_json_string(body, text);
  return body + "}";
}

}  // namespace

CacheService::CacheService(PoolStore& pools, Loop& loop, Metrics& metrics,
                           const gateway::PasswordCheck& passwords, Options options)
    : pools_(pools),
      loop_(loop),
      metrics_(metrics),
      passwords_(passwords),
      options_(std::move(options)),
      durations_(metrics.histogram("ff_kv_cache_request_seconds",
                                   "Time that requests for the KV cache take")) {}

http::ReplyHead CacheService::refusal(int status) {
  return {.status = status, .fields = {{"Content-Type", "application/json"}}};
}

std::string CacheService::refusal_body(int, const std::string& why) { return detail_of(why); }

Counter& CacheService::counter_of(const CacheOperation& operation) {
  Counter*& counter = counters_[&operation];
  if (counter == nullptr) {
    counter = &metrics_.counter("ff_kv_cache_requests_total", "Requests for the KV cache",
                                {{"operation", std::string(operation.name)}});
  }
  return *counter;
}

Task<void> CacheService::handle(http::Exchange& exchange) {
  const int64_t begin_ns = loop_.now_ns();
  const auto done = co_await answer(exchange);
  if (!done) {
    exchange.close_after();
    log_debug("a request for the KV cache has failed",
              {{"peer", exchange.peer()}, {"error", done.error().message}});
  }
  durations_.observe_ns(loop_.now_ns() - begin_ns);
  metrics_
      .counter("ff_kv_cache_replies_total", "Replies to clients of the KV cache",
               {{"status", fmt::to_string(exchange.status())}})
      .add();
}

Task<Result<void>> CacheService::refuse(http::Exchange& exchange, Refusal refusal) {
  http::ReplyHead head{.status = refusal.status, .fields = std::move(refusal.fields)};
  head.fields.push_back({"Content-Type", "application/json"});
  const std::string body = detail_of(printable(refusal.detail));
  co_return co_await exchange.reply(std::move(head), body);
}

std::optional<CacheService::Refusal> CacheService::check_client(const http::RequestHead& head,
                                                                bool writes) const {
  if (!passwords_.required()) {
    if (http::is_from_program(head)) return std::nullopt;
    return Refusal{.status = 403,
                   .detail =
                       "Without keys (--insecure), requests must be for 127.0.0.1 or "
                       "localhost, and come from no web page."};
  }
  const auto credentials = parse_credentials(head.value("authorization"));
  if (!credentials) {
    return Refusal{.status = 401,
                   .detail =
                       "A token is missing: send it as 'Authorization: Bearer TOKEN', or as "
                       "the password of the user 'default'.",
                   .fields = {{"WWW-Authenticate", "Bearer, Basic realm=\"ff\""}}};
  }
  const auto login = passwords_.check(credentials->user, credentials->password);
  if (!login && login.error().message.starts_with("WRONGPASS")) {
    return Refusal{.status = 401,
                   .detail = "The token is not valid here, has expired or was revoked.",
                   .fields = {{"WWW-Authenticate", "Bearer, Basic realm=\"ff\""}}};
  }
  if (!login) return Refusal{.status = 403, .detail = without_code(login.error().message)};
  if (writes && login->read_only) {
    return Refusal{.status = 403,
                   .detail = login->entity.full_name() + " may not write the folder of the store"};
  }
  return std::nullopt;
}

// One that has died stays the owner for some seconds: clients that were sent to it would fail.
Task<std::string> CacheService::other_owner(const PoolName& name) {
  std::string owner = pools_.owner(name);
  if (owner.empty() || !options_.reachable) co_return owner;
  const bool reachable = co_await options_.reachable(owner);
  if (!reachable) owner.clear();
  co_return owner;
}

Task<Result<void>> CacheService::refuse_error(http::Exchange& exchange, Error error,
                                              PoolName name) {
  Refusal refusal{.status = status_of_error(error), .detail = error.message};
  if (!error.hint.empty()) refusal.detail += ". " + error.hint;
  if (error.code == Errc::stale) {
    // As MOVED tells clients of Redis.
    const std::string owner = co_await other_owner(name);
    if (!owner.empty()) {
      refusal.status = 307;
      refusal.fields.push_back(
          {"Location", fmt::format("{}://{}{}", options_.scheme, owner, exchange.head().target)});
    }
  }
  if (refusal.status == 503) refusal.fields.push_back({"Retry-After", std::string(kRetryAfterS)});
  if (refusal.status >= 500) {
    log_warning("a request for the KV cache has failed",
                {{"pool", printable(name.text())}, {"error", error.message}});
  }
  co_return co_await refuse(exchange, std::move(refusal));
}

Task<Result<void>> CacheService::answer(http::Exchange& exchange) {
  const http::RequestHead& head = exchange.head();
  const auto target = parse_cache_target(head.target);
  auto denied = check_client(head, target && target->operation->writes);
  if (denied) {
    audit("refused", exchange.peer(), {{"error", denied->detail}});
    co_return co_await refuse(exchange, std::move(*denied));
  }
  Refusal refusal;
  if (!target) {
    refusal = {.status = 404, .detail = "There is only POST /RANK/OPERATION."};
    co_return co_await refuse(exchange, std::move(refusal));
  }
  if (head.method != "POST") {
    refusal = {.status = 405, .detail = "Only POST is served.", .fields = {{"Allow", "POST"}}};
    co_return co_await refuse(exchange, std::move(refusal));
  }
  counter_of(*target->operation).add();
  const auto body = co_await exchange.read_all(kBodyMax);
  if (!body && body.error().code == Errc::usage) {
    refusal = {.status = 413, .detail = body.error().message};
    co_return co_await refuse(exchange, std::move(refusal));
  }
  if (!body) co_return body.error();
  PoolName name{.rank = target->rank};
  Result<std::string> reply = std::string();
  const auto request = CacheRequest::parse(*body, target->operation->keys);
  if (request) {
    name.name_space = request->name_space;
    CacheCall call{.pools = pools_, .name = name, .request = *request};
    reply = co_await target->operation->run(call);
  } else {
    reply = request.error();
  }
  if (!reply) {
    co_return co_await refuse_error(exchange, std::move(reply).error(), std::move(name));
  }
  http::ReplyHead ok{.status = reply->empty() ? 204 : 200, .fields = {}};
  if (!reply->empty()) ok.fields.push_back({"Content-Type", "application/json"});
  co_return co_await exchange.reply(std::move(ok), *reply);
}

}  // namespace ff::kvcache
