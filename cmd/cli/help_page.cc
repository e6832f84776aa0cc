// Layout of help: sections of two columns, wrapped at 80 characters on every terminal, so that help
// looks the same in a bug report.
#include "cmd/cli/help_page.h"

#include <algorithm>
#include <array>
#include <map>

#include "cmd/cli/build_info.h"
#include "cmd/cli/parse.h"

namespace ff::cmd {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kLeftMax = 24;  // a longer left side gets a separate line

struct Row {
  std::string left, right;
};

void add_section(std::string& page, std::string_view title, const std::vector<Row>& rows) {
  if (rows.empty()) return;
  page += fmt::format("\n{}:\n", title);
  size_t left = 0;
  for (const Row& row : rows) {
    if (row.left.size() <= kLeftMax) left = std::max(left, row.left.size());
  }
  if (left == 0) left = kLeftMax;
  for (const Row& row : rows) {
    std::string line = "  " + row.left;
    bool on_own_line = row.left.size() > left;
    if (on_own_line) page += line + "\n";
    for (const std::string& piece : wrap(row.right, kWidth - left - 4)) {
      if (line.size() > left + 2 || on_own_line) line.clear();
      on_own_line = false;
      line.resize(left + 4, ' ');
      page += line + piece + "\n";
      line.clear();
    }
  }
}

Row row_of(const Option& option, const std::string& description) {
  // Align names with and without a short form.
  const bool indent = !option.positional() && option.short_name().empty();
  return {(indent ? "    " : "") + option.synopsis(), description};
}

bool is_network(const Option& option) { return option.section_title() == kNetworkOptions; }

// Without the network options, which have a separate section.
std::vector<Row> rows_of(const std::deque<Option>& options) {
  std::vector<Row> rows;
  for (const Option& option : options) {
    if (option.is_hidden() || is_network(option)) continue;
    rows.push_back(row_of(option, describe(option)));
  }
  return rows;
}

// The page of a command explains the options of the network, for its subcommands too; those of
// subcommands refer to it.
void add_network(std::string& page, const Command& command) {
  if (command.parent() == nullptr) {
    std::vector<Row> rows;
    for (const SharedSection& section : shared_sections(command)) {
      if (section.title != kNetworkOptions) continue;
      for (const auto& [option, subs, defaults] : section.options) {
        rows.push_back(row_of(*option, describe(*option, defaults)));
      }
    }
    return add_section(page, kNetworkOptions, rows);
  }
  std::vector<std::string> names;
  for (const Option* option : command.visible_options()) {
    if (is_network(*option)) names.push_back(option->long_name());
  }
  if (names.empty()) return;
  const Command* top = command.parent();
  while (top->parent() != nullptr) top = top->parent();
  page += fmt::format("\n{}, which `ff {} --help` explains:\n", kNetworkOptions, top->name());
  for (const std::string& line : wrap(fmt::format("{}", fmt::join(names, ", ")), kWidth - 2)) {
    page += "  " + line + "\n";
  }
}

// The values of one option in the subcommands that have it.
struct Uses {
  const Option* option = nullptr;
  std::vector<std::string> subs;
  std::map<std::string, std::vector<std::string>> by_default;

  // "30s; logs, run: none": the most frequent default, then the exceptions.
  std::string defaults() const {
    if (by_default.size() < 2) return "";
    const auto fewer = [](const auto& a, const auto& b) {
      return a.second.size() < b.second.size();
    };
    const auto most = std::ranges::max_element(by_default, fewer);
    const auto text = [](const std::string& value) { return value.empty() ? "none" : value; };
    std::string all = text(most->first);
    for (auto one = by_default.begin(); one != by_default.end(); ++one) {
      if (one == most) continue;
      all += fmt::format("; {}: {}", fmt::join(one->second, ", "), text(one->first));
    }
    return all;
  }
};

struct UsesOfSection {
  std::string_view title;
  std::vector<Uses> all;
};

// `sub`: "quota set"; empty for the command itself.
void collect_uses(const Command& command, const std::string& sub,
                  std::vector<UsesOfSection>& sections) {
  for (const Option& option : command.options()) {
    if (option.is_hidden() || option.section_title().empty()) continue;
    auto section = std::ranges::find(sections, option.section_title(), &UsesOfSection::title);
    if (section == sections.end()) {
      section = sections.insert(sections.end(), UsesOfSection{option.section_title(), {}});
    }
    auto uses = std::ranges::find_if(section->all, [&option](const Uses& known) {
      return known.option->long_name() == option.long_name();
    });
    if (uses == section->all.end()) uses = section->all.insert(uses, Uses{&option, {}, {}});
    if (!sub.empty()) uses->subs.push_back(sub);
    uses->by_default[option.binding().default_text].push_back(sub);
  }
  for (const Command* below : command.visible_subs()) {
    collect_uses(*below, sub.empty() ? below->name() : sub + " " + below->name(), sections);
  }
}

void add_about(std::string& page, std::string_view about) {
  for (const Paragraph& paragraph : paragraphs(about)) {
    page += "\n";
    if (paragraph.verbatim) {
      page += paragraph.text + "\n";
    } else {
      for (const std::string& line : wrap(paragraph.text, kWidth)) page += line + "\n";
    }
  }
}

void add_exit_codes(std::string& page) {
  std::vector<Row> rows;
  for (const ExitCode& exit : exit_codes()) {
    rows.push_back({fmt::format("{:>3}", exit.code), std::string(exit.meaning)});
  }
  add_section(page, "Exit codes", rows);
}

void add_examples(std::string& page, const Command& command) {
  if (command.examples().empty()) return;
  page += "\nExamples:\n";
  for (const Example& example : command.examples()) {
    page += fmt::format("  {}\n      {}\n", example.line, example.description);
  }
}

}  // namespace

