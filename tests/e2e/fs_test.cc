// `ff fs` and `ff admin user` as their users meet them: real daemons on this machine, one cluster
// for all tests, in which each test has a directory of its own.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "e2e/child.h"
#include "platform/auth/key.h"
#include "platform/io/system_disk.h"

namespace ff::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Words = std::vector<std::string>;
using Env = std::map<std::string, std::string>;

// A manager and two nodes, with two replicas of everything.
class Cluster {
 public:
  Cluster() {
    io::SystemDisk disk;
    EXPECT_TRUE(auth::make_key_file(disk, key()).ok());
    meta = start({"serve-meta", "--dir", dir_ / "meta"});
    EXPECT_EQ(admin({"init"}).exit, 0);
    for (const std::string node : {"1", "2"}) {
      start({"serve-storage", "--disk", dir_ / ("disk" + node), "--node", node, "--failure-domain",
             node, "--meta", meta});
    }
    until("nodes report", [&] { return admin_json({"nodes"})["nodes"].size() == 2; });
    EXPECT_EQ(admin({"plan", "--replicas", "2", "--targets-per-disk", "4", "--apply"}).exit, 0);
    until("chains serve", [&] {
      const json chains = admin_json({"status"})["chains"];
      return chains.is_object() && chains["all"] > 0 && chains["all"] == chains["whole"];
    });
    // The metadata service reads the states of chains periodically, and gives files fewer chains
    // as long as it knows of fewer that serve.
    until("new files have all chains", [&] {
      EXPECT_EQ(fs({"touch", "/all"}).exit, 0);
      const json stat = json::parse(fs({"stat", "/all", "--json"}).out, nullptr, false);
      EXPECT_EQ(fs({"rm", "/all"}).exit, 0);
      return stat.is_object() && stat["data"]["entries"][0]["chains"].size() == 4;
    });
  }

  std::string key() const { return dir_ / "cluster.key"; }
  Env env() const { return {{"FF_META", meta}, {"FF_KEY", key()}}; }
  ProcessResult admin(Words words) const {
    words.insert(words.begin(), "admin");
    return run_ff(std::move(words), env());
  }
  ProcessResult fs(Words words) const {
    words.insert(words.begin(), "fs");
    return run_ff(std::move(words), env());
  }
  json admin_json(Words words) const {
    words.push_back("--json");
    const json parsed = json::parse(admin(std::move(words)).out, nullptr, false);
    return parsed.is_object() ? parsed["data"] : json::object();
  }
  template <class Condition>
  static void until(const std::string& what, Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "not yet: " << what;
    }
  }

  std::string meta;

 private:
  // Where it listens.
  std::string start(Words words) {
    words.insert(words.begin(), FF_BINARY);
    words.insert(words.end(), {"--listen", "127.0.0.1:0", "--key", key()});
    daemons_.push_back(std::make_unique<Child>(Launch{.argv = words}));
    Child& daemon = *daemons_.back();
    EXPECT_TRUE(daemon.wait_for_out("listening on ")) << daemon.err;
    EXPECT_TRUE(daemon.wait_for_out("\n"));
    const size_t at = daemon.out.find("127.0.0.1:");
    return daemon.out.substr(at, daemon.out.find('\n', at) - at);
  }

  TempDir dir_;
  std::vector<std::unique_ptr<Child>> daemons_;
};

