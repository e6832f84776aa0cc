// The metadata service as its clients see it: SGLang's sequence of requests, bad input, who may
// ask.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "storage/kvcache/cache_world.h"
#include "storage/s3/hash.h"

namespace ff::kvcache {
namespace {

class CacheServiceTest : public testing::Test {
 protected:
  void SetUp() override { world_.start(); }
  // The status and the body: "200 {...}".
  std::string ask(std::string_view target, std::string_view body) {
    const CacheReply reply = world_.process->ask(target, body);
    return fmt::format("{} {}", reply.status, reply.body);
  }
  int status(std::string_view target, std::string_view body) {
    return world_.process->ask(target, body).status;
  }
  void make(uint64_t pages, std::string_view rank = "0") {
    EXPECT_EQ(ask(fmt::format("/{}/initialize", rank), fmt::format("{{\"num_pages\":{}}}", pages)),
              "204 ");
  }
  std::string reserve(std::string_view keys) {
    return ask("/0/reserve_and_allocate_page_indices", fmt::format("{{\"keys\":{}}}", keys));
  }
  std::string confirm(std::string_view written, std::string_view released = "[]") {
    return ask("/0/confirm_write",
               fmt::format("{{\"written_keys_to_confirm\":{},\"pages_to_release\":{}}}", written,
                           released));
  }
  std::string exists(std::string_view keys) {
    return ask("/0/exists", fmt::format("{{\"keys\":{}}}", keys));
  }
  std::string pages(std::string_view keys) {
    return ask("/0/get_page_indices", fmt::format("{{\"keys\":{}}}", keys));
  }

