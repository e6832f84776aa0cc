// The generated completions in the shells themselves, with the tables of the probe: commands,
// subcommands, options, choices, files.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "e2e/child.h"

namespace ff::test {
namespace {

using WordSet = std::set<std::string>;

// A directory with the probe's completions, an `ff` to complete, and files to find.
struct Shells : testing::Test {
  void SetUp() override {
    ASSERT_EQ(probe({"generate", "docs", dir.path().string()}).exit, 0);
    std::filesystem::create_directories(dir / "work/sub dir");
    write_file(dir / "work/model one.bin", "");
    write_file(dir / "work/model-two.bin", "");
    std::filesystem::create_directories(dir / "bin");
    std::filesystem::create_symlink(FF_PROBE, dir / "bin/ff");
    std::filesystem::create_symlink(FF_PROBE, dir / "bin/ff-store");
  }
  TempDir dir;
};

WordSet lines_of(const std::string& text) {
  WordSet words;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    words.insert(line.substr(0, line.find('\t')));
  }
  return words;
}

const WordSet kCommands{"copy", "generate", "help", "mount", "store", "stream", "talk", "wait"};

struct Case {
  std::vector<std::string> words;  // as bash splits them; the last one is under the cursor
  WordSet offered;
};

// What does not depend on the shell. In bash `--format=p` comes as three words.
const std::vector<Case> kCases{
    {{"ff", ""}, kCommands},
    {{"ff", "st"}, {"store", "stream"}},
    {{"ff", "store", ""}, {"get", "put"}},
    {{"ff", "store", "--store", "get", "p"}, {"put"}},
    {{"ff", "store", "put", "--form"}, {"--format"}},
    {{"ff", "store", "put", "--no-"}, {"--no-compress", "--no-header"}},
    {{"ff", "store", "put", "--format", ""}, {"packed", "raw"}},
    {{"ff", "store", "put", "--level", ""}, {}},
    {{"ff", "store", "put", "mod"}, {"model one.bin", "model-two.bin"}},
    {{"ff", "store", "put", "x", "mod"}, {"model one.bin", "model-two.bin"}},
    {{"ff", "help", "co"}, {"copy", "config"}},
    {{"ff", "help", "store", ""}, {"get", "put"}},
    {{"ff-store", "p"}, {"put"}},
    {{"ff-store", "put", "--form"}, {"--format"}},
};

TEST_F(Shells, bash) {
  const auto complete = [this](const std::vector<std::string>& words) {
    std::string script = "cd '" + (dir / "work") + "'; . '" + (dir / "completions/ff.bash") + "'\n";
    // compopt speaks to readline, which is not there; the test in a terminal below has it.
    script += "compopt() { :; }\nCOMP_WORDS=(";
    for (const std::string& word : words) script += "'" + word + "' ";
    script += ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_ff\n";
    script += "[[ ${#COMPREPLY[@]} == 0 ]] || printf '%s\\n' \"${COMPREPLY[@]}\"\n";
    const ProcessResult ran = run({.argv = {"bash", "-uc", script}});
    EXPECT_EQ(ran.err, "");
    return lines_of(ran.out);
  };
  for (const Case& wanted : kCases) {
    SCOPED_TRACE(testing::PrintToString(wanted.words));
    EXPECT_EQ(complete(wanted.words), wanted.offered);
  }
  EXPECT_EQ(complete({"ff", "store", "put", "--format", "=", "p"}), WordSet{"packed"});
  EXPECT_EQ(complete({"ff", "store", "put", "--format", "="}), (WordSet{"packed", "raw"}));
  EXPECT_EQ(complete({"ff", "store", "--store", ""}), WordSet{"sub dir"});
  EXPECT_EQ(complete({"ff", "store", "get", "r", ""}), WordSet{"sub dir"});
  EXPECT_EQ(complete({"ff", "store", "get", ""}), WordSet{});
  EXPECT_EQ(complete({"ff", "store", "put", "--", "--form"}), WordSet{});
  EXPECT_EQ(complete({"ff", "-"}), (WordSet{"--help", "--json", "--no-header", "--quiet",
                                            "--verbose", "--version", "-h", "-q", "-v"}));
}

TEST_F(Shells, bash_in_a_terminal) {
  Child shell({.argv = {"bash", "--norc", "--noprofile", "-i"},
               .env = {{"PS1", "$ "}, {"PATH", dir / "bin:" + std::string(::getenv("PATH"))}},
               .terminal = true});
  shell.write_stdin("cd '" + (dir / "work") + "' && . '" + (dir / "completions/ff.bash") +
                    "' && echo re''ady\n");
  ASSERT_TRUE(shell.wait_for_out("ready")) << shell.out;
  // Names with spaces come out escaped, which needs readline's own quoting.
  shell.write_stdin("echo ff store pu\tmodel\\ o\t\n");
  shell.write_stdin("ff store pu\tmodel\\ o\t\n");
  EXPECT_TRUE(shell.wait_for_out("path=model one.bin")) << shell.out;
  shell.write_stdin("exit\n");
  shell.finish();
}

TEST_F(Shells, fish) {
  const auto complete = [this](const std::vector<std::string>& words) {
    std::string line;
    for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
    const std::string script = "cd '" + (dir / "work") + "'; source '" +
                               (dir / "completions/ff.fish") + "'; complete -C '" + line + "'";
    const ProcessResult ran =
        run({.argv = {"fish", "--no-config", "-c", script},
             .env = {{"HOME", dir.path().string()},
                     {"PATH", dir / "bin:" + std::string(::getenv("PATH"))}}});
    EXPECT_EQ(ran.err, "");
    return lines_of(ran.out);
  };
  for (const Case& wanted : kCases) {
    SCOPED_TRACE(testing::PrintToString(wanted.words));
    EXPECT_EQ(complete(wanted.words), wanted.offered);
  }
  EXPECT_EQ(complete({"ff store put --format=p"}), WordSet{"--format=packed"});
  EXPECT_EQ(complete({"ff store --store "}), WordSet{"sub dir/"});
}

// zsh completes only in a terminal; list-choices shows what there is, with descriptions.
TEST_F(Shells, zsh) {
  Child shell({.argv = {"zsh", "-f", "-i"},
               .env = {{"HOME", dir.path().string()},
                       {"PATH", dir / "bin:" + std::string(::getenv("PATH"))}},
               .terminal = true});
  shell.write_stdin("stty cols 200; PS1='$ '; unsetopt zle_bracketed_paste prompt_sp; fpath=('" +
                    (dir / "completions") + "' $fpath); autoload -Uz compinit; compinit -u -D; " +
                    "bindkey '^I' list-choices; cd '" + (dir / "work") + "'; echo re''ady\n");
  ASSERT_TRUE(shell.wait_for_out("ready")) << shell.out;
  struct Listing {
    std::string line;
    std::vector<std::string> shown;  // none of these is typed
    std::string absent;
  };
  const std::vector<Listing> listings{
      {"ff ", {"Keep things in a store", "Say that it ran"}, "model-two.bin"},
      {"ff store ", {"Get a run out of the store", "Put files into the store"}, "model-two.bin"},
      {"ff store put --",
       {"How hard to try", "Where: a directory [or nothing]", "--no-compress"},
       "Put files"},
      {"ff store put --format ", {"packed", "raw"}, "model-two.bin"},
      {"ff store put --format=", {"packed", "raw"}, "model-two.bin"},
      {"ff store put ", {"model\\ one.bin", "model-two.bin"}, "packed"},
      {"ff store --store ", {"sub\\ dir"}, "model-two.bin"},
      {"ff help ", {"Keep things in a store", "exit-codes"}, "model-two.bin"},
      {"ff help store ", {"Get a run out of the store"}, "exit-codes"},
      {"ff-store ", {"Get a run out of the store"}, "Say that it ran"},
  };
  for (const Listing& listing : listings) {
    SCOPED_TRACE(listing.line);
    shell.out.clear();
    shell.write_stdin(listing.line + "\t");
    for (const std::string& text : listing.shown) {
      EXPECT_TRUE(shell.wait_for_out(text)) << shell.out;
    }
    // The line is cleared, then a mark says that the listing is whole.
    shell.write_stdin(
        "\x15"
        "echo en''ded\n");
    ASSERT_TRUE(shell.wait_for_out("ended")) << shell.out;
    EXPECT_EQ(shell.out.find(listing.absent), std::string::npos) << shell.out;
  }
  shell.write_stdin("exit\n");
  shell.finish();
}

}  // namespace
}  // namespace ff::test
