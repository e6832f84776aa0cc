// Operations on buckets and objects, as clients of S3 and programs on a mount see them.
#include "storage/s3/s3_service.h"

#include <gtest/gtest.h>

#include "platform/base/text.h"
#include "storage/s3/access_key.h"
#include "storage/s3/hash.h"
#include "storage/s3/s3_world.h"

namespace ff::s3 {
namespace {

std::string md5_of(std::string_view text) {
  return "\"" + hex(as_bytes(hash_of(HashKind::md5, text))) + "\"";
}

class S3ServiceTest : public S3World {
 protected:
  void SetUp() override {
    S3World::SetUp();
    make_bucket("bucket");
  }
  // Writes to a file as a program on a mount does.
  void overwrite(const std::string& path, const std::string& text) {
    const auto view = run(client::resolve_path(metadata(), {}, path, false));
    ASSERT_TRUE(view);
    auto file = run(files_.open({}, view->ref(), meta::kMayWrite));
    ASSERT_TRUE(file);
    ASSERT_TRUE(run((*file)->write(0, as_bytes(text))));
    ASSERT_TRUE(run((*file)->close()));
  }
};

TEST_F(S3ServiceTest, ObjectsAreFiles) {
  const std::string text = client::text_of(1, 300'000);
  const Reply put =
      ask("PUT", "/bucket/a/b%20c", text, {{"Content-Type", "text/x"}, {"x-amz-meta-one", "1"}});
  EXPECT_EQ(put.status, 200);
  EXPECT_EQ(put.field("ETag"), md5_of(text));
  EXPECT_EQ(names_in("/bucket/a"), std::vector<std::string>{"b c"});
  const auto view = run(client::resolve_path(metadata(), {}, "/bucket/a/b c", false));
  ASSERT_TRUE(view);
  auto file = open(view->inode.id);
  ASSERT_TRUE(file);
  EXPECT_EQ(read(**file, 0, text.size() + 1), text);
  const Reply got = ask("GET", "/bucket/a/b%20c");
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.body, text);
  EXPECT_EQ(got.field("ETag"), md5_of(text));
  EXPECT_EQ(got.field("content-type"), "text/x");
  EXPECT_EQ(got.field("x-amz-meta-one"), "1");
  const Reply head = ask("HEAD", "/bucket/a/b%20c");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.field("Content-Length"), "300000");
  EXPECT_EQ(head.body, "");
}

TEST_F(S3ServiceTest, LargeObjectsInPieces) {
  const std::string text = client::text_of(2, 9 * kMiB + 17);
  EXPECT_EQ(ask("PUT", "/bucket/large", text).field("ETag"), md5_of(text));
  EXPECT_EQ(ask("GET", "/bucket/large").body, text);
  const Reply part = ask("GET", "/bucket/large", {}, {{"Range", "bytes=4000000-8999999"}});
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.body, text.substr(4'000'000, 5'000'000));
  EXPECT_EQ(part.field("Content-Range"), fmt::format("bytes 4000000-8999999/{}", text.size()));
  EXPECT_EQ(ask("GET", "/bucket/large", {}, {{"Range", "bytes=99999999-"}}).code(), "InvalidRange");
}

TEST_F(S3ServiceTest, WhatProgramsWriteHasAnotherEtag) {
  ask("PUT", "/bucket/a", "before", {{"x-amz-meta-one", "1"}});
  const std::string etag = ask("HEAD", "/bucket/a").field("ETag");
  overwrite("/bucket/a", "after!");
  const Reply got = ask("GET", "/bucket/a");
  EXPECT_EQ(got.body, "after!");
  EXPECT_NE(got.field("ETag"), etag);
  EXPECT_TRUE(got.field("ETag").ends_with("-0\"")) << got.field("ETag");
  EXPECT_EQ(got.field("x-amz-meta-one"), "1");
  make("plain", "made by a program");
  const auto view = run(client::resolve_path(metadata(), {}, "/bucket", false));
  meta::MetaClient::Rename rename;
  rename.from_dir = meta::root();
  rename.from = "plain";
  rename.to_dir = view->ref();
  rename.to = "plain";
  ASSERT_TRUE(run(metadata().rename({}, rename)));
  EXPECT_EQ(ask("GET", "/bucket/plain").body, "made by a program");
  EXPECT_EQ(ask("GET", "/bucket/plain").field("content-type"), "binary/octet-stream");
}

