// requests_cors.cc: operations that read and replace the rules of a bucket for pages of other
// sites.
#include <optional>
#include <utility>

#include "storage/s3/body_source.h"
#include "storage/s3/cors.h"
#include "storage/s3/s3_call.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

namespace {

constexpr size_t kCorsBodyMax = 64 * kKiB;

}  // namespace

Task<Result<void>> run_get_bucket_cors(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, ""));
  FF_CO_TRY(const auto text, co_await call.store.bucket_cors(call.caller(), call.bucket));
  if (!text) {
    co_return s3_error(S3Code::no_such_cors_configuration, "The CORS configuration does not exist");
  }
  http::ReplyHead head = call.reply_head(200);
  head.fields.push_back({"Content-Type", "application/xml"});
  co_return co_await call.exchange.reply(std::move(head), *text);
}

Task<Result<void>> run_put_bucket_cors(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, ""));
  FF_CO_TRY(auto body, BodySource::make(call.exchange, call.authentication));
  FF_CO_TRY(const std::string document, co_await body.read_all(kCorsBodyMax));
  FF_CO_TRY(const auto rules, parse_cors(document));
  std::string text = format_cors(rules);
  if (text.size() > meta::kXattrValueMax) {
    co_return s3_error(S3Code::invalid_request, "The rules take {} bytes; {} are the most.",
                       text.size(), meta::kXattrValueMax);
  }
  FF_CO_TRY(co_await call.store.set_bucket_cors(call.caller(), call.bucket,
                                                std::optional(std::move(text))));
  co_return co_await call.reply(200);
}

Task<Result<void>> run_delete_bucket_cors(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, ""));
  FF_CO_TRY(co_await call.store.set_bucket_cors(call.caller(), call.bucket, std::nullopt));
  co_return co_await call.reply(204);
}

}  // namespace ff::s3
