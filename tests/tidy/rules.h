// The rules of the tree that no compiler checks: groups and floors, cycles, sizes, opening
// comments, banned words, what may stand at the top level. Each rule is a function from a source to
// findings. They read text, not syntax: each looks only for what text shows. tidy_test.cc runs all
// of them over the tree; rules_test.cc feeds each samples that it must refuse or let pass.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
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

namespace ff::tidy {

namespace fs = std::filesystem;
using Findings = std::vector<std::string>;

// The tables of core/README.md: which folders there are, and what each group may include.
struct Layout {
  std::map<std::string, int, std::less<>> floors;                  // "platform/io" -> 1
  std::map<std::string, std::set<std::string>, std::less<>> uses;  // "ops" -> {"platform/", ...}
};

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

inline const std::vector<Ban>& bans() {
  static const std::vector<Ban> all = {
      {R"(\b(steady|system|high_resolution)_clock::now)",
       "time comes from ff::Clock",
       {"core/platform/base/", "tests/"}},
      // A library in the programs of others, and the program that loads GPUs, have only libc.
      {R"(\b(clock_gettime|gettimeofday)\s*\()",
       "time comes from ff::Clock",
       {"core/platform/base/", "core/storage/usrbio/", "core/ops/validate/ff_gpu_", "tests/"}},
      {R"(\bthis_thread::sleep_(for|until)\s*\(|\b(usleep|nanosleep)\s*\()",
       "sleep through ff::Clock",
       {"core/platform/base/", "core/ops/validate/ff_gpu_"}},
      {R"(\bs?rand\s*\()", "numbers come from ff::Rng", {}},
      {R"(\brandom_device\b)", "numbers come from ff::Rng", {}},
      {R"(\bwhile\s*\(([^()]|\([^()]*\))*\bco_await\b)",
       "GCC 12 destroys what a loop's condition awaits too early: await it in the body",
       {}},
      {R"(\branges::copy\((?!.*back_inserter))",
       "GCC 12 copies bytes one at a time: std::memcpy",
       {"tests/"}},
  };
  return all;
}

// Above platform/io files are opened through io::Disk. Files that have to do without, and why.
inline const std::map<std::string, std::string>& direct_open_allowed() {
  static const std::map<std::string, std::string> all = {
      {"core/platform/db/database.cc",
       "the lock of a directory of the machine's, for SQLite's own files"},
      {"core/ops/validate/drive_health.cc", "a disk's device, which gets commands and no reads"},
      {"core/ops/validate/kernel_messages.cc", "the kernel's log: a device, one message a read"},
      {"core/storage/mount/fuse_device.cc",
       "the kernel's device and its tables of mounts, which are no data"},
      {"core/storage/mount/fuse_uring.cc", "the kernel's list of CPUs, which is no data"},
      {"core/storage/mount/client_memory.cc", "memory files of programs, under rules of their own"},
      {"core/ops/scheduler/untrusted_dir.cc",
       "a folder whose owner may turn its paths elsewhere meanwhile"},
      {"core/ops/shim/spawn.cc", "between fork and exec, where no Disk can be: it allocates"},
      {"core/lab/bench/files_load.cc", "the system calls of a program are what it measures"},
      {"core/platform/net/shared_region.cc",
       "a nameless file of shared memory, on no disk and without a path"},
  };
  return all;
}

// Folders of tests/ that mirror no folder of core/.
inline const std::set<std::string>& own_test_folders() {
  static const std::set<std::string> all = {"attack", "e2e",  "tidy", "fuzz",
                                            "bench",  "spec", "rdma", "gpu"};
  return all;
}

// Types of core/ that several namespaces define under one name, and why that helps the reader.
// Any other needs a name of its own: a reader should know from the name what it is.
inline const std::map<std::string, std::string, std::less<>>& shared_types_allowed() {
  static const std::map<std::string, std::string, std::less<>> all = {
      {"Entry", "a key with its value, in the map of metadata and in the store of keys and values"},
      {"File", "io::File and client::File are both what POSIX calls an open file"},
      {"History", "of checks on a node, and of operations in a simulation: never used together"},
      {"RequestId", "numbers a retried request; chunk store and namespace each check theirs"},
      {"Store", "of checkpoints, and of keys and values: never used together"},
  };
  return all;
}

struct Source {
  std::string path;  // from the tree's root, "core/platform/io/disk.h"
  std::string text;