class FsCommand : public testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new Cluster; }
  static void TearDownTestSuite() { delete cluster_; }

  void SetUp() override {
    home_ = std::string("/") + testing::UnitTest::GetInstance()->current_test_info()->name();
    ASSERT_EQ(fs({"mkdir", home_}).exit, 0);
  }

  static Words command(Words words) {
    words.insert(words.begin(), {FF_BINARY, "fs"});
    return words;
  }
  static ProcessResult fs(const Words& words, Env more = {}) {
    more.merge(cluster_->env());
    return run({.argv = command(words), .env = std::move(more)});
  }
  // What is asked for can be done.
  static ProcessResult good(const Words& words) {
    ProcessResult ran = fs(words);
    EXPECT_EQ(ran.exit, 0) << words[0] << ": " << ran.err;
    return ran;
  }
  static json data(Words words) {
    words.push_back("--json");
    const ProcessResult ran = fs(words);
    const json parsed = json::parse(ran.out, nullptr, false);
    EXPECT_TRUE(parsed.is_object()) << ran.out << ran.err;
    if (!parsed.is_object()) return json::object();
    EXPECT_EQ(parsed["exit"], ran.exit);
    EXPECT_EQ(parsed["command"], "fs " + words[0]);
    return parsed["data"];
  }
  json stat(const std::string& path) {
    const json entries = data({"stat", path})["entries"];
    return entries.empty() ? json::object() : entries[0];
  }
  std::string at(const std::string& name) const { return home_ + "/" + name; }
  std::string url(const std::string& name) const { return "ff://" + at(name); }
  std::string local(const std::string& name, const std::string& content) {
    write_file(dir_ / name, content);
    return dir_ / name;
  }
  static bool same(const std::string& a, const std::string& b) {
    const ProcessResult ran = run({.argv = {"diff", "-r", "--no-dereference", a, b}});
    EXPECT_EQ(ran.out, "");
    return ran.exit == 0;
  }

  static Cluster* cluster_;
  TempDir dir_;
  std::string home_;
};
Cluster* FsCommand::cluster_ = nullptr;

TEST_F(FsCommand, NamesAreMadeListedMovedAndRemoved) {
  good({"mkdir", "-p", at("a/b/c")});
  EXPECT_EQ(fs({"mkdir", at("a")}).exit, 1);
  good({"mkdir", "-p", at("a")});
  good({"mkdir", "-m", "u=rwx,go=", at("own")});
  EXPECT_EQ(stat(at("own"))["mode"], "0700");
  good({"touch", at("a/file"), at("a/.hidden")});
  good({"ln", "-s", "file", at("a/link")});
  good({"ln", at("a/file"), at("a/second")});
  EXPECT_EQ(good({"ls", at("a")}).out, "b\nfile\nlink\nsecond\n");
  EXPECT_EQ(good({"ls", "-a", at("a")}).out, ".hidden\nb\nfile\nlink\nsecond\n");
  EXPECT_EQ(good({"ls", "-d", at("a")}).out, at("a") + "\n");
  EXPECT_NE(good({"ls", "-l", at("a")}).out.find("\tlink -> file\n"), std::string::npos);
  EXPECT_EQ(good({"ls", "-R", at("a/b")}).out, at("a/b/c") + "\n");
  EXPECT_EQ(stat(at("a/file"))["links"], 2);
  EXPECT_EQ(stat(at("a/file"))["chains"].size(), 4u);
  EXPECT_EQ(stat(at("a/link"))["target"], "file");
  EXPECT_EQ(data({"stat", "-L", at("a/link")})["entries"][0]["inode"], stat(at("a/file"))["inode"]);

  good({"mv", at("a/file"), at("a/second"), at("a/b")});
  EXPECT_EQ(good({"ls", at("a/b")}).out, "c\nfile\nsecond\n");
  good({"touch", at("other")});
  EXPECT_EQ(fs({"mv", "-n", at("other"), at("a/b/file")}).exit, 1);
  good({"mv", "--exchange", at("other"), at("a/b")});
  EXPECT_EQ(good({"ls", at("other")}).out, "c\nfile\nsecond\n");
  EXPECT_EQ(stat(at("a/b"))["type"], "file");
  // A directory below itself.
  EXPECT_EQ(fs({"mv", at("other"), at("other/c")}).exit, 2);

  EXPECT_EQ(fs({"rm", at("other")}).exit, 1);
  EXPECT_EQ(fs({"rm", at("nothing")}).exit, 1);
  good({"rm", "-f", at("nothing"), at("no/thing")});
  good({"rm", "-r", at("other"), at("a")});
  EXPECT_EQ(good({"ls", home_}).out, "own\n");
}