TEST_F(S3ServiceTest, ReplacingIsWhole) {
  ask("PUT", "/bucket/a", "one");
  EXPECT_EQ(
      ask("PUT", "/bucket/a", "two", {{"Content-MD5", base64(hash_of(HashKind::md5, "x"))}}).code(),
      "BadDigest");
  EXPECT_EQ(ask("PUT", "/bucket/b", "b", {{"Content-MD5", base64(hash_of(HashKind::md5, "b"))}})
                .field("ETag"),
            md5_of("b"));
  EXPECT_EQ(ask("DELETE", "/bucket/b").status, 204);
  EXPECT_EQ(ask("PUT", "/bucket/a", "two", {{"x-amz-content-sha256", sha256_hex("x")}}).code(),
            "XAmzContentSHA256Mismatch");
  EXPECT_EQ(ask("PUT", "/bucket/a", "two", {{"x-amz-checksum-crc32", "AAAAAA=="}}).code(),
            "BadDigest");
  talk("PUT /bucket/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf");
  EXPECT_EQ(ask("GET", "/bucket/a").body, "one");
  EXPECT_EQ(names_in("/bucket"), std::vector<std::string>{"a"});
  talk("PUT /bucket/new/deep/b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf");
  EXPECT_EQ(names_in("/bucket"), std::vector<std::string>{"a"});
  EXPECT_EQ(ask("PUT", "/bucket/a", "two", {{"x-amz-content-sha256", sha256_hex("two")}}).status,
            200);
  EXPECT_EQ(ask("GET", "/bucket/a").body, "two");
}

TEST_F(S3ServiceTest, ConditionsOfNewObjects) {
  EXPECT_EQ(ask("PUT", "/bucket/a", "one", {{"If-None-Match", "*"}}).status, 200);
  EXPECT_EQ(ask("PUT", "/bucket/a", "two", {{"If-None-Match", "*"}}).code(), "PreconditionFailed");
  EXPECT_EQ(ask("PUT", "/bucket/a", "two", {{"If-Match", md5_of("x")}}).code(),
            "PreconditionFailed");
  EXPECT_EQ(ask("PUT", "/bucket/a", "two", {{"If-Match", md5_of("one")}}).status, 200);
  EXPECT_EQ(ask("PUT", "/bucket/none", "two", {{"If-Match", "*"}}).code(), "NoSuchKey");
  EXPECT_EQ(ask("GET", "/bucket/a", {}, {{"If-None-Match", md5_of("two")}}).status, 304);
  EXPECT_EQ(ask("GET", "/bucket/a").body, "two");
  EXPECT_EQ(names_in("/bucket"), std::vector<std::string>{"a"});
}

TEST_F(S3ServiceTest, KeysThatAreNoPaths) {
  EXPECT_EQ(ask("PUT", "/bucket/a//b", "x").code(), "InvalidArgument");
  EXPECT_EQ(ask("PUT", "/bucket/../b", "x").code(), "InvalidArgument");
  EXPECT_EQ(ask("PUT", "/bucket/" + std::string(256, 'a'), "x").code(), "KeyTooLongError");
  EXPECT_EQ(ask("GET", "/bucket/a//b").code(), "NoSuchKey");
  EXPECT_EQ(ask("DELETE", "/bucket/a//b").status, 204);
  ask("PUT", "/bucket/file", "x");
  EXPECT_EQ(ask("PUT", "/bucket/file/below", "x").code(), "InvalidRequest");
  ask("PUT", "/bucket/folder/file", "x");
  EXPECT_EQ(ask("PUT", "/bucket/folder", "x").code(), "InvalidRequest");
  EXPECT_EQ(ask("GET", "/bucket/folder").code(), "NoSuchKey");
  EXPECT_EQ(ask("GET", "/bucket/file/below").code(), "NoSuchKey");
  EXPECT_EQ(names_in("/bucket"), (std::vector<std::string>{"file", "folder"}));
}

