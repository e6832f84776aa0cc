// The tree follows the rules of tidy/rules.h: one test runs all of them over each source, others
// look at folders, names, formatting, man pages.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "tidy/rules.h"

namespace ff::tidy {
namespace {

const fs::path kRoot = FF_SOURCE_DIR;

std::vector<std::string> names_in(const fs::path& dir, bool only_folders) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename();
    if (only_folders && (!entry.is_directory() || name == "__pycache__")) continue;
    if (only_folders && fs::is_empty(entry.path())) continue;  // git does not know it
    names.push_back(name);
  }
  return names;
}

// Every file of the folders that hold code, from the root on.
std::vector<std::string> files_of_code() {
  std::vector<std::string> paths;
  for (const std::string top : {"core", "cmd", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      if (entry.is_regular_file()) paths.push_back(fs::relative(entry.path(), kRoot));
    }
  }
  return paths;
}

// Sources and scripts, read whole.
std::vector<Source> tree() {
  static const std::set<std::string> kExtensions = {".cc", ".c", ".h", ".sh", ".py", ".cmake"};
  std::vector<Source> sources;
  for (const std::string path : {"bootstrap", ".ci/run", "CMakeLists.txt"}) {
    sources.push_back({path, read(kRoot / path)});
  }
  for (const std::string& path : files_of_code()) {
    if (kExtensions.contains(fs::path(path).extension()))
      sources.push_back({path, read(kRoot / path)});
  }
  return sources;
}

Layout tree_layout() { return parse_layout(read(kRoot / "core/README.md")); }

// "platform/io" for each folder of a group; other folders stand by themselves.
std::vector<std::string> grouped_folders(const fs::path& top, const Layout& layout) {
  std::vector<std::string> names;
  for (const std::string& name : names_in(top, true)) {
    if (!layout.uses.contains(name)) {
      names.push_back(name);
      continue;
    }
    for (const std::string& folder : names_in(top / name, true)) {
      names.push_back(fmt::format("{}/{}", name, folder));
    }
  }
  return names;
}

void expect_none(const Findings& findings) {
  for (const std::string& finding : findings) ADD_FAILURE() << finding;
}

// Output of a command, and its exit status in `status`.
std::string output_of(const std::string& command, int& status) {
  std::string output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) {
    status = -1;
    return output;
  }
  std::array<char, 4096> buffer;
  for (size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    output.append(buffer.data(), n);
  }
  status = pclose(pipe);
  return output;
}

// Files that quote what these rules refuse.
bool quoted_here(const Source& source, Rule rule) {
  return source.path.starts_with("tests/tidy/") && (rule == banned || rule == unfinished);
}

TEST(Tidy, EverySourceFollowsEveryRule) {
  const Layout layout = tree_layout();
  const std::vector<Source> sources = tree();
  ASSERT_GT(sources.size(), 20u);
  for (const Source& source : sources) {
    for (const Rule rule : kRules) {
      if (!quoted_here(source, rule)) expect_none(rule(source, layout));
    }
  }
}

TEST(Tidy, ExceptionsAreStillNeeded) {
  for (const auto& [path, reason] : direct_open_allowed()) {
    EXPECT_TRUE(fs::exists(kRoot / path)) << path << " is excepted, but not there";
    EXPECT_GE(reason.size(), 20u) << path << " has no reason";
  }
}

TEST(Tidy, FoldersAreWhereTheyBelong) {
  const Layout layout = tree_layout();
  expect_none(table_matches(grouped_folders(kRoot / "core", layout), layout));
  expect_none(test_folders(grouped_folders(kRoot / "tests", layout), layout));
  expect_none(top_level(names_in(kRoot, false)));
  for (const auto& [group, uses] : layout.uses) {
    EXPECT_TRUE(fs::exists(kRoot / "core" / group / "README.md")) << group << " has no README.md";
    EXPECT_FALSE(uses.contains("lab/")) << group << " includes lab";
  }
}

TEST(Tidy, NoFilesIncludeEachOther) { expect_none(FileGraph(tree()).cycles()); }

TEST(Tidy, SourcesOfAFolderShareNoNames) { expect_none(shared_names(tree())); }

TEST(Tidy, FoldersShareNoTypeNamesWithoutAReason) {
  const std::vector<Source> sources = tree();
  expect_none(shared_types(sources));
  for (const auto& [type, reason] : shared_types_allowed()) {
    EXPECT_GE(reason.size(), 20u) << type << " has no reason";
  }
}