TEST_F(FsCommand, AttributesAndLayouts) {
  good({"mkdir", "-p", at("d/e")});
  good({"touch", at("d/f")});
  good({"chmod", "640", at("d/f")});
  good({"chmod", "-R", "u+x,g=rX,o=u", at("d")});
  EXPECT_EQ(stat(at("d/f"))["mode"], "0757");
  EXPECT_EQ(stat(at("d/e"))["mode"], "0757");
  good({"chmod", "a-x,+t", at("d/f")});
  EXPECT_EQ(stat(at("d/f"))["mode"], "1646");
  good({"chown", "-R", "7:8", at("d")});
  EXPECT_EQ(stat(at("d/f"))["uid"], 7);
  good({"chown", "root", at("d/f")});
  good({"chown", ":9", at("d/f")});
  EXPECT_EQ(stat(at("d/f"))["uid"], 0);
  EXPECT_EQ(stat(at("d/f"))["gid"], 9);
  const int64_t before = stat(at("d/f"))["mtime_ns"];
  good({"touch", at("d/f")});
  EXPECT_GT(stat(at("d/f"))["mtime_ns"], before);
  good({"touch", "-c", at("nothing")});
  EXPECT_EQ(fs({"ls", at("nothing")}).exit, 1);

  EXPECT_EQ(data({"layout", at("d/e")})["inherited"], true);
  good({"layout", at("d"), "--chunk-size", "64KiB", "--stripe", "2"});
  EXPECT_EQ(data({"layout", at("d")})["chunk_size"], 65536);
  good({"mkdir", at("d/new")});
  good({"touch", at("d/new/f")});
  EXPECT_EQ(stat(at("d/new/f"))["layout"]["stripe"], 2);
  EXPECT_EQ(stat(at("d/new/f"))["chains"].size(), 2u);
  good({"layout", at("d"), "--inherit"});
  EXPECT_EQ(data({"layout", at("d")})["chunk_size"], 1 << 20);
}

TEST_F(FsCommand, TreesAreSearchedAndAddedUp) {
  good({"mkdir", "-p", at("t/u")});
  good({"cp", local("k", noise(3000)), url("t/k.bin")});
  good({"cp", local("m", noise(2'500'000)), url("t/u/m.bin")});
  good({"ln", at("t/k.bin"), at("t/u/again")});
  good({"ln", "-s", "k.bin", at("t/link")});
  const std::string t = at("t");
  EXPECT_EQ(good({"find", t}).out, t + "\n" + t + "/k.bin\n" + t + "/link\n" + t + "/u\n" + t +
                                       "/u/again\n" + t + "/u/m.bin\n");
  EXPECT_EQ(good({"find", t, "--name", "*.bin", "--size", "+1MB"}).out, t + "/u/m.bin\n");
  EXPECT_EQ(good({"find", t, "--size=-1MB", "--type", "f", "-0"}).out,
            t + "/k.bin" + '\0' + t + "/u/again" + '\0');
  EXPECT_EQ(good({"find", t, "--type", "l", "--newer", "1h"}).out, t + "/link\n");
  EXPECT_EQ(good({"find", t, "--older", "1h"}).out, "");
  EXPECT_EQ(good({"du", "-b", t}).out,
            "SIZE\tFILES\tPATH\n2500000\t2\t" + t + "/u\n2503000\t4\t" + t + "\n");
  EXPECT_EQ(data({"du", "-s", t})["directories"].size(), 1u);
}

