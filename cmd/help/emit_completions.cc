// Shell completions. Each script holds the tables as data (subcommands, options, what a value or an
// argument is) and a few lines of shell that find the position of the cursor. They run no program,
// so that completion is fast and does not depend on the ff in PATH.
#include "cmd/cli/parse.h"
#include "cmd/help/emit.h"
#include "platform/base/text.h"

namespace ff::cmd {
namespace {

using Commands = std::span<const std::unique_ptr<Command>>;

constexpr std::string_view kWritten = "# Written by `ff generate docs`; do not edit.\n";

// Every command with a run() or subcommands, parents first.
void collect(const Command& command, std::vector<const Command*>& all) {
  all.push_back(&command);
  for (const Command* sub : command.visible_subs()) collect(*sub, all);
}

std::vector<const Command*> every_command(Commands commands) {
  std::vector<const Command*> all;
  for (const auto& command : commands) collect(*command, all);
  return all;
}

std::string names_of(Commands commands) {
  std::vector<std::string> names;
  for (const auto& command : commands) names.push_back(command->name());
  return fmt::format("{}", fmt::join(names, " "));
}

std::string names_of_subs(const Command& command) {
  std::vector<std::string> names;
  for (const Command* sub : command.visible_subs()) names.push_back(sub->name());
  return fmt::format("{}", fmt::join(names, " "));
}

std::string replaced(std::string_view text, std::string_view mark, std::string_view with) {
  std::string out(text);
  for (size_t at = out.find(mark); at != std::string::npos; at = out.find(mark, at + with.size())) {
    out.replace(at, mark.size(), with);
  }
  return out;
}

// The long and short forms, and --no-NAME where there is one.
std::vector<std::string> forms(const Option& option) {
  std::vector<std::string> all{option.long_name()};
  if (!option.short_name().empty()) all.push_back(option.short_name());
  if (option.negatable()) all.push_back("--no-" + option.long_name().substr(2));
  return all;
}

// ---- bash -------------------------------------------------------------------------------------

// Completion types of the shell code below: file, dir, any (no proposals), command, or words.
std::string bash_kind(const Binding& binding) {
  switch (binding.kind) {
    case Kind::file: return "file";
    case Kind::dir: return "dir";
    case Kind::command: return "command";
    case Kind::choice: return fmt::format("{}", fmt::join(binding.choices, "|"));
    default: return "any";
  }
}

constexpr std::string_view kBashCode = R"(
# Completes the word under the cursor as a value of this kind.
_ff_offer() {
  case $1 in
    any) ;;
    file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    dir) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$2") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "${1//|/ }" -- "$2") ;;
  esac
}

_ff() {
  local cur=${COMP_WORDS[COMP_CWORD]} path= topic= value= options=1 operands=0 word i reply
  local program=${COMP_WORDS[0]##*/}
  COMPREPLY=()
  [[ $program == ff-* ]] && path=${program#ff-}
  [[ $cur == '=' ]] && cur=
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == '=' ]]; then
      continue
    elif [[ -n $value ]]; then
      value=
    elif [[ $options == 1 && $word == -- ]]; then
      options=0
    elif [[ $options == 1 && $word == -?* ]]; then
      _ff_value "$path" "$word"
      value=$reply
    else
      _ff_subs "$path"
      if [[ " $reply " == *" $word "* ]]; then
        path="${path:+$path }$word"
      else
        operands=$((operands + 1))
        topic="${topic:+$topic }$word"
      fi
    fi
  done
  if [[ -n $value ]]; then
    _ff_offer "$value" "$cur"
  elif [[ $options == 1 && $cur == -* ]]; then
    _ff_options "$path"
    _ff_offer "$reply" "$cur"
  else
    _ff_subs "$path"
    if [[ -z $reply ]]; then
      _ff_argument "$path" "$operands"
      if [[ $reply == command ]]; then
        _ff_subs "$topic"
        [[ -z $topic ]] && reply+=' @TOPICS@'
      fi
    fi
    _ff_offer "${reply:-any}" "$cur"
  fi
}

)";

std::string bash_case(std::string_view pattern, std::string_view reply) {
  return fmt::format("    {}) reply={} ;;\n", pattern, shell_quote(reply));
}

