// copy_source.cc: "/bucket/key", percent-encoded.
#include "storage/s3/copy_source.h"

#include <utility>

#include "storage/s3/reply_text.h"
#include "storage/s3/s3_error.h"
#include "storage/s3/uri.h"

namespace ff::s3 {

Result<CopySource> parse_copy_source(const S3Call& call) {
  std::string_view text = call.head().value("x-amz-copy-source");
  if (text.find("?versionId=") != text.npos) {
    return s3_error(S3Code::not_implemented, "There are no versions of objects here.");
  }
  if (text.starts_with('/')) text.remove_prefix(1);
  const auto path = percent_decode(text);
  const size_t slash = path ? path->find('/') : std::string::npos;
  if (slash == std::string::npos || slash == 0 || slash + 1 == path->size()) {
    return s3_error(S3Code::invalid_argument, "The x-amz-copy-source is not BUCKET/KEY.");
  }
  CopySource source{path->substr(0, slash), path->substr(slash + 1)};
  FF_TRY(call.check_reach(source.bucket, source.key));
  return source;
}

Task<Result<ObjectInfo>> find_copy_source(S3Call& call, CopySource from) {
  FF_CO_TRY(auto found,
            co_await call.store.find(call.caller(), std::move(from.bucket), std::move(from.key)));
  FF_CO_TRY(check_conditions(call.head(), "x-amz-copy-source-", found));
  co_return found;
}

}  // namespace ff::s3