TEST_F(FsCommand, TreesGoInAndOutAsTheyAre) {
  const std::string tree = dir_ / "tree";
  local("tree/sub/deep/small", "hello");
  local("tree/large", noise(5'000'001));
  local("tree/empty", "");
  for (int i = 0; i < 200; i++) local("tree/many/f" + std::to_string(i), std::to_string(i));
  local("tree/ff \x1b\xff\n name", "odd");
  fs::create_symlink("../nowhere", tree + "/sub/link");
  fs::create_directory(tree + "/nothing");
  ASSERT_EQ(::chmod((tree + "/nothing").c_str(), 0500), 0);
  ASSERT_EQ(::chmod((tree + "/large").c_str(), 0464), 0);
  const json in = data({"cp", "-rp", "--verify", tree, url("tree")});
  EXPECT_EQ(in["files"], 204);
  EXPECT_EQ(in["links"], 1);
  EXPECT_EQ(stat(at("tree/large"))["mode"], "0464");
  good({"cp", "-rp", "--verify", url("tree"), dir_ / "back"});
  EXPECT_TRUE(same(tree, dir_ / "back"));
  EXPECT_EQ(fs::status(dir_ / "back/nothing").permissions(), fs::perms(0500));
  EXPECT_EQ(fs::last_write_time(tree + "/large"), fs::last_write_time(dir_ / "back/large"));
  // Within the cluster; into a directory; what is in a directory.
  good({"cp", "-r", url("tree"), url("second")});
  good({"cp", "-r", url("second"), dir_.path().string()});
  EXPECT_TRUE(same(tree, dir_ / "second"));
  good({"mkdir", at("into")});
  good({"cp", "-r", tree + "/.", tree + "/sub/deep", url("into/")});
  EXPECT_EQ(good({"ls", at("into/deep"), at("into/sub/deep")}).out,
            at("into/deep") + ":\nsmall\n" + at("into/sub/deep") + ":\nsmall\n");
  // Again, over what is there: replaced, links too.
  local("tree/sub/deep/small", "changed");
  good({"cp", "-r", tree + "/.", url("tree")});
  EXPECT_EQ(good({"cat", at("tree/sub/deep/small")}).out, "changed");
  good({"cp", "-rp", tree + "/.", url("into/")});
  EXPECT_EQ(stat(at("into/large"))["mode"], "0464");
  EXPECT_EQ(good({"find", home_, "--name", "*.ff-part"}).out, "");
}

TEST_F(FsCommand, PipesGoBothWays) {
  const std::string bytes = noise(3'300'000);
  Child in(
      {.argv = command({"cp", "-", url("piped")}), .env = cluster_->env(), .stdin_open = true});
  in.write_stdin(bytes);
  EXPECT_EQ(fs({"ls", at("piped")}).exit, 1);  // not before it is whole
  in.close_stdin();
  EXPECT_EQ(in.finish(), 0) << in.err;
  good({"cp", local("tail", "the end"), url("tail")});
  EXPECT_TRUE(good({"cat", at("piped"), at("tail")}).out == bytes + "the end");
  EXPECT_TRUE(good({"cp", url("piped"), "-"}).out == bytes);
  Child empty({.argv = command({"cp", "-", url("empty")}), .env = cluster_->env()});
  EXPECT_EQ(empty.finish(), 0);
  EXPECT_EQ(stat(at("empty"))["size"], 0);
}

TEST_F(FsCommand, AnInterruptedCopyLeavesNothing) {
  Child in({.argv = command({"cp", "-", url("file")}), .env = cluster_->env(), .stdin_open = true});
  in.write_stdin(noise(2'000'000));
  Cluster::until("the copy has begun", [&] {
    return !good({"find", home_, "--name", ".file.ff-part"}).out.empty();
  });
  in.signal(SIGINT);
  EXPECT_TRUE(in.wait_for_err("interrupted"));
  EXPECT_EQ(in.finish(), 130) << in.err;
  EXPECT_EQ(good({"ls", "-a", home_}).out, "");
}