std::string bash_script(Commands commands, std::string_view topics) {
  CommonOptions common;
  const std::deque<Option> common_table = common_options(common);
  std::string subs = bash_case("''", names_of(commands));
  std::string options, values, arguments;
  std::vector<std::string> bare;
  for (const Option& option : program_options(common)) {
    for (const std::string& form : forms(option)) bare.push_back(form);
  }
  options += bash_case("''", fmt::format("{}", fmt::join(bare, " ")));
  for (const Command* command : every_command(commands)) {
    const std::string path = command->path();
    if (!command->subs().empty()) subs += bash_case(shell_quote(path), names_of_subs(*command));
    std::vector<const Option*> all = command->visible_options();
    for (const Option& option : common_table) all.push_back(&option);
    std::vector<std::string> words;
    for (const Option* option : all) {
      for (const std::string& form : forms(*option)) {
        words.push_back(form);
        if (option->is_flag()) continue;
        values += bash_case(shell_quote(path + " " + form), bash_kind(option->binding()));
      }
    }
    options += bash_case(shell_quote(path), fmt::format("{}", fmt::join(words, " ")));
    size_t position = 0;
    for (const Option& argument : command->arguments()) {
      const std::string at = argument.binding().repeatable ? "*" : fmt::format("{}", position++);
      arguments += bash_case(shell_quote(path + " ") + at, bash_kind(argument.binding()));
    }
  }
  const auto function = [](std::string_view name, std::string_view key, std::string_view cases) {
    return fmt::format("{}() {{\n  reply=\n  case {} in\n{}  esac\n}}\n", name, key, cases);
  };
  std::string script = "# Completions of ff for bash.\n" + std::string(kWritten) + "\n";
  script += "# Each sets `reply` from the tables.\n";
  script += function("_ff_subs", "\"$1\"", subs) + function("_ff_options", "\"$1\"", options);
  script += function("_ff_value", "\"$1 $2\"", values);
  script += function("_ff_argument", "\"$1 $2\"", arguments);
  script += replaced(kBashCode, "@TOPICS@", topics);
  script += "complete -F _ff ff";
  for (const auto& command : commands) script += " ff-" + command->name();
  return script + "\n";
}

// ---- zsh --------------------------------------------------------------------------------------

// For the inside of `[...]` and `name:...`, before quoting.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const Binding& binding) {
  switch (binding.kind) {
    case Kind::file: return "_files";
    case Kind::dir: return "_files -/";
    case Kind::command: return "_ff__topics";
    case Kind::choice: return fmt::format("({})", fmt::join(binding.choices, " "));
    default: return " ";
  }
}

// One specification of _arguments, on a separate line.
std::string zsh_spec(std::string_view spec) { return " \\\n    " + shell_quote(spec); }

void zsh_option(std::string& out, const Option& option) {
  const Binding& binding = option.binding();
  const std::vector<std::string> all = forms(option);
  const std::string others = binding.repeatable ? "*" : fmt::format("({})", fmt::join(all, " "));
  for (const std::string& form : all) {
    std::string spec = others + form;
    if (!option.is_flag() && form.starts_with("--")) spec += "=";
    spec += fmt::format("[{}]", zsh_text(option.description()));
    if (!option.is_flag()) {
      spec += fmt::format(":{}:{}", zsh_text(binding.placeholder), zsh_action(binding));
    }
    out += zsh_spec(spec);
  }
}

std::string zsh_function(const Command& command) {
  return "_ff_" + replaced(replaced(command.path(), " ", "_"), "-", "_");
}

// `_describe` of names with summaries.
template <class Names>
std::string zsh_describe(const Names& names, std::string_view indent) {
  std::string out = fmt::format("{}local -a names=(\n", indent);
  for (const auto& [name, summary] : names) {
    out += fmt::format("{}  {}\n", indent, shell_quote(name + ":" + zsh_text(summary)));
  }
  return out + fmt::format("{}); _describe -t commands command names\n", indent);
}

using Names = std::vector<std::pair<std::string, std::string>>;

// A command with subcommands: options, then the subcommand, then the function of that.
std::string zsh_level(std::string_view function, std::string_view options, const Names& names,
                      std::string_view cases) {
  std::string out = fmt::format(
      "{}() {{\n  local curcontext=$curcontext state line\n  local -A opt_args\n"
      "  _arguments -C -s{}{}{}\n"
      "  case $state in\n    command)\n",
      function, options, zsh_spec("1: :->command"), zsh_spec("*:: :->rest"));
  out += zsh_describe(names, "      ");
  out += fmt::format(
      "      ;;\n    rest)\n      case $line[1] in\n{}      esac\n      ;;\n  esac\n}}\n", cases);
  return out;
}