TEST_F(S3ServiceTest, FolderMarkers) {
  EXPECT_EQ(ask("PUT", "/bucket/a/b/", "x").code(), "InvalidArgument");
  EXPECT_EQ(ask("PUT", "/bucket/a/b/", "", {{"x-amz-meta-one", "1"}}).status, 200);
  EXPECT_EQ(ask("HEAD", "/bucket/a/b/").field("x-amz-meta-one"), "1");
  EXPECT_EQ(ask("GET", "/bucket/a/b/").field("ETag"), md5_of(""));
  EXPECT_EQ(ask("HEAD", "/bucket/a/").status, 404);
  ask("PUT", "/bucket/a/b/c", "x");
  EXPECT_EQ(ask("DELETE", "/bucket/a/b/c").status, 204);
  EXPECT_EQ(ask("HEAD", "/bucket/a/b/").status, 200);  // it stays without objects
  EXPECT_EQ(ask("DELETE", "/bucket/a/b/").status, 204);
  EXPECT_EQ(names_in("/bucket"), std::vector<std::string>());
}

TEST_F(S3ServiceTest, DeletingLeavesNoFolders) {
  ask("PUT", "/bucket/a/b/c", "x");
  ask("PUT", "/bucket/a/d", "x");
  EXPECT_EQ(ask("DELETE", "/bucket/a/b/c").status, 204);
  EXPECT_EQ(names_in("/bucket/a"), std::vector<std::string>{"d"});
  EXPECT_EQ(ask("DELETE", "/bucket/a/d").status, 204);
  EXPECT_EQ(ask("DELETE", "/bucket/a/d").status, 204);
  EXPECT_EQ(names_in("/bucket"), std::vector<std::string>());
  const Reply many = ask("POST", "/bucket?delete",
                         "<Delete><Object><Key>x//y</Key></Object><Object><Key>z</Key></Object>"
                         "</Delete>");
  EXPECT_EQ(many.xml().children.size(), 2U) << many.body;
  EXPECT_EQ(ask("POST", "/bucket?delete", "<Delete>").code(), "MalformedXML");
}

TEST_F(S3ServiceTest, Buckets) {
  EXPECT_EQ(ask("PUT", "/bucket").code(), "BucketAlreadyOwnedByYou");
  EXPECT_EQ(ask("PUT", "/Bad_Name").code(), "InvalidBucketName");
  EXPECT_EQ(ask("HEAD", "/bucket").status, 200);
  EXPECT_EQ(ask("HEAD", "/none").status, 404);
  EXPECT_EQ(ask("GET", "/none/a").code(), "NoSuchBucket");
  EXPECT_EQ(ask("PUT", "/none/a", "x").code(), "NoSuchBucket");
  EXPECT_EQ(ask("GET", "/").xml().find("Buckets")->children.front().value("Name"), "bucket");
  ask("PUT", "/bucket/a/b", "x");
  EXPECT_EQ(ask("DELETE", "/bucket").code(), "BucketNotEmpty");
  ask("DELETE", "/bucket/a/b");
  ask("POST", "/bucket/c?uploads");
  EXPECT_EQ(ask("DELETE", "/bucket").status, 204);
  EXPECT_EQ(ask("HEAD", "/bucket").status, 404);
  EXPECT_EQ(ask("GET", "/bucket?acl").code(), "NotImplemented");
  EXPECT_EQ(ask("PATCH", "/bucket").code(), "NotImplemented");
}