  bool is_code() const {
    return path.ends_with(".cc") || path.ends_with(".h") || path.ends_with(".c");
  }
  bool is_header() const { return path.ends_with(".h"); }
  // "core/platform/io/disk.h" -> "platform/io"; empty outside core/ and for files above a folder.
  std::string_view folder() const {
    const std::string_view view = path;
    if (!view.starts_with("core/")) return {};
    const size_t group = view.find('/', 5);
    const size_t folder = group == view.npos ? view.npos : view.find('/', group + 1);
    return folder == view.npos ? std::string_view() : view.substr(5, folder - 5);
  }
};

inline std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

inline std::string at(const Source& source, size_t index) {
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

inline bool starts_with_any(std::string_view path, std::span<const std::string> prefixes) {
  return std::ranges::any_of(prefixes,
                             [&](const auto& prefix) { return path.starts_with(prefix); });
}

// "platform/io" -> "platform"
inline std::string_view group_of(std::string_view folder) {
  return folder.substr(0, folder.find('/'));
}

// Reads the tables: rows "| `ops/` | `platform/`, `training/task/` |" and "| 1 | `platform/io/` |".
inline Layout parse_layout(const std::string& readme) {
  static const std::regex kGroup(R"(^\| *`([a-z]+)/` *\|(.*)\|$)");
  static const std::regex kFolder(R"(^\| *([0-9]) *\| *`([a-z]+/[a-z][a-z0-9]*)/` *\|.*\|$)");
  static const std::regex kUsed("`([a-z]+/(?:[a-z][a-z0-9]*/)?)`");
  Layout layout;
  for (const std::string& line : lines_of(readme)) {
    std::smatch match;
    if (std::regex_match(line, match, kFolder)) layout.floors[match[2]] = std::stoi(match[1]);
    if (!std::regex_match(line, match, kGroup)) continue;
    std::set<std::string>& uses = layout.uses[match[1]];
    const std::string list = match[2];
    for (std::sregex_iterator used(list.begin(), list.end(), kUsed), end; used != end; ++used)
      uses.insert((*used)[1]);
  }
  return layout;
}

// Whether sources of folder `own` may include headers of folder `other`.
inline bool may_include(const Layout& layout, std::string_view own, std::string_view other) {
  const auto from = layout.floors.find(own), to = layout.floors.find(other);
  if (from == layout.floors.end() || to == layout.floors.end()) return false;
  if (own == other) return true;
  if (group_of(own) == group_of(other)) return to->second < from->second;
  const auto uses = layout.uses.find(group_of(own));
  return uses != layout.uses.end() && (uses->second.contains(fmt::format("{}/", group_of(other))) ||
                                       uses->second.contains(fmt::format("{}/", other)));
}

// Rules. -----------------------------------------------------------------------------------------

inline const std::regex& include_line() {
  static const std::regex kInclude(R"re(^\s*#\s*include\s+"([^"]+)".*)re");
  return kInclude;
}

// An include goes to the same folder, to a lower floor of its group, or to what its group may use.
inline Findings includes(const Source& source, const Layout& layout) {
  Findings findings;
  if (!source.path.starts_with("core/")) return findings;
  const std::string_view own = source.folder();
  if (!own.empty() && !layout.floors.contains(own)) {
    return {fmt::format("{}: core/{} is not in the tables of core/README.md", source.path, own)};
  }
  each_code_line(source, [&](const std::string& line, size_t i) {
    std::smatch match;
    if (!std::regex_match(line, match, include_line())) return;
    const Source header{"core/" + match[1].str(), {}};
    if (!layout.floors.contains(header.folder())) {
      findings.push_back(at(source, i) + header.path + " is in no folder of core/README.md");
    } else if (!may_include(layout, own, header.folder())) {
      findings.push_back(at(source, i) + header.path + " is not below this folder");
    }
  });
  return findings;
}

inline Findings sizes(const Source& source, const Layout&) {
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

inline Findings pragma_once(const Source& source, const Layout&) {
  static const std::regex kPragma(R"((^|\n)#pragma once\n)");
  if (!source.is_header() || std::regex_search(source.text, kPragma)) return {};
  return {source.path + ": no #pragma once"};
}

// The comment before the first code says what the file is for. A script's starts with '#'.
inline Findings purpose(const Source& source, const Layout&) {
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
inline Findings functions(const Source& source, const Layout&) {
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

inline Findings banned(const Source& source, const Layout&) {
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

inline Findings unfinished(const Source& source, const Layout&) {
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

// Names that say nothing of what is inside. The cluster manager and the service manager are the
// field's own terms.
inline Findings file_names(const Source& source, const Layout&) {
  static const std::regex kVague("(^|[_/])(utils?|commons?|helpers?|managers?|misc)([_/.]|$)");
  if (!std::regex_search(source.path, kVague) || source.path.starts_with("core/storage/cluster/") ||
      source.path.find("/service_manager") != std::string::npos)
    return {};
  return {source.path + ": name the noun that the file is about"};
}

inline Findings direct_opens(const Source& source, const Layout&) {
  static const std::regex kOpen(
      R"((^|[^\w>])::(open|openat|creat)\(|\b(fopen|openat|creat)\s*\(|\bopen\(.*\bO_[A-Z])"
      R"(|\b(ifstream|ofstream|fstream|filesystem)\b)");
  Findings findings;
  static const std::set<std::string, std::less<>> kBelowDisk = {"platform/base", "platform/io",
                                                                "platform/simd", "storage/usrbio"};
  if (source.folder().empty() || kBelowDisk.contains(source.folder())) return findings;
  if (direct_open_allowed().contains(source.path)) return findings;
  each_code_line(source, [&](const std::string& line, size_t i) {
    if (!std::regex_search(line, kOpen)) return;
    findings.push_back(at(source, i) + "files are opened through io::Disk");
  });
  return findings;
}

// GCC 12 destroys braced aggregates inside a co_await expression twice.
inline Findings awaited_braces(const Source& source, const Layout&) {
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

// A default argument in braces is one more braced aggregate in each awaited call that leaves it
// out.
inline Findings awaited_defaults(const Source& source, const Layout&) {
  static const std::regex kTask(R"(\bTask<[^;{}]*\()");
  static const std::regex kDefault(R"(([\w:<> ]+) \w+ = (\{|\w+\{|\w+\(\)))");
  Findings findings;
  if (!source.is_header()) return findings;
  std::string declaration;
  each_code_line(source, [&](const std::string& line, size_t i) {
    declaration = declaration.empty() ? line : declaration + " " + line;
    std::smatch parameter;
    if (declaration.find("std::function<Task") == declaration.npos &&
        std::regex_search(declaration, kTask) &&
        std::regex_search(declaration, parameter, kDefault) &&
        parameter[1].str().find("std::string") == std::string::npos) {
      findings.push_back(at(source, i) + "no braced default: overload the function, or nullptr");
      declaration.clear();
    }
    if (line.find_first_of(";{}:#") != std::string::npos || line.empty()) declaration.clear();
  });
  return findings;
}

// Where the statement that begins at `begin` ends: at its semicolon, or at a brace before that.
inline size_t statement_end(std::string_view code, size_t begin) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = begin; i < code.size(); ++i) {
    if (code[i] == '\\') {
      ++i;
    } else if (code[i] == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      if (code[i] == '(' || code[i] == '[') ++depth;
      if (code[i] == ')' || code[i] == ']') --depth;
      if (code[i] == '{' || (code[i] == ';' && depth == 0)) return i;
    }
  }
  return code.size();
}

// `auto reading = f(); co_await std::move(reading);` is `co_await f();` unless f() takes a brace.
inline Findings split_awaits(const Source& source, const Layout&) {
  static const std::regex kTask(R"((^|\n) *auto (\w+) =\s)");
  static const std::regex kPlain(
      R"(\s*(FF_CO_TRY\((const )?([\w:<>&*. ]+, *)?|co_return |((const )?[\w:<>&*\[\], .>-]+ = )?|)"
      R"(\(void\))co_await std::move\((\w+)\)[^{]*)");
  Findings findings;
  if (!source.is_code()) return findings;
  std::string code;
  each_code_line(source, [&](const std::string& line, size_t) { code += line + "\n"; });
  for (std::sregex_iterator task(code.begin(), code.end(), kTask), none; task != none; ++task) {
    const auto begin = static_cast<size_t>(task->position() + task->length());
    const size_t end = statement_end(code, begin);
    const std::string call = code.substr(begin, end - begin);
    if (!call.ends_with(')') || call.find_first_of("{?") != call.npos) continue;
    if (call.find("co_await") != call.npos) continue;
    const size_t next_end = statement_end(code, end + 1);
    const std::string next = code.substr(end + 1, next_end - end - 1);
    std::smatch plain;
    if (!std::regex_match(next, plain, kPlain) || plain[6] != (*task)[2]) continue;
    const auto line =
        std::count(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(begin), '\n');
    findings.push_back(at(source, static_cast<size_t>(line)) + "await " + (*task)[2].str() +
                       " where it is made: co_await f()");
  }
  return findings;
}

// Rows "| `Together` | `TaskGroup` |" of core/README.md: names that came out of use, and today's.
inline std::map<std::string, std::string> parse_retired(const std::string& readme) {
  static const std::regex kRow(R"(^\| `([\w-]+)` \| (?:`([^`|]+)`|[^|]+) \|$)");
  std::map<std::string, std::string> retired;
  for (const std::string& line : lines_of(readme)) {
    std::smatch match;
    if (std::regex_match(line, match, kRow)) retired[match[1]] = match[2];
  }
  return retired;
}

// A retired word that begins with a capital names no type of a header; a retired option stands in
// no page, as it may be the alias of today's; any other stands nowhere.
inline Findings retired_words(const Source& source,
                              const std::map<std::string, std::string>& retired) {
  static const std::regex kWord(R"(--[a-z-]+|\w+)");
  static const std::regex kTroffDash(R"(\\-)");
  static const std::regex kType(R"(^(?:class|struct|enum class|enum|using) (\w+))");
  Findings findings;
  const auto refuse = [&](const std::string& word, size_t i) {
    const auto row = retired.find(word);
    if (row == retired.end()) return;
    findings.push_back(at(source, i) + word + " is retired: " + row->second);
  };
  const bool is_page = source.path.starts_with("man/") || source.path == "README.md";
  const std::vector<std::string> lines = lines_of(source.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string line = std::regex_replace(lines[i], kTroffDash, "-");
    std::smatch type;
    if (source.is_header() && std::regex_search(line, type, kType)) refuse(type[1], i);
    for (std::sregex_iterator word(line.begin(), line.end(), kWord), none; word != none; ++word) {
      const bool is_type = std::isupper(static_cast<unsigned char>(word->str()[0])) != 0;
      const bool is_option = word->str().starts_with("--");
      if (!is_type && (!is_option || is_page)) refuse(word->str(), i);
    }
  }
  return findings;
}

// Types that headers of several folders of core/ define under one name.
inline Findings shared_types(const std::vector<Source>& sources) {
  static const std::regex kType(
      R"(^(?:struct|class|enum class|enum) (?:\[\[nodiscard\]\] )?(\w+)[^;]*\{.*$)");
  std::map<std::string, std::map<std::string, std::string>> folders;  // type -> folder -> where
  for (const Source& source : sources) {
    if (!source.is_header() || source.folder().empty()) continue;
    each_code_line(source, [&](const std::string& line, size_t i) {
      std::smatch type;
      if (!std::regex_match(line, type, kType)) return;
      folders[type[1]].try_emplace(std::string(source.folder()), at(source, i));
    });
  }
  Findings findings;
  for (const auto& [type, places] : folders) {
    if (places.size() < 2 || shared_types_allowed().contains(type)) continue;
    findings.push_back(fmt::format("{}{} is also a type of {}", places.begin()->second, type,
                                   std::next(places.begin())->first));
  }
  return findings;
}

using Rule = Findings (*)(const Source&, const Layout&);
constexpr std::array<Rule, 12> kRules = {
    includes,   sizes,      pragma_once,  purpose,        functions,        banned,
    unfinished, file_names, direct_opens, awaited_braces, awaited_defaults, split_awaits};

// Only these stand at the top level, beside names that start with a dot.
inline Findings top_level(const std::vector<std::string>& names) {
  static const std::set<std::string> kAllowed = {
      "CMakeLists.txt", "CMakePresets.json", "cmd",          "core",
      "tests",          "completions",       "man",          "README.md",
      "bootstrap",      "LICENSE",           "CHANGELOG.md", "SECURITY.md"};
  Findings findings;
  for (const std::string& name : names) {
    if (name.starts_with(".") || kAllowed.contains(name)) continue;
    if (name == kBinDir || name.starts_with(std::string(kBinDir) + "-")) continue;
    findings.push_back(name + ": does not belong at the top level");
  }
  return findings;
}

inline Findings test_folders(const std::vector<std::string>& names, const Layout& layout) {
  Findings findings;
  for (const std::string& name : names) {
    if (layout.floors.contains(name) || own_test_folders().contains(name)) continue;
    findings.push_back("tests/" + name + ": mirrors no folder of core/");
  }
  return findings;
}

// The tables name every group and folder of core/ and none that is not there.
inline Findings table_matches(const std::vector<std::string>& folders, const Layout& layout) {
  Findings findings;
  for (const std::string& name : folders) {
    if (!layout.floors.contains(name)) {
      findings.push_back("core/" + name + ": in no table of core/README.md");
    } else if (!layout.uses.contains(group_of(name))) {
      findings.push_back("core/" + name + ": its group is in no table of core/README.md");
    }
  }
  for (const auto& [name, floor] : layout.floors) {
    if (std::ranges::find(folders, name) == folders.end()) {
      findings.push_back("core/" + name + ": in a table of core/README.md, but not there");
    }
  }
  return findings;
}

// Which files each file includes. A header and its .cc are one; so is `store_claim.h`, which
// includes `store.h` and is included by `store.cc`: it is a part of that. Files that include each
// other, directly or through others, lack one that both need.
class FileGraph {
 public:
  explicit FileGraph(const std::vector<Source>& sources) {
    for (const Source& source : sources) {
      if (!source.is_code() || source.path.starts_with("tests/")) continue;
      const std::string own = stem(source.path);
      edges_[own];
      each_code_line(source, [&](const std::string& line, size_t) {
        std::smatch match;
        if (!std::regex_match(line, match, include_line())) return;
        const std::string header = match[1];
        const std::string other = stem(header.starts_with("cmd/") ? header : "core/" + header);
        if (other != own) edges_[own].insert(other);
      });
    }
    join_parts();
  }

  // Each cycle with the files on it.
  Findings cycles() {
    std::vector<std::string> files;
    for (const auto& [file, others] : edges_) files.push_back(file);
    for (const std::string& file : files) visit(file);
    return std::move(findings_);
  }

 private:
  static std::string stem(fs::path path) { return path.replace_extension().string(); }
  void join_parts() {
    std::map<std::string, std::string> whole;  // by part
    for (const auto& [file, others] : edges_) {
      for (const std::string& other : others) {
        const bool is_part = file.starts_with(other + "_") && edges_.contains(other);
        if (is_part && edges_.at(other).contains(file)) whole[file] = other;
      }
    }
    std::map<std::string, std::set<std::string>> joined;
    const auto name = [&](const std::string& file) {
      const auto found = whole.find(file);
      return found == whole.end() ? file : found->second;
    };
    for (const auto& [file, others] : edges_) {
      for (const std::string& other : others) {
        if (name(file) != name(other)) joined[name(file)].insert(name(other));
      }
    }
    edges_ = std::move(joined);
  }
  void visit(const std::string& file) {
    if (!done_.insert(file).second) return;
    way_.push_back(file);
    for (const std::string& other : edges_[file]) {
      const auto on_way = std::ranges::find(way_, other);
      if (on_way == way_.end()) {
        visit(other);
        continue;
      }
      const std::vector<std::string> cycle(on_way, way_.end());
      findings_.push_back(fmt::format("{} -> {}: a cycle", fmt::join(cycle, " -> "), other));
    }
    way_.pop_back();
  }

  std::map<std::string, std::set<std::string>> edges_;
  std::set<std::string> done_;
  std::vector<std::string> way_;
  Findings findings_;
};

// Sources, and what lies beside them: what an editor or a merge has left is none of it.
inline Findings known_kinds(const std::vector<std::string>& paths) {
  static const std::set<std::string> kKnown = {
      ".cc",   ".c",   ".h",   ".sh",   ".py",  ".cmake", ".proto", ".md", ".supp", ".txt",
      ".json", ".pyc", ".pml", ".html", ".css", ".js",    ".svg",   ".cu", ".ptx"};
  Findings findings;
  for (const std::string& path : paths) {
    if (kKnown.contains(fs::path(path).extension())) continue;
    findings.push_back(path + ": not a kind of file that belongs here");
  }
  return findings;
}

// The names that a source declares in `namespace {`, but for aliases: two of one type may stand.
inline std::set<std::string> own_names(const Source& source) {
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
inline std::set<std::string> public_names(const Source& header) {
  static const std::regex kDeclared(R"(^(?:(?:struct|class|enum class) (\w+)\b.*\{|)"
                                    R"((?:inline )?constexpr\b[^(=]*?\b(\w+)(?: =|\{|\[).*))");
  std::set<std::string> names;
  for (const std::string& line : lines_of(header.text)) {
    std::smatch match;
    if (std::regex_match(line, match, kDeclared)) names.insert(match[1].str() + match[2].str());
  }
  return names;
}

// The folder whose sources are compiled together; cmd/ is one with all below it.
inline std::string unit_of(const Source& source) {
  return source.path.starts_with("cmd/") ? "cmd" : fs::path(source.path).parent_path().string();
}

// The compiler gets several sources of a folder at once (CMAKE_UNITY_BUILD): what one keeps to
// itself must not stand in another or in a header of it under the same name, nor be an overload.
inline Findings shared_names(const std::vector<Source>& sources) {
  static const std::set<std::string> kApart = {"tests/fuzz", "tests/bench"};  // a program each
  std::map<std::string, std::string> owners;                                  // "folder name"
  Findings findings;
  for (const Source& source : sources) {
    if (!source.is_header()) continue;
    const std::string folder = unit_of(source);
    for (const std::string& name : public_names(source)) {
      owners.try_emplace(folder + " " + name, source.path);
      owners.try_emplace(fmt::format("tests/{} {}", source.folder(), name), source.path);
    }
  }
  for (const Source& source : sources) {
    const std::string folder = unit_of(source);
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

}  // namespace ff::tidy
