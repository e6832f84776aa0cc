// One request of a client of S3, after its signature was checked; and the operations by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/http/exchange.h"
#include "storage/s3/authenticator.h"
#include "storage/s3/multipart.h"
#include "storage/s3/object_store.h"
#include "storage/s3/xml.h"

namespace ff::s3 {

struct OperationRow;

struct S3Call {
  http::Exchange& exchange;
  ObjectStore& store;
  Uploads& uploads;
  const Authentication& authentication;
  const RequestTarget& target;
  const OperationRow& operation;
  std::string bucket;  // empty: none is named
  std::string key;     // empty: none is named
  std::string id;      // of the request, for replies

  const http::RequestHead& head() const { return exchange.head(); }
  const meta::Caller& caller() const { return authentication.requester.caller; }
  // The value of a parameter of the query; empty: there is none.
  std::string parameter(std::string_view name) const;
  // Of a number in the query.
  Result<uint64_t> number(std::string_view name, uint64_t otherwise, uint64_t max) const;
  // Errors are S3's AccessDenied: the keys of the requester are for another directory.
  Result<void> check_reach(std::string_view in_bucket, std::string_view path) const;

  // A reply with the fields that all have.
  http::ReplyHead reply_head(int status) const;
  Task<Result<void>> reply(int status);
  Task<Result<void>> reply_xml(XmlWriter document);
};

struct OperationRow {
  // Which requests it answers: those with this method, on the service, a bucket or an object, with
  // this parameter in the query, and with this header field. Empty: with or without any.
  enum class Level : uint8_t { service, bucket, object };
  std::string_view name;  // as in the S3 API Reference
  std::string_view method;
  Level level;
  std::string_view parameter;
  std::string_view field;
  bool writes;
  Task<Result<void>> (*run)(S3Call& call);
};

const std::vector<OperationRow>& operation_table();
// Null: there is none for this request.
const OperationRow* find_operation(const http::RequestHead& head, const RequestTarget& target,
                                   std::string_view bucket, std::string_view key);

// The operations.
Task<Result<void>> run_list_buckets(S3Call& call);
Task<Result<void>> run_create_bucket(S3Call& call);
Task<Result<void>> run_head_bucket(S3Call& call);
Task<Result<void>> run_delete_bucket(S3Call& call);
Task<Result<void>> run_get_bucket_location(S3Call& call);
Task<Result<void>> run_get_bucket_versioning(S3Call& call);
Task<Result<void>> run_get_bucket_cors(S3Call& call);
Task<Result<void>> run_put_bucket_cors(S3Call& call);
Task<Result<void>> run_delete_bucket_cors(S3Call& call);
Task<Result<void>> run_list_objects(S3Call& call);
Task<Result<void>> run_list_objects_v2(S3Call& call);
Task<Result<void>> run_put_object(S3Call& call);
Task<Result<void>> run_get_object(S3Call& call);
Task<Result<void>> run_head_object(S3Call& call);
Task<Result<void>> run_delete_object(S3Call& call);
Task<Result<void>> run_delete_objects(S3Call& call);
Task<Result<void>> run_copy_object(S3Call& call);
Task<Result<void>> run_create_multipart_upload(S3Call& call);
Task<Result<void>> run_upload_part(S3Call& call);
Task<Result<void>> run_upload_part_copy(S3Call& call);
Task<Result<void>> run_list_parts(S3Call& call);
Task<Result<void>> run_list_multipart_uploads(S3Call& call);
Task<Result<void>> run_complete_multipart_upload(S3Call& call);
Task<Result<void>> run_abort_multipart_upload(S3Call& call);
Task<Result<void>> run_get_object_tagging(S3Call& call);
Task<Result<void>> run_put_object_tagging(S3Call& call);
Task<Result<void>> run_delete_object_tagging(S3Call& call);

}  // namespace ff::s3
