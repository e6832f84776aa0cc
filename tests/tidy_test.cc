// The rules of the tree that no compiler checks: floors, sizes, opening comments, banned words,
// what may stand at the top level. Each rule is a function from a source to findings; one test runs
// all of them over the tree, and each rule has a test of its own that feeds it samples it must
// refuse and samples it must let pass. The rules read text, not syntax: each looks only for what
// text shows.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Findings = std::vector<std::string>;
using Floors = std::map<std::string, int, std::less<>>;  // folder of core/ -> floor

constexpr size_t kMaxLines = 800;
constexpr size_t kMaxColumns = 100;
constexpr size_t kMaxFunctionLines = 70;
constexpr size_t kMinPurposeWords = 8;         // of a comment that opens a file
constexpr size_t kMinPointerWords = 4;         // of a .cc beside its header, where the story stands
constexpr std::string_view kBinDir = "build";  // build, build-dev, ...: not part of the tree

struct Ban {
  std::string pattern;  // regular expression on a line without its comment
  std::string reason;
  std::vector<std::string> allowed;  // prefixes of paths where it is right
};

const std::vector<Ban>& bans() {
  static const std::vector<Ban> all = {
      {R"(\b(steady|system|high_resolution)_clock::now)",
       "time comes from ff::Clock",
       {"core/base/", "tests/"}},
      {R"(\b(clock_gettime|gettimeofday)\s*\()",
       "time comes from ff::Clock",
       {"core/base/", "tests/"}},
      {R"(\b(sleep_for|sleep_until|usleep|nanosleep)\s*\()",
       "sleep through ff::Clock",
       {"core/base/"}},
      {R"(\bs?rand\s*\()", "numbers come from ff::Rng", {}},
      {R"(\brandom_device\b)", "numbers come from ff::Rng", {}},
      {R"(\bwhile\s*\(([^()]|\([^()]*\))*\bco_await\b)",
       "GCC 12 destroys what a loop's condition awaits too early: await it in the body",
       {}},
  };
  return all;
}

// Above floor 1 files are opened through io::Disk. Files that have to do without, and why.
const std::map<std::string, std::string>& direct_open_allowed() {
  static const std::map<std::string, std::string> all = {
      {"core/db/database.cc", "the lock of a directory of the machine's, for SQLite's own files"},
      {"core/db/state_dir.cc", "rules about the machine's own directories: owner, mode, kind"},
      {"core/mount/device.cc", "the kernel's device and its tables of mounts, which are no data"},
      {"core/mount/foreign_memory.cc", "memory files of programs, under rules of their own"},
      {"core/sched/foreign_tree.cc", "a folder whose owner may turn its paths elsewhere meanwhile"},
      {"core/shim/become.cc", "between fork and exec, where no Disk can be: it allocates"},
      {"core/net/region.cc", "a nameless file of shared memory, on no disk and without a path"},
  };
  return all;
}

// Folders of tests/ that mirror no folder of core/.
const std::set<std::string>& own_test_folders() {
  static const std::set<std::string> all = {"cli", "fuzz", "bench", "spec", "rdma"};
  return all;
}

struct Source {
  std::string path;  // from the tree's root, "core/io/disk.h"
  std::string text;

  bool is_code() const {
    return path.ends_with(".cc") || path.ends_with(".h") || path.ends_with(".c");
  }
  bool is_header() const { return path.ends_with(".h"); }
  // "core/io/disk.h" -> "io"; empty outside core/ and for files directly in it.
  std::string_view folder() const {
    const std::string_view view = path;
    if (!view.starts_with("core/") || view.find('/', 5) == view.npos) return {};
    return view.substr(5, view.find('/', 5) - 5);
  }
};

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string at(const Source& source, size_t index) {
  return fmt::format("{}:{}: ", source.path, index + 1);
}

// Runs `action(line, index)` over the lines, comments cut off.
template <class Action>
void each_code_line(const Source& source, Action action) {
  const std::vector<std::string> lines = lines_of(source.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t comment = lines[i].starts_with("//") ? 0 : lines[i].find(" //");
    action(lines[i].substr(0, comment), i);
  }
}

