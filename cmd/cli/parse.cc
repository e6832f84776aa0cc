// CLI11 splits the line: long and short forms, `--name=value`, clusters of flags, `--`. It gets one
// flat list of options, all as text, and returns operands and unknown words. This file handles
// subcommands, positions, types, defaults and messages, so that a file called `load` is not
// mistaken for a subcommand and every error names the next step.
#include "cmd/cli/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cmd/cli/settings.h"
#include "platform/base/text.h"

namespace ff::cmd {
namespace {

bool looks_like_option(std::string_view word) { return word.size() > 1 && word[0] == '-'; }

// An option and its values on the line, in order.
struct Slot {
  const Option* option;
  CLI::Option* parsed;
};

// All options of `leaf`, the common ones last.
std::vector<const Option*> options_of(const Command& leaf, const std::deque<Option>& common) {
  std::vector<const Option*> all = leaf.all_options();
  for (const Option& option : common) all.push_back(&option);
  return all;
}

CLI::Option* add_to(CLI::App& app, const Option& option) {
  std::string names = option.long_name();
  if (!option.short_name().empty()) names = option.short_name() + "," + names;
  if (option.negatable()) names += ",!--no-" + option.long_name().substr(2);
  for (const std::string& old : option.aliases()) {
    names += "," + old;
    if (option.negatable() && old.starts_with("--")) names += ",!--no-" + old.substr(2);
  }
  if (option.is_flag()) {
    return app.add_flag(names)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  return app.add_option(names, [](const CLI::results_t&) { return true; })
      ->type_size(1)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

// `--name=` means an empty value; CLI11 would use the next word.
void split_empty_values(const std::vector<const Option*>& options, std::vector<std::string>& args) {
  for (size_t at = 0; at < args.size() && args[at] != "--"; ++at) {
    for (const Option* option : options) {
      const std::string& word = args[at];
      const bool is_empty = word.starts_with("--") && word.ends_with('=');
      if (is_empty && !option->is_flag() &&
          option->is_named(std::string_view(word).substr(0, word.size() - 1))) {
        args[at].pop_back();
        args.insert(args.begin() + static_cast<ptrdiff_t>(++at), "");
        break;
      }
    }
  }
}

Error unknown_option(const Command& leaf, const std::vector<const Option*>& options,
                     const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> names;
  for (const Option* option : options) {
    if (option->is_hidden()) continue;
    names.push_back(option->long_name());
    if (option->negatable()) names.push_back("--no-" + option->long_name().substr(2));
  }
  return {Errc::usage, fmt::format("unknown option {}", name),
          suggestion(name, names, fmt::format("`ff {} -h` lists the options.", leaf.path()))};
}

Error missing(const Command& leaf, const Option& option) {
  std::string hint = "Usage: " + usage_line(leaf);
  if (!option.positional()) {
    hint = fmt::format("Give {} {}", option.long_name(), option.binding().placeholder);
    if (!option.env_name().empty()) hint += fmt::format(", or set {}", option.env_name());
    if (!option.config_key().empty()) {
      const size_t dot = option.config_key().rfind('.');
      hint += fmt::format(", or put `{} = ...` under [{}] in ~/.config/ff/ff.toml",
                          option.config_key().substr(dot + 1), option.config_key().substr(0, dot));
    }
    hint += ".";
  }
  return {Errc::usage, fmt::format("{} is missing", option.long_name()), std::move(hint)};
}

// Assigns operands to arguments, in order; a list takes the rest.
Result<void> assign_arguments(const Command& leaf, std::span<const std::string> operands) {
  for (const Option& argument : leaf.arguments()) {
    const size_t take =
        argument.binding().repeatable ? operands.size() : std::min<size_t>(1, operands.size());
    if (take == 0) {
      if (argument.is_required()) return missing(leaf, argument);
      continue;
    }
    FF_TRY(assign(argument, operands.first(take), argument.long_name()));
    operands = operands.subspan(take);
  }
  if (!operands.empty()) {
    return Error{Errc::usage, fmt::format("unexpected argument '{}'", operands.front()),
                 "Usage: " + usage_line(leaf)};
  }
  return {};
}

// Options not on the line: uses the environment and files, and checks for missing values.
Result<void> assign_rest(const Command& leaf, std::span<const Slot> slots,
                         std::span<const std::unique_ptr<Command>> commands) {
  auto is_configurable = [](const Slot& slot) {
    return !slot.option->config_key().empty() || !slot.option->env_name().empty();
  };
  std::optional<Settings> settings;
  // A command without settings runs even if the files are invalid.
  if (std::any_of(slots.begin(), slots.end(), is_configurable)) {
    FF_TRY(settings, Settings::load(commands));
  }
  for (const Slot& slot : slots) {
    if (slot.parsed->count() > 0) continue;
    const std::optional<SettingValue> given =
        settings ? settings->find(*slot.option) : std::nullopt;
    if (given) {
      FF_TRY(assign(*slot.option, std::span(&given->text, 1), given->source));
    } else if (slot.option->is_required()) {
      return missing(leaf, *slot.option);
    }
  }
  return {};
}

// The words that CLI11 left: operands, and before a `--` also unknown options.
Result<std::vector<std::string>> operands_of(const Command& leaf,
                                             const std::vector<const Option*>& options,
                                             std::vector<std::string> remaining) {
  std::vector<std::string> operands;
  bool only_operands = false;
  for (std::string& word : remaining) {
    if (!only_operands && word == "--") {
      only_operands = true;
    } else if (!only_operands && looks_like_option(word)) {
      return unknown_option(leaf, options, word);
    } else {
      operands.push_back(std::move(word));
    }
  }
  return operands;
}

// "--nodes" and "-n", and a cluster of flags that ends in such a letter.
bool takes_next_word(const std::vector<const Option*>& options, const std::string& word) {
  const auto is_flag = [&](const auto& is_it) {
    const auto known = std::find_if(options.begin(), options.end(), is_it);
    return known == options.end() || (*known)->is_flag();
  };
  if (word.starts_with("--")) {
    return !is_flag([&](const Option* option) { return option->is_named(word); });
  }
  for (size_t at = 1; at < word.size(); ++at) {
    const std::string name = std::string("-") + word[at];
    if (is_flag([&](const Option* option) { return option->is_named(name); })) continue;
    return at + 1 == word.size();  // else the rest of the word is its value
  }
  return false;
}

}  // namespace

std::deque<Option> common_options(CommonOptions& common) {
  Output::Mode& mode = common.mode;
  std::deque<Option> options;
  options.emplace_back("--json", flag(mode.json), "Print one JSON object instead of text");
  options.emplace_back("--no-header", flag(mode.no_header), "Print tables without the header line");
  options.emplace_back("-q,--quiet", flag(mode.quiet), "Print no notes and no progress bar");
  options.emplace_back("-v,--verbose", flag(mode.verbose), "Print more about each step");
  options.emplace_back("-h,--help", flag(common.help), "Print help: -h in short, --help in full");
  return options;
}

std::deque<Option> program_options(CommonOptions& common) {
  std::deque<Option> options = common_options(common);
  options.emplace_back("--version", flag(common.version), "Print version, commit and build type");
  return options;
}

Result<void> resolve_subcommand(const Command*& reached, std::vector<std::string>& args) {
  CommonOptions common;
  const std::deque<Option> common_table = common_options(common);
  const std::string* unknown = nullptr;  // the last option, if unknown
  for (size_t at = 0; at < args.size() && !reached->subs().empty(); ++at) {
    const std::string& word = args[at];
    if (word == "--") break;
    const std::vector<const Option*> options = options_of(*reached, common_table);
    if (looks_like_option(word)) {
      const std::string name = word.substr(0, word.find('='));
      const auto is_it = [&](const Option* option) { return option->is_named(name); };
      const auto known = std::find_if(options.begin(), options.end(), is_it);
      unknown = known == options.end() && word.starts_with("--") ? &word : nullptr;
      // The value of an option that takes one is the next word.
      if (known != options.end() && !(*known)->is_flag() && name == word) ++at;
      continue;
    }
    const Command* sub = reached->find(word);
    if (sub == nullptr && unknown != nullptr) return unknown_option(*reached, options, *unknown);
    if (sub == nullptr) {
      std::vector<std::string> names;
      for (const Command* known : reached->visible_subs()) names.push_back(known->name());
      return Error{
          Errc::usage, fmt::format("unknown command '{}'", word),
          suggestion(word, names, fmt::format("`ff {} -h` lists the commands.", reached->path()))};
    }
    reached = sub;
    unknown = nullptr;
    args.erase(args.begin() + static_cast<ptrdiff_t>(at));
    --at;
  }
  return {};
}

void insert_option_end(const Command& leaf, std::vector<std::string>& args) {
  if (!leaf.has_command_line()) return;
  CommonOptions common;
  const std::deque<Option> common_table = common_options(common);
  const std::vector<const Option*> options = options_of(leaf, common_table);
  for (size_t at = 0; at < args.size() && args[at] != "--"; ++at) {
    const std::string& word = args[at];
    if (!looks_like_option(word)) {
      args.insert(args.begin() + static_cast<ptrdiff_t>(at), "--");
      return;
    }
    if (takes_next_word(options, word)) ++at;
  }
}

Result<void> parse(const Command& leaf, std::vector<std::string> args,
                   std::span<const std::unique_ptr<Command>> commands, CommonOptions& common) {
  if (!leaf.subs().empty()) {
    std::vector<std::string_view> names;
    for (const Command* sub : leaf.visible_subs()) names.push_back(sub->name());
    return Error{Errc::usage, "a command is missing",
                 fmt::format("One of: {}. `ff {} -h` says what they do.", fmt::join(names, ", "),
                             leaf.path())};
  }
  const std::deque<Option> common_table = common_options(common);
  const std::vector<const Option*> options = options_of(leaf, common_table);
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::vector<Slot> slots;
  for (const Option* option : options) slots.push_back({option, add_to(app, *option)});

  split_empty_values(options, args);
  const std::string last = args.empty() ? "" : args.back();
  try {
    std::reverse(args.begin(), args.end());  // CLI11 takes words from the back
    app.parse(std::move(args));
  } catch (const CLI::ArgumentMismatch&) {
    return fail(Errc::usage, "{} needs a value", last);
  } catch (const CLI::Error& error) {
    return fail(Errc::usage, "{}", error.what());
  }
  FF_TRY(auto operands, operands_of(leaf, options, app.remaining()));
  for (const Slot& slot : slots) {
    std::span<const std::string> texts = slot.parsed->results();
    if (texts.empty()) continue;
    if (!slot.option->binding().repeatable) texts = texts.last(1);
    FF_TRY(assign(*slot.option, texts, slot.option->long_name()));
  }
  if (common.help) return {};
  if (common.mode.quiet && common.mode.verbose) {
    return fail(Errc::usage, "--quiet and --verbose exclude each other");
  }
  FF_TRY(assign_arguments(leaf, operands));
  return assign_rest(leaf, slots, commands);
}

std::string usage_line(const Command& command) {
  std::string line = "ff " + command.path();
  const bool alone = &command.leaf() != &command;
  if (!command.subs().empty())
    return line + (alone ? " [COMMAND] [OPTIONS]" : " COMMAND [OPTIONS]");
  for (const Option* option : command.all_options()) {
    if (option->is_required()) line += " " + option->synopsis();
  }
  line += " [OPTIONS]";
  for (const Option& argument : command.arguments()) {
    line += argument.is_required() ? " " + argument.synopsis() : " [" + argument.synopsis() + "]";
  }
  return line;
}

bool has_word(std::span<const std::string> args, std::string_view word) {
  const auto end = std::find(args.begin(), args.end(), "--");
  return std::find(args.begin(), end, word) != end;
}

std::string suggestion(std::string_view word, std::span<const std::string> candidates,
                       std::string see) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? see : fmt::format("Did you mean {}? {}", near, see);
}

}  // namespace ff::cmd
