// URLs, XML, digests, names, tags, ranges and attributes.
#include <gtest/gtest.h>

#include "platform/base/text.h"
#include "storage/s3/access_key.h"
#include "storage/s3/hash.h"
#include "storage/s3/object_attributes.h"
#include "storage/s3/object_key.h"
#include "storage/s3/reply_text.h"
#include "storage/s3/s3_error.h"
#include "storage/s3/tags.h"
#include "storage/s3/uri.h"
#include "storage/s3/xml.h"

namespace ff::s3 {
namespace {

template <class T>
std::string code_name_of(const Result<T>& result) {
  return result ? "" : std::string(code_name(code_of(result.error())));
}

TEST(UriTest, Targets) {
  const auto target = parse_target("/a%2fb/c%20d+e?list-type=2&prefix=x%26y&flag&&empty=");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->path, "/a/b/c d+e");
  EXPECT_EQ(target->query,
            (Query{{"list-type", "2"}, {"prefix", "x&y"}, {"flag", ""}, {"empty", ""}}));
  EXPECT_TRUE(target->has("flag"));
  EXPECT_FALSE(target->has("none"));
  for (const std::string_view bad : {"", "a", "http://host/a", "/%", "/%4", "/%zz", "/?a=%"}) {
    EXPECT_FALSE(parse_target(bad)) << bad;
  }
}

TEST(UriTest, EncodingAsSignaturesHaveIt) {
  EXPECT_EQ(percent_encode("aZ09-._~ /\xE1*'()", true), "aZ09-._~%20/%E1%2A%27%28%29");
  EXPECT_EQ(percent_encode("a/b", false), "a%2Fb");
}

TEST(HashTest, KnownValues) {
  const auto digest = [](HashKind kind) { return hex(as_bytes(hash_of(kind, "123456789"))); };
  EXPECT_EQ(digest(HashKind::md5), "25f9e794323b453885f5181f1b624d0b");
  EXPECT_EQ(digest(HashKind::sha1), "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
  EXPECT_EQ(digest(HashKind::crc32), "cbf43926");
  EXPECT_EQ(digest(HashKind::crc32c), "e3069283");
  EXPECT_EQ(digest(HashKind::crc64nvme), "ae8b14860a799888");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Hasher hasher(HashKind::crc32);
  hasher.update(as_bytes("1234"));
  hasher.update(as_bytes("56789"));
  EXPECT_EQ(hex(as_bytes(hasher.finish())), "cbf43926");
  EXPECT_EQ(hex(as_bytes(hasher.finish())), "00000000");
}

TEST(HashTest, Base64) {
  EXPECT_EQ(base64("abcd"), "YWJjZA==");
  EXPECT_EQ(parse_base64("YWJjZA=="), "abcd");
  EXPECT_EQ(parse_base64(""), "");
  for (const std::string_view bad : {"YWJjZA=", "YWJjZA", "YW!jZA==", "YWJjZB==", "YW==ZA=="}) {
    EXPECT_FALSE(parse_base64(bad)) << bad;
  }
  EXPECT_EQ(parse_hex("41fF"), "A\xFF");
  EXPECT_FALSE(parse_hex("4"));
  EXPECT_FALSE(parse_hex("4x"));
}

TEST(XmlTest, WhatIsWrittenIsRead) {
  const std::string text = "a<b>&\"'\r\n\t\x01 \xE1\x88\xB4";
  XmlWriter writer("Root");
  writer.open("One");
  writer.element("Text", text);
  writer.close();
  writer.element("Number", uint64_t{17});
  const auto root = parse_xml(writer.finish());
  ASSERT_TRUE(root) << root.error().message;
  EXPECT_EQ(root->name, "Root");
  ASSERT_NE(root->find("One"), nullptr);
  EXPECT_EQ(root->find("One")->value("Text"), text);
  EXPECT_EQ(root->value("Number"), "17");
}

TEST(XmlTest, WhatClientsSend) {
  const auto root = parse_xml(
      "\xEF\xBB\xBF<?xml version='1.0'?>\n<!-- x --><s3:Delete xmlns:s3=\"http://x/\">\n"
      "<Object a='b'><Key>&#x61;&#98;&amp;</Key></Object ><Quiet/>\n</s3:Delete>\n");
  ASSERT_TRUE(root) << root.error().message;
  EXPECT_EQ(root->name, "Delete");
  EXPECT_EQ(root->children.front().value("Key"), "ab&");
  EXPECT_EQ(root->children.back().name, "Quiet");
}

TEST(XmlTest, RefusesOtherDocuments) {
  std::string deep, wide = "<a>";
  for (size_t i = 0; i <= kXmlDepthMax; i++) deep += "<a>";
  for (size_t i = 0; i <= kXmlElementsMax; i++) wide += "<b/>";
  for (const std::string_view text :
       {std::string_view(""), std::string_view("x"), std::string_view("<a>"),
        std::string_view("<a></b>"), std::string_view("<a/><b/>"), std::string_view("<a>&x;</a>"),
        std::string_view("<a>&amp</a>"), std::string_view("<a>&#0;</a>"),
        std::string_view("<a>&#x110000;</a>"), std::string_view("<></>"), std::string_view("</a>"),
        std::string_view("<!DOCTYPE a [<!ENTITY x 'y'>]><a/>"), std::string_view("<a/>x"),
        std::string_view(deep), std::string_view(wide)}) {
    EXPECT_FALSE(parse_xml(text)) << text.substr(0, 100);
  }
}

TEST(ObjectKeyTest, PartsOfKeys) {
  const auto path = parse_key("a/b c/d");
  ASSERT_TRUE(path);
  EXPECT_EQ(path->folders, (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(path->name, "d");
  EXPECT_FALSE(path->marker);
  const auto marker = parse_key("a/b/");
  ASSERT_TRUE(marker);
  EXPECT_EQ(marker->name, "b");
  EXPECT_TRUE(marker->marker);
  EXPECT_TRUE(parse_key("..."));
  EXPECT_TRUE(parse_key(" "));
}

TEST(ObjectKeyTest, KeysThatNoFileCanHave) {
  const std::string nul(1, '\0');
  for (const std::string& key :
       {std::string(), std::string("/"), std::string("/a"), std::string("a//b"), std::string("a//"),
        std::string("."), std::string("a/../b"), std::string("a/./"), "a" + nul,
        std::string(".ff-s3-put-1"), std::string("a/.ff-s3-x/b")}) {
    EXPECT_EQ(code_name_of(parse_key(key)), "InvalidArgument") << key;
  }
  EXPECT_TRUE(parse_key(std::string(255, 'a')));
  EXPECT_EQ(code_name_of(parse_key(std::string(256, 'a'))), "KeyTooLongError");
  std::string deep;
  while (deep.size() <= kKeyMax) deep += "a/";
  EXPECT_EQ(code_name_of(parse_key(deep)), "KeyTooLongError");
  EXPECT_EQ(code_name_of(parse_key("\xFF")), "InvalidURI");
}

TEST(ObjectKeyTest, NamesOfBuckets) {
  for (const std::string_view name : {"abc", "a-b.c", "123", "a1b"}) {
    EXPECT_TRUE(check_new_bucket(name)) << name;
  }
  for (const std::string_view name : {"", "ab", "Abc", "-ab", "ab.", "a..b", "a_b", "a/b"}) {
    EXPECT_EQ(code_name_of(check_new_bucket(name)), "InvalidBucketName") << name;
  }
  EXPECT_FALSE(check_new_bucket(std::string(64, 'a')));
  EXPECT_TRUE(is_bucket_name("My_Folder"));
  EXPECT_FALSE(is_bucket_name(".hidden"));
}

TEST(TagsTest, FieldsAndDocuments) {
  const auto tags = parse_tag_field("a=1&b+c=d%26e&f");
  ASSERT_TRUE(tags);
  EXPECT_EQ(*tags, (Tags{{"a", "1"}, {"b c", "d&e"}, {"f", ""}}));
  EXPECT_EQ(code_name_of(parse_tag_field("a=1&a=2")), "InvalidTag");
  EXPECT_EQ(code_name_of(parse_tag_field("=1")), "InvalidTag");
  const auto document = parse_tag_document(
      "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>");
  ASSERT_TRUE(document);
  EXPECT_EQ(*document, (Tags{{"a", "1"}}));
  EXPECT_EQ(code_name_of(parse_tag_document("<Tagging/>")), "MalformedXML");
  std::string many = "<Tagging><TagSet>";
  for (int i = 0; i < 11; i++) many += fmt::format("<Tag><Key>{}</Key></Tag>", i);
  EXPECT_EQ(code_name_of(parse_tag_document(many + "</TagSet></Tagging>")), "InvalidTag");
}

TEST(ReplyTextTest, Ranges) {
  const auto range = [](std::string_view text, uint64_t size) {
    const auto parsed = parse_range(text, size);
    if (!parsed) return std::string(code_name(code_of(parsed.error())));
    return *parsed ? fmt::format("{}-{}", (*parsed)->begin, (*parsed)->end) : std::string("all");
  };
  EXPECT_EQ(range("bytes=0-9", 100), "0-10");
  EXPECT_EQ(range("bytes=90-200", 100), "90-100");
  EXPECT_EQ(range("bytes=90-", 100), "90-100");
  EXPECT_EQ(range("bytes=-10", 100), "90-100");
  EXPECT_EQ(range("bytes=-200", 100), "0-100");
  EXPECT_EQ(range("bytes=0-18446744073709551615", 100), "0-100");
  EXPECT_EQ(range("bytes=100-", 100), "InvalidRange");
  EXPECT_EQ(range("bytes=-0", 100), "InvalidRange");
  EXPECT_EQ(range("bytes=0-", 0), "InvalidRange");
  EXPECT_EQ(range("bytes=0-0", 0), "InvalidRange");
  for (const std::string_view none : {"", "bytes=", "bytes=-", "bytes=a-b", "bytes=9-1",
                                      "items=0-1", "bytes=0-1,3-4", "bytes=1"}) {
    EXPECT_EQ(range(none, 100), "all") << none;
  }
}

ObjectInfo object_of(std::string etag, int64_t mtime_s) {
  ObjectInfo object;
  object.attributes.etag = std::move(etag);
  object.view.inode.mtime_ns = mtime_s * kSecond;
  return object;
}

TEST(ReplyTextTest, Conditions) {
  const ObjectInfo object = object_of("abc", 1369353600);
  const auto code = [&](std::vector<http::Field> fields, std::string_view prefix = "") {
    http::RequestHead head;
    head.fields = std::move(fields);
    return code_name_of(check_conditions(head, prefix, object));
  };
  const std::string then = "Fri, 24 May 2013 00:00:00 GMT";
  const std::string before = "Thu, 23 May 2013 00:00:00 GMT";
  EXPECT_EQ(code({}), "");
  EXPECT_EQ(code({{"if-match", "\"abc\""}}), "");
  EXPECT_EQ(code({{"if-match", "\"x\", \"abc\""}}), "");
  EXPECT_EQ(code({{"if-match", "*"}}), "");
  EXPECT_EQ(code({{"if-match", "\"x\""}}), "PreconditionFailed");
  EXPECT_EQ(code({{"if-none-match", "\"abc\""}}), "NotModified");
  EXPECT_EQ(code({{"if-none-match", "\"x\""}}), "");
  EXPECT_EQ(code({{"if-modified-since", then}}), "NotModified");
  EXPECT_EQ(code({{"if-modified-since", before}}), "");
  EXPECT_EQ(code({{"if-unmodified-since", then}}), "");
  EXPECT_EQ(code({{"if-unmodified-since", before}}), "PreconditionFailed");
  // The ETag decides where both are given.
  EXPECT_EQ(code({{"if-match", "\"abc\""}, {"if-unmodified-since", before}}), "");
  EXPECT_EQ(code({{"if-none-match", "\"x\""}, {"if-modified-since", then}}), "");
  EXPECT_EQ(code({{"x-amz-copy-source-if-none-match", "abc"}}, "x-amz-copy-source-"),
            "PreconditionFailed");
}

TEST(ObjectAttributesTest, KeepTextAndFollowTheBytes) {
  meta::Inode inode;
  inode.id = 17;
  inode.data_version = 3;
  inode.length = 1024;
  const ObjectAttributes attributes{
      .etag = "9b2cf535f27731c974343645a3985328-2",
      .fields = {{"content-type", "text/plain; a=\"b\""}, {"x-amz-meta-a", "1\t2 3%"}},
      .tags = {{"a b", "c=d"}, {"e", ""}}};
  const std::string text = format_attributes(attributes, inode);
  EXPECT_EQ(parse_attributes(text, inode), attributes);
  // Somebody has written to the file: all but the ETag stays.
  for (auto change : {&meta::Inode::data_version, &meta::Inode::truncate_seq, &meta::Inode::length,
                      &meta::Inode::id}) {
    meta::Inode changed = inode;
    changed.*change += 1;
    const ObjectAttributes now = parse_attributes(text, changed);
    EXPECT_EQ(now.fields, attributes.fields);
    EXPECT_EQ(now.tags, attributes.tags);
    EXPECT_NE(now.etag, attributes.etag);
    EXPECT_TRUE(now.etag.ends_with("-0"));
    EXPECT_EQ(now.etag.size(), 34U);
  }
  EXPECT_TRUE(parse_attributes("", inode).etag.ends_with("-0"));
  EXPECT_TRUE(parse_attributes("other\netag x\nof 17 3 0 1024\n", inode).etag.ends_with("-0"));
}

// Any program with the right to write to the file may write the attribute.
TEST(ObjectAttributesTest, OfPrograms) {
  const meta::Inode inode;
  for (const std::string_view field :
       {"content-length 5", "transfer-encoding chunked", "x-amz-meta-a 1%0D%0ASet-Cookie:%20x",
        "a%0D%0Ab c", "x-amz-meta-a 1%00", "set-cookie x"}) {
    const std::string text = fmt::format("ff-s3 1\nfield {}\n", field);
    EXPECT_EQ(parse_attributes(text, inode).fields, std::vector<http::Field>()) << field;
  }
  for (const std::string_view etag : {"a\rb", "\"", "x", ""}) {
    const std::string text = fmt::format("ff-s3 1\netag {}\nof 0 0 0 0\n", etag);
    EXPECT_TRUE(parse_attributes(text, inode).etag.ends_with("-0")) << etag;
  }
  EXPECT_EQ(parse_attributes("ff-s3 1\netag ab-0\nof 0 0 0 0\nof\netag\n", inode).etag, "ab-0");
}

TEST(ObjectAttributesTest, FieldsOfRequests) {
  http::RequestHead head;
  head.fields = {{"content-type", "a/b"},
                 {"content-encoding", "aws-chunked, gzip"},
                 {"x-amz-meta-x", ""},
                 {"x-amz-acl", "private"},
                 {"authorization", "..."}};
  const auto fields = object_fields(head);
  ASSERT_TRUE(fields);
  EXPECT_EQ(*fields,
            (std::vector<http::Field>{
                {"content-type", "a/b"}, {"content-encoding", "gzip"}, {"x-amz-meta-x", ""}}));
  head.fields = {{"x-amz-meta-x", std::string(2048, 'a')}};
  EXPECT_EQ(code_name_of(object_fields(head)), "MetadataTooLarge");
}

TEST(AccessKeyTest, HoldsTheIdentity) {
  auth::Entity entity{.role = auth::Role::user, .name = "ann", .serial = 17, .generation = 1};
  entity.uids = {{1000, 1000}};
  const std::string text = access_key_of(entity);
  EXPECT_EQ(text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                   "0123456789-_"),
            text.npos);
  const auto parsed = parse_access_key(text);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, entity);
  EXPECT_FALSE(parse_access_key(""));
  EXPECT_FALSE(parse_access_key("AKIAIOSFODNN7EXAMPLE"));
  EXPECT_FALSE(parse_access_key(text + "A"));
  EXPECT_FALSE(parse_access_key(std::string(100'000, 'A')));
  EXPECT_EQ(secret_key_of(auth::Key()).size(), 43U);
  auth::Key other;
  other[0] = std::byte{1};
  EXPECT_NE(std::string_view(secret_key_of(auth::Key())), std::string_view(secret_key_of(other)));
}

}  // namespace
}  // namespace ff::s3