bool starts_with_any(std::string_view path, std::span<const std::string> prefixes) {
  return std::ranges::any_of(prefixes,
                             [&](const auto& prefix) { return path.starts_with(prefix); });
}

// Reads the floor table: rows "| 1 | `io/` | ... |".
Floors parse_floors(const std::string& readme) {
  static const std::regex kRow(R"(^\| *([0-9]) *\| *`([a-z]+)/` *\|.*\|$)");
  Floors floors;
  for (const std::string& line : lines_of(readme)) {
    std::smatch match;
    if (std::regex_match(line, match, kRow)) floors[match[2]] = std::stoi(match[1]);
  }
  return floors;
}

// Rules. -----------------------------------------------------------------------------------------

// An include goes to the same folder or to a lower floor; nothing but cmd/ and tests/ sees cmd/.
Findings includes(const Source& source, const Floors& floors) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s+"([^"]+)".*)re");
  Findings findings;
  const bool in_core = source.path.starts_with("core/");
  if (!in_core) return findings;
  const std::string_view own = source.folder();
  const auto own_floor = floors.find(own);
  if (!own.empty() && own_floor == floors.end()) {
    return {fmt::format("{}: core/{} is not in the floor table", source.path, own)};
  }
  each_code_line(source, [&](const std::string& line, size_t i) {
    std::smatch match;
    if (!std::regex_match(line, match, kInclude)) return;
    const std::string header = match[1];
    const std::string folder = header.substr(0, std::min(header.find('/'), header.size()));
    const auto floor = floors.find(folder);
    if (header.find('/') == std::string::npos || floor == floors.end()) {
      findings.push_back(at(source, i) + "\"" + header + "\" is in no folder of the floor table");
    } else if (own.empty() || (folder != own && floor->second >= own_floor->second)) {
      findings.push_back(at(source, i) + "\"" + header + "\" is not on a lower floor");
    }
  });
  return findings;
}

