// requests_buckets.cc: operations on buckets, and listings of what is in them.
#include <utility>

#include "platform/base/text.h"
#include "platform/http/exchange.h"
#include "storage/s3/body_source.h"
#include "storage/s3/bucket_removal.h"
#include "storage/s3/hash.h"
#include "storage/s3/listing.h"
#include "storage/s3/reply_text.h"
#include "storage/s3/s3_call.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

namespace {

constexpr size_t kSmallBodyMax = 64 * kKiB;
constexpr uint64_t kListMax = 1000;

void write_owner(XmlWriter& document, const S3Call& call, std::string_view element) {
  document.open(element);
  const std::string& name = call.authentication.requester.name;
  document.element("ID", fmt::to_string(call.caller().uid));
  document.element("DisplayName", name.empty() ? fmt::to_string(call.caller().uid) : name);
  document.close();
}

// How a listing writes keys.
struct KeyText {
  bool encoded = false;  // encoding-type=url
  std::string operator()(std::string_view key) const {
    return encoded ? percent_encode(key, true) : std::string(key);
  }
};

Result<KeyText> key_text_of(const S3Call& call) {
  const std::string* const encoding = call.target.find("encoding-type");
  if (encoding == nullptr || encoding->empty()) return KeyText();
  if (*encoding == "url") return KeyText{true};
  return s3_error(S3Code::invalid_argument, "The encoding-type is not 'url'.");
}

void write_page(XmlWriter& document, const ListPage& page, const ListQuery& query,
                const KeyText& text, bool with_owner, const S3Call& call) {
  if (text.encoded) document.element("EncodingType", "url");
  document.element("Name", call.bucket);
  document.element("Prefix", text(query.prefix));
  if (!query.delimiter.empty()) document.element("Delimiter", text(query.delimiter));
  document.element("MaxKeys", query.max_keys);
  document.element("IsTruncated", page.truncated ? "true" : "false");
  for (const ListedKey& key : page.keys) {
    document.open("Contents");
    document.element("Key", text(key.key));
    document.element("LastModified", format_xml_time(key.mtime_s));
    document.element("ETag", quoted(key.etag));
    document.element("Size", key.size);
    if (with_owner) write_owner(document, call, "Owner");
    document.element("StorageClass", "STANDARD");
    document.close();
  }
  for (const std::string& group : page.groups) {
    document.open("CommonPrefixes");
    document.element("Prefix", text(group));
    document.close();
  }
}

Result<ListQuery> list_query(const S3Call& call) {
  const std::string prefix = call.parameter("prefix");
  // Without its last name, which may be the beginning of several.
  const size_t slash = prefix.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : prefix.substr(0, slash);
  FF_TRY(call.check_reach(call.bucket, folder));
  FF_TRY(const uint64_t max_keys, call.number("max-keys", kListMax, kListMax));
  return ListQuery{
      .prefix = prefix, .delimiter = call.parameter("delimiter"), .max_keys = max_keys};
}

}  // namespace

Task<Result<void>> run_list_buckets(S3Call& call) {
  FF_CO_TRY(call.check_reach("", ""));
  FF_CO_TRY(const auto buckets, co_await call.store.list_buckets(call.caller()));
  XmlWriter document("ListAllMyBucketsResult");
  write_owner(document, call, "Owner");
  document.open("Buckets");
  for (const BucketInfo& bucket : buckets) {
    document.open("Bucket");
    document.element("Name", bucket.name);
    document.element("CreationDate", format_xml_time(bucket.created_s));
    document.close();
  }
  co_return co_await call.reply_xml(std::move(document));
}

Task<Result<void>> run_create_bucket(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, ""));
  FF_CO_TRY(auto body, BodySource::make(call.exchange, call.authentication));
  FF_CO_TRY(co_await body.read_all(kSmallBodyMax));  // the region, of which there is one
  FF_CO_TRY(co_await call.store.create_bucket(call.caller(), call.bucket));
  http::ReplyHead head = call.reply_head(200);
  head.fields.push_back({"Location", "/" + call.bucket});
  co_return co_await call.exchange.reply(std::move(head), std::string_view());
}

Task<Result<void>> run_head_bucket(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, ""));
  FF_CO_TRY(co_await call.store.find_bucket(call.caller(), call.bucket));
  co_return co_await call.reply(200);
}

Task<Result<void>> run_delete_bucket(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, ""));
  FF_CO_TRY(co_await remove_bucket(call.store, call.caller(), call.bucket));
  co_return co_await call.reply(204);
}

Task<Result<void>> run_get_bucket_location(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, ""));
  FF_CO_TRY(co_await call.store.find_bucket(call.caller(), call.bucket));
  XmlWriter document("LocationConstraint");
  co_return co_await call.reply_xml(std::move(document));
}

Task<Result<void>> run_get_bucket_versioning(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, ""));
  FF_CO_TRY(co_await call.store.find_bucket(call.caller(), call.bucket));
  XmlWriter document("VersioningConfiguration");
  co_return co_await call.reply_xml(std::move(document));
}

Task<Result<void>> run_list_objects(S3Call& call) {
  FF_CO_TRY(const KeyText text, key_text_of(call));
  FF_CO_TRY(ListQuery query, list_query(call));
  query.after = call.parameter("marker");
  FF_CO_TRY(auto bucket, co_await call.store.find_bucket(call.caller(), call.bucket));
  FF_CO_TRY(const auto page,
            co_await list_keys(call.store, call.caller(), std::move(bucket), query));
  XmlWriter document("ListBucketResult");
  document.element("Marker", text(query.after));
  if (page.truncated) document.element("NextMarker", text(page.last));
  write_page(document, page, query, text, true, call);
  co_return co_await call.reply_xml(std::move(document));
}

Task<Result<void>> run_list_objects_v2(S3Call& call) {
  if (call.parameter("list-type") != "2") {
    co_return s3_error(S3Code::invalid_argument, "The list-type is not 2.");
  }
  FF_CO_TRY(const KeyText text, key_text_of(call));
  FF_CO_TRY(ListQuery query, list_query(call));
  const std::string start = call.parameter("start-after");
  const std::string token = call.parameter("continuation-token");
  query.after = start;
  if (!token.empty()) {
    const auto last = parse_base64(token);
    if (!last || last->empty()) {
      co_return s3_error(S3Code::invalid_argument, "The continuation token is not valid.");
    }
    query.after = *last;
  }
  FF_CO_TRY(auto bucket, co_await call.store.find_bucket(call.caller(), call.bucket));
  FF_CO_TRY(const auto page,
            co_await list_keys(call.store, call.caller(), std::move(bucket), query));
  XmlWriter document("ListBucketResult");
  if (!start.empty()) document.element("StartAfter", text(start));
  if (!token.empty()) document.element("ContinuationToken", token);
  if (page.truncated) document.element("NextContinuationToken", base64(page.last));
  document.element("KeyCount", page.keys.size() + page.groups.size());
  write_page(document, page, query, text, call.parameter("fetch-owner") == "true", call);
  co_return co_await call.reply_xml(std::move(document));
}

}  // namespace ff::s3
