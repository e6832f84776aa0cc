// s3_error.cc: the table of codes.
#include "storage/s3/s3_error.h"

#include <array>

namespace ff::s3 {

namespace {

constexpr int kFirstNumber = 10'000;  // in Error::sys

struct CodeRow {
  S3Code code;
  std::string_view name;
  int status;
};
constexpr std::array kCodes = {
    CodeRow{S3Code::access_denied, "AccessDenied", 403},
    CodeRow{S3Code::access_forbidden, "AccessForbidden", 403},
    CodeRow{S3Code::authorization_malformed, "AuthorizationHeaderMalformed", 400},
    CodeRow{S3Code::authorization_query_error, "AuthorizationQueryParametersError", 400},
    CodeRow{S3Code::bad_digest, "BadDigest", 400},
    CodeRow{S3Code::bad_request, "BadRequest", 400},
    CodeRow{S3Code::bucket_already_exists, "BucketAlreadyExists", 409},
    CodeRow{S3Code::bucket_already_owned_by_you, "BucketAlreadyOwnedByYou", 409},
    CodeRow{S3Code::bucket_not_empty, "BucketNotEmpty", 409},
    CodeRow{S3Code::entity_too_small, "EntityTooSmall", 400},
    CodeRow{S3Code::incomplete_body, "IncompleteBody", 400},
    CodeRow{S3Code::internal_error, "InternalError", 500},
    CodeRow{S3Code::invalid_access_key_id, "InvalidAccessKeyId", 403},
    CodeRow{S3Code::invalid_argument, "InvalidArgument", 400},
    CodeRow{S3Code::invalid_bucket_name, "InvalidBucketName", 400},
    CodeRow{S3Code::invalid_digest, "InvalidDigest", 400},
    CodeRow{S3Code::invalid_part, "InvalidPart", 400},
    CodeRow{S3Code::invalid_part_order, "InvalidPartOrder", 400},
    CodeRow{S3Code::invalid_range, "InvalidRange", 416},
    CodeRow{S3Code::invalid_request, "InvalidRequest", 400},
    CodeRow{S3Code::invalid_tag, "InvalidTag", 400},
    CodeRow{S3Code::invalid_uri, "InvalidURI", 400},
    CodeRow{S3Code::key_too_long, "KeyTooLongError", 400},
    CodeRow{S3Code::malformed_xml, "MalformedXML", 400},
    CodeRow{S3Code::metadata_too_large, "MetadataTooLarge", 400},
    CodeRow{S3Code::missing_content_length, "MissingContentLength", 411},
    CodeRow{S3Code::no_such_bucket, "NoSuchBucket", 404},
    CodeRow{S3Code::no_such_cors_configuration, "NoSuchCORSConfiguration", 404},
    CodeRow{S3Code::no_such_key, "NoSuchKey", 404},
    CodeRow{S3Code::no_such_upload, "NoSuchUpload", 404},
    CodeRow{S3Code::not_implemented, "NotImplemented", 501},
    CodeRow{S3Code::not_modified, "NotModified", 304},
    CodeRow{S3Code::precondition_failed, "PreconditionFailed", 412},
    CodeRow{S3Code::request_time_too_skewed, "RequestTimeTooSkewed", 403},
    CodeRow{S3Code::request_timeout, "RequestTimeout", 400},
    CodeRow{S3Code::service_unavailable, "ServiceUnavailable", 503},
    CodeRow{S3Code::signature_does_not_match, "SignatureDoesNotMatch", 403},
    CodeRow{S3Code::storage_full, "StorageFull", 507},
    CodeRow{S3Code::content_sha256_mismatch, "XAmzContentSHA256Mismatch", 400},
};

constexpr bool in_order() {
  for (size_t i = 0; i < kCodes.size(); i++) {
    if (static_cast<size_t>(kCodes[i].code) != i) return false;
  }
  return true;
}
static_assert(in_order());

const CodeRow& row_of_code(S3Code code) { return kCodes[static_cast<size_t>(code)]; }

}  // namespace

std::string_view code_name(S3Code code) { return row_of_code(code).name; }
int status_of(S3Code code) { return row_of_code(code).status; }

Error make_s3_error(S3Code code, std::string text) {
  return Error{.code = Errc::failed,
               .message = std::move(text),
               .hint = {},
               .sys = kFirstNumber + static_cast<int>(code)};
}

bool is_s3_error(const Error& error, S3Code code) {
  return error.sys == kFirstNumber + static_cast<int>(code);
}

S3Code code_of(const Error& error) {
  const int number = error.sys - kFirstNumber;
  if (number >= 0 && number < static_cast<int>(kCodes.size())) return static_cast<S3Code>(number);
  switch (error.code) {
    case Errc::refused: return S3Code::access_denied;
    case Errc::not_found: return S3Code::no_such_key;
    case Errc::disk_full: return S3Code::storage_full;
    case Errc::busy:
    case Errc::unreachable:
    case Errc::interrupted:
    case Errc::stale:
    case Errc::deadline: return S3Code::service_unavailable;
    default: return S3Code::internal_error;
  }
}

}  // namespace ff::s3
