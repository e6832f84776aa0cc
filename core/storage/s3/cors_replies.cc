// cors_replies.cc: finds the rules of the bucket, which any site may ask for.
#include "storage/s3/cors_replies.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "platform/base/text.h"
#include "storage/s3/cors.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

namespace {

constexpr std::string_view kFieldSeparators = ", \t";

// As root, since nobody has proven who asks. Empty: the bucket allows nobody.
Task<Result<std::vector<CorsRule>>> rules_of(ObjectStore& store, std::string bucket) {
  const meta::Caller root;
  FF_CO_TRY(const auto text, co_await store.bucket_cors(root, std::move(bucket)));
  if (!text) co_return std::vector<CorsRule>();
  co_return parse_cors(*text);
}

std::vector<std::string_view> requested_headers(std::string_view text) {
  std::vector<std::string_view> headers;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(kFieldSeparators), text.size());
    if (end > 0) headers.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return headers;
}

}  // namespace

Task<Result<void>> answer_preflight(http::Exchange& exchange, ObjectStore& store,
                                    std::string bucket) {
  const CorsRequest request{
      .origin = exchange.head().value("origin"),
      .method = exchange.head().value("access-control-request-method"),
      .headers = requested_headers(exchange.head().value("access-control-request-headers"))};
  if (request.origin.empty()) {
    co_return s3_error(S3Code::bad_request,
                       "Insufficient information. Origin request header needed.");
  }
  if (request.method.empty()) {
    co_return s3_error(S3Code::bad_request, "Invalid Access-Control-Request-Method: null");
  }
  auto rules = co_await rules_of(store, std::move(bucket));
  if (!rules && is_s3_error(rules.error(), S3Code::no_such_bucket)) {
    co_return s3_error(S3Code::access_forbidden, "CORSResponse: Bucket not found");
  }
  if (!rules) co_return std::move(rules).error();
  if (rules->empty()) {
    co_return s3_error(S3Code::access_forbidden,
                       "CORSResponse: CORS is not enabled for this bucket.");
  }
  const CorsRule* const rule = find_cors_rule(*rules, request);
  if (rule == nullptr) {
    co_return s3_error(
        S3Code::access_forbidden,
        "CORSResponse: This CORS request is not allowed. This is usually because the evaluation of "
        "Origin, request method / Access-Control-Request-Method or Access-Control-Request-Headers "
        "are not whitelisted by the resource's CORS spec.");
  }
  http::ReplyHead head{.status = 200, .fields = cors_fields(*rule, request)};
  co_return co_await exchange.reply(std::move(head), std::string_view());
}

Task<void> add_cors_fields(http::Exchange& exchange, ObjectStore& store, std::string bucket) {
  const CorsRequest request{.origin = exchange.head().value("origin"),
                            .method = exchange.head().method};
  if (request.origin.empty() || bucket.empty()) co_return;
  const auto rules = co_await rules_of(store, std::move(bucket));
  const CorsRule* const rule = rules ? find_cors_rule(*rules, request) : nullptr;
  if (rule != nullptr) exchange.add_reply_fields(cors_fields(*rule, request));
}

}  // namespace ff::s3