TEST_F(S3ServiceTest, Copies) {
  ask("PUT", "/bucket/a", "text", {{"Content-Type", "a/b"}, {"x-amz-tagging", "t=1"}});
  const Reply copied = ask("PUT", "/bucket/b", "", {{"x-amz-copy-source", "/bucket/a"}});
  EXPECT_EQ(copied.status, 200) << copied.body;
  EXPECT_EQ(copied.xml().value("ETag"), md5_of("text"));
  EXPECT_EQ(ask("GET", "/bucket/b").body, "text");
  EXPECT_EQ(ask("GET", "/bucket/b").field("content-type"), "a/b");
  EXPECT_EQ(ask("GET", "/bucket/b").field("x-amz-tagging-count"), "1");
  EXPECT_EQ(ask("PUT", "/bucket/a", "", {{"x-amz-copy-source", "bucket/a"}}).code(),
            "InvalidRequest");
  EXPECT_EQ(ask("PUT", "/bucket/a", "",
                {{"x-amz-copy-source", "bucket%2Fa"},
                 {"x-amz-metadata-directive", "REPLACE"},
                 {"Content-Type", "c/d"}})
                .status,
            200);
  EXPECT_EQ(ask("GET", "/bucket/a").field("content-type"), "c/d");
  EXPECT_EQ(ask("PUT", "/bucket/c", "", {{"x-amz-copy-source", "bucket/none"}}).code(),
            "NoSuchKey");
  EXPECT_EQ(ask("PUT", "/bucket/c", "",
                {{"x-amz-copy-source", "bucket/a"}, {"x-amz-copy-source-if-match", "x"}})
                .code(),
            "PreconditionFailed");
}

TEST_F(S3ServiceTest, Tags) {
  ask("PUT", "/bucket/a", "text");
  const std::string etag = ask("HEAD", "/bucket/a").field("ETag");
  EXPECT_EQ(ask("PUT", "/bucket/a?tagging",
                "<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>")
                .status,
            200);
  const Reply got = ask("GET", "/bucket/a?tagging");
  EXPECT_NE(got.body.find("<Key>k</Key><Value>v</Value>"), got.body.npos) << got.body;
  EXPECT_EQ(ask("HEAD", "/bucket/a").field("ETag"), etag);
  EXPECT_EQ(ask("DELETE", "/bucket/a?tagging").status, 204);
  EXPECT_EQ(ask("HEAD", "/bucket/a").field("x-amz-tagging-count"), "");
}

std::string upload_xml(const std::vector<std::pair<int, std::string>>& parts) {
  std::string text = "<CompleteMultipartUpload>";
  for (const auto& [number, etag] : parts) {
    text += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", number, etag);
  }
  return text + "</CompleteMultipartUpload>";
}

TEST_F(S3ServiceTest, MultipartUploads) {
  const Reply made = ask("POST", "/bucket/a/large?uploads", "", {{"Content-Type", "a/b"}});
  const std::string upload = "?uploadId=" + std::string(made.xml().value("UploadId"));
  const std::string first = client::text_of(3, 5 * kMiB), second = client::text_of(4, 100);
  const std::string part = "/bucket/a/large" + upload + "&partNumber=";
  EXPECT_EQ(ask("PUT", part + "7", "other").status, 200);
  EXPECT_EQ(ask("PUT", part + "7", second).field("ETag"), md5_of(second));
  EXPECT_EQ(ask("PUT", part + "2", first).field("ETag"), md5_of(first));
  EXPECT_EQ(ask("PUT", part + "0", "x").code(), "InvalidArgument");
  EXPECT_EQ(ask("PUT", "/bucket/a/other" + upload + "&partNumber=1", "x").code(), "NoSuchUpload");
  EXPECT_EQ(ask("GET", "/bucket/a/large").status, 404);
  EXPECT_EQ(ask("GET", "/bucket?prefix=a").xml().find("Contents"), nullptr);
  const XmlElement parts = ask("GET", "/bucket/a/large" + upload).xml();
  ASSERT_NE(parts.find("Part"), nullptr);
  EXPECT_EQ(parts.find("Part")->value("Size"), fmt::to_string(first.size()));
  const XmlElement uploads = ask("GET", "/bucket?uploads&prefix=a/").xml();
  ASSERT_NE(uploads.find("Upload"), nullptr);
  EXPECT_EQ(uploads.find("Upload")->value("Key"), "a/large");
  const auto complete = [&](const std::vector<std::pair<int, std::string>>& wanted) {
    return ask("POST", "/bucket/a/large" + upload, upload_xml(wanted));
  };
  EXPECT_EQ(complete({{7, md5_of(second)}, {2, md5_of(first)}}).code(), "InvalidPartOrder");
  EXPECT_EQ(complete({{2, md5_of(second)}}).code(), "InvalidPart");
  EXPECT_EQ(complete({{3, md5_of(first)}}).code(), "InvalidPart");
  EXPECT_EQ(complete({}).code(), "MalformedXML");
  const Reply done = complete({{2, md5_of(first)}, {7, md5_of(second)}});
  EXPECT_EQ(done.status, 200) << done.body;
  const std::string digests = hash_of(HashKind::md5, first) + hash_of(HashKind::md5, second);
  const std::string etag = "\"" + hex(as_bytes(hash_of(HashKind::md5, digests))) + "-2\"";
  EXPECT_EQ(done.xml().value("ETag"), etag);
  const Reply got = ask("GET", "/bucket/a/large");
  EXPECT_EQ(got.body, first + second);
  EXPECT_EQ(got.field("ETag"), etag);
  EXPECT_EQ(got.field("content-type"), "a/b");
  EXPECT_EQ(names_in("/bucket/a"), std::vector<std::string>{"large"});
  EXPECT_EQ(complete({{2, md5_of(first)}}).code(), "NoSuchUpload");
}

