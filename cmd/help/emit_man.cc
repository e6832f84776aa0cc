// Manual pages in man(7) macros, for man-db and mandoc alike. One page a command holds all of its
// subcommands, since they share options and are read together.
#include <algorithm>
#include <set>

#include "cmd/cli/build_info.h"
#include "cmd/cli/help_page.h"
#include "cmd/cli/parse.h"
#include "cmd/cli/settings.h"
#include "cmd/help/emit.h"
#include "cmd/help/troff.h"

namespace ff::cmd {
namespace {

// The first paragraph follows its heading; the others open with .PP.
void add_about_section(std::string& page, std::string_view about) {
  bool first = true;
  for (const Paragraph& paragraph : paragraphs(about)) {
    if (paragraph.verbatim) {
      page += fmt::format(".PP\n.nf\n{}\n.fi\n", escape(paragraph.text));
    } else {
      page += (first ? "" : ".PP\n") + filled(paragraph.text);
    }
    first = false;
  }
}

std::string entry(const Option& option, const std::string& description) {
  return fmt::format(".TP\n.B {}\n{}", macro_argument(option.synopsis()), filled(description));
}

// In a page without subcommands, only the network options have a separate section.
bool in_section(const Option& option, bool has_subs) {
  return has_subs ? !option.section_title().empty() : option.section_title() == kNetworkOptions;
}

// Without the options that the page explains in a section.
void add_options(std::string& page, const std::deque<Option>& options, bool has_subs = false) {
  for (const Option& option : options) {
    if (option.is_hidden() || in_section(option, has_subs)) continue;
    page += entry(option, describe(option));
  }
}

// ". Only for submit, run." or ". Not for serve.", whichever is shorter. Some of `subs` are `of`.
std::string exception(const std::vector<std::string>& subs, const std::vector<std::string>& of) {
  std::vector<std::string> others = subs;
  std::erase_if(others,
                [&of](const std::string& sub) { return std::ranges::find(of, sub) != of.end(); });
  const bool few = of.size() <= others.size();
  return fmt::format(". {} for {}.", few ? "Only" : "Not", fmt::join(few ? of : others, ", "));
}

void add_shared_options(std::string& page, const Command& command) {
  for (const SharedSection& section : shared_sections(command)) {
    if (!in_section(*section.options.front().option, !command.subs().empty())) continue;
    page += fmt::format(".SS {}\n", macro_argument(section.title));
    const std::vector<std::string> subs = section.subs();
    if (!subs.empty()) {
      page += filled(fmt::format("These options are for {}.", fmt::join(subs, ", ")));
    } else if (!command.subs().empty()) {
      page += "These options are for all subcommands.\n";
    }
    for (const auto& [option, of, defaults] : section.options) {
      std::string description = describe(*option, defaults);
      if (!of.empty() && of.size() < subs.size()) description += exception(subs, of);
      page += entry(*option, description);
    }
    if (section.title == kNetworkOptions) {
      constexpr std::string_view kSettings =
          "The settings net.rdma-* and net.tls-* configure RDMA and TLS: see SETTINGS in ff(1).";
      page += ".PP\n" + filled(kSettings);
    }
  }
}

void add_examples_section(std::string& page, const Command& command) {
  for (const Example& example : command.examples()) {
    page +=
        fmt::format(".TP\n.B {}\n{}", macro_argument(example.line), filled(example.description));
  }
  for (const Command* sub : command.visible_subs()) add_examples_section(page, *sub);
}

void add_exit_status(std::string& page) {
  page += ".SH EXIT STATUS\n";
  for (const ExitCode& exit : exit_codes()) {
    page += fmt::format(".TP\n.B {}\n{}\n", exit.code, escape(exit.meaning));
  }
}

void add_files(std::string& page) {
  page +=
      ".SH FILES\n"
      "Options come from the command line, then from the environment, then from these\n"
      "files, then from their defaults.\n"
      ".TP\n.I \\(ti/.config/ff/ff.toml\nThe settings of a user; XDG_CONFIG_HOME is honoured.\n"
      ".TP\n.I /etc/ff/ff.toml\nThe settings of the machine.\n"
      ".PP\nThe variable FF_CONFIG names one file that stands in for both.\n";
}

std::string heading(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return fmt::format(
      ".\\\" Written by `ff generate docs`; do not edit.\n"
      ".TH {} 1 \"\" {} \"User Commands\"\n",
      macro_argument(upper), macro_argument(fmt::format("ff {}", kBuildInfo.version)));
}

// The subcommands below `command`, each with its own options and arguments.
void add_subcommands(std::string& page, const Command& command) {
  for (const Command* sub : command.visible_subs()) {
    page +=
        fmt::format(".SS {}\n{}", macro_argument(usage_line(*sub)), filled(sub->summary() + "."));
    if (!sub->about().empty()) page += ".PP\n";
    add_about_section(page, sub->about());
    add_options(page, sub->arguments());
    add_options(page, sub->options(), true);
    add_subcommands(page, *sub);
  }
}

void add_environment(std::string& page, std::span<const Option* const> options) {
  std::string entries;
  std::set<std::string> known;
  for (const Option* option : options) {
    if (option->env_name().empty() || !known.insert(option->env_name()).second) continue;
    entries += fmt::format(".TP\n.B {}\nThe value of {} where that is not given.\n",
                           macro_argument(option->env_name()), escape(option->long_name()));
  }
  page += ".SH ENVIRONMENT\n" + entries +
          ".TP\n.B NO_COLOR\nSet to anything: no colour on terminals.\n";
}

void collect_options(const Command& command, std::vector<const Option*>& found) {
  for (const Option& option : command.options()) {
    if (!option.is_hidden()) found.push_back(&option);
  }
  for (const Command* sub : command.visible_subs()) collect_options(*sub, found);
}

std::string command_page(const Command& command) {
  std::string page = heading("ff-" + command.name());
  page += fmt::format(".SH NAME\n{} \\- {}\n", escape("ff-" + command.name()),
                      escape(command.summary()));
  page += ".SH SYNOPSIS\n.nf\n";
  for (const Command* sub : command.visible_subs()) page += escape(usage_line(*sub)) + "\n";
  if (command.subs().empty()) page += escape(usage_line(command)) + "\n";
  page += ".fi\n";
  page += ".SH DESCRIPTION\n";
  if (command.about().empty()) {
    page += filled(command.summary() + ".");
  } else {
    add_about_section(page, command.about());
  }
  if (!command.subs().empty()) {
    page += ".SH COMMANDS\n";
    add_subcommands(page, command);
  }
  page += ".SH OPTIONS\n";
  add_options(page, command.arguments());
  add_options(page, command.options(), !command.subs().empty());
  constexpr std::string_view kEveryCommand =
      "Every command also has --json, --no-header, -q (--quiet), -v (--verbose) and -h (--help): "
      "see ff(1).";
  if (!page.ends_with(".SH OPTIONS\n")) page += ".PP\n";
  page += filled(kEveryCommand);
  add_shared_options(page, command);
  std::vector<const Option*> options;
  collect_options(command, options);
  add_environment(page, options);
  add_files(page);
  add_exit_status(page);
  std::string examples;
  add_examples_section(examples, command);
  if (!examples.empty()) page += ".SH EXAMPLES\n" + examples;
  return page + ".SH SEE ALSO\n.BR ff (1),\n.BR ff (7)\n";
}

// Settings without a visible option.
void add_settings(std::string& page, std::span<const std::unique_ptr<Command>> commands) {
  constexpr std::string_view kSays =
      "These settings are in ff.toml or the environment only. 'ff help config' shows all settings.";
  page += ".SH SETTINGS\n" + filled(kSays);
  for (const Option* option : configurable_options(commands)) {
    if (!option->is_hidden()) continue;
    page += fmt::format(".TP\n.B {}\n{}", macro_argument(option->config_key()),
                        filled(describe(*option)));
  }
}

std::string top_page(std::span<const std::unique_ptr<Command>> commands) {
  std::string page = heading("ff");
  page +=
      ".SH NAME\nff \\- checkpoints, storage, validation and scheduling for training clusters\n"
      ".SH SYNOPSIS\n.nf\nff COMMAND [OPTIONS]\n.fi\n"
      ".SH DESCRIPTION\n"
      "One program with many commands.  A link named after a command, with or without\n"
      ".B ff\\-\nin front, runs that command: see\n.BR \"ff help \\-\\-install\" .\n"
      "Data goes to standard output, talk to standard error; with\n.B \\-\\-json\n"
      "standard output holds one object with the members ff, command, exit, data,\n"
      "warnings and error, also when the command fails.\n"
      ".SH COMMANDS\n";
  for (const auto& command : commands) {
    page += fmt::format(".TP\n.BR {} (1)\n{}", macro_argument("ff-" + command->name()),
                        filled(command->summary()));
  }
  page += ".SH OPTIONS\n";
  CommonOptions common;
  add_options(page, program_options(common));
  page +=
      ".SH UNITS\n"
      "Sizes read as plain bytes, K M G T and KiB MiB GiB TiB (binary),\n"
      "KB MB GB TB (decimal); durations as 500ms, 30s, 5m, 2h, 7d.\n";
  add_settings(page, commands);
  add_environment(page, {});
  add_files(page);
  add_exit_status(page);
  page += ".SH SEE ALSO\n";
  for (const auto& command : commands) {
    page += fmt::format(".BR {} (1),\n", macro_argument("ff-" + command->name()));
  }
  for (const EmittedFile& written : handwritten_pages()) {
    const std::string name = written.path.substr(4, written.path.size() - 6);  // man/NAME.7
    page += fmt::format("{}.BR {} (7)", page.ends_with('\n') ? "" : ",\n", escape(name));
  }
  return page + "\n";
}

}  // namespace

std::vector<EmittedFile> emit_man(std::span<const std::unique_ptr<Command>> commands) {
  std::vector<EmittedFile> files = handwritten_pages();
  files.push_back({"man/ff.1", top_page(commands)});
  for (const auto& command : commands) {
    files.push_back({fmt::format("man/ff-{}.1", command->name()), command_page(*command)});
  }
  return files;
}

}  // namespace ff::cmd
