// `ff record` as its users meet it: the real binary, its words, exit codes and JSON. What it writes
// in a cluster is in tests/training/bindings/cluster_store.py.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "e2e/child.h"

namespace ff::test {
namespace {

using Json = nlohmann::json;

class RecordCommand : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 10; i++) {
      write_file(dir_.path() / "in" / fmt::format("{}.txt", i),
                 std::string(1000, static_cast<char>('0' + i)));
    }
  }
  // "@NAME" is a path in the temporary directory; without it, in the output, too.
  ProcessResult record(std::vector<std::string> words) {
    words.insert(words.begin(), "record");
    for (std::string& word : words) {
      if (word.starts_with('@')) word = dir_ / word.substr(1);
    }
    ProcessResult ran = run_ff(words);
    for (std::string* const text : {&ran.out, &ran.err}) {
      for (size_t at; (at = text->find(dir_ / "")) != std::string::npos;) {
        text->erase(at, (dir_ / "").size());
      }
    }
    return ran;
  }
  Json data(std::vector<std::string> words, int exit = 0) {
    words.push_back("--json");
    const ProcessResult ran = record(words);
    EXPECT_EQ(ran.exit, exit) << ran.out << ran.err;
    return Json::parse(ran.out, nullptr, false)["data"];
  }

  TempDir dir_;
};

TEST_F(RecordCommand, PacksListsPrintsAndVerifies) {
  const ProcessResult packed = record({"pack", "@in", "@out", "--part-size", "4000"});
  EXPECT_EQ(packed.exit, 0) << packed.err;
  EXPECT_EQ(packed.out, "out/PART_00000.ffr\nout/PART_00001.ffr\nout/PART_00002.ffr\n");
  const Json shown = data({"show", "@out"});
  EXPECT_EQ(shown["samples"], 10);
  EXPECT_EQ(shown["files"][2]["samples"], 2);
  const Json listed = data({"ls", "@out"});
  EXPECT_EQ(listed["samples"].size(), 10u);
  EXPECT_EQ(listed["samples"][4]["path"], "out/PART_00001.ffr");
  EXPECT_EQ(record({"cat", "@out", "7", "0"}).out, std::string(1000, '7') + std::string(1000, '0'));
  EXPECT_EQ(record({"verify", "@out"}).out, "10 samples in 3 files are as they were written\n");
  EXPECT_EQ(data({"split", "@out", "@half", "--into", "2"})["files"].size(), 2u);
  EXPECT_EQ(record({"cat", "@half/PART_00001.ffr", "4"}).out, std::string(1000, '9'));
}