TEST_F(S3ServiceTest, UploadsEndAndSmallPartsAreRefused) {
  ask("PUT", "/bucket/source", "0123456789");
  const Reply made = ask("POST", "/bucket/x/y?uploads");
  const std::string target = "/bucket/x/y?uploadId=" + std::string(made.xml().value("UploadId"));
  const Reply part =
      ask("PUT", target + "&partNumber=1", "",
          {{"x-amz-copy-source", "bucket/source"}, {"x-amz-copy-source-range", "bytes=2-4"}});
  EXPECT_EQ(part.xml().value("ETag"), md5_of("234")) << part.body;
  EXPECT_EQ(ask("PUT", target + "&partNumber=2", "x").status, 200);
  EXPECT_EQ(ask("POST", target, upload_xml({{1, md5_of("234")}, {2, md5_of("x")}})).code(),
            "EntityTooSmall");
  EXPECT_EQ(ask("DELETE", target).status, 204);
  EXPECT_EQ(ask("DELETE", target).code(), "NoSuchUpload");
  EXPECT_EQ(names_in("/bucket"), std::vector<std::string>{"source"});
}

// What a gateway leaves that dies in an upload is no object, and goes after a day.
TEST_F(S3ServiceTest, LeftoversAreNoObjects) {
  const auto bucket = run(client::resolve_path(metadata(), {}, "/bucket", false));
  const auto left = run(metadata().create({}, bucket->ref(), ".ff-s3-put-1", {.mode = 0644}));
  ASSERT_TRUE(left);
  EXPECT_EQ(ask("GET", "/bucket").xml().find("Contents"), nullptr);
  EXPECT_EQ(ask("GET", "/bucket/.ff-s3-put-1").code(), "NoSuchKey");
  EXPECT_EQ(names_in("/bucket").size(), 1U);
  const int64_t then_ns = stage_.world.loop().clock().wall_ns() - kLeftoverNs - kSecond;
  ASSERT_TRUE(run(metadata().set_attributes({}, left->ref(), {.mtime_ns = then_ns})));
  EXPECT_EQ(ask("GET", "/bucket").xml().find("Contents"), nullptr);
  EXPECT_EQ(names_in("/bucket"), std::vector<std::string>());
}

