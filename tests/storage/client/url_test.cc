// Input of users: cluster addresses, paths, modes, owners.
#include "storage/client/url.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "platform/io/system_disk.h"
#include "storage/client/mode.h"

namespace ff::client {
namespace {

TEST(Url, NamesServersAndAPath) {
  const auto one = parse_url("ff://node1:4400/data/x y%20").value();
  ASSERT_EQ(one.servers.size(), 1u);
  EXPECT_EQ(one.servers[0].text(), "node1:4400");
  EXPECT_EQ(one.path, "/data/x y%20");  // bytes: nothing is decoded
  const auto two = parse_url("ff://a:1,[::1]:2//x/").value();
  ASSERT_EQ(two.servers.size(), 2u);
  EXPECT_EQ(two.servers[1].text(), "[::1]:2");
  EXPECT_EQ(two.path, "//x/");
  EXPECT_EQ(parse_url("ff:///x\xff").value().path, "/x\xff");
  EXPECT_TRUE(parse_url("ff:///").value().servers.empty());
  EXPECT_EQ(parse_url("ff://a:1").value().path, "/");
}

TEST(Url, MistakesAreUsage) {
  for (const char* text :
       {"ff:/x", "/x", "http://a:1/", "ff://a/x", "ff://a:1,/x", "ff://a:99999/", "ff://,/x", ""}) {
    const auto parsed = parse_url(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, Errc::usage) << text;
  }
  EXPECT_EQ(parse_cluster_path("/a").value().path, "/a");
  EXPECT_EQ(parse_cluster_path("a").error().code, Errc::usage);
  EXPECT_EQ(parse_cluster_path("").error().code, Errc::usage);
}

TEST(Url, LastNames) {
  EXPECT_EQ(last_component("a/b//"), "b");
  EXPECT_EQ(last_component("b"), "b");
  EXPECT_EQ(last_component("/"), "");
  EXPECT_EQ(last_component("a/.."), "..");
}

TEST(Url, ErrorsNameThePath) {
  const Error named = with_path("/a/\x1b", errno_error(ENOENT, "inode 7"));
  EXPECT_EQ(named.message, "/a/\\x1b: No such file or directory");
  EXPECT_EQ(named.sys, ENOENT);
  const Error other = with_path("/a", fail(Errc::busy, "later"));
  EXPECT_EQ(other.message, "/a: later");
  EXPECT_EQ(other.code, Errc::busy);
}

TEST(Mode, NumbersAndWords) {
  struct Case {
    const char* text;
    uint32_t before;
    bool directory;
    uint32_t after;
  };
  const Case cases[] = {
      {"644", 0777, false, 0644},         {"0", 0777, false, 0},
      {"4755", 0, false, 04755},          {"755", 02700, true, 02755},
      {"00755", 02700, false, 0755},      {"u+x", 0644, false, 0744},
      {"go-w", 0666, false, 0644},        {"a=r", 0777, false, 0444},
      {"u+rwX,go=rX", 0600, true, 0755},  {"u+rwX,go=rX", 0600, false, 0644},
      {"+X", 0644, false, 0644},          {"+X", 0744, false, 0755},
      {"g=u", 0640, false, 0660},         {"o=g-r", 0640, false, 0640},
      {"u+s,g+s,+t", 0755, false, 07755}, {"u-s", 04755, false, 0755},
      {"u=rwx", 02755, true, 02755},      {"a=", 0777, false, 0},
      {"u+r-w", 0200, false, 0400},
  };
  for (const Case& one : cases) {
    const auto change = ModeChange::parse(one.text, 0);
    ASSERT_TRUE(change.ok()) << one.text;
    EXPECT_EQ(change->apply(one.before, one.directory), one.after) << one.text;
  }
  EXPECT_EQ(ModeChange::parse("+w", 0022).value().apply(0444, false), 0644u);
  for (const char* text : {"", "8", "10000", "77777777777777777777", "u", "x", "u+q", "u+,", ",",
                           "u+r,", "a+rw x", "-1"}) {
    EXPECT_FALSE(ModeChange::parse(text, 0).ok()) << text;
  }
}

TEST(Mode, TextAsLsHasIt) {
  EXPECT_EQ(mode_text('-', 0644), "-rw-r--r--");
  EXPECT_EQ(mode_text('d', 01777), "drwxrwxrwt");
  EXPECT_EQ(mode_text('-', 07644), "-rwSr-Sr-T");
  EXPECT_EQ(mode_text('-', 06755), "-rwsr-sr-x");
}

TEST(Owner, NumbersAndNames) {
  io::SystemDisk disk;
  const auto both = parse_owner(disk, "12:34").value();
  EXPECT_EQ(both.uid, 12u);
  EXPECT_EQ(both.gid, 34u);
  EXPECT_FALSE(parse_owner(disk, ":34").value().uid.has_value());
  EXPECT_FALSE(parse_owner(disk, "12").value().gid.has_value());
  EXPECT_EQ(parse_owner(disk, "root:").value().gid, 0u);
  for (const char* text : {"", ":", "-1", "4294967295", "no-such-user", "0:no-such-group"}) {
    EXPECT_EQ(parse_owner(disk, text).error().code, Errc::usage) << text;
  }
}

}  // namespace
}  // namespace ff::client
