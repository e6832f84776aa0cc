// Which command runs, what is said about words that fit nothing, and how values read: the promises
// of cli.md about the line itself.
#include <gtest/gtest.h>

#include <filesystem>

#include "e2e/child.h"

namespace ff::test {
namespace {

ProcessResult as(const std::string& link, std::vector<std::string> words) {
  words.insert(words.begin(), link);
  return run({.argv = std::move(words), .program = FF_PROBE});
}

TEST(Dispatch, by_link_name_or_first_word) {
  const std::string values =
      "store=default-store part=4194304 grace=3600 level=1 format=raw compress=false force=false "
      "tag=none\npath=a\n";
  EXPECT_EQ(as("ff", {"store", "put", "a"}).out, values);
  EXPECT_EQ(as("store", {"put", "a"}).out, values);
  EXPECT_EQ(as("ff-store", {"put", "a"}).out, values);
  EXPECT_EQ(as("/usr/bin/ff-store", {"put", "a"}).out, values);
  EXPECT_EQ(as("/sbin/mount.ff", {}).out, "mounted\n");
  // A copy of the program under a name of its own is still ff.
  EXPECT_EQ(as("ff-0.1.0", {"store", "put", "a"}).out, values);
  EXPECT_EQ(as("ff", {"--json", "mount"}).out.find("{\"ff\":\"1\",\"command\":\"mount\""), 0u);
}

TEST(Dispatch, suggests_the_nearest_name) {
  const ProcessResult command = run_ff({"hlep"});
  EXPECT_EQ(command.exit, 2);
  EXPECT_EQ(command.out, "");
  EXPECT_EQ(command.err,
            "ff: unknown command 'hlep'\n  Did you mean help? `ff -h` lists the commands.\n");
  const ProcessResult sub = probe({"store", "putt", "x"});
  EXPECT_EQ(sub.exit, 2);
  EXPECT_EQ(sub.err,
            "ff store: unknown command 'putt'\n"
            "  Did you mean put? `ff store -h` lists the commands.\n");
  const ProcessResult option = probe({"store", "put", "x", "--formt=raw"});
  EXPECT_EQ(option.exit, 2);
  EXPECT_EQ(option.err,
            "ff store put: unknown option --formt\n"
            "  Did you mean --format? `ff store put -h` lists the options.\n");
  const ProcessResult choice = probe({"store", "put", "x", "--format", "packd"});
  EXPECT_EQ(choice.exit, 2);
  EXPECT_EQ(choice.err,
            "ff store put: --format: 'packd' is not one of raw, packed\n  Did you mean packed?\n");
  const ProcessResult far = run_ff({"zzzzzzzzzz"});
  EXPECT_EQ(far.exit, 2);
  EXPECT_EQ(far.err, "ff: unknown command 'zzzzzzzzzz'\n  `ff -h` lists the commands.\n");
}

TEST(Dispatch, usage_errors_exit_2_and_print_no_data) {
  const std::vector<std::vector<std::string>> lines{
      {},
      {"store"},
      {"store", "put"},
      {"store", "get", "a", "b", "c"},
      {"store", "put", "x", "--part"},
      {"store", "put", "x", "--part", "4Q"},
      {"store", "put", "x", "--grace", "soon"},
      {"store", "put", "x", "--level", "-1"},
      {"store", "put", "x", "--level", "99999999999"},
      {"store", "put", "x", "--level", "1x"},
      {"store", "put", "x", "--force=perhaps"},
      {"store", "put", "x", "--no-force"},
      {"copy", "extra"},
      {"mount", "--quiet", "--verbose"},
      {"wait", "--timeout", "x"},
      {"--nothing"},
  };
  for (const auto& line : lines) {
    std::string shown;
    for (const std::string& word : line) shown += word + " ";
    SCOPED_TRACE(shown);
    const ProcessResult ran = probe(line);
    EXPECT_EQ(ran.exit, 2);
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(ran.err.find("ff"), 0u);
    EXPECT_GE(std::count(ran.err.begin(), ran.err.end(), '\n'), 1);
  }
  EXPECT_EQ(probe({"store", "put"}).err,
            "ff store put: PATH is missing\n  Usage: ff store put [OPTIONS] PATH...\n");
  EXPECT_EQ(probe({"store", "put", "x", "--part"}).err, "ff store put: --part needs a value\n");
}

TEST(Values, read_in_every_form) {
  const ProcessResult all = probe({"store", "--store", "/s", "put", "--part=1.5M", "--grace", "2h",
                                   "--level", "7", "--format", "packed", "--compress", "-f",
                                   "--tag=", "-t", "a*", "--tensor=b", "one", "two"});
  EXPECT_EQ(all.err, "");
  EXPECT_EQ(all.out,
            "store=/s part=1572864 grace=7200 level=7 format=packed compress=true force=true tag=\n"
            "path=one\npath=two\ntensor=a*\ntensor=b\n");
  // The last one wins, so that an alias can be overruled.
  const ProcessResult last =
      probe({"store", "put", "x", "--level=1", "--compress", "--level=3", "--no-compress"});
  EXPECT_NE(last.out.find("level=3 format=raw compress=false"), std::string::npos);
}

TEST(Values, old_and_hidden_names_still_work) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--old-tag", "a"}, {"--old-tag=a"}, {"-g", "a"}}) {
    std::vector<std::string> line = {"store", "put", "x", "--tls", "file"};
    line.insert(line.end(), words.begin(), words.end());
    const ProcessResult ran = probe(line);
    EXPECT_EQ(ran.err, "");
    EXPECT_NE(ran.out.find("tag=a\n"), std::string::npos) << ran.out;
  }
  EXPECT_EQ(probe({"store", "put", "x", "--old-tag="}).exit, 0);
  EXPECT_EQ(probe({"store", "inner"}).out, "inner\n");
  // They are not suggested.
  EXPECT_EQ(probe({"store", "put", "x", "--old-tga"}).err.find("--old-tag"), std::string::npos);
  EXPECT_EQ(probe({"store", "innr"}).err.find("inner"), std::string::npos);
}