TEST_F(S3ServiceTest, SignedChunksAndTrailers) {
  const auto put = [&](std::string_view payload, std::string_view size, std::string_view body,
                       const Fields& more = {}) {
    Fields fields = {{"x-amz-content-sha256", std::string(payload)},
                     {"x-amz-decoded-content-length", std::string(size)},
                     {"Content-Encoding", "aws-chunked"}};
    fields.insert(fields.end(), more.begin(), more.end());
    return ask("PUT", "/bucket/a", body, fields);
  };
  const std::string sum = base64(hash_of(HashKind::crc32, "hello world"));
  EXPECT_EQ(put(kUnsignedChunksTrailer, "11",
                "6\r\nhello \r\n5\r\nworld\r\n0\r\nx-amz-checksum-crc32:" + sum + "\r\n\r\n",
                {{"x-amz-trailer", "x-amz-checksum-crc32"}})
                .status,
            200);
  EXPECT_EQ(ask("GET", "/bucket/a").body, "hello world");
  EXPECT_EQ(ask("GET", "/bucket/a").field("content-encoding"), "");
  EXPECT_EQ(put(kUnsignedChunksTrailer, "5",
                "5\r\nworld\r\n0\r\nx-amz-checksum-crc32:" + sum + "\r\n\r\n",
                {{"x-amz-trailer", "x-amz-checksum-crc32"}})
                .code(),
            "BadDigest");
  EXPECT_EQ(put(kUnsignedChunksTrailer, "5", "5\r\nworld\r\n0\r\n\r\n",
                {{"x-amz-trailer", "x-amz-checksum-crc32"}})
                .code(),
            "IncompleteBody");
  EXPECT_EQ(put(kSignedChunks, "5", "5\r\nworld\r\n0\r\n\r\n").code(), "IncompleteBody");
  EXPECT_EQ(put(kUnsignedChunksTrailer, "6", "5\r\nworld\r\n0\r\n\r\n").code(), "IncompleteBody");
  EXPECT_EQ(put(kUnsignedChunksTrailer, "4", "5\r\nworld\r\n0\r\n\r\n").code(), "IncompleteBody");
  EXPECT_EQ(put("STREAMING-OTHER", "5", "5\r\nworld\r\n0\r\n\r\n").code(), "NotImplemented");
  EXPECT_EQ(ask("PUT", "/bucket/a", "x", {{"x-amz-checksum-crc64nvme", "AAAAAAAAAAA="}}).code(),
            "BadDigest");
  EXPECT_EQ(ask("PUT", "/bucket/a", "x", {{"x-amz-checksum-xxh3", "AAAAAAAAAAA="}}).code(),
            "InvalidRequest");
  EXPECT_EQ(ask("GET", "/bucket/a").body, "hello world");
}

TEST_F(S3ServiceTest, WithoutKeysNoPageOfABrowserMayAsk) {
  for (const std::string_view host : {"localhost", "127.0.0.1:9000", "[::1]:9000", "[::1]"}) {
    host_ = host;
    EXPECT_EQ(ask("GET", "/").status, 200) << host;
  }
  EXPECT_EQ(ask("GET", "/", {}, {{"Origin", "http://evil.example"}}).code(), "AccessDenied");
  host_ = "evil.example:9000";
  EXPECT_EQ(ask("GET", "/").code(), "AccessDenied");
}

// With keys: a user with a token, who signs.
class SignedS3Test : public S3ServiceTest {
 protected:
  void SetUp() override {
    S3ServiceTest::SetUp();
    meta::wire::User user;
    user.set_uid(1000);
    user.set_name("ann");
    user.set_gid(1000);
    ASSERT_TRUE(io::ok(run(metadata().set_user(user))));
    root_[0] = std::byte{1};
    auth::Entity self{.role = auth::Role::meta, .name = "test"};
    keyring_ = auth::Keyring::from_root(root_, std::move(self));
    entity_ = {.role = auth::Role::user, .name = "ann", .serial = 5, .generation = 1};
    entity_.uids = {{1000, 1000}};
    start(keyring_);
  }
  int64_t now_s() { return stage_.world.loop().clock().wall_ns() / kSecond; }
  static std::string time_text(int64_t seconds) {
    const time_t time = seconds;
    tm parts = {};
    ::gmtime_r(&time, &parts);
    char text[32] = {};
    EXPECT_GT(::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &parts), 0U);
    return text;
  }
  SignatureClaim claim_at(int64_t seconds, std::string payload) {
    const std::string time = time_text(seconds);
    return {.access_key = access_key_of(entity_),
            .day = time.substr(0, 8),
            .region = "us-east-1",
            .service = "s3",
            .time = time,
            .signed_fields = {"host", "x-amz-content-sha256", "x-amz-date"},
            .signature = {},
            .payload = std::move(payload)};
  }
  auth::Key client_key() {
    return auth::make_credential(root_, {.role = auth::Role::meta}, entity_).key;
  }
  std::string signature_for(const SignatureClaim& claim, std::string method, std::string target,
                            std::vector<http::Field> fields) {
    const http::RequestHead head{
        .method = std::move(method), .target = std::move(target), .fields = std::move(fields)};
    return sign(signing_key(secret_key_of(client_key()), claim),
                string_to_sign(claim, canonical_request(head, *parse_target(head.target), claim)));
  }
  Reply ask_signed(std::string method, std::string target, std::string_view body = {},
                   int64_t skew_s = 0) {
    const SignatureClaim claim = claim_at(now_s() + skew_s, sha256_hex(body));
    Fields fields = {{"x-amz-content-sha256", claim.payload}, {"x-amz-date", claim.time}};
    Fields whole = fields;
    whole.push_back({"host", host_});
    const std::string signature = signature_for(claim, method, target, whole);
    fields.push_back(
        {"Authorization",
         fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
                     claim.access_key, claim.scope(), fmt::join(claim.signed_fields, ";"),
                     signature)});
    return ask(method, target, body, fields);
  }

  auth::Key root_;
  std::shared_ptr<auth::Keyring> keyring_;
  auth::Entity entity_;
};