std::string zsh_command(const Command& command, const std::deque<Option>& common_table) {
  std::string options;
  for (const Option* option : command.visible_options()) zsh_option(options, *option);
  for (const Option& option : common_table) zsh_option(options, option);
  if (command.subs().empty()) {
    size_t position = 0;
    for (const Option& argument : command.arguments()) {
      const std::string where = argument.binding().repeatable ? "*" : fmt::format("{}", ++position);
      const std::string colon =
          argument.is_required() || argument.binding().repeatable ? ":" : "::";
      options += zsh_spec(where + colon + zsh_text(argument.long_name()) + ":" +
                          zsh_action(argument.binding()));
    }
    return fmt::format("{}() {{\n  _arguments -s -S{}\n}}\n", zsh_function(command), options);
  }
  Names names;
  std::string cases;
  for (const Command* sub : command.visible_subs()) {
    names.emplace_back(sub->name(), sub->summary());
    cases += fmt::format("        {}) {} ;;\n", sub->name(), zsh_function(*sub));
  }
  return zsh_level(zsh_function(command), options, names, cases);
}

std::string zsh_script(Commands commands, const std::vector<std::string>& topics) {
  CommonOptions common;
  const std::deque<Option> common_table = common_options(common);
  std::string script = "#compdef ff";
  for (const auto& command : commands) script += " ff-" + command->name();
  script += "\n# Completions of ff for zsh.\n" + std::string(kWritten) + "\n";
  std::string options;
  for (const Option& option : program_options(common)) zsh_option(options, option);
  Names names;
  std::string cases, links;
  for (const auto& command : commands) {
    names.emplace_back(command->name(), command->summary());
    const std::string function = zsh_function(*command);
    cases += fmt::format("        {}) {} ;;\n", command->name(), function);
    links += fmt::format("    ff-{}) {} ;;\n", command->name(), function);
  }
  script += zsh_level("_ff__top", options, names, cases);
  for (const Command* command : every_command(commands)) {
    script += zsh_command(*command, common_table);
  }
  for (const std::string& topic : topics) names.emplace_back(topic, "A topic of its own");
  script += "# Commands as words of `ff help`: those below the words before the cursor.\n";
  script += "_ff__topics() {\n  local -a before=(${${words[2,CURRENT-1]}:#-*})\n";
  script += "  case \"$before\" in\n    '')\n" + zsh_describe(names, "      ") + "      ;;\n";
  for (const Command* command : every_command(commands)) {
    if (command->subs().empty()) continue;
    Names subs;
    for (const Command* sub : command->visible_subs())
      subs.emplace_back(sub->name(), sub->summary());
    script += fmt::format("    {})\n{}      ;;\n", shell_quote(command->path()),
                          zsh_describe(subs, "      "));
  }
  script += "  esac\n}\n";
  script += "_ff() {\n  case $service in\n" + links + "    *) _ff__top ;;\n  esac\n}\n\n";
  script += "# Autoloaded from fpath, or sourced.\n";
  script += "if [[ $funcstack[1] == _ff ]]; then\n  _ff \"$@\"\nelse\n  compdef _ff ff";
  for (const auto& command : commands) script += " ff-" + command->name();
  return script + "\nfi\n";
}

// ---- fish -------------------------------------------------------------------------------------

constexpr std::string_view kFishCode = R"(
# The commands on the line before the cursor are exactly these.
function __ff_at
    set -l path ''
    set -l value no
    for word in (commandline -opc)[2..-1]
        if test $value = yes
            set value no
        else if contains -- $word (__ff_valued "$path")
            set value yes
        else if contains -- $word (__ff_subs "$path")
            set path (string trim -- "$path $word")
        end
    end
    test "$path" = "$argv[1]"
end

# Commands as words of `ff help`: those below the words before the cursor.
function __ff_topics
    set -l words (string match -v -- '-*' (commandline -opc)[3..-1])
    __ff_subs "$words"
    if test -z "$words"
        printf '%s\n' @TOPICS@
    end
end

complete -c ff -f
)";

