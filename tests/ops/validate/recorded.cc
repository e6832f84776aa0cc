// recorded.cc: parses the text of a recorded machine line by line.
#include "ops/validate/recorded.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>

#include "platform/base/check.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/test_bytes.h"

namespace ff::validate {

namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (const std::string_view word : split(text, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

// The values of a `for` line: "0-3" is 0, 1, 2, 3.
std::vector<std::string> turns_of(std::string_view text) {
  std::vector<std::string> turns;
  for (const std::string& word : words_of(text)) {
    const size_t dash = word.find('-');
    const auto first = parse_u64(std::string_view(word).substr(0, dash));
    const auto last =
        dash == word.npos ? first : parse_u64(std::string_view(word).substr(dash + 1));
    if (dash == word.npos || !first || !last) {
      turns.push_back(word);
      continue;
    }
    for (uint64_t i = *first; i <= *last; i++) turns.push_back(fmt::format("{}", i));
  }
  return turns;
}

// The text of one iteration: @1 and @2 are parts of the word, @ is the whole.
std::string turn_of(const std::string& body, const std::string& word) {
  std::string text = body;
  const auto parts = split(word, '/');
  for (size_t i = parts.size(); i-- > 0;) {
    text = replaced(std::move(text), fmt::format("@{}", i + 1), parts[i]);
  }
  return replaced(std::move(text), "@", word);
}

// 11 5c "text" 00*4
std::string bytes_of(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    if (text.front() == ' ') {
      text.remove_prefix(1);
    } else if (text.front() == '"') {
      const size_t close = text.find('"', 1);
      FF_CHECK(close != text.npos);
      bytes.append(text.substr(1, close - 1));
      text.remove_prefix(close + 1);
    } else {
      unsigned value = 0;
      const char* const end = text.data() + std::min<size_t>(2, text.size());
      FF_CHECK(std::from_chars(text.data(), end, value, 16).ptr == text.data() + 2);
      text.remove_prefix(2);
      size_t count = 1;
      if (text.starts_with('*')) {
        const char* const begin = text.data() + 1;
        const auto digits = std::from_chars(begin, text.data() + text.size(), count);
        text.remove_prefix(static_cast<size_t>(digits.ptr - text.data()));
      }
      bytes.append(count, static_cast<char>(value));
    }
  }
  return bytes;
}

// One text that is being expanded.
class Layout {
 public:
  Layout(io::Disk& disk, const std::string& root) : disk_(disk), root_(root) {}

  void read(std::string_view text) {
    std::vector<std::string_view> lines = split(text, '\n');
    for (size_t i = 0; i < lines.size(); i++) {
      std::string_view line = lines[i];
      if (line.empty() || line.starts_with('#')) continue;
      if (line.starts_with("for ")) {
        std::string body;
        while (++i < lines.size() && lines[i] != "end") body.append(lines[i]).append("\n");
        FF_CHECK(i < lines.size());
        for (const std::string& word : turns_of(line.substr(4))) read(turn_of(body, word));
        continue;
      }
      std::string block;
      while (i + 1 < lines.size() && lines[i + 1].starts_with("    ")) {
        block.append(lines[++i].substr(4)).append("\n");
      }
      entry(line, block);
    }
  }

 private:
  void entry(std::string_view line, const std::string& block) {
    constexpr std::string_view kIs = " = ", kLeads = " -> ", kMore = " +=";
    if (line.starts_with("- ")) {
      return FF_CHECK(io::remove_tree(disk_, root_ + std::string(line.substr(2))).ok());
    }
    FF_CHECK(line.starts_with('/'));
    const size_t is = line.find(kIs), leads = line.find(kLeads);
    if (leads < is) {
      const std::string path = make_parent(line.substr(0, leads));
      (void)disk_.remove(path);
      return FF_CHECK(
          disk_.make_symlink(std::string(line.substr(leads + kLeads.size())), path).ok());
    }
    if (is != line.npos) {
      const std::string_view value = line.substr(is + kIs.size());
      const bool is_hex = value.starts_with("hex ");
      return put(line.substr(0, is),
                 is_hex ? bytes_of(value.substr(4)) : std::string(value) + "\n");
    }
    if (line.ends_with('/')) {
      return FF_CHECK(
          io::make_dirs(disk_, root_ + std::string(line.substr(0, line.size() - 1))).ok());
    }
    if (line.ends_with(kMore)) {
      const std::string_view path = line.substr(0, line.size() - kMore.size());
      const std::string full = root_ + std::string(path);
      const auto before = io::read_file(disk_, full, 16 * kMiB);
      return put(path, (before ? *before : "") + block);
    }
    put(line, block);
  }

  std::string make_parent(std::string_view path) {
    std::string full = root_ + std::string(path);
    // The target of a symlink may come later in the text.
    for (size_t at = full.find('/', root_.size() + 1); at != full.npos;
         at = full.find('/', at + 1)) {
      const std::string above = full.substr(0, at);
      const auto target = disk_.read_symlink(above);
      if (target) FF_CHECK(io::make_dirs(disk_, io::join(io::parent(above), *target)).ok());
    }
    FF_CHECK(io::make_dirs(disk_, io::parent(full)).ok());
    return full;
  }

  void put(std::string_view path, const std::string& content) {
    const std::string full = make_parent(path);
    FF_CHECK(io::put(disk_, full, content).ok());
  }

  io::Disk& disk_;
  const std::string root_;
};

}  // namespace

void lay_out(io::Disk& disk, const std::string& root, std::string_view text) {
  Layout(disk, root).read(text);
}

std::string recorded(const std::string& name) {
  std::ifstream file(fmt::format("{}/tests/ops/validate/trees/{}.txt", FF_SOURCE_DIR, name));
  FF_CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ff::validate