TEST_F(SignedS3Test, AUserReachesWhatHisUidMay) {
  EXPECT_EQ(ask("GET", "/").code(), "AccessDenied");
  EXPECT_EQ(ask_signed("GET", "/bucket").status, 200);
  EXPECT_EQ(ask_signed("PUT", "/bucket/a", "x").code(), "AccessDenied");  // it is root's
  const auto view = run(client::resolve_path(metadata(), {}, "/bucket", false));
  ASSERT_TRUE(run(metadata().set_attributes({}, view->ref(), {.mode = 0777})));
  EXPECT_EQ(ask_signed("PUT", "/bucket/a", "x").status, 200);
  const auto made = run(client::resolve_path(metadata(), {}, "/bucket/a", false));
  ASSERT_TRUE(made);
  EXPECT_EQ(made->inode.uid, 1000U);
  EXPECT_EQ(made->inode.gid, 1000U);
  ASSERT_TRUE(run(metadata().set_attributes({}, made->ref(), {.mode = 0, .uid = 0})));
  EXPECT_EQ(ask_signed("GET", "/bucket/a").code(), "AccessDenied");
}

TEST_F(SignedS3Test, WrongSignaturesAndKeys) {
  EXPECT_EQ(ask_signed("GET", "/bucket").status, 200);
  EXPECT_EQ(ask_signed("GET", "/bucket", {}, -kSkewS - 5).code(), "RequestTimeTooSkewed");
  EXPECT_EQ(ask_signed("GET", "/bucket", {}, kSkewS + 5).code(), "RequestTimeTooSkewed");
  entity_.serial = 6;  // a key that was never given away: it is right, and its user exists
  EXPECT_EQ(ask_signed("GET", "/bucket").status, 200);
  const auto right = root_;
  root_[0] = std::byte{2};
  EXPECT_EQ(ask_signed("GET", "/bucket").code(), "SignatureDoesNotMatch");
  root_ = right;
  auth::Revocations revoked;
  revoked.serials["user/ann"] = 6;
  keyring_->set_revocations(revoked);
  EXPECT_EQ(ask_signed("GET", "/bucket").code(), "InvalidAccessKeyId");
  keyring_->set_revocations({});
  entity_.uids = {{2000, 2000}};  // no such user
  EXPECT_EQ(ask_signed("GET", "/bucket").code(), "InvalidAccessKeyId");
}

TEST_F(SignedS3Test, LimitsOfTokens) {
  start(nullptr);
  ask("PUT", "/bucket/sub/a", "x");
  ask("PUT", "/bucket/subway", "x");
  const auto view = run(client::resolve_path(metadata(), {}, "/bucket", false));
  ASSERT_TRUE(run(metadata().set_attributes({}, view->ref(), {.mode = 0777})));
  start(keyring_);
  entity_.read_only = true;
  EXPECT_EQ(ask_signed("PUT", "/bucket/a", "x").code(), "AccessDenied");
  EXPECT_EQ(ask_signed("GET", "/bucket/sub/a").status, 200);
  entity_.read_only = false;
  entity_.path = "/bucket/sub";
  EXPECT_EQ(ask_signed("GET", "/bucket/sub/a").status, 200);
  EXPECT_EQ(ask_signed("GET", "/bucket?prefix=sub%2F").status, 200);
  EXPECT_EQ(ask_signed("GET", "/bucket?prefix=sub").code(), "AccessDenied");
  EXPECT_EQ(ask_signed("GET", "/bucket/subway").code(), "AccessDenied");
  EXPECT_EQ(ask_signed("GET", "/bucket/sub/../subway").code(), "NoSuchKey");
  EXPECT_EQ(ask_signed("GET", "/").code(), "AccessDenied");
}