TEST(Values, operands_are_never_taken_for_something_else) {
  // Names of subcommands, a lone dash, brackets, and anything after `--`.
  const ProcessResult ran =
      probe({"store", "put", "put", "get", "-", "[a,b]", "--", "--level", "-x", "--"});
  EXPECT_EQ(ran.err, "");
  EXPECT_NE(ran.out.find("level=1 "), std::string::npos);
  EXPECT_NE(
      ran.out.find("path=put\npath=get\npath=-\npath=[a,b]\npath=--level\npath=-x\npath=--\n"),
      std::string::npos)
      << ran.out;
  // The value of an option before the subcommand is not the subcommand.
  EXPECT_NE(probe({"store", "--store", "get", "put", "x"}).out.find("store=get "),
            std::string::npos);
  EXPECT_EQ(probe({"store", "get", "r"}).out, "run=r dest=default-store\n");
  EXPECT_EQ(probe({"store", "get", "r", "d"}).out, "run=r dest=d\n");
}

TEST(Version, is_one_line_and_the_same_each_time) {
  const ProcessResult ran = run_ff({"--version"});
  EXPECT_EQ(ran.exit, 0);
  EXPECT_EQ(ran.out.find("ff 0.1.0 ("), 0u);
  EXPECT_EQ(ran.out.find('\n'), ran.out.size() - 1);
  EXPECT_EQ(run_ff({"--version"}).out, ran.out);
  // Without a git tree around it, as in a tarball.
  const TempDir dir;
  const auto write = [&dir](const std::string& name) {
    return run(
        {.argv = {"cmake", "-DSOURCE=" + dir.path().string(), "-DVERSION=9.8.7", "-DTYPE=Release",
                  "-DOUTPUT=" + dir / name, "-P", FF_SOURCE_DIR "/cmd/cli/build_info.cmake"},
         .env = {{"GIT_CEILING_DIRECTORIES", dir.path().parent_path().string()}}});
  };
  EXPECT_EQ(write("a.cc").exit, 0);
  EXPECT_EQ(write("b.cc").exit, 0);
  EXPECT_NE(read_file(dir / "a.cc").find("{\"9.8.7\", \"unknown\", \"Release\"}"),
            std::string::npos);
  EXPECT_EQ(read_file(dir / "a.cc"), read_file(dir / "b.cc"));
}

}  // namespace
}  // namespace ff::test
