// Listings against a model: a sorted set of keys.
#include "storage/s3/listing.h"

#include <gtest/gtest.h>

#include <set>

#include "storage/s3/s3_world.h"

namespace ff::s3 {
namespace {

using Keys = std::set<std::string>;

struct Listed {
  std::vector<std::string> keys;
  std::vector<std::string> groups;
  bool truncated = false;
  std::string last;
  bool operator==(const Listed&) const = default;
};

std::string model_group(const std::string& key, const ListQuery& query) {
  if (query.delimiter.empty()) return {};
  const size_t at = key.find(query.delimiter, query.prefix.size());
  return at == key.npos ? std::string() : key.substr(0, at + query.delimiter.size());
}

// What S3 says of these keys.
Listed model_list(const Keys& keys, const ListQuery& query) {
  Listed listed;
  for (auto key = keys.upper_bound(query.after); key != keys.end(); ++key) {
    if (!key->starts_with(query.prefix)) continue;
    const std::string group = model_group(*key, query);
    if (!group.empty() && (group == query.after || group == listed.last)) continue;
    if (listed.keys.size() + listed.groups.size() == query.max_keys) {
      listed.truncated = true;
      break;
    }
    listed.last = group.empty() ? *key : group;
    (group.empty() ? listed.keys : listed.groups).push_back(listed.last);
  }
  return listed;
}

class ListingTest : public S3World {
 protected:
  void SetUp() override {
    S3World::SetUp();
    make_bucket("bucket");
  }
  void put(const std::string& key) {
    const Reply reply =
        ask("PUT", "/bucket/" + percent_encode(key, false), key.ends_with('/') ? "" : "x");
    if (reply.status == 200) keys_.insert(key);
  }
  // Keys whose parts are similar, so that folders and files of the same beginning meet.
  std::string random_key() {
    constexpr std::string_view kCharacters = "ab-.!0z";
    std::string key;
    for (uint64_t part = 0, parts = 1 + rng_.below(3); part < parts; part++) {
      if (part > 0) key += '/';
      for (uint64_t i = 0, count = 1 + rng_.below(3); i < count; i++) {
        key += kCharacters[rng_.below(kCharacters.size())];
      }
    }
    if (rng_.below(8) == 0) key += '/';
    return key;
  }
  Listed list(const ListQuery& query) {
    std::string target =
        fmt::format("/bucket?list-type=2&max-keys={}&prefix={}&delimiter={}&start-after={}",
                    query.max_keys, percent_encode(query.prefix, false),
                    percent_encode(query.delimiter, false), percent_encode(query.after, false));
    return parse(ask("GET", target));
  }
  static Listed parse(const Reply& reply) {
    Listed listed;
    EXPECT_EQ(reply.status, 200) << reply.body;
    for (const XmlElement& one : reply.xml().children) {
      if (one.name == "Contents") listed.keys.emplace_back(one.value("Key"));
      if (one.name == "CommonPrefixes") listed.groups.emplace_back(one.value("Prefix"));
      if (one.name == "IsTruncated") listed.truncated = one.text == "true";
    }
    return listed;
  }
  void compare(const ListQuery& query) {
    Listed right = model_list(keys_, query);
    right.last.clear();
    EXPECT_EQ(list(query), right) << "prefix " << query.prefix << " delimiter " << query.delimiter
                                  << " after " << query.after << " max " << query.max_keys;
  }

