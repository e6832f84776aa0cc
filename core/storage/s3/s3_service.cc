// s3_service.cc: from a request to its operation, and from errors to replies.
#include "storage/s3/s3_service.h"

#include <algorithm>
#include <utility>

#include "platform/base/audit.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "storage/s3/cors_replies.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

namespace {

std::string error_document(S3Code code, std::string_view message, std::string_view resource,
                           std::string_view id) {
  XmlWriter document("Error", XmlWriter::Namespace::none);
  document.element("Code", code_name(code));
  document.element("Message", message);
  document.element("Resource", resource);
  document.element("RequestId", id);
  return document.finish();
}

bool is_refusal(S3Code code) {
  return code == S3Code::access_denied || code == S3Code::invalid_access_key_id ||
         code == S3Code::signature_does_not_match || code == S3Code::request_time_too_skewed;
}

}  // namespace

S3Service::S3Service(client::FileSystem& files, Rng& rng, Metrics& metrics,
                     std::shared_ptr<const auth::Keyring> keyring, ServiceOptions options)
    : loop_(files.loop()),
      rng_(rng),
      metrics_(metrics),
      self_(options.self),
      store_(files, rng, std::move(options.store)),
      uploads_(store_),
      users_(files.loop(), files.metadata()),
      authenticator_(std::move(keyring), files.loop().clock(), users_, options.self),
      durations_(metrics.histogram("ff_s3_request_seconds", "Time that requests of S3 take")) {}

Task<Result<void>> S3Service::open() { co_return co_await store_.open(self_); }

http::ReplyHead S3Service::refusal(int status) {
  return {.status = status, .fields = {{"Content-Type", "application/xml"}}};
}

std::string S3Service::refusal_body(int, const std::string& why) {
  return error_document(S3Code::invalid_request, why, "", "");
}

Task<void> S3Service::handle(http::Exchange& exchange) {
  const int64_t begin_ns = loop_.now_ns();
  const std::string id = fmt::format("{:016X}", rng_.next());
  auto done = co_await answer(exchange, id);
  if (!done && !exchange.replied()) {
    done = co_await reply_error(exchange, std::move(done).error(), id);
  }
  if (!done) {
    exchange.close_after();
    log_debug("a request of S3 has failed",
              {{"peer", exchange.peer()}, {"request", id}, {"error", done.error().message}});
  }
  durations_.observe_ns(loop_.now_ns() - begin_ns);
  metrics_
      .counter("ff_s3_replies_total", "Replies to clients of S3",
               {{"status", fmt::to_string(exchange.status())}})
      .add();
}

Task<Result<void>> S3Service::reply_error(http::Exchange& exchange, Error error,
                                          const std::string& id) {
  const S3Code code = code_of(error);
  const std::string path(
      std::string_view(exchange.head().target).substr(0, exchange.head().target.find('?')));
  if (code == S3Code::internal_error || code == S3Code::service_unavailable ||
      code == S3Code::storage_full) {
    log_warning("a request of S3 has failed",
                {{"peer", exchange.peer()}, {"request", id}, {"error", error.message}});
  }
  if (is_refusal(code)) {
    audit("refused", exchange.peer(), {{"error", error.message}, {"request", id}});
  }
  // What clients never send without an answer is not waited for.
  if (code == S3Code::incomplete_body || code == S3Code::request_timeout) exchange.close_after();
  http::ReplyHead head{.status = status_of(code), .fields = {{"x-amz-request-id", id}}};
  const bool no_body = head.status == 304;
  if (!no_body) head.fields.push_back({"Content-Type", "application/xml"});
  const std::string body = no_body ? "" : error_document(code, printable(error.message), path, id);
  co_return co_await exchange.reply(std::move(head), body);
}

Task<Result<void>> S3Service::run(S3Call& call) {
  Counter*& counter = counters_[&call.operation];
  if (counter == nullptr) {
    counter = &metrics_.counter("ff_s3_requests_total", "Requests of clients of S3",
                                {{"operation", std::string(call.operation.name)}});
  }
  counter->add();
  if (call.operation.writes && call.authentication.requester.read_only) {
    co_return s3_error(S3Code::access_denied, "These keys are for reading only.");
  }
  co_return co_await call.operation.run(call);
}

Task<Result<void>> S3Service::answer(http::Exchange& exchange, const std::string& id) {
  auto target = parse_target(exchange.head().target);
  if (!target) {
    co_return s3_error(S3Code::invalid_uri, "The URL of the request is not valid.");
  }
  const std::string_view path = std::string_view(target->path).substr(1);
  const size_t slash = std::min(path.find('/'), path.size());
  std::string bucket(path.substr(0, slash));
  std::string key(path.substr(std::min(slash + 1, path.size())));
  if (exchange.head().method == "OPTIONS") {
    co_return co_await answer_preflight(exchange, store_, std::move(bucket));
  }
  // Errors have them, too, so that the page can read them.
  co_await add_cors_fields(exchange, store_, bucket);
  FF_CO_TRY(const auto authentication, co_await authenticator_.check(exchange.head(), *target));
  const OperationRow* const operation = find_operation(exchange.head(), *target, bucket, key);
  if (operation == nullptr) {
    co_return s3_error(S3Code::not_implemented,
                       "This server has no operation for {} with this URL; ff-serve-kv(1) lists "
                       "those it has.",
                       exchange.head().method);
  }
  S3Call call{exchange,          store_,         uploads_, authentication, *target, *operation,
              std::move(bucket), std::move(key), id};
  co_return co_await run(call);
}

}  // namespace ff::s3