Findings sizes(const Source& source, const Floors&) {
  Findings findings;
  const std::vector<std::string> lines = lines_of(source.text);
  if (lines.size() > kMaxLines) {
    findings.push_back(
        fmt::format("{}: {} lines, at most {}", source.path, lines.size(), kMaxLines));
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto columns = std::ranges::count_if(  // UTF-8: bytes that start a character
        lines[i], [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
    if (static_cast<size_t>(columns) > kMaxColumns) {
      findings.push_back(at(source, i) +
                         fmt::format("{} columns, at most {}", columns, kMaxColumns));
    }
  }
  return findings;
}

Findings pragma_once(const Source& source, const Floors&) {
  static const std::regex kPragma(R"((^|\n)#pragma once\n)");
  if (!source.is_header() || std::regex_search(source.text, kPragma)) return {};
  return {source.path + ": no #pragma once"};
}

// The comment before the first code says what the file is for. A script's starts with '#'.
Findings purpose(const Source& source, const Floors&) {
  static const std::regex kWord(R"([A-Za-z0-9_./]{2,})");
  const std::string mark = source.is_code() ? "//" : "#";
  size_t words = 0;
  for (const std::string& line : lines_of(source.text)) {
    if (line.starts_with("#!")) continue;
    if (!line.starts_with(mark)) break;
    words += static_cast<size_t>(
        std::distance(std::sregex_iterator(line.begin(), line.end(), kWord), {}));
  }
  const fs::path header = fs::path(FF_SOURCE_DIR) / fs::path(source.path).replace_extension(".h");
  const bool beside_header = source.path.ends_with(".cc") && fs::exists(header);
  const size_t least = beside_header ? kMinPointerWords : kMinPurposeWords;
  if (words >= least) return {};
  return {fmt::format("{}: opens with {} words on its purpose, at least {}", source.path, words,
                      least)};
}

// A function ends with a brace in the first column; it begins with the nearest line before it that
// starts there and is no label, brace, directive or comment.
Findings functions(const Source& source, const Floors&) {
  Findings findings;
  if (!source.is_code()) return findings;
  const std::vector<std::string> lines = lines_of(source.text);
  for (size_t end = 0; end < lines.size(); ++end) {
    if (lines[end] != "}") continue;
    size_t begin = end;
    while (begin > 0) {
      const std::string& line = lines[--begin];
      if (line.empty() || std::string_view(" }#/").find(line[0]) != std::string_view::npos)
        continue;
      if (!line.ends_with(":")) break;
    }
    const size_t count = end - begin + 1;
    if (count > kMaxFunctionLines) {
      findings.push_back(at(source, begin) +
                         fmt::format("function of {} lines, at most {}", count, kMaxFunctionLines));
    }
  }
  return findings;
}

Findings banned(const Source& source, const Floors&) {
  Findings findings;
  if (!source.is_code()) return findings;
  for (const Ban& ban : bans()) {
    if (starts_with_any(source.path, ban.allowed)) continue;
    const std::regex pattern(ban.pattern);
    each_code_line(source, [&](const std::string& line, size_t i) {
      std::smatch match;
      if (!std::regex_search(line, match, pattern)) return;
      findings.push_back(at(source, i) + "'" + match.str() + "': " + ban.reason);
    });
  }
  return findings;
}

Findings unfinished(const Source& source, const Floors&) {
  static const std::regex kWord("\\b(TODO|FIXME|XXX)\\b");
  Findings findings;
  const std::vector<std::string> lines = lines_of(source.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (std::regex_search(lines[i], kWord)) {
      findings.push_back(at(source, i) + "unfinished work is an issue, not a comment");
    }
  }
  return findings;
}

// Names that say nothing of what is inside. The cluster manager is the field's own term.
Findings file_names(const Source& source, const Floors&) {
  static const std::regex kVague("(^|[_/])(utils?|commons?|helpers?|managers?|misc)([_/.]|$)");
  if (!std::regex_search(source.path, kVague) || source.path.starts_with("core/cluster/"))
    return {};
  return {source.path + ": name the noun that the file is about"};
}

Findings direct_opens(const Source& source, const Floors& floors) {
  static const std::regex kOpen(
      R"((^|[^\w>])::(open|openat|creat)\(|\b(fopen|openat|creat)\s*\(|\bopen\(.*\bO_[A-Z])"
      R"(|\b(ifstream|ofstream|fstream|filesystem)\b)");
  Findings findings;
  const auto floor = floors.find(source.folder());
  if (floor == floors.end() || floor->second <= 1) return findings;
  if (direct_open_allowed().contains(source.path)) return findings;
  each_code_line(source, [&](const std::string& line, size_t i) {
    if (!std::regex_search(line, kOpen)) return;
    findings.push_back(at(source, i) + "files are opened through io::Disk");
  });
  return findings;
}

// GCC 12 destroys braced aggregates inside a co_await expression twice.
Findings awaited_braces(const Source& source, const Floors&) {
  Findings findings;
  if (!source.is_code()) return findings;
  std::string code;
  each_code_line(source, [&](const std::string& line, size_t) { code += line + "\n"; });
  const std::string_view word = "co_await ";
  for (size_t i = code.find(word); i != code.npos; i = code.find(word, i + 1)) {
    int depth = 0;  // the call ends where its parentheses are closed
    for (size_t end = i; end < code.size() && code[end] != ';' && depth >= 0; ++end) {
      if (code[end] == '(') ++depth;
      if (code[end] == ')') --depth;
      if (code[end] != '{' || depth <= 0) continue;
      const auto line =
          std::count(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(end), '\n');
      findings.push_back(at(source, static_cast<size_t>(line)) +
                         "name the braced value first, then move it into the awaited call");
      break;
    }
  }
  return findings;
}

using Rule = Findings (*)(const Source&, const Floors&);
constexpr std::array<Rule, 10> kRules = {includes,     sizes,         pragma_once, purpose,
                                         functions,    banned,        unfinished,  file_names,
                                         direct_opens, awaited_braces};

// Only these stand at the top level, beside names that start with a dot.
Findings top_level(const std::vector<std::string>& names) {
  static const std::set<std::string> kAllowed = {
      "CMakeLists.txt", "CMakePresets.json", "cmd",         "core",
      "tests",          "completions",       "man",         "README.md",
      "bootstrap",      "LICENSE",           "CHANGELOG.md"};
  Findings findings;
  for (const std::string& name : names) {
    if (name.starts_with(".") || kAllowed.contains(name)) continue;
    if (name == kBinDir || name.starts_with(std::string(kBinDir) + "-")) continue;
    findings.push_back(name + ": does not belong at the top level");
  }
  return findings;
}

Findings test_folders(const std::vector<std::string>& names, const Floors& floors) {
  Findings findings;
  for (const std::string& name : names) {
    if (floors.contains(name) || own_test_folders().contains(name)) continue;
    findings.push_back("tests/" + name + ": mirrors no folder of core/");
  }
  return findings;
}

// The table names every folder of core/ and none that is not there.
Findings table_matches(const std::vector<std::string>& folders, const Floors& floors) {
  Findings findings;
  for (const std::string& name : folders) {
    if (!floors.contains(name)) findings.push_back("core/" + name + ": not in the floor table");
  }
  for (const auto& [name, floor] : floors) {
    if (std::ranges::find(folders, name) == folders.end()) {
      findings.push_back("core/" + name + ": in the floor table, but not there");
    }
  }
  return findings;
}

// Sources, and what lies beside them: what an editor or a merge has left is none of it.
Findings known_kinds(const std::vector<std::string>& paths) {
  static const std::set<std::string> kKnown = {
      ".cc",  ".c",    ".h",   ".sh",  ".py",   ".cmake", ".proto", ".md", ".supp",
      ".txt", ".json", ".pyc", ".pml", ".html", ".css",   ".js",    ".svg"};
  Findings findings;
  for (const std::string& path : paths) {
    if (kKnown.contains(fs::path(path).extension())) continue;
    findings.push_back(path + ": not a kind of file that belongs here");
  }
  return findings;
}

// The names that a source declares in `namespace {`, but for aliases: two of one type may stand.
std::set<std::string> own_names(const Source& source) {
  static const std::regex kType(R"(^(?:struct|class|enum class|enum|union) (\w+)\b.*)");
  static const std::regex kValue(
      R"(^(?:constexpr|const|std::atomic)\b[^(=]*?\b(\w+)(?: =|\{|\[).*)");
  static const std::regex kFunction(
      R"(^(?!using|return|TEST|INSTANTIATE)\w[\w:<>,&* ]*[\w>&*] (\w+)\(.*)");
  std::set<std::string> names;
  bool own = false;
  for (const std::string& line : lines_of(source.text)) {
    if (line == "namespace {") own = true;
    if (line == "}  // namespace") own = false;
    std::smatch match;
    if (own && (std::regex_match(line, match, kType) || std::regex_match(line, match, kValue) ||
                std::regex_match(line, match, kFunction))) {
      names.insert(match[1]);
    }
  }
  return names;
}

// The types and constants that a header declares for all.
std::set<std::string> public_names(const Source& header) {
  static const std::regex kDeclared(R"(^(?:(?:struct|class|enum class) (\w+)\b.*\{|)"
                                    R"((?:inline )?constexpr\b[^(=]*?\b(\w+)(?: =|\{|\[).*))");
  std::set<std::string> names;
  for (const std::string& line : lines_of(header.text)) {
    std::smatch match;
    if (std::regex_match(line, match, kDeclared)) names.insert(match[1].str() + match[2].str());
  }
  return names;
}

// The compiler gets several sources of a folder at once (CMAKE_UNITY_BUILD): what one keeps to
// itself must not stand in another or in a header of it under the same name, nor be an overload.
Findings shared_names(const std::vector<Source>& sources) {
  static const std::set<std::string> kApart = {"tests/fuzz", "tests/bench"};  // a program each
  std::map<std::string, std::string> owners;                                  // "folder name"
  Findings findings;
  for (const Source& source : sources) {
    if (!source.is_header()) continue;
    const std::string folder = fs::path(source.path).parent_path();
    for (const std::string& name : public_names(source)) {
      owners.try_emplace(folder + " " + name, source.path);
      owners.try_emplace(fmt::format("tests/{} {}", source.folder(), name), source.path);
    }
  }
  for (const Source& source : sources) {
    const std::string folder = fs::path(source.path).parent_path();
    const bool is_test = folder.starts_with("tests/");
    if (!source.path.ends_with(is_test ? "_test.cc" : ".cc") || kApart.contains(folder)) continue;
    for (const std::string& name : own_names(source)) {
      const auto [owner, is_new] = owners.try_emplace(folder + " " + name, source.path);
      if (is_new) continue;
      findings.push_back(fmt::format("{}: {} has a {} already: share it, or rename one",
                                     source.path, owner->second, name));
    }
  }
  return findings;
}

// The tree. --------------------------------------------------------------------------------------

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

Floors tree_floors() { return parse_floors(read(kRoot / "core/README.md")); }

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

// This file quotes what these rules refuse.
bool quoted_here(const Source& source, Rule rule) {
  return source.path == "tests/tidy_test.cc" && (rule == banned || rule == unfinished);
}

TEST(Tidy, EverySourceFollowsEveryRule) {
  const Floors floors = tree_floors();
  const std::vector<Source> sources = tree();
  ASSERT_GT(sources.size(), 20u);
  for (const Source& source : sources) {
    for (const Rule rule : kRules) {
      if (!quoted_here(source, rule)) expect_none(rule(source, floors));
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
  const Floors floors = tree_floors();
  expect_none(table_matches(names_in(kRoot / "core", true), floors));
  expect_none(test_folders(names_in(kRoot / "tests", true), floors));
  expect_none(top_level(names_in(kRoot, false)));
}

TEST(Tidy, SourcesOfAFolderShareNoNames) { expect_none(shared_names(tree())); }

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

// A filter that fits no test runs nothing and passes.
TEST(Tidy, SuitesThatCiFiltersByAreThere) {
  std::string tests;
  for (const Source& source : tree()) {
    if (source.path.starts_with("tests/")) tests += source.text;
  }
  const std::string script = read(kRoot / ".ci/run");
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
  const std::string script = (kRoot / "tests/story/planted.py").string();
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
    EXPECT_TRUE(fs::exists(page)) << page << " is missing; run build/ff help --emit .";
  }
  EXPECT_GE(commands, 2u) << help;
}

// Each rule refuses what it should. ---------------------------------------------------------------

const Floors kSampleFloors = {{"base", 0}, {"io", 1}, {"db", 1}, {"ckpt", 7}};

Findings check(Rule rule, std::string path, std::string text) {
  return rule({std::move(path), std::move(text)}, kSampleFloors);
}

TEST(TidyRule, FloorTable) {
  const Floors floors = parse_floors(
      "| floor | folder | what |\n|---|---|---|\n| 7 | `ckpt/` | x |\n| 0 | `base/` | y |\n");
  EXPECT_EQ(floors, (Floors{{"ckpt", 7}, {"base", 0}}));
  EXPECT_EQ(table_matches({"base", "ckpt"}, floors).size(), 0u);
  EXPECT_EQ(table_matches({"base", "ckpt", "extra"}, floors).size(), 1u);
  EXPECT_EQ(table_matches({"base"}, floors).size(), 1u);
}

TEST(TidyRule, KnownKinds) {
  EXPECT_TRUE(known_kinds({"core/io/a.cc", "core/io/a.h", "tests/demo.sh"}).empty());
  EXPECT_EQ(known_kinds({"core/io/a.cc.orig", "core/io/a.h~", "core/io/core"}).size(), 3u);
}

TEST(TidyRule, Includes) {
  EXPECT_TRUE(check(includes, "core/io/a.cc", "#include \"io/b.h\"\n").empty());
  EXPECT_TRUE(check(includes, "core/io/a.cc", "#include \"base/b.h\"\n#include <db/x>\n").empty());
  EXPECT_TRUE(check(includes, "cmd/a.cc", "#include \"cmd/b.h\"\n").empty());
  EXPECT_TRUE(check(includes, "tests/cli/a.cc", "#include \"cmd/b.h\"\n").empty());
  EXPECT_FALSE(check(includes, "core/base/a.cc", "#include \"io/b.h\"\n").empty());  // up
  EXPECT_FALSE(check(includes, "core/io/a.cc", "#include \"db/b.h\"\n").empty());    // sibling
  EXPECT_FALSE(check(includes, "core/io/a.cc", "  # include \"db/b.h\" // why\n").empty());
  EXPECT_FALSE(check(includes, "core/ckpt/a.cc", "#include \"cmd/b.h\"\n").empty());
  EXPECT_FALSE(check(includes, "core/io/a.cc", "#include \"b.h\"\n").empty());
  EXPECT_FALSE(check(includes, "core/io/a.cc", "#include \"../db/b.h\"\n").empty());
  EXPECT_FALSE(check(includes, "core/net/a.cc", "\n").empty());  // folder without a floor
  EXPECT_FALSE(check(includes, "core/pch.h", "#include \"base/b.h\"\n").empty());
}

TEST(TidyRule, Sizes) {
  std::string lines;
  for (int i = 0; i < 800; ++i) lines += "x\n";
  EXPECT_TRUE(check(sizes, "core/io/a.cc", lines).empty());
  EXPECT_FALSE(check(sizes, "core/io/a.cc", lines + "x\n").empty());
  EXPECT_TRUE(check(sizes, "a.cc", std::string(100, 'x')).empty());
  EXPECT_FALSE(check(sizes, "a.cc", std::string(101, 'x')).empty());
  EXPECT_TRUE(check(sizes, "a.cc", std::string(99, 'x') + "\u00e4").empty());  // 100 characters
}

TEST(TidyRule, PragmaOnce) {
  EXPECT_TRUE(check(pragma_once, "core/io/a.h", "// x\n#pragma once\n").empty());
  EXPECT_FALSE(check(pragma_once, "core/io/a.h", "// #pragma once\nint x;\n").empty());
}

TEST(TidyRule, Purpose) {
  const std::string comment = "// One two three four five six\n// seven eight.\n";
  EXPECT_TRUE(check(purpose, "core/io/none.h", comment + "int x;\n").empty());
  EXPECT_FALSE(check(purpose, "core/io/none.h", "// One two three four five.\nint x;\n").empty());
  EXPECT_FALSE(check(purpose, "core/io/none.h", "#pragma once\n" + comment).empty());
  EXPECT_TRUE(check(purpose, "core/base/clock.cc", "// The clocks of clock.h.\n").empty());
  EXPECT_FALSE(check(purpose, "core/base/clock.cc", "// Clocks.\n").empty());
  EXPECT_FALSE(check(purpose, "bootstrap", "#!/bin/bash\n# Builds.\n").empty());
}

TEST(TidyRule, Functions) {
  const auto function = [](int body) {
    std::string text = "namespace a {\n\nint f(int x,\n      int y) {\n";
    for (int i = 0; i < body; ++i) text += i % 9 == 0 ? "\n#ifdef A\n" : "  g();\n";
    return text + "}\n\n}  // namespace a\n";
  };
  EXPECT_TRUE(check(functions, "core/io/a.cc", function(50)).empty());
  EXPECT_FALSE(check(functions, "core/io/a.cc", function(70)).empty());
  EXPECT_TRUE(check(functions, "core/io/a.cc", function(50) + function(50)).empty());
}

TEST(TidyRule, Banned) {
  for (const std::string text : {"auto t = std::chrono::steady_clock::now();", "int x = rand();",
                                 "std::this_thread::sleep_for(1ms);", "clock_gettime(0, &t);",
                                 "std::random_device d;", "while (co_await event.wait()) {"}) {
    EXPECT_EQ(check(banned, "core/io/a.cc", text).size(), 1u) << text;
  }
  EXPECT_FALSE(check(banned, "tests/io/a.cc", "std::this_thread::sleep_for(1ms);").empty());
  EXPECT_TRUE(check(banned, "core/base/a.cc", "std::this_thread::sleep_for(1ms);").empty());
  EXPECT_TRUE(check(banned, "core/io/a.cc", "f();  // not rand()").empty());
  EXPECT_TRUE(check(banned, "core/io/a.cc", "int operand(int);").empty());
}

TEST(TidyRule, Unfinished) {
  EXPECT_FALSE(check(unfinished, "core/io/a.cc", "// TODO: finish").empty());
  EXPECT_FALSE(check(unfinished, "bootstrap", "# FIXME").empty());
  EXPECT_TRUE(check(unfinished, "core/io/a.cc", "mkdtemp(\"a-XXXXXX\");").empty());
}

TEST(TidyRule, FileNames) {
  for (const std::string path : {"core/io/utils.h", "core/common/a.h", "cmd/json_helper.cc",
                                 "core/ckpt/manager.h", "core/io/file_util.cc"}) {
    EXPECT_FALSE(check(file_names, path, "").empty()) << path;
  }
  EXPECT_TRUE(check(file_names, "core/cluster/manager.h", "").empty());
  EXPECT_TRUE(check(file_names, "core/io/files.h", "").empty());
}

TEST(TidyRule, DirectOpens) {
  for (const std::string text : {"int fd = ::open(path, flags);", "int fd = open(path, O_RDONLY);",
                                 "FILE* f = fopen(p, \"r\");", "std::ifstream in(path);",
                                 "std::filesystem::remove(path);", "openat(dir, name, flags);"}) {
    EXPECT_EQ(check(direct_opens, "core/ckpt/a.cc", text).size(), 1u) << text;
    EXPECT_TRUE(check(direct_opens, "core/io/a.cc", text).empty()) << text;
  }
  for (const std::string text :
       {"FF_TRY(auto file, disk.open(path, {}));", "Store::open(disk, path);",
        "static Result<Store> open(io::Disk& disk);"}) {
    EXPECT_TRUE(check(direct_opens, "core/ckpt/a.cc", text).empty()) << text;
  }
}

TEST(TidyRule, AwaitedBraces) {
  const std::string await = "co_await ";
  EXPECT_FALSE(check(awaited_braces, "core/io/a.cc", await + "f(Options{.x = 1});").empty());
  EXPECT_FALSE(check(awaited_braces, "core/io/a.cc", "auto x = " + await + "f(a,\n {1});").empty());
  EXPECT_TRUE(check(awaited_braces, "core/io/a.cc", await + "f(std::move(x));").empty());
  EXPECT_TRUE(check(awaited_braces, "core/io/a.cc", "if (" + await + "f()) {\n  g();\n}").empty());
}

TEST(TidyRule, SharedNames) {
  const auto twice = [](const std::string& first, const std::string& second) {
    const auto source = [](const std::string& path, const std::string& text) {
      return Source{path, "namespace {\n" + text + "\n}  // namespace\n"};
    };
    return shared_names({source("core/io/a.cc", first), source("core/io/b.cc", second),
                         source("core/net/a.cc", first), source("tests/fuzz/a.cc", first),
                         source("tests/fuzz/b.cc", first)});
  };
  EXPECT_EQ(twice("constexpr size_t kPage = 4;", "constexpr int kPage = 5;  // bytes").size(), 1u);
  EXPECT_EQ(twice("struct Step {\n};", "enum class Step { a };").size(), 1u);
  EXPECT_EQ(twice("Result<void> check(int a) {\n}", "bool check(bool b) { return b; }").size(), 1u);
  EXPECT_EQ(twice("const char* const kAll[] = {\"a\"};", "constexpr int kAll[] = {1};").size(), 1u);
  const Source header{"core/io/a.h", "constexpr size_t kPage = 1;\nstruct Step {\n};\n"};
  const auto hidden = [](const char* text) {
    return Source{"core/io/b.cc", fmt::format("namespace {{\n{}\n}}  // namespace\n", text)};
  };
  EXPECT_EQ(shared_names({hidden("constexpr int kPage = 2;"), header}).size(), 1u);
  EXPECT_EQ(shared_names({header, hidden("class Step {\n};")}).size(), 1u);
  EXPECT_TRUE(shared_names({header, hidden("constexpr int kSteps = 2;")}).empty());
  EXPECT_TRUE(twice("using Words = int;", "using Words = int;").empty());
  EXPECT_TRUE(twice("int a() {\n  int b = c(1);\n}", "int b() {\n  return c(2);\n}").empty());
}

TEST(TidyRule, TopLevelAndTestFolders) {
  EXPECT_TRUE(top_level({"cmd", "core", ".ci", ".gitignore", "build", "build-asan"}).empty());
  EXPECT_EQ(top_level({"scripts", "notes.txt", "buildx"}).size(), 3u);
  EXPECT_TRUE(test_folders({"io", "fuzz", "cli"}, kSampleFloors).empty());
  EXPECT_EQ(test_folders({"stuff"}, kSampleFloors).size(), 1u);
}

}  // namespace
