// Which pages of other sites may use a bucket from a browser: the rules of a bucket for
// cross-origin resource sharing (CORS), as S3 has them. They are kept as the extended attribute
// "user.ff.s3.cors" of the bucket's folder, as the XML document of PutBucketCors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/http/request_head.h"

namespace ff::s3 {

constexpr std::string_view kCorsAttributeName = "user.ff.s3.cors";

struct CorsRule {
  std::string id = {};                    // empty: none was given
  std::vector<std::string> origins;       // "https://*.example.com", with at most one '*'
  std::vector<std::string> methods;       // GET, PUT, POST, DELETE, HEAD
  std::vector<std::string> headers = {};  // that a page may send, in lower case; at most one '*'
  std::vector<std::string> exposed = {};  // header fields of replies that a page may read
  std::optional<uint64_t> max_age_s = {};
  bool operator==(const CorsRule&) const = default;
};

// Errors are S3's: MalformedXML, InvalidRequest, InvalidArgument.
Result<std::vector<CorsRule>> parse_cors(std::string_view document);
std::string format_cors(const std::vector<CorsRule>& rules);

// What a browser asks for a page.
struct CorsRequest {
  std::string_view origin;                     // "https://app.example.com"
  std::string_view method;                     // of the page's request
  std::vector<std::string_view> headers = {};  // that the page wants to send
};
// The first rule that allows it; null: there is none.
const CorsRule* find_cors_rule(const std::vector<CorsRule>& rules, const CorsRequest& request);
// The fields of a reply that tell the browser what the rule allows.
std::vector<http::Field> cors_fields(const CorsRule& rule, const CorsRequest& request);

}  // namespace ff::s3