// Killed when it has noted how far it is; then the rest alone is copied.
TEST_F(FsCommand, AKilledCopyIsGoneOnWith) {
  const std::string source = dir_ / "source";
  {
    std::ofstream out(source, std::ios::binary);
    const std::string some = noise(1 << 20);
    for (int i = 0; i < 1024; i++) out << i << some;
  }
  Child copy({.argv = command({"cp", "--resume", source, url("file")}), .env = cluster_->env()});
  Cluster::until("it is noted how far it is", [&] {
    const ProcessResult ran = fs({"stat", "--json", at(".file.ff-part")});
    return ran.out.find("user.ff.part") != std::string::npos;
  });
  copy.signal(SIGKILL);
  copy.finish();
  EXPECT_EQ(fs({"stat", at("file")}).exit, 1);
  const json rest = data({"cp", "--resume", "--verify", source, url("file")});
  EXPECT_EQ(rest["resumed"], 1);
  EXPECT_EQ(good({"ls", "-a", home_}).out, "file\n");
  EXPECT_EQ(stat(at("file"))["xattrs"].size(), 0u);
  EXPECT_EQ(data({"cp", "--resume", source, url("file")})["skipped"], 1);

  // The other way.
  Child out(
      {.argv = command({"cp", "--resume", url("file"), dir_ / "back"}), .env = cluster_->env()});
  Cluster::until("it is noted how far it is",
                 [&] { return fs::exists(dir_ / ".back.ff-part.note"); });
  out.signal(SIGKILL);
  out.finish();
  EXPECT_FALSE(fs::exists(dir_ / "back"));
  EXPECT_EQ(data({"cp", "--resume", "--verify", url("file"), dir_ / "back"})["resumed"], 1);
  EXPECT_TRUE(same(source, dir_ / "back"));
  EXPECT_FALSE(fs::exists(dir_ / ".back.ff-part.note"));
  // A source that has changed is copied anew.
  local("source", "short");
  EXPECT_EQ(data({"cp", "--resume", source, url("file")})["resumed"], 0);
  EXPECT_EQ(good({"cat", at("file")}).out, "short");
}

