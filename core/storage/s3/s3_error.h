// Errors with S3's codes. They travel as ff::Error: Error::sys has the code, above all numbers of
// errno. Errors of the file system get one when they are reported (code_of()).
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "platform/base/result.h"

namespace ff::s3 {

enum class S3Code : uint8_t {
  access_denied,
  access_forbidden,
  authorization_malformed,
  authorization_query_error,
  bad_digest,
  bad_request,
  bucket_already_exists,
  bucket_already_owned_by_you,
  bucket_not_empty,
  entity_too_small,
  incomplete_body,
  internal_error,
  invalid_access_key_id,
  invalid_argument,
  invalid_bucket_name,
  invalid_digest,
  invalid_part,
  invalid_part_order,
  invalid_range,
  invalid_request,
  invalid_tag,
  invalid_uri,
  key_too_long,
  malformed_xml,
  metadata_too_large,
  missing_content_length,
  no_such_bucket,
  no_such_cors_configuration,
  no_such_key,
  no_such_upload,
  not_implemented,
  not_modified,
  precondition_failed,
  request_time_too_skewed,
  request_timeout,
  service_unavailable,
  signature_does_not_match,
  storage_full,
  content_sha256_mismatch,
};

std::string_view code_name(S3Code code);  // "NoSuchKey"
int status_of(S3Code code);               // of HTTP

// `text`: a sentence, for the Message of the reply.
Error make_s3_error(S3Code code, std::string text);
template <class... A>
Error s3_error(S3Code code, fmt::format_string<A...> text, A&&... args) {
  return make_s3_error(code, fmt::format(text, std::forward<A>(args)...));
}

// Whether it was made with this code.
bool is_s3_error(const Error& error, S3Code code);
// The code to report for any error.
S3Code code_of(const Error& error);

}  // namespace ff::s3