TEST(Tidy, RetiredWordsAreNotUsed) {
  const auto retired = parse_retired(read(kRoot / "core/README.md"));
  EXPECT_GT(retired.size(), 20u);
  std::vector<Source> sources = tree();
  for (const auto& entry : fs::directory_iterator(kRoot / "man")) {
    sources.push_back({fs::relative(entry.path(), kRoot), read(entry.path())});
  }
  sources.push_back({"README.md", read(kRoot / "README.md")});
  for (const Source& source : sources) {
    if (!source.path.starts_with("tests/tidy/")) expect_none(retired_words(source, retired));
  }
}

TEST(Tidy, NothingIsLeftBehind) { expect_none(known_kinds(files_of_code())); }

TEST(Tidy, ClangFormatWouldChangeNothing) {
  std::string files;
  for (const Source& source : tree()) {
    if (source.is_code()) files += " " + (kRoot / source.path).string();
  }
  int status = 0;
  const std::string output = output_of("clang-format --dry-run -Werror" + files, status);
  EXPECT_EQ(status, 0) << output;
}

// "`chain/chain_client.h`" in a README of core/ is a file of some group.
TEST(Tidy, ReadmesNameFilesThatAreThere) {
  static const std::regex kFile(
      R"(`((?:core/|tests/|cmd/)?[a-z0-9_]+/[a-z0-9_/]+\.(?:h|cc|proto|c|md))`)");
  const Layout layout = tree_layout();
  std::vector<fs::path> readmes = {kRoot / "core/README.md"};
  for (const auto& [group, uses] : layout.uses)
    readmes.push_back(kRoot / "core" / group / "README.md");
  const auto there = [&](const std::string& name) {
    if (fs::exists(kRoot / name) || fs::exists(kRoot / "core" / name)) return true;
    return std::ranges::any_of(layout.uses, [&](const auto& group) {
      return fs::exists(kRoot / "core" / group.first / name);
    });
  };
  size_t names = 0;
  for (const fs::path& path : readmes) {
    const std::string text = read(path);
    for (std::sregex_iterator match(text.begin(), text.end(), kFile), end; match != end; ++match) {
      names++;
      EXPECT_TRUE(there((*match)[1])) << path << " names " << (*match)[1];
    }
  }
  EXPECT_GT(names, 50u);
}

// A filter that fits no test runs nothing and passes.
TEST(Tidy, SuitesOfFiltersAreThere) {
  std::string tests;
  for (const Source& source : tree()) {
    if (source.path.starts_with("tests/")) tests += source.text;
  }
  const std::string script = read(kRoot / "tests/CMakeLists.txt");
  static const std::regex kSuite(R"(([A-Za-z]+)\.\*)");
  size_t suites = 0;
  for (std::sregex_iterator match(script.begin(), script.end(), kSuite), end; match != end;
       ++match) {
    ++suites;
    const std::string suite = (*match)[1].str();
    EXPECT_TRUE(std::regex_search(tests, std::regex("TEST(_F|_P)?\\(" + suite + ","))) << suite;
  }
  EXPECT_GT(suites, 0u);
}

TEST(Tidy, PlantedBugsStillFit) {
  int status = 0;
  const std::string script = (kRoot / "tests/lab/scenario/planted.py").string();
  const std::string output = output_of("python3 -B " + script + " --fit", status);
  EXPECT_EQ(status, 0) << output;
}

TEST(Tidy, EveryCommandHasItsManPage) {
  int status = 0;
  const std::string help = output_of(std::string(FF_BINARY) + " help", status);
  ASSERT_EQ(status, 0) << help;
  static const std::regex kCommand(R"((^|\n)  ([a-z][a-z-]*)  +[^\n]+)");
  size_t commands = 0;
  for (std::sregex_iterator match(help.begin(), help.end(), kCommand), end; match != end; ++match) {
    ++commands;
    const fs::path page = kRoot / "man" / ("ff-" + (*match)[2].str() + ".1");
    EXPECT_TRUE(fs::exists(page)) << page << " is missing; run build/ff generate docs .";
  }
  EXPECT_GE(commands, 2u) << help;
}

}  // namespace
}  // namespace ff::tidy