TEST_F(FsCommand, HolesStayHoles) {
  const std::string sparse = local("sparse", noise(10'000));
  const uint64_t far = uint64_t{6} << 40;
  fs::resize_file(sparse, far);
  good({"cp", sparse, url("sparse")});
  EXPECT_EQ(stat(at("sparse"))["size"], far);
  good({"cp", url("sparse"), dir_ / "back"});
  EXPECT_EQ(fs::file_size(dir_ / "back"), far);
  struct stat status = {};
  ASSERT_EQ(::stat((dir_ / "back").c_str(), &status), 0);
  EXPECT_LT(status.st_blocks * 512, 4 << 20);
  EXPECT_EQ(run({.argv = {"cmp", "-n", "3000000", sparse, dir_ / "back"}}).exit, 0);
}

TEST_F(FsCommand, ManyEntriesComePageByPage) {
  Words touch = {"touch"};
  for (int i = 0; i < 5000; i++) touch.push_back(at("n" + std::to_string(10'000 + i)));
  good(touch);
  const ProcessResult listed = good({"ls", home_});
  EXPECT_EQ(std::count(listed.out.begin(), listed.out.end(), '\n'), 5000);
  EXPECT_TRUE(listed.out.starts_with("n10000\nn10001\n"));
  EXPECT_TRUE(listed.out.ends_with("\nn14999\n"));
  EXPECT_EQ(data({"ls", home_})["entries"].size(), 5000u);
  EXPECT_EQ(data({"cp", "-r", "ff://" + home_, dir_ / "all"})["files"], 5000);
  good({"rm", "-r", home_});
}

TEST_F(FsCommand, MistakesAreNamed) {
  good({"mkdir", "-p", at("dir/full")});
  good({"touch", at("file")});
  const std::string here = local("here", "x");
  const std::string name255(255, 'n'), name256(256, 'n');
  struct Case {
    Words words;
    int exit;
    std::string said;
  };
  const Case cases[] = {
      {{"ls", "relative"}, 2, "start with '/'"},
      {{"ls", "ff://nowhere"}, 2, "port"},
      {{"ls", "ff://a:1/x", "ff://b:1/y"}, 2, "two clusters"},
      {{"ls", at("none")}, 1, at("none") + ": No such file"},
      {{"ls", at("none"), at("none2")}, 1, "2 errors"},
      {{"ls", at("file/x")}, 1, "Not a directory"},
      {{"mkdir", at(name256)}, 1, "name too long"},
      {{"mkdir", "/"}, 1, "exists"},
      {{"rm", "-r", "/"}, 2, "does not name a directory entry"},
      {{"rm", at("dir/..")}, 2, "does not name a directory entry"},
      {{"ln", at("dir"), at("hard")}, 5, "-s makes a symbolic"},
      {{"chmod", "9", at("file")}, 2, "is not a mode"},
      {{"chmod", "u+q", at("file")}, 2, "is not a mode"},
      {{"chown", "nobody-here", at("file")}, 2, "/etc/passwd"},
      {{"chown", "99999999999", at("file")}, 2, "/etc/passwd"},
      {{"layout", at("file"), "--stripe", "2"}, 1, "cannot be changed"},
      {{"layout", at("dir"), "--chunk-size", "3MiB"}, 2, "power of two"},
      {{"layout", at("dir"), "--table", "77"}, 2, "77"},
      {{"layout", at("dir"), "--inherit", "--stripe", "2"}, 2, "--inherit"},
      {{"find", home_, "--size", "99999999999GiB"}, 2, "99999999999GiB"},
      {{"find", home_, "--size=-1"}, 0, ""},
      {{"mv", at("file")}, 2, "a destination"},
      {{"mv", at("file"), at("dir"), at("none")}, 1, "none"},
      {{"cat", at("dir")}, 1, "directory"},
      {{"cat", at("file"), "--json"}, 2, "--json"},
      {{"cp", here, here}, 2, "ff:///"},
      {{"cp", here, url("dir/none/x")}, 1, "No such file"},
      {{"cp", here, url("none/")}, 1, "is not a directory"},
      {{"cp", here, url("file/")}, 1, "Not a directory"},
      {{"cp", here, here + "2", url("none")}, 1, "No such file"},
      {{"cp", url("dir"), dir_ / "out"}, 1, "Use -r to copy"},
      {{"cp", "-r", url("dir"), url("dir/full/x")}, 2, "into itself"},
      {{"cp", "-", url("dir")}, 1, "Give a file name"},
      {{"cp", "-", "-"}, 2, "ff:///"},
      {{"cp", here, url(name256)}, 1, "too long"},
      {{"cp", dir_ / "missing", here, url("dir")}, 1, "missing"},
      {{"cp", here, url("dir/full")}, 0, ""},
      {{"cp", here, url(name255)}, 0, ""},
      {{"cp", here, url("dir/here")}, 0, ""},
      {{"cp", "-r", dir_.path().string(), url("file")}, 1, "exists"},
      {{"ls", home_, "--meta", "127.0.0.1:1", "--timeout", "1s"}, 6, ""},
  };
  for (const Case& one : cases) {
    const ProcessResult ran = fs(one.words);
    const std::string line = fmt::format("{}", fmt::join(one.words, " "));
    EXPECT_EQ(ran.exit, one.exit) << line << "\n" << ran.err;
    EXPECT_NE((ran.out + ran.err).find(one.said), std::string::npos) << line << "\n" << ran.err;
  }
  // One of two could be copied, and was.
  EXPECT_EQ(good({"cat", at("dir/here")}).out, "x");
  EXPECT_EQ(good({"cat", at(name255)}).out, "x");
}

// Whoever may write in the destination must not lead the copy of root to other files.
TEST_F(FsCommand, CpFollowsNoLinkBelowItsDestination) {
  good({"mkdir", "-p", at("trap/to/src"), at("trap/out")});
  good({"ln", "-s", "../../out", at("trap/to/src/sub")});
  fs::create_directories(dir_ / "src/sub");
  write_file(dir_ / "src/sub/x", "new");
  write_file(dir_ / "src/y", "new");
  const auto ran = fs({"cp", "-r", dir_ / "src", url("trap/to")});
  EXPECT_EQ(ran.exit, 1) << ran.err;
  EXPECT_NE(ran.err.find("sub"), std::string::npos) << ran.err;
  EXPECT_EQ(good({"ls", at("trap/out")}).out, "");
  EXPECT_EQ(good({"cat", at("trap/to/src/y")}).out, "new");
}

TEST_F(FsCommand, TokensAreGoodForOneUser) {
  const auto user = [](Words words) {
    words.insert(words.begin(), "user");
    return cluster_->admin(std::move(words));
  };
  const std::string ann = dir_ / "ann", bob = dir_ / "bob";
  ASSERT_EQ(user({"add", "ann", "--uid", "1001", "--groups", "50,51", "--token-file", ann}).exit,
            0);
  EXPECT_EQ(fs::status(ann).permissions(), fs::perms(0600));
  EXPECT_EQ(user({"add", "ann", "--uid", "1001", "--token-file", ann}).exit, 1);
  const ProcessResult told = user({"add", "bob", "--uid", "1002"});
  ASSERT_EQ(told.exit, 0) << told.err;
  EXPECT_TRUE(told.out.starts_with("ff2 user/"));
  write_file(bob, told.out);
  ASSERT_EQ(::chmod(bob.c_str(), 0600), 0);
  EXPECT_NE(user({"list"}).out.find("1001\tann\t1001\t50,51\t"), std::string::npos);
  const auto as = [](const std::string& token, const Words& words) {
    return run(
        {.argv = command(words), .env = {{"FF_META", cluster_->meta}, {"FF_TOKEN_FILE", token}}});
  };
  good({"mkdir", "-m", "1777", at("open")});
  const std::string secret = noise(1'500'000);
  ASSERT_EQ(as(ann, {"mkdir", "-m", "700", at("open/ann")}).exit, 0);
  const ProcessResult in = as(ann, {"cp", local("secret", secret), url("open/ann/secret")});
  ASSERT_EQ(in.exit, 0) << in.err;
  EXPECT_EQ(stat(at("open/ann/secret"))["uid"], 1001);
  EXPECT_TRUE(as(ann, {"cat", at("open/ann/secret")}).out == secret);
  for (const Words& words :
       {Words{"cat", at("open/ann/secret")}, Words{"ls", at("open/ann")},
        Words{"rm", "-r", at("open/ann")}, Words{"mv", at("open/ann"), at("open/mine")},
        Words{"chown", "1002", at("open/ann")}, Words{"cp", local("x", "x"), url("x")}}) {
    const ProcessResult ran = as(bob, words);
    EXPECT_EQ(ran.exit, 5) << words[0] << ran.err;
  }
  EXPECT_EQ(user({"remove", "1002"}).exit, 0);
  Cluster::until("the token does not hold any more", [&] {
    return as(bob, {"ls", home_}).exit == 5;
  });
  EXPECT_EQ(user({"token", "1002"}).exit, 1);
  EXPECT_TRUE(user({"token", "1001"}).out.starts_with("ff2 user/ann "));
  EXPECT_EQ(user({"add", "eve", "--uid", "3", "--groups", "x"}).exit, 2);
}

// Root of a machine that mounts is nobody in the cluster.
TEST(FsRootSquash, RootIsNobody) {
  const TempDir dir;
  Child daemon({.argv = {FF_BINARY, "serve-meta", "--root-squash", "--dir", dir / "meta",
                         "--listen", "127.0.0.1:0"}});
  ASSERT_TRUE(daemon.wait_for_out("listening on ") && daemon.wait_for_out("\n")) << daemon.err;
  const size_t at = daemon.out.find("127.0.0.1:");
  const Env env = {{"FF_META", daemon.out.substr(at, daemon.out.find('\n', at) - at)}};
  ASSERT_EQ(run_ff({"admin", "init"}, env).exit, 0);
  ASSERT_EQ(run_ff({"fs", "ls", "/"}, env).exit, 0);
  const ProcessResult refused = run_ff({"fs", "mkdir", "/x"}, env);
  EXPECT_EQ(refused.exit, 5);
  EXPECT_NE(refused.err.find("/x: Permission denied"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace ff::test