std::span<const ExitCode> exit_codes() {
  static constexpr std::array<ExitCode, 8> kCodes{{
      {0, "done, and true"},
      {1, "could not be done (I/O, a peer, a missing file)"},
      {2, "wrong usage or configuration"},
      {3, "the answer is bad: fault found, checksum mismatch, wrong sum"},
      {4, "incomplete: some part could not run or be checked (never reported as a pass)"},
      {5, "refused: no permission, wrong key"},
      {6, "deadline passed"},
      {130, "interrupted"},
  }};
  return kCodes;
}

std::vector<std::string> SharedSection::subs() const {
  std::vector<std::string> all;
  for (const SharedOption& option : options) {
    if (option.subs.empty()) return {};
    for (const std::string& sub : option.subs) {
      if (std::ranges::find(all, sub) == all.end()) all.push_back(sub);
    }
  }
  return all;
}

std::vector<SharedSection> shared_sections(const Command& command) {
  std::vector<UsesOfSection> uses;
  collect_uses(command, "", uses);
  std::vector<SharedSection> sections;
  for (const UsesOfSection& used : uses) {
    SharedSection& section = sections.emplace_back(SharedSection{used.title, {}});
    for (const Uses& one : used.all) {
      section.options.push_back({one.option, one.subs, one.defaults()});
    }
  }
  return sections;
}

std::string describe(const Option& option) { return describe(option, ""); }

std::string describe(const Option& option, const std::string& defaults) {
  std::vector<std::string> notes;
  const Binding& binding = option.binding();
  const bool plain_flag = option.is_flag() && binding.default_text == "false";
  const std::string& own = defaults.empty() ? binding.default_text : defaults;
  if (!option.is_required() && !own.empty() && !plain_flag) notes.push_back("default: " + own);
  if (binding.repeatable && !option.positional()) notes.push_back("may repeat");
  if (option.is_required() && !option.positional()) notes.push_back("required");
  if (!option.config_key().empty()) notes.push_back("setting: " + option.config_key());
  if (!option.env_name().empty()) notes.push_back("environment: " + option.env_name());
  if (notes.empty()) return option.description();
  return fmt::format("{} ({})", option.description(), fmt::join(notes, "; "));
}

std::string help_page(const Command& command, HelpForm form) {
  std::string page = fmt::format("{}\n\nUsage: {}\n", command.summary(), usage_line(command));
  const bool full = form == HelpForm::full;
  if (full) add_about(page, command.about());
  std::vector<Row> subs;
  for (const Command* sub : command.visible_subs()) subs.push_back({sub->name(), sub->summary()});
  add_section(page, "Commands", subs);
  add_section(page, "Arguments", rows_of(command.arguments()));
  add_section(page, "Options", rows_of(command.options()));
  if (const Command& alone = command.leaf(); &alone != &command) {
    add_section(page, fmt::format("Options of ff {}, which runs without a command", alone.path()),
                rows_of(alone.options()));
  }
  for (const Command* above = command.parent(); above != nullptr; above = above->parent()) {
    add_section(page, fmt::format("Options of every ff {} command", above->path()),
                rows_of(above->options()));
  }
  add_network(page, command);
  CommonOptions common;
  add_section(page, "Options of every command", rows_of(common_options(common)));
  if (full) {
    add_examples(page, command);
    add_exit_codes(page);
  }
  return page;
}

std::string top_help_page(std::span<const std::unique_ptr<Command>> commands, HelpForm form) {
  std::string page = fmt::format(
      "ff {}: checkpoints, storage, validation and scheduling for training clusters\n\nUsage: ff "
      "COMMAND [OPTIONS]\n",
      kBuildInfo.version);
  add_section(page, "First steps",
              {{"ff up --mount DIR", "Start a cluster on this machine and mount it"},
               {"ff admin status", "Show the health of a cluster"},
               {"ff checkpoint save FILE", "Save a checkpoint"},
               {"ff validate", "Check the hardware of this machine"},
               {"ff schedule submit PROG", "Queue a task for the nodes of a cluster"}});
  std::vector<Row> rows;
  for (const auto& command : commands) rows.push_back({command->name(), command->summary()});
  add_section(page, "Commands", rows);
  CommonOptions common;
  add_section(page, "Options", rows_of(program_options(common)));
  if (form == HelpForm::full) add_exit_codes(page);
  page += "\n`ff help COMMAND` explains a command, `ff help config` lists the settings.\n";
  return page;
}

std::vector<Paragraph> paragraphs(std::string_view about) {
  std::vector<Paragraph> all;
  bool open = false;  // the last paragraph may continue
  while (!about.empty()) {
    const size_t end = std::min(about.find('\n'), about.size());
    const std::string_view line = about.substr(0, end);
    about.remove_prefix(std::min(end + 1, about.size()));
    if (line.empty()) {
      open = false;
      continue;
    }
    const bool verbatim = line[0] == ' ';
    if (open && all.back().verbatim == verbatim) {
      all.back().text += (verbatim ? "\n" : " ") + std::string(line);
    } else {
      all.push_back({verbatim, std::string(line)});
      open = true;
    }
  }
  return all;
}

std::vector<std::string> wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines{""};
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width)
      lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  return lines;
}

}  // namespace ff::cmd