  Keys keys_;
};

TEST_F(ListingTest, OrderIsThatOfKeys) {
  for (const char* key : {"a/b", "a-b", "a.b", "a", "a0", "ab", "a!/x", "a/", "a-/y"}) put(key);
  keys_.erase("a");  // a/b was there before
  EXPECT_EQ(list({}).keys,
            (std::vector<std::string>{"a!/x", "a-/y", "a-b", "a.b", "a/", "a/b", "a0", "ab"}));
}

TEST_F(ListingTest, RandomKeysAgainstAModel) {
  for (int i = 0; i < 150; i++) put(random_key());
  ASSERT_GT(keys_.size(), 60U);
  for (int i = 0; i < 300; i++) {
    ListQuery query;
    query.max_keys = rng_.below(3) == 0 ? 1000 : 1 + rng_.below(10);
    if (rng_.below(2) == 0) query.prefix = random_key().substr(0, rng_.below(6));
    if (rng_.below(2) == 0) query.delimiter = rng_.below(4) == 0 ? "-" : "/";
    if (rng_.below(2) == 0) query.after = random_key();
    if (rng_.below(4) == 0) query.after = query.prefix + query.delimiter;
    compare(query);
  }
}

TEST_F(ListingTest, PagesHaveEveryKeyOnce) {
  for (int i = 0; i < 60; i++) put(random_key());
  for (const std::string_view delimiter : {"", "/"}) {
    for (const std::string_view version : {"list-type=2&", ""}) {
      std::vector<std::string> all;
      std::string next;
      for (;;) {
        const Reply reply =
            ask("GET", fmt::format("/bucket?{}max-keys=7&delimiter={}&{}={}", version, delimiter,
                                   version.empty() ? "marker" : "continuation-token",
                                   percent_encode(next, false)));
        const Listed page = parse(reply);
        all.insert(all.end(), page.keys.begin(), page.keys.end());
        all.insert(all.end(), page.groups.begin(), page.groups.end());
        if (!page.truncated) break;
        next = reply.xml().value(version.empty() ? "NextMarker" : "NextContinuationToken");
        ASSERT_NE(next, "");
      }
      std::ranges::sort(all);
      const Listed right = model_list(keys_, {.delimiter = std::string(delimiter)});
      std::vector<std::string> wanted = right.keys;
      wanted.insert(wanted.end(), right.groups.begin(), right.groups.end());
      std::ranges::sort(wanted);
      EXPECT_EQ(all, wanted) << delimiter << version;
    }
  }
}

// Folders that programs made, and what is no file, are no objects.
TEST_F(ListingTest, OnlyFilesAreObjects) {
  put("a/b");
  const auto bucket = run(client::resolve_path(metadata(), {}, "/bucket", false));
  ASSERT_TRUE(bucket);
  meta::Namespace::CreateOptions folder;
  folder.kind = meta::InodeType::directory;
  folder.mode = 0755;
  ASSERT_TRUE(run(metadata().create({}, bucket->ref(), "empty", folder)));
  meta::Namespace::CreateOptions link;
  link.kind = meta::InodeType::symlink;
  link.target = "a";
  ASSERT_TRUE(run(metadata().create({}, bucket->ref(), "link", link)));
  ASSERT_TRUE(run(metadata().create({}, bucket->ref(), "bad\xFF", {.mode = 0644})));
  EXPECT_EQ(list({}).keys, std::vector<std::string>{"a/b"});
  EXPECT_EQ(list({.delimiter = "/"}).groups, std::vector<std::string>{"a/"});
  EXPECT_EQ(ask("GET", "/bucket/link/b").code(), "NoSuchKey");
  EXPECT_EQ(ask("GET", "/bucket/link").code(), "NoSuchKey");
}

TEST_F(ListingTest, EncodedKeysAndEtags) {
  put("a b/\xE1\x88\xB4&<\x01");
  const Reply reply = ask("GET", "/bucket?encoding-type=url");
  const XmlElement document = reply.xml();
  const XmlElement* const entry = document.find("Contents");
  ASSERT_NE(entry, nullptr) << reply.body;
  EXPECT_EQ(entry->value("Key"), "a%20b/%E1%88%B4%26%3C%01");
  EXPECT_EQ(entry->value("ETag"), "\"9dd4e461268c8034f5c8564e155c67a6\"");
  EXPECT_EQ(entry->value("Size"), "1");
  EXPECT_EQ(ask("GET", "/bucket?encoding-type=x").code(), "InvalidArgument");
  EXPECT_EQ(ask("GET", "/bucket?max-keys=x").code(), "InvalidArgument");
  EXPECT_EQ(ask("GET", "/bucket?list-type=2&continuation-token=x").code(), "InvalidArgument");
  EXPECT_EQ(ask("GET", "/none").code(), "NoSuchBucket");
}

}  // namespace
}  // namespace ff::s3