// What tar writes in its formats, from files and from a pipe, with names that need more than its
// oldest header.
TEST_F(RecordCommand, PacksTarArchivesWithNames) {
  const std::string deep = std::string(90, 'd') + "/" + std::string(120, 'f');
  write_file(dir_.path() / "in" / deep, "deep");
  std::filesystem::create_symlink("0.txt", dir_.path() / "in" / "link");
  for (const std::string format : {"gnu", "pax", "ustar"}) {
    const std::string tar = dir_ / (format + ".tar");
    std::vector<std::string> words = {
        "/usr/bin/tar", "--format=" + format, "--sort=name", "-C", dir_ / "in", "-cf", tar, "."};
    if (format == "ustar") words.insert(words.end() - 1, "--exclude=" + std::string(120, 'f'));
    ASSERT_EQ(run({.argv = words}).exit, 0) << format;
    const ProcessResult packed = record(
        {"pack", "--tar", "--names", "@" + format + ".tar", "@" + format, "--part-size", "4000"});
    EXPECT_EQ(packed.exit, 0) << packed.err;
    EXPECT_NE(packed.err.find("1 links and special files are left out"), std::string::npos);
    const Json listed = data({"ls", "@" + format})["samples"];
    ASSERT_EQ(listed.size(), format == "ustar" ? 10u : 11u);
    EXPECT_EQ(listed[4]["name"], "4.txt");
    EXPECT_EQ(record({"cat", "@" + format, "4", "9"}).out,
              std::string(1000, '4') + std::string(1000, '9'));
    if (format != "ustar") {
      EXPECT_EQ(listed[10]["name"], deep);
    }
  }
  const std::string piped = fmt::format("cat '{}' | '{}' record pack --tar --names - '{}'",
                                        dir_ / "gnu.tar", FF_BINARY, dir_ / "piped.ffr");
  ASSERT_EQ(run({.argv = {"/bin/sh", "-c", piped}, .env = {{"TMPDIR", dir_ / ""}}}).exit, 0);
  EXPECT_EQ(read_file(dir_ / "piped.ffr.names"),
            "0.txt\n1.txt\n2.txt\n3.txt\n4.txt\n5.txt\n6.txt\n7.txt\n8.txt\n9.txt\n" + deep + "\n");
  // Names of files, which a split takes along, and which a pack without them removes.
  ASSERT_EQ(record({"pack", "--names", "@in", "@named.ffr"}).exit, 0);
  ASSERT_EQ(record({"split", "@named.ffr", "@parts", "--into", "2"}).exit, 0);
  EXPECT_EQ(read_file(dir_ / "parts/PART_00001.ffr.names"),
            "6.txt\n7.txt\n8.txt\n9.txt\n" + deep + "\n");
  ASSERT_EQ(record({"pack", "--force", "@in", "@named.ffr"}).exit, 0);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "named.ffr.names"));
  // Resuming keeps parts that have their names, too.
  const auto resumed = [&] {
    return data({"pack", "--tar", "--names", "--resume", "--part-size", "4000", "@gnu.tar",
                 "@gnu"})["kept"];
  };
  EXPECT_EQ(resumed(), 3);
  std::filesystem::remove(dir_ / "gnu/PART_00001.ffr.names");
  EXPECT_EQ(resumed(), 2);
  EXPECT_EQ(resumed(), 3);
  EXPECT_EQ(record({"pack", "-", "@x.ffr"}).exit, 2);
  EXPECT_EQ(record({"pack", "--tar", "--resume", "-", "@x.ffr"}).exit, 2);
  EXPECT_EQ(record({"pack", "--tar", "@in/0.txt", "@x.ffr"}).exit, 3);
}

TEST_F(RecordCommand, DamageIsNamedAndExitsWithThree) {
  ASSERT_EQ(record({"pack", "@in", "@a.ffr"}).exit, 0);
  std::fstream file(dir_ / "a.ffr", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1500, std::ios::end);
  file.put('X');
  file.close();
  const ProcessResult verified = record({"verify", "@a.ffr"});
  EXPECT_EQ(verified.exit, 3);
  EXPECT_NE(verified.out.find("a.ffr: sample 8 is damaged: its CRC-32 is"), std::string::npos);
  EXPECT_NE(verified.err.find("1 of 10 samples are damaged"), std::string::npos);
  EXPECT_EQ(data({"verify", "@a.ffr"}, 3)["damaged"][0]["sample"], 8);
  EXPECT_EQ(record({"cat", "@a.ffr", "8"}).exit, 3);
  EXPECT_EQ(record({"split", "@a.ffr", "@parts", "--into", "2"}).exit, 3);
}

TEST_F(RecordCommand, Mistakes) {
  const auto says = [&](std::vector<std::string> words, int exit, const std::string& text) {
    const ProcessResult ran = record(std::move(words));
    EXPECT_EQ(ran.exit, exit) << ran.err;
    EXPECT_NE(ran.err.find(text), std::string::npos) << ran.err;
  };
  says({"pack", "@in"}, 2, "the command needs one FROM or more, and TO");
  says({"pack", "@nothing", "@a.ffr"}, 1, "nothing: No such file or directory");
  says({"show", "@in/1.txt"}, 3, "in/1.txt: an index of");
  says({"show", "@in"}, 1, "in: the directory has no file *.ffr");
  ASSERT_EQ(record({"pack", "@in", "@a.ffr"}).exit, 0);
  says({"pack", "@in", "@a.ffr"}, 5, "a.ffr: exists already");
  says({"cat", "@a.ffr", "10"}, 2, "there is no sample 10: there are 10, counted from 0");
  says({"split", "@a.ffr", "@parts", "--into", "0"}, 2, "--into: at least one file");
}

}  // namespace
}  // namespace ff::test
