// Objects of many pieces: what is left when a transfer fails in the middle, the memory that
// transfers take, and parts of uploads that are written where they belong in the object.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/text.h"
#include "storage/s3/hash.h"
#include "storage/s3/s3_world.h"
#include "storage/s3/transfer_pieces.h"

namespace ff::s3 {
namespace {

constexpr uint64_t kPart = 5 * kMiB;

std::string etag_of(std::string_view text) {
  return "\"" + hex(as_bytes(hash_of(HashKind::md5, text))) + "\"";
}

class TransfersTest : public S3World {
 protected:
  void SetUp() override {
    S3World::SetUp();
    make_bucket("bucket");
  }
};

TEST_F(TransfersTest, FailedChecksLeaveNothing) {
  const std::string text = client::text_of(1, 5 * kMiB + 5);
  const std::string other = text.substr(1);
  const std::vector<std::pair<http::Field, std::string>> wrong = {
      {{"x-amz-content-sha256", sha256_hex(other)}, "XAmzContentSHA256Mismatch"},
      {{"Content-MD5", base64(hash_of(HashKind::md5, other))}, "BadDigest"},
      {{"x-amz-checksum-crc32", base64(hash_of(HashKind::crc32, other))}, "BadDigest"}};
  for (const auto& [field, code] : wrong) {
    EXPECT_EQ(ask("PUT", "/bucket/a", text, {field}).code(), code) << field.name;
  }
  EXPECT_EQ(names_in("/bucket"), std::vector<std::string>());
  Fields right = {{"x-amz-content-sha256", sha256_hex(text)},
                  {"Content-MD5", base64(hash_of(HashKind::md5, text))},
                  {"x-amz-checksum-crc32", base64(hash_of(HashKind::crc32, text))}};
  EXPECT_EQ(ask("PUT", "/bucket/a", text, right).field("ETag"), etag_of(text));
  EXPECT_EQ(ask("GET", "/bucket/a").body, text);
}

TEST_F(TransfersTest, ClientsThatLeaveLeaveNothing) {
  const std::string text = client::text_of(1, 7 * kMiB);
  for (const size_t sent : {size_t{0}, size_t{1}, size_t{3 * kMiB}, text.size() - 1}) {
    talk(fmt::format("PUT /bucket/a/b HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                     text.size(), text.substr(0, sent)));
    EXPECT_EQ(names_in("/bucket"), std::vector<std::string>()) << sent;
  }
}

TEST_F(TransfersTest, MemoryIsBounded) {
  constexpr uint64_t kMemory = 32 * kMiB;
  StoreOptions options;
  options.root = "/";
  options.memory = kMemory;
  ObjectStore store(files_, rng_, std::move(options));
  std::vector<TransferPieces> held;
  uint64_t all = 0;
  for (int i = 0; i < 6; i++) {
    auto pieces = run(store.acquire_pieces(UINT64_MAX));
    ASSERT_TRUE(pieces);
    const uint64_t bytes = pieces->count() * pieces->bytes;
    EXPECT_LE(bytes, kTransferBytes);
    if (i == 0) {
      EXPECT_EQ(bytes, kTransferBytes) << "alone, it gets all that one may have";
    } else {
      EXPECT_LE(bytes, held.back().count() * held.back().bytes);
    }
    EXPECT_GE(pieces->count(), 2U) << "one is received while another one is stored";
    all += bytes;
    held.push_back(std::move(*pieces));
  }
  EXPECT_LE(all, kMemory);
  held.clear();
  const auto small = run(store.acquire_pieces(1000));
  ASSERT_TRUE(small);
  EXPECT_EQ(small->count() * small->bytes, 1000U);
  EXPECT_EQ(run(store.acquire_pieces(0))->count(), 1U);
}

TEST_F(TransfersTest, ReadsAheadInOrder) {
  const std::string text = client::text_of(2, 11 * kMiB + 11);
  ask("PUT", "/bucket/a", text);
  EXPECT_EQ(ask("GET", "/bucket/a").body, text);
  for (const auto& [first, last] :
       std::vector<std::pair<size_t, size_t>>{{0, 0}, {1, 2 * kMiB}, {2 * kMiB, 10 * kMiB - 1}}) {
    const auto range = fmt::format("bytes={}-{}", first, last);
    EXPECT_TRUE(ask("GET", "/bucket/a", {}, {{"Range", range}}).body ==
                text.substr(first, last - first + 1))
        << range;
  }
}

class PlacesTest : public TransfersTest {
 protected:
  void SetUp() override {
    TransfersTest::SetUp();
    begin();
  }
  void begin() {
    const Reply made = ask("POST", "/bucket/x?uploads");
    id_ = made.xml().value("UploadId");
    target_ = "/bucket/x?uploadId=" + id_;
  }
  Reply put(int number, std::string_view text, const Fields& fields = {}) {
    return ask("PUT", fmt::format("{}&partNumber={}", target_, number), text, fields);
  }
  Reply complete(const std::vector<std::pair<int, std::string>>& parts, const Fields& fields = {}) {
    std::string list;
    for (const auto& [number, text] : parts) {
      list += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", number,
                          etag_of(text));
    }
    return ask("POST", target_, "<CompleteMultipartUpload>" + list + "</CompleteMultipartUpload>",
               fields);
  }
  // The file of places, or the object.
  meta::InodeId inode_at(const std::string& path) {
    const auto view = run(client::resolve_path(metadata(), {}, path, false));
    return view ? view->inode.id : 0;
  }
  meta::InodeId data() { return inode_at("/bucket/.ff-s3-upload-" + id_ + "/data"); }
  meta::InodeId object() { return inode_at("/bucket/x"); }
  void expect_object(const std::string& text) {
    EXPECT_TRUE(ask("GET", "/bucket/x").body == text);
    EXPECT_EQ(names_in("/bucket"), std::vector<std::string>{"x"});
  }
  std::vector<std::string> listed() {
    std::vector<std::string> etags;
    const XmlElement document = ask("GET", target_).xml();
    for (const XmlElement& one : document.children) {
      if (one.name == "Part") etags.emplace_back(one.value("ETag"));
    }
    return etags;
  }

  // Made once.
  static const std::string& text(uint64_t seed, size_t size) {
    static std::map<uint64_t, std::string> texts;
    std::string& of = texts[seed];
    if (of.empty()) of = client::text_of(seed, size);
    return of;
  }
  const std::string &one_ = text(11, kPart), &two_ = text(12, kPart), &last_ = text(13, 100'000),
                    &other_ = text(14, kPart);
  std::string id_, target_;
};

TEST_F(PlacesTest, NothingIsCopied) {
  EXPECT_EQ(put(2, two_).field("ETag"), etag_of(two_));
  EXPECT_EQ(put(3, last_).field("ETag"), etag_of(last_));
  EXPECT_EQ(put(1, one_).field("ETag"), etag_of(one_));
  EXPECT_EQ(listed(), (std::vector<std::string>{etag_of(one_), etag_of(two_), etag_of(last_)}));
  const auto before = data();
  const Reply done = complete({{1, one_}, {2, two_}, {3, last_}});
  EXPECT_EQ(done.status, 200) << done.body;
  EXPECT_EQ(object(), before);
  expect_object(one_ + two_ + last_);
  const std::string etag = ask("HEAD", "/bucket/x").field("ETag");
  EXPECT_EQ(etag, done.xml().value("ETag"));
  EXPECT_TRUE(etag.ends_with("-3\"")) << etag;
}

TEST_F(PlacesTest, OnePartOfAnySize) {
  put(1, last_);
  const auto before = data();
  EXPECT_EQ(complete({{1, last_}}).status, 200);
  EXPECT_EQ(object(), before);
  expect_object(last_);
}

TEST_F(PlacesTest, WhatDoesNotFitIsCopied) {
  const std::string odd = client::text_of(15, kPart + 1), more = client::text_of(16, 6 * kMiB);
  put(3, last_);  // comes first, and does not say how long parts are
  put(2, odd);
  put(1, one_);
  put(4, more);
  EXPECT_EQ(complete({{1, one_}, {2, odd}, {4, more}}).status, 200);
  expect_object(one_ + odd + more);
}

TEST_F(PlacesTest, GapsAndUnwantedParts) {
  put(1, one_);
  put(2, two_);
  put(3, other_);
  EXPECT_EQ(complete({{1, one_}, {3, other_}}).status, 200);
  expect_object(one_ + other_);
  begin();
  put(1, one_);
  put(2, two_);
  put(3, last_);
  EXPECT_EQ(complete({{1, one_}, {2, two_}}).status, 200);
  expect_object(one_ + two_);
}

TEST_F(PlacesTest, PartsAreReplaced) {
  put(1, one_);
  put(2, two_);
  put(2, other_);
  EXPECT_EQ(listed(), (std::vector<std::string>{etag_of(one_), etag_of(other_)}));
  EXPECT_EQ(complete({{1, one_}, {2, two_}}).code(), "InvalidPart");
  EXPECT_EQ(complete({{1, one_}, {2, other_}}).status, 200);
  expect_object(one_ + other_);
}

// The old part stays while its replacement fails.
TEST_F(PlacesTest, FailedPartsChangeNothing) {
  put(1, one_);
  EXPECT_EQ(put(1, other_, {{"Content-MD5", base64(hash_of(HashKind::md5, "x"))}}).code(),
            "BadDigest");
  EXPECT_EQ(put(2, two_, {{"x-amz-content-sha256", sha256_hex("x")}}).code(),
            "XAmzContentSHA256Mismatch");
  talk(
      fmt::format("PUT {}&partNumber=3 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                  target_, kPart, two_.substr(0, 4 * kMiB)));
  EXPECT_EQ(listed(), std::vector<std::string>{etag_of(one_)});
  EXPECT_EQ(complete({{1, one_}, {2, two_}}).code(), "InvalidPart");
  put(2, other_);
  put(3, last_);
  EXPECT_EQ(complete({{1, one_}, {2, other_}, {3, last_}}).status, 200);
  expect_object(one_ + other_ + last_);
}

// A request that was given up, and whose bytes still arrive when the object is there.
TEST_F(PlacesTest, LateBytesDoNotReachTheObject) {
  put(1, one_);
  put(2, two_);
  http::TextStream stream(stage_.world.loop());
  http::RequestServer server(stage_.world.loop(), *service_, {});
  Gate gate(stage_.world.loop());
  gate.spawn(server.serve_stream(stream));
  stream.feed(
      fmt::format("PUT {}&partNumber=3 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
                  target_, kPart));
  stream.feed(other_.substr(0, 4 * kMiB));
  ASSERT_TRUE(eventually([&] { return stream.unread() == 0; }));
  EXPECT_EQ(complete({{1, one_}, {2, two_}}).status, 200);
  stream.feed(other_.substr(4 * kMiB));
  stream.end();
  run_task(stage_.world.loop(), gate.wait_empty());
  expect_object(one_ + two_);
}

TEST_F(PlacesTest, CompletingCanBeRepeated) {
  ask("PUT", "/bucket/x", "there");
  put(1, one_);
  put(2, last_);
  EXPECT_EQ(complete({{1, one_}, {2, last_}}, {{"If-None-Match", "*"}}).code(),
            "PreconditionFailed");
  EXPECT_EQ(ask("GET", "/bucket/x").body, "there");
  // What comes now has a file of its own.
  put(2, two_);
  put(3, last_);
  EXPECT_EQ(complete({{1, one_}, {2, two_}, {3, last_}}).status, 200);
  expect_object(one_ + two_ + last_);
}

TEST_F(PlacesTest, RepeatedWithoutChangesItCopiesNothing) {
  ask("PUT", "/bucket/x", "there");
  put(1, one_);
  put(2, last_);
  const auto before = data();
  complete({{1, one_}, {2, last_}}, {{"If-None-Match", "*"}});
  EXPECT_EQ(complete({{1, one_}, {2, last_}}).status, 200);
  EXPECT_EQ(object(), before);
  expect_object(one_ + last_);
}

TEST_F(PlacesTest, AbortedUploadsLeaveNothing) {
  put(1, one_);
  put(2, two_);
  put(2, last_);
  EXPECT_EQ(ask("DELETE", target_).status, 204);
  EXPECT_EQ(names_in("/bucket"), std::vector<std::string>());
  EXPECT_EQ(put(3, last_).code(), "NoSuchUpload");
}

}  // namespace
}  // namespace ff::s3
