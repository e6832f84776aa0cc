// fstab.cc: options of an fstab line, sorted into those of mount(8), the kernel and `ff mount`.
#include "cmd/mount/fstab.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cmd/cli/parse.h"
#include "platform/base/text.h"
#include "storage/mount/fuse_device.h"

namespace ff::cmd {
namespace {

using Words = std::vector<std::string>;

// Options that mount(8) and systemd implement, or that have no effect on FUSE mounts of ff.
constexpr auto kIgnored = std::to_array<std::string_view>(
    {"_netdev",  "auto",    "comment",    "defaults",      "group",   "helper",     "iversion",
     "lazytime", "loud",    "noauto",     "nofail",        "nogroup", "noiversion", "nolazytime",
     "nomand",   "noowner", "norelatime", "nostrictatime", "nouser",  "nousers",    "owner",
     "relatime", "rw",      "silent",     "strictatime",   "uhelper", "user",       "users"});

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Splits at commas outside double quotes, and removes the quotes.
Words split_options(std::string_view text) {
  Words all(1);
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      all.emplace_back();
    } else {
      all.back() += c;
    }
  }
  std::erase(all, "");
  return all;
}

const Option* find_option(const Command& mount, std::string_view name) {
  for (const Option* option : mount.all_options()) {
    if (!option->positional() && option->is_named("--" + std::string(name))) return option;
  }
  return nullptr;
}

// The parsed command line of the helper.
struct Line {
  Words operands = {};
  Words options = {};  // of -o
  Words words = {};    // arguments of `ff mount`
  bool sloppy = false;
  bool verbose = false;
};

Result<void> read_letters(std::string_view letters, Line& line) {
  for (const char letter : letters) {
    switch (letter) {
      case 's': line.sloppy = true; break;
      case 'v': line.verbose = true; break;
      case 'f': line.words.emplace_back("--dry-run"); break;
      case 'n': break;  // there is no mtab
      case 'h': line.words.emplace_back("-h"); break;
      default:
        return Error{Errc::usage, fmt::format("unknown option -{}", letter),
                     "Usage: mount.ff SOURCE DIR [-sfnv] [-o OPTION,...]"};
    }
  }
  return {};
}

Result<Line> read_line(Words given) {
  Line line;
  for (size_t at = 0; at < given.size(); at++) {
    const std::string& word = given[at];
    if (word == "-o" || word == "-t" || word == "-N") {
      if (++at == given.size()) return fail(Errc::usage, "{} needs a value", word);
      if (word == "-N") {
        return Error{Errc::usage, "-N: other namespaces are not supported",
                     "Run it there: nsenter --mount=NAMESPACE mount ..."};
      }
      if (word == "-o")
        std::ranges::move(split_options(given[at]), std::back_inserter(line.options));
    } else if (word.starts_with("--")) {
      line.words.push_back(word);  // --help, --json
    } else if (word.size() > 1 && word.starts_with('-')) {
      FF_TRY(read_letters(std::string_view(word).substr(1), line));
    } else {
      line.operands.push_back(word);
    }
  }
  return line;
}

Error unknown(const Command& mount, const std::string& name) {
  Words names(kIgnored.begin(), kIgnored.end());
  names.insert(names.end(), mount::mount_flags().begin(), mount::mount_flags().end());
  for (const Option* option : mount.visible_options()) {
    names.push_back(option->long_name().substr(2));
  }
  return {Errc::usage, fmt::format("unknown mount option '{}'", printable(name)),
          suggestion(name, names, "`ff mount -h` lists those of ff.")};
}

// One option of -o; the kernel's flags are collected.
Result<void> read_option(const Command& mount, const std::string& text, Line& line, Words& flags) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const bool valued = equals != text.npos;
  if (name.starts_with("x-") || name.starts_with("X-") || is_one_of(kIgnored, name)) return {};
  if (is_one_of(mount::mount_flags(), name)) {
    flags.push_back(name);
    return {};
  }
  if (name == "remount") {
    return Error{Errc::usage, "a mount cannot be changed (remount)",
                 "Unmount it, and mount it again."};
  }
  const std::string known = name == "ro"            ? "read-only"
                            : name == "allow_other" ? "allow-other"
                                                    : name;
  const Option* const option = find_option(mount, known);
  if (option == nullptr) return line.sloppy ? Result<void>() : unknown(mount, name);
  if (option->is_flag() && valued) return fail(Errc::usage, "{}: it takes no value", name);
  if (!option->is_flag() && !valued) {
    return fail(Errc::usage, "{}: it needs a value: {}={}", name, name,
                option->binding().placeholder);
  }
  line.words.push_back("--" + known + (valued ? text.substr(equals) : ""));
  return {};
}

}  // namespace

Result<Words> fstab_arguments(const Command& mount, Words given) {
  FF_TRY(Line line, read_line(std::move(given)));
  Words flags;
  for (const std::string& option : line.options) FF_TRY(read_option(mount, option, line, flags));
  Words words = std::move(line.words);
  words.emplace_back("--detach");
  words.emplace_back(line.verbose ? "--verbose" : "--quiet");
  if (!flags.empty()) words.push_back(fmt::format("--options={}", fmt::join(flags, ",")));
  words.emplace_back("--");
  std::ranges::move(line.operands, std::back_inserter(words));
  return words;
}

int fstab_exit_code(Errc code) {
  switch (code) {
    case Errc::usage: return 1;
    case Errc::interrupted: return 8;
    default: return 32;
  }
}

}  // namespace ff::cmd
