// Signature Version 4 with the values that AWS publishes: the examples of the S3 API Reference
// ("Authenticating Requests", "Signature calculations for the Authorization header"), and the test
// suite of signatures.
#include "storage/s3/signature.h"

#include <gtest/gtest.h>

#include "storage/s3/hash.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {
namespace {

constexpr std::string_view kExampleSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
constexpr std::string_view kSuiteSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
constexpr std::string_view kCredential =
    "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,";

http::RequestHead request(std::string method, std::string target, std::vector<http::Field> fields) {
  return {.method = std::move(method), .target = std::move(target), .fields = std::move(fields)};
}

// The signature that the request should have.
std::string signature_of(const http::RequestHead& head) {
  const auto target = parse_target(head.target);
  EXPECT_TRUE(target);
  const auto claim = parse_claim(head, *target);
  EXPECT_TRUE(claim) << claim.error().message;
  if (!claim || !*claim) return {};
  return sign(signing_key(kExampleSecret, **claim),
              string_to_sign(**claim, canonical_request(head, *target, **claim)));
}

// An example request, whose fields and signature are right.
void check_example(std::string method, std::string target, std::vector<http::Field> fields,
                   std::string_view signed_fields, std::string_view signature) {
  fields.push_back({"authorization", fmt::format("{}SignedHeaders={}, Signature={}", kCredential,
                                                 signed_fields, signature)});
  fields.push_back({"x-amz-date", "20130524T000000Z"});
  if (http::find_field(fields, "host") == nullptr) {
    fields.push_back({"host", "examplebucket.s3.amazonaws.com"});
  }
  EXPECT_EQ(signature_of(request(std::move(method), std::move(target), std::move(fields))),
            signature);
}

TEST(SignatureTest, ExamplesOfTheReference) {
  const std::string empty = sha256_hex("");
  check_example("GET", "/test.txt", {{"range", "bytes=0-9"}, {"x-amz-content-sha256", empty}},
                "host;range;x-amz-content-sha256;x-amz-date",
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  check_example("PUT", "/test$file.text",
                {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                 {"x-amz-storage-class", "REDUCED_REDUNDANCY"},
                 {"x-amz-content-sha256", sha256_hex("Welcome to Amazon S3.")}},
                "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  check_example("GET", "/?lifecycle", {{"x-amz-content-sha256", empty}},
                "host;x-amz-content-sha256;x-amz-date",
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  check_example("GET", "/?max-keys=2&prefix=J", {{"x-amz-content-sha256", empty}},
                "host;x-amz-content-sha256;x-amz-date",
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(SignatureTest, ExampleOfAPresignedUrl) {
  const http::RequestHead head =
      request("GET",
              "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%"
              "2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-"
              "Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="
              "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
              {{"host", "examplebucket.s3.amazonaws.com"}});
  const auto claim = parse_claim(head, *parse_target(head.target));
  ASSERT_TRUE(claim && *claim);
  EXPECT_TRUE((*claim)->presigned);
  EXPECT_EQ((*claim)->expires_s, 86400);
  EXPECT_EQ((*claim)->access_key, "AKIAIOSFODNN7EXAMPLE");
  EXPECT_EQ(signature_of(head), (*claim)->signature);
}

// The requests of the suite are for another service; all else is the same.
std::string suite_signature(std::string method, std::string target) {
  const http::RequestHead head =
      request(std::move(method), std::move(target),
              {{"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"}});
  const SignatureClaim claim{.access_key = "AKIDEXAMPLE",
                             .day = "20150830",
                             .region = "us-east-1",
                             .service = "service",
                             .time = "20150830T123600Z",
                             .signed_fields = {"host", "x-amz-date"},
                             .signature = {},
                             .payload = sha256_hex("")};
  const auto parsed = parse_target(head.target);
  EXPECT_TRUE(parsed);
  return sign(signing_key(kSuiteSecret, claim),
              string_to_sign(claim, canonical_request(head, *parsed, claim)));
}

TEST(SignatureTest, SuiteOfAws) {
  EXPECT_EQ(suite_signature("GET", "/"),  // get-vanilla
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  EXPECT_EQ(suite_signature("GET", "/?Param1=value2&Param1=Value1"),  // query-order-value
            "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1");
  EXPECT_EQ(suite_signature("POST", "/"),  // post-vanilla
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
  EXPECT_EQ(suite_signature("GET", "/%E1%88%B4"),  // get-utf8
            "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85");
  EXPECT_EQ(suite_signature("GET", "/?%E1%88%B4=bar"),  // get-vanilla-utf8-query
            "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04");
}

TEST(SignatureTest, EveryPartCounts) {
  const std::vector<http::Field> fields = {
      {"authorization", fmt::format("{}SignedHeaders=host;x-amz-date, Signature={}", kCredential,
                                    std::string(64, '0'))},
      {"host", "a"},
      {"x-amz-content-sha256", "UNSIGNED-PAYLOAD"},
      {"x-amz-date", "20130524T000000Z"}};
  const http::RequestHead head = request("GET", "/a?b=c", fields);
  const std::string right = signature_of(head);
  auto other = head;
  other.method = "PUT";
  EXPECT_NE(signature_of(other), right);
  other = head;
  other.target = "/a?b=d";
  EXPECT_NE(signature_of(other), right);
  other = head;
  other.target = "/A?b=c";
  EXPECT_NE(signature_of(other), right);
  other = head;
  other.fields[1].value = "b";
  EXPECT_NE(signature_of(other), right);
  other = head;
  other.fields[2].value = sha256_hex("");
  EXPECT_NE(signature_of(other), right);
  other = head;
  other.target = "/%61?%62=c";  // the same, written in another way
  EXPECT_EQ(signature_of(other), right);
}

TEST(SignatureTest, RefusesWhatIsNoSignature) {
  const auto code = [](std::vector<http::Field> fields, std::string target) {
    const auto claim =
        parse_claim(request("GET", target, std::move(fields)), *parse_target(target));
    return claim ? std::string("none") : std::string(code_name(code_of(claim.error())));
  };
  const std::string digits(64, '0');
  const auto with = [&](std::string authorization) {
    return std::vector<http::Field>{{"authorization", std::move(authorization)},
                                    {"x-amz-content-sha256", "UNSIGNED-PAYLOAD"},
                                    {"x-amz-date", "20130524T000000Z"}};
  };
  const std::string scope = "AWS4-HMAC-SHA256 Credential=K/20130524/r/s3/aws4_request, ";
  EXPECT_EQ(code({}, "/"), "none");
  EXPECT_EQ(code(with(scope + "SignedHeaders=host, Signature=" + digits), "/"), "none");
  EXPECT_EQ(code(with("AWS key:signature"), "/"), "InvalidRequest");
  EXPECT_EQ(code(with(scope + "SignedHeaders=host, Signature=12"), "/"),
            "AuthorizationHeaderMalformed");
  EXPECT_EQ(code(with(scope + "SignedHeaders=date, Signature=" + digits), "/"),
            "AuthorizationHeaderMalformed");
  EXPECT_EQ(code(with("AWS4-HMAC-SHA256 Credential=K/20130525/r/s3/aws4_request, "
                      "SignedHeaders=host, Signature=" +
                      digits),
                 "/"),
            "AuthorizationHeaderMalformed");
  EXPECT_EQ(code(with("AWS4-HMAC-SHA256 Credential=K/20130524/r/ec2/aws4_request, "
                      "SignedHeaders=host, Signature=" +
                      digits),
                 "/"),
            "AuthorizationHeaderMalformed");
  EXPECT_EQ(code({},
                 "/?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=K%2F20130524%2Fr%2Fs3%"
                 "2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=604801&X-Amz-"
                 "SignedHeaders=host&X-Amz-Signature=" +
                     digits),
            "AuthorizationQueryParametersError");
}

// "Signature Calculations for the Authorization Header: Transferring Payload in Multiple Chunks".
TEST(SignatureTest, ExampleOfSignedChunks) {
  SignatureClaim claim{.access_key = {},
                       .day = "20130524",
                       .region = "us-east-1",
                       .service = "s3",
                       .time = "20130524T000000Z",
                       .signed_fields = {},
                       .signature = {},
                       .payload = {}};
  const auth::Key key = signing_key(kExampleSecret, claim);
  const auto chunk = [&](std::string_view before, const std::string& data) {
    return sign(key, chunk_string_to_sign(claim, before, sha256_hex(data)));
  };
  const std::string seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
  const std::string first = chunk(seed, std::string(64 * kKiB, 'a'));
  EXPECT_EQ(first, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648");
  const std::string second = chunk(first, std::string(1024, 'a'));
  EXPECT_EQ(second, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497");
  EXPECT_EQ(chunk(second, ""), "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9");
}

// "... Including Trailing Headers".
TEST(SignatureTest, ExampleOfSignedTrailers) {
  SignatureClaim claim{.access_key = {},
                       .day = "20130524",
                       .region = "us-east-1",
                       .service = "s3",
                       .time = "20130524T000000Z",
                       .signed_fields = {},
                       .signature = {},
                       .payload = {}};
  const auth::Key key = signing_key(kExampleSecret, claim);
  const std::string last = "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992";
  EXPECT_EQ(sign(key, trailer_string_to_sign(claim, last, "x-amz-checksum-crc32c:sOO8/Q==\n")),
            "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435");
}

TEST(SignatureTest, Times) {
  EXPECT_EQ(parse_signature_time("20130524T000000Z"), 1369353600);
  EXPECT_FALSE(parse_signature_time("20130524T000000"));
  EXPECT_FALSE(parse_signature_time("20130524T000000Zx"));
  EXPECT_FALSE(parse_signature_time(""));
}

}  // namespace
}  // namespace ff::s3
