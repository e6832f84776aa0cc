// cors.cc: rules as XML documents, and which rule a request matches.
#include "storage/s3/cors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "platform/base/text.h"
#include "storage/s3/s3_error.h"
#include "storage/s3/xml.h"

namespace ff::s3 {

namespace {

constexpr size_t kCorsRulesMax = 100;
constexpr size_t kCorsIdMax = 255;
constexpr std::array<std::string_view, 5> kCorsMethods = {"GET", "PUT", "POST", "DELETE", "HEAD"};

Error malformed_cors() {
  return s3_error(S3Code::malformed_xml,
                  "The XML you provided was not well-formed or did not validate against our "
                  "published schema.");
}

// Texts go into header fields.
bool is_plain(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) > ' '; });
}

Result<void> check_wildcard(std::string_view element, std::string_view text) {
  if (std::ranges::count(text, '*') <= 1) return {};
  return s3_error(S3Code::invalid_request, "{} \"{}\" can not have more than one wildcard.",
                  element, printable(text));
}

std::string lower_header(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

Result<void> read_header(CorsRule& rule, std::string_view text) {
  FF_TRY(check_wildcard("AllowedHeader", text));
  rule.headers.push_back(lower_header(text));
  return {};
}

Result<void> read_method(CorsRule& rule, std::string_view text) {
  if (std::ranges::find(kCorsMethods, text) == kCorsMethods.end()) {
    return s3_error(S3Code::invalid_request,
                    "Found unsupported HTTP method in CORS config. Unsupported method is {}",
                    printable(text));
  }
  rule.methods.emplace_back(text);
  return {};
}

Result<void> read_exposed(CorsRule& rule, std::string_view text) {
  if (text.find('*') != text.npos) {
    return s3_error(S3Code::invalid_request,
                    "ExposeHeader \"{}\" contains wildcard. We currently do not support wildcard "
                    "for ExposeHeader.",
                    printable(text));
  }
  rule.exposed.emplace_back(text);
  return {};
}

Result<void> read_id(CorsRule& rule, std::string_view text) {
  if (text.size() > kCorsIdMax) {
    return s3_error(S3Code::invalid_argument, "The ID of a rule has more than {} bytes.",
                    kCorsIdMax);
  }
  rule.id = text;
  return {};
}

Result<void> read_element(CorsRule& rule, const XmlElement& element) {
  const std::string_view text = element.text;
  if (!element.children.empty()) return malformed_cors();
  if (element.name == "ID") return read_id(rule, text);
  if (!is_plain(text)) return malformed_cors();
  if (element.name == "AllowedOrigin") {
    FF_TRY(check_wildcard(element.name, text));
    rule.origins.emplace_back(text);
    return {};
  }
  if (element.name == "AllowedMethod") return read_method(rule, text);
  if (element.name == "AllowedHeader") return read_header(rule, text);
  if (element.name == "ExposeHeader") return read_exposed(rule, text);
  if (element.name != "MaxAgeSeconds" || rule.max_age_s) return malformed_cors();
  rule.max_age_s = parse_u64(text);
  if (!rule.max_age_s || *rule.max_age_s > INT32_MAX) return malformed_cors();
  return {};
}

// '*' stands for any text.
bool matches_pattern(std::string_view pattern, std::string_view text) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == text;
  const std::string_view before = pattern.substr(0, star), after = pattern.substr(star + 1);
  return text.size() >= before.size() + after.size() && text.starts_with(before) &&
         text.ends_with(after);
}

bool matches_any(const std::vector<std::string>& patterns, std::string_view text) {
  return std::ranges::any_of(patterns, [&](const auto& one) { return matches_pattern(one, text); });
}

bool allows_header(const CorsRule& rule, std::string_view header) {
  return matches_any(rule.headers, lower_header(header));
}

}  // namespace

Result<std::vector<CorsRule>> parse_cors(std::string_view document) {
  const auto root = parse_xml(document);
  if (!root || root->name != "CORSConfiguration" || root->children.empty()) return malformed_cors();
  if (root->children.size() > kCorsRulesMax) {
    return s3_error(S3Code::invalid_request,
                    "The number of CORS rules should not exceed allowed limit of {} rules.",
                    kCorsRulesMax);
  }
  std::vector<CorsRule> rules;
  for (const XmlElement& element : root->children) {
    if (element.name != "CORSRule") return malformed_cors();
    CorsRule& rule = rules.emplace_back();
    for (const XmlElement& child : element.children) FF_TRY(read_element(rule, child));
    if (rule.origins.empty() || rule.methods.empty()) return malformed_cors();
  }
  return rules;
}

std::string format_cors(const std::vector<CorsRule>& rules) {
  XmlWriter document("CORSConfiguration");
  for (const CorsRule& rule : rules) {
    document.open("CORSRule");
    if (!rule.id.empty()) document.element("ID", rule.id);
    for (const std::string& one : rule.origins) document.element("AllowedOrigin", one);
    for (const std::string& one : rule.methods) document.element("AllowedMethod", one);
    for (const std::string& one : rule.headers) document.element("AllowedHeader", one);
    for (const std::string& one : rule.exposed) document.element("ExposeHeader", one);
    if (rule.max_age_s) document.element("MaxAgeSeconds", *rule.max_age_s);
    document.close();
  }
  return document.finish();
}

const CorsRule* find_cors_rule(const std::vector<CorsRule>& rules, const CorsRequest& request) {
  const auto found = std::ranges::find_if(rules, [&](const CorsRule& rule) {
    return matches_any(rule.origins, request.origin) &&
           std::ranges::find(rule.methods, request.method) != rule.methods.end() &&
           std::ranges::all_of(request.headers,
                               [&](auto header) { return allows_header(rule, header); });
  });
  return found == rules.end() ? nullptr : &*found;
}

std::vector<http::Field> cors_fields(const CorsRule& rule, const CorsRequest& request) {
  const auto joined = [](const auto& texts) { return fmt::format("{}", fmt::join(texts, ", ")); };
  const bool everybody = std::ranges::find(rule.origins, "*") != rule.origins.end();
  std::vector<http::Field> fields = {
      {"Access-Control-Allow-Origin", everybody ? "*" : std::string(request.origin)},
      {"Access-Control-Allow-Methods", joined(rule.methods)}};
  if (!everybody) fields.push_back({"Access-Control-Allow-Credentials", "true"});
  if (!request.headers.empty()) {
    fields.push_back({"Access-Control-Allow-Headers", joined(request.headers)});
  }
  if (!rule.exposed.empty()) {
    fields.push_back({"Access-Control-Expose-Headers", joined(rule.exposed)});
  }
  if (rule.max_age_s) {
    fields.push_back({"Access-Control-Max-Age", fmt::to_string(*rule.max_age_s)});
  }
  fields.push_back(
      {"Vary", "Origin, Access-Control-Request-Headers, Access-Control-Request-Method"});
  return fields;
}

}  // namespace ff::s3
