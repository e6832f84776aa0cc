// What clients of S3 send, from anywhere: URLs, signatures, documents, keys, tags, ranges and
// attributes of files. No crash, and what is written from it is read as the same.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/check.h"
#include "storage/s3/access_key.h"
#include "storage/s3/hash.h"
#include "storage/s3/object_attributes.h"
#include "storage/s3/object_key.h"
#include "storage/s3/reply_text.h"
#include "storage/s3/signature.h"
#include "storage/s3/tags.h"
#include "storage/s3/uri.h"
#include "storage/s3/xml.h"

namespace {

using namespace ff;
using namespace ff::s3;

void check_texts(std::string_view text) {
  const std::string encoded = percent_encode(text, true);
  FF_CHECK(percent_decode(encoded) == std::string(text));
  FF_CHECK(parse_base64(base64(text)) == std::string(text));
  if (text.find('\0') == text.npos) {  // XML has none, and no name of a file either
    XmlWriter writer("Root");
    writer.element("Text", text);
    const auto document = parse_xml(writer.finish());
    FF_CHECK(document && document->value("Text") == text);
  }
  (void)parse_xml(text);
  (void)parse_tag_document(text);
  (void)parse_tag_field(text);
  (void)parse_hex(text);
  (void)parse_access_key(text);
  (void)parse_signature_time(text);
  (void)parse_attributes(text, meta::Inode());
  if (const auto range = parse_range(text, 1000); range && *range) {
    FF_CHECK((*range)->begin < (*range)->end && (*range)->end <= 1000);
  }
  if (const auto path = parse_key(text)) {
    std::string joined;
    for (const std::string& folder : path->folders) joined += folder + "/";
    FF_CHECK(joined + path->name + (path->marker ? "/" : "") == text);
  }
}

void check_request(std::string_view text) {
  const auto end = http::head_end(text);
  if (!end) return;
  const auto head = http::parse_head(text.substr(0, *end));
  if (!head) return;
  const auto target = parse_target(head->target);
  if (!target) return;
  const auto claim = parse_claim(*head, *target);
  if (!claim || !*claim) return;
  (void)string_to_sign(**claim, canonical_request(*head, *target, **claim));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_texts(text);
  check_request(text);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {"<Delete><Object a='b'><Key>&#x61;&amp;</Key></Object><Quiet/></Delete>",
          "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>",
          "ff-s3 1\netag 9b2cf535f27731c974343645a3985328-2\nof 0 0 0 0\nfield a b\ntag c d\n",
          "bytes=0-9",
          "bytes=-5",
          "a/b/",
          "20130524T000000Z",
          "GET /a?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=K%2F20130524%2Fr%2Fs3%2Faws4_"
          "request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-"
          "Signature=0 HTTP/1.1\r\nHost: a\r\n\r\n",
          "GET /a HTTP/1.1\r\nAuthorization: AWS4-HMAC-SHA256 Credential=K/20130524/r/s3/aws4_"
          "request, SignedHeaders=host, Signature=0\r\nHost: a\r\n\r\n"};
}
