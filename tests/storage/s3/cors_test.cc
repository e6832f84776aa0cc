// Rules of buckets for pages of other sites: documents, matching, and the replies to browsers.
#include "storage/s3/cors.h"

#include <gtest/gtest.h>

#include "storage/s3/s3_error.h"
#include "storage/s3/s3_world.h"

namespace ff::s3 {
namespace {

std::string rule_text(std::string_view inside) {
  return fmt::format("<CORSConfiguration><CORSRule>{}</CORSRule></CORSConfiguration>", inside);
}

constexpr std::string_view kMinimal =
    "<AllowedOrigin>https://a.example</AllowedOrigin><AllowedMethod>GET</AllowedMethod>";

std::string error_of(std::string_view document) {
  const auto rules = parse_cors(document);
  return rules ? "" : std::string(code_name(code_of(rules.error())));
}

TEST(CorsTest, DocumentsBecomeRulesAndBack) {
  const auto rules = parse_cors(
      "<?xml version=\"1.0\"?><CORSConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
      "<CORSRule><ID>one &amp; two</ID><AllowedOrigin>https://*.example.com</AllowedOrigin>"
      "<AllowedOrigin>null</AllowedOrigin><AllowedMethod>GET</AllowedMethod>"
      "<AllowedMethod>PUT</AllowedMethod><AllowedHeader>X-Amz-*</AllowedHeader>"
      "<ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>3000</MaxAgeSeconds></CORSRule>"
      "<CORSRule><AllowedMethod>HEAD</AllowedMethod><AllowedOrigin>*</AllowedOrigin></CORSRule>"
      "</CORSConfiguration>");
  ASSERT_TRUE(rules) << rules.error().message;
  const std::vector<CorsRule> expected = {{.id = "one & two",
                                           .origins = {"https://*.example.com", "null"},
                                           .methods = {"GET", "PUT"},
                                           .headers = {"x-amz-*"},
                                           .exposed = {"ETag"},
                                           .max_age_s = 3000},
                                          {.origins = {"*"}, .methods = {"HEAD"}}};
  EXPECT_EQ(*rules, expected);
  EXPECT_EQ(parse_cors(format_cors(expected)).value(), expected);
}

TEST(CorsTest, WrongDocumentsGetTheCodesOfS3) {
  const std::string minimal(kMinimal);
  EXPECT_EQ(error_of(rule_text(minimal)), "");
  EXPECT_EQ(error_of(""), "MalformedXML");
  EXPECT_EQ(error_of("<CORSConfiguration>"), "MalformedXML");
  EXPECT_EQ(error_of("<CORSConfiguration/>"), "MalformedXML");
  EXPECT_EQ(error_of("<Tagging><CORSRule>" + minimal + "</CORSRule></Tagging>"), "MalformedXML");
  EXPECT_EQ(error_of("<CORSConfiguration><Rule/></CORSConfiguration>"), "MalformedXML");
  EXPECT_EQ(error_of(rule_text("<AllowedMethod>GET</AllowedMethod>")), "MalformedXML");
  EXPECT_EQ(error_of(rule_text("<AllowedOrigin>*</AllowedOrigin>")), "MalformedXML");
  const auto more = [&](std::string_view element, std::string_view text) {
    return error_of(rule_text(fmt::format("{0}<{1}>{2}</{1}>", kMinimal, element, text)));
  };
  EXPECT_EQ(more("Unknown", "x"), "MalformedXML");
  EXPECT_EQ(more("AllowedOrigin", ""), "MalformedXML");
  EXPECT_EQ(more("AllowedOrigin", "<b/>"), "MalformedXML");
  EXPECT_EQ(more("AllowedOrigin", "http://*.*"), "InvalidRequest");
  EXPECT_EQ(more("AllowedMethod", "PATCH"), "InvalidRequest");
  EXPECT_EQ(more("AllowedMethod", "get"), "InvalidRequest");
  EXPECT_EQ(more("AllowedHeader", "*-*"), "InvalidRequest");
  EXPECT_EQ(more("ExposeHeader", "x-*"), "InvalidRequest");
  EXPECT_EQ(more("ExposeHeader", "a&#13;&#10;Set-Cookie: b"), "MalformedXML");
  EXPECT_EQ(more("MaxAgeSeconds", "-1"), "MalformedXML");
  EXPECT_EQ(more("MaxAgeSeconds", "1e3"), "MalformedXML");
  EXPECT_EQ(more("ID", std::string(255, 'i')), "");
  EXPECT_EQ(more("ID", std::string(256, 'i')), "InvalidArgument");
  std::string rules;
  for (int i = 0; i < 100; i++) rules += "<CORSRule>" + minimal + "</CORSRule>";
  EXPECT_EQ(error_of("<CORSConfiguration>" + rules + "</CORSConfiguration>"), "");
  rules += "<CORSRule>" + minimal + "</CORSRule>";
  EXPECT_EQ(error_of("<CORSConfiguration>" + rules + "</CORSConfiguration>"), "InvalidRequest");
}

TEST(CorsTest, TheFirstRuleThatAllowsAllOfARequestCounts) {
  const std::vector<CorsRule> rules = {
      {.id = "1", .origins = {"https://*.a.example"}, .methods = {"GET"}, .headers = {"x-*"}},
      {.id = "2", .origins = {"https://b.example", "http://c*d"}, .methods = {"GET", "PUT"}},
      {.id = "3", .origins = {"*"}, .methods = {"GET"}, .headers = {"*"}}};
  const auto id = [&](std::string_view origin, std::string_view method,
                      std::vector<std::string_view> headers = {}) {
    const CorsRule* const rule =
        find_cors_rule(rules, {.origin = origin, .method = method, .headers = std::move(headers)});
    return rule == nullptr ? std::string() : rule->id;
  };
  EXPECT_EQ(id("https://www.a.example", "GET"), "1");
  EXPECT_EQ(id("https://a.example", "GET"), "3");
  EXPECT_EQ(id("https://www.a.example", "GET", {"X-Amz-Date", "x-b"}), "1");
  EXPECT_EQ(id("https://www.a.example", "GET", {"X-Amz-Date", "range"}), "3");
  EXPECT_EQ(id("https://www.a.example", "PUT"), "");
  EXPECT_EQ(id("https://b.example", "PUT"), "2");
  EXPECT_EQ(id("https://b.example", "PUT", {"range"}), "");
  EXPECT_EQ(id("HTTPS://B.example", "PUT"), "");
  EXPECT_EQ(id("http://cd", "PUT"), "2");
  EXPECT_EQ(id("http://c", "PUT"), "");  // the texts around '*' do not overlap
  EXPECT_EQ(id("null", "GET"), "3");
}

class CorsReplyTest : public S3World {
 protected:
  void SetUp() override {
    S3World::SetUp();
    make_bucket("bucket");
  }
  void allow(std::string_view inside) {
    const Reply put = ask("PUT", "/bucket?cors", rule_text(inside));
    ASSERT_EQ(put.status, 200) << put.body;
  }
  Reply preflight(std::string_view target, std::string_view origin, std::string_view method,
                  std::string_view headers = {}) {
    Fields fields;
    if (!origin.empty()) fields.push_back({"Origin", std::string(origin)});
    if (!method.empty()) {
      fields.push_back({"Access-Control-Request-Method", std::string(method)});
    }
    if (!headers.empty()) {
      fields.push_back({"Access-Control-Request-Headers", std::string(headers)});
    }
    return ask("OPTIONS", target, {}, fields);
  }
};

TEST_F(CorsReplyTest, RulesAreKeptWithTheBucket) {
  EXPECT_EQ(ask("GET", "/bucket?cors").code(), "NoSuchCORSConfiguration");
  EXPECT_EQ(ask("DELETE", "/bucket?cors").status, 204);
  EXPECT_EQ(ask("PUT", "/bucket?cors", "<x/>").code(), "MalformedXML");
  EXPECT_EQ(ask("GET", "/other?cors").code(), "NoSuchBucket");
  EXPECT_EQ(ask("PUT", "/other?cors", rule_text(kMinimal)).code(), "NoSuchBucket");
  allow(kMinimal);
  const XmlElement kept = ask("GET", "/bucket?cors").xml();
  EXPECT_EQ(kept.name, "CORSConfiguration");
  ASSERT_EQ(kept.children.size(), 1u);
  EXPECT_EQ(kept.children[0].value("AllowedOrigin"), "https://a.example");
  // It is no marker of a folder, and no object.
  EXPECT_EQ(ask("GET", "/bucket?list-type=2").xml().value("KeyCount"), "0");
  EXPECT_EQ(ask("DELETE", "/bucket?cors").status, 204);
  EXPECT_EQ(ask("GET", "/bucket?cors").code(), "NoSuchCORSConfiguration");
  allow(kMinimal);
  EXPECT_EQ(ask("DELETE", "/bucket").status, 204);
  // Quotes take more bytes in the attribute than in the request.
  make_bucket("bucket");
  const std::string id(255, '"');
  std::string rules;
  for (int i = 0; i < 100; i++) {
    rules += fmt::format("<CORSRule><ID>{}</ID>{}</CORSRule>", id, kMinimal);
  }
  EXPECT_EQ(
      ask("PUT", "/bucket?cors", "<CORSConfiguration>" + rules + "</CORSConfiguration>").code(),
      "InvalidRequest");
}

TEST_F(CorsReplyTest, BrowsersAskBeforeThePageMay) {
  EXPECT_EQ(preflight("/bucket/a", "https://a.example", "GET").code(), "AccessForbidden");
  allow(
      "<AllowedOrigin>https://*.example</AllowedOrigin><AllowedMethod>GET</AllowedMethod>"
      "<AllowedMethod>PUT</AllowedMethod><AllowedHeader>x-amz-*</AllowedHeader>"
      "<AllowedHeader>range</AllowedHeader><ExposeHeader>ETag</ExposeHeader>"
      "<ExposeHeader>x-amz-meta-one</ExposeHeader><MaxAgeSeconds>60</MaxAgeSeconds>");
  const Reply reply =
      preflight("/bucket/a?versionId=1", "https://a.example", "PUT", "Range, x-amz-date");
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.body, "");
  EXPECT_EQ(reply.field("Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(reply.field("Access-Control-Allow-Methods"), "GET, PUT");
  EXPECT_EQ(reply.field("Access-Control-Allow-Headers"), "Range, x-amz-date");
  EXPECT_EQ(reply.field("Access-Control-Expose-Headers"), "ETag, x-amz-meta-one");
  EXPECT_EQ(reply.field("Access-Control-Max-Age"), "60");
  EXPECT_EQ(reply.field("Access-Control-Allow-Credentials"), "true");
  EXPECT_EQ(reply.field("Vary").substr(0, 6), "Origin");
  for (const Reply& refused : {preflight("/bucket/a", "https://a.other", "GET"),
                               preflight("/bucket/a", "https://a.example", "DELETE"),
                               preflight("/bucket/a", "https://a.example", "GET", "x-other"),
                               preflight("/none/a", "https://a.example", "GET"),
                               preflight("/", "https://a.example", "GET")}) {
    EXPECT_EQ(refused.status, 403);
    EXPECT_EQ(refused.code(), "AccessForbidden");
    EXPECT_EQ(refused.field("Access-Control-Allow-Origin"), "");
  }
  EXPECT_EQ(preflight("/bucket/a", "", "GET").code(), "BadRequest");
  EXPECT_EQ(preflight("/bucket/a", "https://a.example", "").code(), "BadRequest");
}

TEST_F(CorsReplyTest, RepliesAndErrorsTellWhatThePageMayRead) {
  allow(
      "<AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>"
      "<ExposeHeader>ETag</ExposeHeader>");
  // Without keys no page may ask, and it may read why.
  const Reply refused = ask("GET", "/bucket/a", {}, {{"Origin", "https://a.example"}});
  EXPECT_EQ(refused.code(), "AccessDenied");
  EXPECT_EQ(refused.field("Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(refused.field("Access-Control-Expose-Headers"), "ETag");
  EXPECT_EQ(refused.field("Access-Control-Allow-Credentials"), "");
  const Reply other = ask("PUT", "/bucket/a", "x", {{"Origin", "https://a.example"}});
  EXPECT_EQ(other.code(), "AccessDenied");
  EXPECT_EQ(other.field("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(ask("GET", "/bucket").field("Vary"), "");  // of no page
  // A program has broken the attribute.
  const auto view = run(client::resolve_path(metadata(), {}, "/bucket", false));
  ASSERT_TRUE(view);
  ASSERT_TRUE(run(metadata().set_xattr({}, view->ref(), std::string(kCorsAttributeName), "<x",
                                       meta::Namespace::XattrMode::any)));
  EXPECT_EQ(ask("GET", "/bucket/a", {}, {{"Origin", "https://a.example"}}).code(), "AccessDenied");
  EXPECT_NE(preflight("/bucket/a", "https://a.example", "GET").status, 200);
}

}  // namespace
}  // namespace ff::s3