std::string fish_quoted(std::string_view text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

// Values for `complete`: -x proposes no files, -r does.
std::string fish_value(const Binding& binding) {
  switch (binding.kind) {
    case Kind::flag: return "";
    case Kind::file: return " -r -F";
    case Kind::dir: return " -x -a '(__fish_complete_directories)'";
    case Kind::choice: return fmt::format(" -x -a '{}'", fmt::join(binding.choices, " "));
    default: return " -x";
  }
}

std::string fish_option(const std::string& at, const Option& option) {
  std::string line = fmt::format("complete -c ff -n {} -l {}", at, option.long_name().substr(2));
  if (!option.short_name().empty()) line += " -s " + option.short_name().substr(1);
  line += fish_value(option.binding()) + " -d " + fish_quoted(option.description()) + "\n";
  if (option.negatable()) {
    line += fmt::format("complete -c ff -n {} -l no-{} -d {}\n", at, option.long_name().substr(2),
                        fish_quoted("Not: " + option.description()));
  }
  return line;
}

std::string fish_argument(const std::string& at, const Option& argument) {
  const std::string line = fmt::format("complete -c ff -n {}", at);
  switch (argument.binding().kind) {
    case Kind::file: return line + " -F\n";
    case Kind::dir: return line + " -a '(__fish_complete_directories)'\n";
    case Kind::command: return line + " -a '(__ff_topics)'\n";
    case Kind::choice:
      return line + fmt::format(" -a '{}'\n", fmt::join(argument.binding().choices, " "));
    default: return "";
  }
}

std::string fish_at(std::string_view path) { return fmt::format("'__ff_at \"{}\"'", path); }

std::string fish_sub(std::string_view path, const Command& sub) {
  return fmt::format("complete -c ff -n {} -a {} -d {}\n", fish_at(path), sub.name(),
                     fish_quoted(sub.summary()));
}

std::string fish_valued(const Command& command) {
  std::string words;
  for (const Option* option : command.visible_options()) {
    if (!option->is_flag()) words += fmt::format(" {}", fmt::join(forms(*option), " "));
  }
  if (words.empty()) return "";
  return fmt::format("        case {}\n            printf '%s\\n'{}\n", fish_quoted(command.path()),
                     words);
}

std::string fish_script(Commands commands, std::string_view topics) {
  CommonOptions common;
  const std::deque<Option> common_table = common_options(common);
  std::string cases =
      fmt::format("        case ''\n            printf '%s\\n' {}\n", names_of(commands));
  std::string lines, valued;
  for (const auto& command : commands) lines += fish_sub("", *command);
  for (const Option& option : program_options(common)) lines += fish_option(fish_at(""), option);
  for (const Command* command : every_command(commands)) {
    const std::string path = command->path(), at = fish_at(path);
    if (!command->subs().empty()) {
      cases += fmt::format("        case {}\n            printf '%s\\n' {}\n", fish_quoted(path),
                           names_of_subs(*command));
      valued += fish_valued(*command);
    }
    for (const Command* sub : command->visible_subs()) lines += fish_sub(path, *sub);
    for (const Option* option : command->visible_options()) lines += fish_option(at, *option);
    for (const Option& option : common_table) lines += fish_option(at, option);
    for (const Option& argument : command->arguments()) lines += fish_argument(at, argument);
  }
  std::string script = "# Completions of ff for fish.\n" + std::string(kWritten);
  script += "\nfunction __ff_subs\n    switch \"$argv[1]\"\n" + cases + "    end\nend\n";
  script += "\n# Options whose value is the next word, where a subcommand may follow.\n";
  script += "function __ff_valued\n    switch \"$argv[1]\"\n" + valued + "    end\nend\n";
  script += replaced(kFishCode, "@TOPICS@", topics) + lines;
  for (const auto& command : commands) {
    script += fmt::format("complete -c ff-{0} -w 'ff {0}'\n", command->name());
  }
  return script;
}

// Arguments of `ff help` other than commands.
std::vector<std::string> topics_of(Commands commands) {
  for (const Command* command : every_command(commands)) {
    for (const Option& argument : command->arguments()) {
      if (argument.binding().kind == Kind::command) return argument.binding().choices;
    }
  }
  return {};
}

}  // namespace

std::vector<EmittedFile> emit_completions(Commands commands) {
  const std::vector<std::string> topics = topics_of(commands);
  const std::string words = fmt::format("{}", fmt::join(topics, " "));
  return {{"completions/ff.bash", bash_script(commands, words)},
          {"completions/_ff", zsh_script(commands, topics)},
          {"completions/ff.fish", fish_script(commands, words)}};
}

}  // namespace ff::cmd