TEST_F(SignedS3Test, PresignedUrls) {
  const auto view = run(client::resolve_path(metadata(), {}, "/bucket", false));
  ASSERT_TRUE(run(metadata().set_attributes({}, view->ref(), {.mode = 0777})));
  const auto url = [&](std::string method, int64_t signed_s) {
    SignatureClaim claim = claim_at(signed_s, std::string(kUnsignedPayload));
    claim.presigned = true;
    claim.signed_fields = {"host"};
    const std::string target = fmt::format(
        "/bucket/a?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}&X-Amz-Date={}&X-Amz-"
        "Expires=60&X-Amz-SignedHeaders=host",
        percent_encode(claim.access_key + "/" + claim.scope(), false), claim.time);
    return fmt::format("{}&X-Amz-Signature={}", target,
                       signature_for(claim, std::move(method), target, {{"host", host_}}));
  };
  EXPECT_EQ(ask("PUT", url("PUT", now_s()), "text").status, 200);
  EXPECT_EQ(ask("GET", url("GET", now_s())).body, "text");
  EXPECT_EQ(ask("GET", url("PUT", now_s())).code(), "SignatureDoesNotMatch");
  EXPECT_EQ(ask("GET", url("GET", now_s() - 61)).code(), "AccessDenied");
  EXPECT_EQ(ask("GET", url("GET", now_s() + kSkewS + 5)).code(), "AccessDenied");
  EXPECT_EQ(ask("GET", url("GET", now_s()), {}, {{"x-amz-meta-a", "1"}}).code(), "AccessDenied");
}

TEST_F(SignedS3Test, SignaturesOfChunks) {
  const auto view = run(client::resolve_path(metadata(), {}, "/bucket", false));
  ASSERT_TRUE(run(metadata().set_attributes({}, view->ref(), {.mode = 0777})));
  SignatureClaim claim = claim_at(now_s(), std::string(kSignedChunks));
  claim.signed_fields.emplace_back("x-amz-decoded-content-length");
  Fields fields = {{"x-amz-content-sha256", claim.payload},
                   {"x-amz-date", claim.time},
                   {"x-amz-decoded-content-length", "11"}};
  Fields whole = fields;
  whole.push_back({"host", host_});
  const std::string seed = signature_for(claim, "PUT", "/bucket/a", whole);
  fields.push_back(
      {"Authorization",
       fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
                   claim.access_key, claim.scope(), fmt::join(claim.signed_fields, ";"), seed)});
  const auth::Key key = signing_key(secret_key_of(client_key()), claim);
  std::string body, before = seed;
  for (const std::string_view data : {"hello ", "world", ""}) {
    before = sign(key, chunk_string_to_sign(claim, before, sha256_hex(data)));
    body += fmt::format("{:x};chunk-signature={}\r\n{}{}", data.size(), before, data,
                        data.empty() ? "" : "\r\n");
  }
  body += "\r\n";
  EXPECT_EQ(ask("PUT", "/bucket/a", body, fields).status, 200);
  EXPECT_EQ(ask_signed("GET", "/bucket/a").body, "hello world");
  std::string other = body;
  other.replace(other.find("world"), 5, "World");
  EXPECT_EQ(ask("PUT", "/bucket/b", other, fields).code(), "SignatureDoesNotMatch");
  EXPECT_EQ(ask("PUT", "/bucket/a", other, fields).code(), "SignatureDoesNotMatch");
  EXPECT_EQ(ask_signed("GET", "/bucket/a").body, "hello world");
}

}  // namespace
}  // namespace ff::s3