  CacheWorld world_;
};

TEST_F(CacheServiceTest, TheRequestsOfSGLang) {
  make(4);
  EXPECT_EQ(exists(R"(["a","b"])"), R"(200 {"exists":[false,false]})");
  EXPECT_EQ(reserve(R"([["a",""],["b","a"]])"), R"(200 {"indices":[[false,0],[false,1]]})");
  EXPECT_EQ(exists(R"(["a","b"])"), R"(200 {"exists":[false,false]})");
  EXPECT_EQ(confirm(R"([["a",0]])", "[1]"), "204 ");
  EXPECT_EQ(exists(R"(["a","b"])"), R"(200 {"exists":[true,false]})");
  EXPECT_EQ(pages(R"(["b","a"])"), R"(200 {"indices":[null,0]})");
  EXPECT_EQ(reserve(R"([["a",""],["b","a"]])"), R"(200 {"indices":[[true,0],[false,2]]})");
  EXPECT_EQ(confirm(R"([["b",2]])"), "204 ");
  EXPECT_EQ(ask("/0/delete_keys", R"({"keys":["a","c","a"]})"), "204 ");
  EXPECT_EQ(pages(R"(["a","b"])"), R"(200 {"indices":[null,2]})");
  EXPECT_EQ(ask("/0/clear", "{}"), "204 ");
  EXPECT_EQ(exists(R"(["a","b"])"), R"(200 {"exists":[false,false]})");
  EXPECT_EQ(reserve(R"([["x",""]])"), R"(200 {"indices":[[false,0]]})");
}

TEST_F(CacheServiceTest, EmptyListsAreAnswered) {
  make(1);
  EXPECT_EQ(exists("[]"), R"(200 {"exists":[]})");
  EXPECT_EQ(pages("[]"), R"(200 {"indices":[]})");
  EXPECT_EQ(reserve("[]"), R"(200 {"indices":[]})");
  EXPECT_EQ(ask("/0/confirm_write", "{}"), "204 ");
}

TEST_F(CacheServiceTest, RanksAndNamespacesArePoolsOfTheirOwn) {
  make(2);
  EXPECT_EQ(ask("/0/initialize", R"({"num_pages":2,"namespace":"mamba"})"), "204 ");
  EXPECT_EQ(reserve(R"([["a",""]])"), R"(200 {"indices":[[false,0]]})");
  confirm(R"([["a",0]])");
  EXPECT_EQ(ask("/0/exists", R"({"keys":["a"],"namespace":"mamba"})"), R"(200 {"exists":[false]})");
  EXPECT_EQ(ask("/0/exists", R"({"keys":["a"],"namespace":"kv"})"), R"(200 {"exists":[true]})");
  EXPECT_EQ(status("/1/exists", R"({"keys":["a"]})"), 404);
  make(2, "1");
  EXPECT_EQ(ask("/1/exists", R"({"keys":["a"]})"), R"(200 {"exists":[false]})");
  EXPECT_EQ(ask("/1/clear", "{}"), "204 ");
  EXPECT_EQ(exists(R"(["a"])"), R"(200 {"exists":[true]})");
}

TEST_F(CacheServiceTest, APoolKeepsItsSize) {
  make(1);
  make(5);
  EXPECT_EQ(reserve(R"([["a",""],["b",""]])"), R"(200 {"indices":[[false,0],[false,-1]]})");
}

TEST_F(CacheServiceTest, AFullPoolEvictsWhatWasNotUsedForLongest) {
  make(3);
  reserve(R"([["a",""],["b",""],["c",""]])");
  confirm(R"([["a",0],["b",1],["c",2]])");
  pages(R"(["a"])");
  EXPECT_EQ(reserve(R"([["d",""]])"), R"(200 {"indices":[[false,1]]})");
  EXPECT_EQ(exists(R"(["a","b","c","d"])"), R"(200 {"exists":[true,false,true,false]})");
  confirm(R"([["d",1]])");
  // What the same request has asked for stays, and -1 says that there is no page.
  EXPECT_EQ(reserve(R"([["a",""],["x",""],["y",""],["c",""]])"),
            R"(200 {"indices":[[true,0],[false,1],[false,-1],[true,2]]})");
}

TEST_F(CacheServiceTest, WhatDoesNotBelongToAKeyIsNotConfirmed) {
  make(3);
  EXPECT_EQ(confirm(R"([["a",0],["a",-1],["a",3],["a",9223372036854775807]])", "[-5,0,99]"),
            "204 ");
  EXPECT_EQ(exists(R"(["a"])"), R"(200 {"exists":[false]})");
  reserve(R"([["a",""]])");
  EXPECT_EQ(confirm(R"([["b",0]])"), "204 ");
  EXPECT_EQ(exists(R"(["a","b"])"), R"(200 {"exists":[false,false]})");
  confirm(R"([["a",0],["a",0]])", "[0,0]");
  EXPECT_EQ(pages(R"(["a"])"), R"(200 {"indices":[0]})");
}

TEST_F(CacheServiceTest, AKeyThatIsReservedTwiceHasOnePageInTheEnd) {
  make(2);
  EXPECT_EQ(reserve(R"([["a",""],["a",""]])"), R"(200 {"indices":[[false,0],[false,1]]})");
  confirm(R"([["a",0],["a",1]])");
  EXPECT_EQ(pages(R"(["a"])"), R"(200 {"indices":[1]})");
  EXPECT_EQ(reserve(R"([["b",""]])"), R"(200 {"indices":[[false,0]]})");
}

TEST_F(CacheServiceTest, StringsOfJsonAreDecoded) {
  make(4);
  reserve(R"([["\u0061\"\n\ud83d\ude00",null]])");  // a prefix is a string
  EXPECT_EQ(reserve(R"([["\u0061\"\n\ud83d\ude00",""]])"), R"(200 {"indices":[[false,0]]})");
  confirm(R"([["a\"\n😀",0]])");
  EXPECT_EQ(pages(R"(["a\u0022\u000a\uD83D\uDE00"])"), R"(200 {"indices":[0]})");
  EXPECT_EQ(ask("/0/exists", R"( { "x" : [ {"y":[1.5e3,true,null]} ] , "keys" : [ "q" ] } )"),
            R"(200 {"exists":[false]})");
}

