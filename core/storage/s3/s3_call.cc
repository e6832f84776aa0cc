// s3_call.cc: the table of operations, and what they have in common.
#include "storage/s3/s3_call.h"

#include <algorithm>
#include <array>
#include <utility>

#include "platform/base/text.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

namespace {

using Level = OperationRow::Level;

// Parts of S3 that are not here. A request that names one would otherwise do something else.
constexpr std::array<std::string_view, 29> kOtherParameters = {"accelerate",
                                                               "acl",
                                                               "analytics",
                                                               "attributes",
                                                               "cors",
                                                               "encryption",
                                                               "inventory",
                                                               "intelligent-tiering",
                                                               "legal-hold",
                                                               "lifecycle",
                                                               "logging",
                                                               "metrics",
                                                               "notification",
                                                               "object-lock",
                                                               "ownershipControls",
                                                               "policy",
                                                               "policyStatus",
                                                               "publicAccessBlock",
                                                               "replication",
                                                               "requestPayment",
                                                               "restore",
                                                               "retention",
                                                               "select",
                                                               "tagging",
                                                               "torrent",
                                                               "versionId",
                                                               "versioning",
                                                               "versions",
                                                               "website"};

bool is_below(std::string_view path, std::string_view directory) {
  while (directory.ends_with('/')) directory.remove_suffix(1);
  return path == directory ||
         (path.starts_with(directory) && path.substr(directory.size()).starts_with('/'));
}

}  // namespace

// Rows with a parameter or a field come before those without.
const std::vector<OperationRow>& operation_table() {
  static const std::vector<OperationRow> table = {
      {"ListBuckets", "GET", Level::service, "", "", false, run_list_buckets},
      {"GetBucketLocation", "GET", Level::bucket, "location", "", false, run_get_bucket_location},
      {"GetBucketVersioning", "GET", Level::bucket, "versioning", "", false,
       run_get_bucket_versioning},
      {"GetBucketCors", "GET", Level::bucket, "cors", "", false, run_get_bucket_cors},
      {"PutBucketCors", "PUT", Level::bucket, "cors", "", true, run_put_bucket_cors},
      {"DeleteBucketCors", "DELETE", Level::bucket, "cors", "", true, run_delete_bucket_cors},
      {"ListMultipartUploads", "GET", Level::bucket, "uploads", "", false,
       run_list_multipart_uploads},
      {"ListObjectsV2", "GET", Level::bucket, "list-type", "", false, run_list_objects_v2},
      {"ListObjects", "GET", Level::bucket, "", "", false, run_list_objects},
      {"CreateBucket", "PUT", Level::bucket, "", "", true, run_create_bucket},
      {"HeadBucket", "HEAD", Level::bucket, "", "", false, run_head_bucket},
      {"DeleteBucket", "DELETE", Level::bucket, "", "", true, run_delete_bucket},
      {"DeleteObjects", "POST", Level::bucket, "delete", "", true, run_delete_objects},
      {"GetObjectTagging", "GET", Level::object, "tagging", "", false, run_get_object_tagging},
      {"PutObjectTagging", "PUT", Level::object, "tagging", "", true, run_put_object_tagging},
      {"DeleteObjectTagging", "DELETE", Level::object, "tagging", "", true,
       run_delete_object_tagging},
      {"ListParts", "GET", Level::object, "uploadId", "", false, run_list_parts},
      {"UploadPartCopy", "PUT", Level::object, "uploadId", "x-amz-copy-source", true,
       run_upload_part_copy},
      {"UploadPart", "PUT", Level::object, "uploadId", "", true, run_upload_part},
      {"AbortMultipartUpload", "DELETE", Level::object, "uploadId", "", true,
       run_abort_multipart_upload},
      {"CompleteMultipartUpload", "POST", Level::object, "uploadId", "", true,
       run_complete_multipart_upload},
      {"CreateMultipartUpload", "POST", Level::object, "uploads", "", true,
       run_create_multipart_upload},
      {"CopyObject", "PUT", Level::object, "", "x-amz-copy-source", true, run_copy_object},
      {"PutObject", "PUT", Level::object, "", "", true, run_put_object},
      {"GetObject", "GET", Level::object, "", "", false, run_get_object},
      {"HeadObject", "HEAD", Level::object, "", "", false, run_head_object},
      {"DeleteObject", "DELETE", Level::object, "", "", true, run_delete_object},
  };
  return table;
}

const OperationRow* find_operation(const http::RequestHead& head, const RequestTarget& target,
                                   std::string_view bucket, std::string_view key) {
  const Level level = bucket.empty() ? Level::service : key.empty() ? Level::bucket : Level::object;
  const auto found = std::ranges::find_if(operation_table(), [&](const OperationRow& row) {
    return row.method == head.method && row.level == level &&
           (row.parameter.empty() || target.has(row.parameter)) &&
           (row.field.empty() || head.find(row.field) != nullptr);
  });
  if (found == operation_table().end()) return nullptr;
  for (const std::string_view other : kOtherParameters) {
    if (target.has(other) && found->parameter != other) return nullptr;
  }
  return &*found;
}

std::string S3Call::parameter(std::string_view name) const {
  const std::string* const found = target.find(name);
  return found == nullptr ? std::string() : *found;
}

Result<uint64_t> S3Call::number(std::string_view name, uint64_t otherwise, uint64_t max) const {
  const std::string* const found = target.find(name);
  if (found == nullptr || found->empty()) return otherwise;
  const auto value = parse_u64(*found);
  if (!value || *value > INT32_MAX) {
    return s3_error(S3Code::invalid_argument, "The value of {} is no valid number.", name);
  }
  return std::min(*value, max);
}

Result<void> S3Call::check_reach(std::string_view in_bucket, std::string_view path) const {
  const std::string& top = authentication.requester.top;
  if (top.empty()) return {};
  std::string whole = store.options().root;
  for (const std::string_view part : {in_bucket, path}) {
    if (part.empty()) continue;
    if (!whole.ends_with('/')) whole += '/';
    whole += part;
  }
  while (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
  if (is_below(whole, top)) return {};
  return s3_error(S3Code::access_denied,
                  "These keys are only for what is below another directory.");
}

http::ReplyHead S3Call::reply_head(int status) const {
  return {.status = status, .fields = {{"x-amz-request-id", id}}};
}

Task<Result<void>> S3Call::reply(int status) {
  http::ReplyHead head = reply_head(status);
  co_return co_await exchange.reply(std::move(head), std::string_view());
}

Task<Result<void>> S3Call::reply_xml(XmlWriter document) {
  http::ReplyHead head = reply_head(200);
  head.fields.push_back({"Content-Type", "application/xml"});
  const std::string text = document.finish();
  co_return co_await exchange.reply(std::move(head), text);
}

}  // namespace ff::s3