TEST_F(CacheServiceTest, BadBodiesAreRefused) {
  make(4);
  for (const std::string body : {"",
                                 "x",
                                 "[]",
                                 "{",
                                 "{}",
                                 "null",
                                 R"({"keys":"a"})",
                                 R"({"keys":[1]})",
                                 R"({"keys":[null]})",
                                 R"({"keys":["a",]})",
                                 R"({"keys":["a"]} x)",
                                 R"({"keys":["a"})",
                                 R"({"keys":[["a","b"]]})",
                                 R"({"keys":["\ud800"]})",
                                 R"({"keys":["\x"]})",
                                 R"({"keys":["a)",
                                 R"({"keys" ["a"]})",
                                 R"({"keys":["a"],"namespace":1})",
                                 R"({"keys":["a"],"namespace":""})",
                                 R"({"keys":["a"],"x":01})",
                                 R"({"keys":["a"],"x":-})",
                                 R"({"keys":["a"],"x":tru})",
                                 "{\"keys\":[\"a\nb\"]}"}) {
    EXPECT_EQ(status("/0/exists", body), 400) << body;
  }
  EXPECT_EQ(status("/0/exists", R"({"x":)" + std::string(100'000, '[')), 400);
  EXPECT_EQ(status("/0/exists", fmt::format(R"({{"keys":["{}"]}})", std::string(1025, 'k'))), 400);
  for (const std::string keys : {R"(["a"])", R"([["a"]])", R"([["a","b","c"]])", R"([["a",1]])",
                                 R"([[]])", R"([[1,"a"]])"}) {
    EXPECT_EQ(reserve(keys).substr(0, 3), "400") << keys;
  }
  for (const std::string written :
       {R"([["a"]])", R"([["a","0"]])", R"([["a",0.5]])", R"([["a",1e3]])",
        R"([["a",9223372036854775808]])", R"([["a",true]])", R"([["a",0,0]])", R"({"a":0})"}) {
    EXPECT_EQ(confirm(written).substr(0, 3), "400") << written;
  }
  EXPECT_EQ(confirm("[]", R"(["0"])").substr(0, 3), "400");
  for (const std::string size : {"0", "-1", "2147483649", "1.5", "\"4\"", "null"}) {
    EXPECT_EQ(status("/9/initialize", fmt::format(R"({{"num_pages":{}}})", size)), 400) << size;
  }
  EXPECT_EQ(status("/9/initialize", "{}"), 400);
  EXPECT_EQ(status("/9/exists", R"({"keys":[]})"), 404);  // none of them has made it
}

TEST_F(CacheServiceTest, HugeBatchesAreServedOrRefused) {
  make(5000);
  std::string pairs, keys, written;
  for (int i = 0; i < 3000; ++i) {
    pairs += fmt::format("[\"key{}\",\"\"],", i);
    keys += fmt::format("\"key{}\",", i);
    written += fmt::format("[\"key{}\",{}],", i, i);
  }
  for (std::string* text : {&pairs, &keys, &written}) text->pop_back();
  EXPECT_EQ(reserve("[" + pairs + "]").substr(0, 3), "200");
  EXPECT_EQ(confirm("[" + written + "]"), "204 ");
  const std::string found = pages("[" + keys + "]");
  EXPECT_EQ(found.find("null"), found.npos);
  EXPECT_TRUE(found.ends_with(",2998,2999]}"));
  EXPECT_EQ(ask("/0/delete_keys", "{\"keys\":[" + keys + "]}"), "204 ");
  EXPECT_EQ(exists("[" + keys + "]").find("true"), std::string::npos);
  std::string many;
  for (size_t i = 0; i <= kBatchMax; ++i) many += "\"k\",";
  many.pop_back();
  EXPECT_EQ(exists("[" + many + "]").substr(0, 3), "400");
  EXPECT_EQ(exists("[\"" + std::string(kBodyMax, 'k') + "\"]").substr(0, 3), "413");
}

TEST_F(CacheServiceTest, OtherTargetsAreRefused) {
  make(1);
  for (const std::string target :
       {"/", "/exists", "/x/exists", "/-1/exists", "/0/", "/0/nothing", "//exists", "/0/exists/",
        "/2147483648/exists", "/0/0/exists", "*"}) {
    EXPECT_EQ(status(target, R"({"keys":[]})"), 404) << target;
  }
  EXPECT_EQ(status("/00/exists?x=y", R"({"keys":[]})"), 200);  // a number
  EXPECT_EQ(world_.process->ask("/0/exists", "", "", "GET").status, 405);
}

TEST_F(CacheServiceTest, PagesOfABrowserAreRefused) {
  make(1);
  const std::string body = R"({"keys":[]})";
  EXPECT_EQ(world_.process->ask("/0/exists", body, "Origin: http://evil.example\r\n").status, 403);
  const std::string sent = world_.process->talk(
      "POST /0/exists HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 11\r\n\r\n" + body);
  EXPECT_TRUE(sent.starts_with("HTTP/1.1 403 ")) << sent;
}

TEST_F(CacheServiceTest, RequestsFollowEachOtherOnAConnection) {
  make(1);
  const std::string bad =
      "POST /0/exists HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nbad";
  const std::string fixed =
      "POST /0/exists HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n"
      R"({"keys":["abc"]})";
  const std::string sent = world_.process->talk(bad + fixed + fixed, 5);
  EXPECT_TRUE(sent.starts_with("HTTP/1.1 400 ")) << sent;
  const size_t first = sent.find(R"({"exists":[false]})");
  ASSERT_NE(first, sent.npos) << sent;
  EXPECT_NE(sent.find(R"({"exists":[false]})", first + 1), sent.npos) << sent;
}

TEST_F(CacheServiceTest, AFullDiskIsTold) {
  make(100);
  reserve(R"([["a",""]])");
  confirm(R"([["a",0]])");
  world_.w.disk.set_fault(sim::SimOp::write, 1, ENOSPC);
  EXPECT_EQ(reserve(R"([["b",""]])").substr(0, 3), "507");
  EXPECT_EQ(pages(R"(["a"])"), R"(200 {"indices":[0]})");
  world_.w.disk.set_fault(sim::SimOp::write, 0, 0);
  EXPECT_EQ(reserve(R"([["b",""]])"), R"(200 {"indices":[[false,1]]})");
}

TEST_F(CacheServiceTest, MetricsCountRequests) {
  make(2);
  reserve(R"([["a",""]])");
  confirm(R"([["b",0]])");
  const std::string text = world_.process->metrics.text();
  for (const std::string line :
       {"ff_kv_cache_requests_total{operation=\"initialize\"} 1", "ff_kv_cache_reserved_pages 1",
        "ff_kv_cache_refused_confirmations_total 1",
        "ff_kv_cache_replies_total{status=\"204\"} 2"}) {
    EXPECT_NE(text.find(line + "\n"), text.npos) << line << "\n" << text;
  }
}

class CacheTokenTest : public testing::Test {
 protected:
  static constexpr uint32_t kAnn = 1000, kBob = 1001;
  void SetUp() override {
    world_.start();
    set_mode(0700);
  }
  static auth::Key root() {
    auth::Key key;
    key.fill(std::byte{1});
    return key;
  }
  // On one line.
  std::string token(const std::string& name, uint32_t uid, bool read_only = false) {
    auth::Entity entity{
        .role = auth::Role::user, .name = name, .serial = 5, .generation = 1, .uids = {{uid, uid}}};
    entity.read_only = read_only;
    std::string text = auth::make_key_text(root(), entity);
    for (char& c : text) c = c == '\n' ? ' ' : c;
    while (text.ends_with(' ')) text.pop_back();
    return text;
  }
  void set_mode(uint32_t mode) {
    world_.process->passwords.set_folder({.owner = kAnn, .mode = mode, .cluster_path = {}});
  }
  int initialize(std::string_view authorization) {
    return ask("/0/initialize", R"({"num_pages":4})", authorization);
  }
  int exists(std::string_view authorization) {
    return ask("/0/exists", R"({"keys":["a"]})", authorization);
  }
  int ask(std::string_view target, std::string_view body, std::string_view authorization) {
    const std::string field =
        authorization.empty() ? "" : fmt::format("Authorization: {}\r\n", authorization);
    return world_.process->ask(target, body, field).status;
  }

  CacheWorld world_{1, auth::Keyring::from_root(root(), {.role = auth::Role::meta, .name = "m1"})};
};

TEST_F(CacheTokenTest, OnlyTokensAreServed) {
  const std::string ann = token("ann", kAnn);
  EXPECT_EQ(initialize(""), 401);
  EXPECT_EQ(initialize("Bearer nonsense"), 401);
  EXPECT_EQ(initialize("Digest x"), 401);
  EXPECT_EQ(initialize("Basic ===="), 401);
  EXPECT_EQ(initialize("Bearer " + ann.substr(1)), 401);
  EXPECT_EQ(exists("Bearer " + ann), 404);
  EXPECT_EQ(initialize("Bearer " + ann), 204);
  EXPECT_EQ(exists("bearer " + ann), 200);
  EXPECT_EQ(exists("Basic " + s3::base64("default:" + ann)), 200);
  EXPECT_EQ(exists("Basic " + s3::base64("ann:" + ann)), 200);
  EXPECT_EQ(exists("Basic " + s3::base64("bob:" + ann)), 401);
  EXPECT_EQ(exists("Basic " + s3::base64(ann)), 401);
  EXPECT_EQ(ask("/nowhere", "", ""), 401);
  const CacheReply reply = world_.process->ask("/0/exists", "{}");
  EXPECT_NE(reply.head.find("\r\nWWW-Authenticate: Bearer, Basic realm=\"ff\"\r\n"),
            reply.head.npos);
}

TEST_F(CacheTokenTest, TheModeOfTheFolderCounts) {
  const std::string ann = "Bearer " + token("ann", kAnn), bob = "Bearer " + token("bob", kBob);
  EXPECT_EQ(initialize(ann), 204);
  EXPECT_EQ(exists(bob), 403);
  set_mode(0755);
  EXPECT_EQ(exists(bob), 200);
  for (const std::string target : {"/0/clear", "/0/initialize", "/0/confirm_write",
                                   "/0/delete_keys", "/0/reserve_and_allocate_page_indices"}) {
    EXPECT_EQ(ask(target, R"({"num_pages":4,"keys":[]})", bob), 403) << target;
  }
  EXPECT_EQ(ask("/0/get_page_indices", R"({"keys":[]})", bob), 200);
  set_mode(0777);
  EXPECT_EQ(initialize(bob), 204);
  EXPECT_EQ(initialize("Bearer " + token("ann", kAnn, true)), 403);
}

}  // namespace
}  // namespace ff::kvcache
