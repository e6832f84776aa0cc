// `ff help`: pages from the tables, the current settings and their sources, and links to this
// program.
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "cmd/cli/build_info.h"
#include "cmd/cli/cli.h"
#include "cmd/cli/help_page.h"
#include "cmd/cli/parse.h"
#include "cmd/cli/settings.h"
#include "cmd/help/emit.h"
#include "cmd/help/versions.h"
#include "platform/base/clock.h"
#include "platform/base/config.h"
#include "platform/base/text.h"

namespace ff::cmd {
namespace {

namespace fs = std::filesystem;

struct HelpOptions {
  std::vector<std::string> topic;
  std::optional<std::string> emit, install;
  bool versions = false;
};

// What exists at the path of a future link to `program`.
enum class Place : unsigned char { empty, ours, outdated, foreign };

Place look_at_link(const fs::path& link, const fs::path& program) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(link, error);
  if (status.type() == fs::file_type::not_found) return Place::empty;
  if (status.type() != fs::file_type::symlink) return Place::foreign;
  const fs::path target = fs::read_symlink(link, error);
  if (error) return Place::foreign;
  if (target == program) return Place::ours;
  // A link to another ff is from an earlier installation.
  return target.filename() == program.filename() ? Place::outdated : Place::foreign;
}

Result<void> put_link(const fs::path& link, const fs::path& program) {
  // Create, then rename, so that the link always exists.
  const fs::path beside = link.string() + fmt::format(".{}", ::getpid());
  if (::symlink(program.c_str(), beside.c_str()) != 0) return errno_error(errno, link.string());
  if (::rename(beside.c_str(), link.c_str()) != 0) {
    const int failed = errno;
    ::unlink(beside.c_str());
    return errno_error(failed, link.string());
  }
  return {};
}

Result<void> install_links(Session& session, const fs::path& dir) {
  FF_TRY(const fs::path program, program_path());
  std::error_code error;
  if (!fs::is_directory(dir, error)) {
    Error missing = fail(Errc::not_found, "{}: not a directory", dir.string());
    missing.hint = fmt::format("mkdir -p {}", dir.string());
    return missing;
  }
  std::vector<fs::path> links;
  for (const auto& command : session.commands) {
    links.push_back(dir / ("ff-" + command->name()));
    for (const ProgramLink& link : command->links()) links.push_back(dir / link.name);
  }
  // Check all before the first change, so that an error changes nothing.
  for (const fs::path& link : links) {
    if (look_at_link(link, program) == Place::foreign) {
      Error refused = fail(Errc::refused, "{}: exists and is not a link to ff", link.string());
      refused.hint = "Move it away or choose another directory.";
      return refused;
    }
  }
  Json made = Json::array();
  for (const fs::path& link : links) {
    if (look_at_link(link, program) != Place::ours) {
      FF_TRY(put_link(link, program));
      session.out.line("{}", link.string());
      made.push_back(link.string());
    }
  }
  if (made.empty()) session.out.note("All links are there already.");
  session.out.data({{"program", program.string()}, {"made", std::move(made)}});
  return {};
}

Result<void> show_versions(Session& session) {
  Json libraries = Json::array();
  Table table = session.out.table({{"LIBRARY"}, {"VERSION"}, {"ANSWER"}});
  for (const LibraryVersion& library : library_versions()) {
    table.row({library.name, library.version, library.detail});
    libraries.push_back(
        {{"name", library.name}, {"version", library.version}, {"detail", library.detail}});
  }
  session.out.data({{"ff", kBuildInfo.version}, {"libraries", std::move(libraries)}});
  return {};
}

Result<void> show_exit_codes(Session& session) {
  Json codes = Json::array();
  Table table = session.out.table({{"EXIT", Align::right}, {"MEANING"}});
  for (const ExitCode& exit : exit_codes()) {
    table.row({fmt::format("{}", exit.code), std::string(exit.meaning)});
    codes.push_back({{"exit", exit.code}, {"meaning", exit.meaning}});
  }
  session.out.data({{"codes", std::move(codes)}});
  return {};
}

// The value for JSON: bytes, seconds, numbers. The option has accepted `text`.
Json json_value(Kind kind, const std::string& text) {
  switch (kind) {
    case Kind::flag: return read_flag(text).value();
    case Kind::size: return parse_size(text).value();
    case Kind::duration: return to_seconds(parse_duration_ns(text).value());
    case Kind::number: return Json::parse(text, nullptr, false);
    default: return text;
  }
}

Result<void> show_settings(Session& session) {
  FF_TRY(const Settings settings, Settings::load(session.commands));
  Json all = Json::array();
  Table table = session.out.table({{"SETTING"}, {"VALUE"}, {"FROM"}, {"ENVIRONMENT"}});
  for (const Option* option : configurable_options(session.commands)) {
    SettingValue given{option->binding().default_text, "default"};
    if (auto found = settings.find(*option)) {
      given = std::move(*found);
      if (auto fits = option->binding().assign(std::span(&given.text, 1)); !fits) {
        Error error = std::move(fits).error().with_context(given.source + ": ");
        error.code = Errc::usage;
        return error;
      }
    } else if (given.text.empty()) {
      given.source = "not set";
    }
    const bool no_value = given.text.empty();
    table.row({option->config_key().empty() ? option->long_name() : option->config_key(),
               no_value ? "-" : given.text, given.source,
               option->env_name().empty() ? "-" : option->env_name()});
    all.push_back({{"setting", option->config_key()},
                   {"environment", option->env_name()},
                   {"value", no_value ? Json() : json_value(option->binding().kind, given.text)},
                   {"from", given.source},
                   {"description", option->description()}});
  }
  if (all.empty()) session.out.note("No command of this ff has settings.");
  session.out.data({{"files", config_paths().files}, {"settings", std::move(all)}});
  return {};
}

Result<void> show_topic(Session& session, std::vector<std::string> topic) {
  if (topic.size() == 1 && topic[0] == "config") return show_settings(session);
  if (topic.size() == 1 && topic[0] == "exit-codes") return show_exit_codes(session);
  std::string page;
  if (topic.empty()) {
    page = top_help_page(session.commands, HelpForm::full);
  } else {
    std::vector<std::string> names{"config", "exit-codes"};
    const Command* command = nullptr;
    for (const auto& known : session.commands) {
      names.push_back(known->name());
      if (known->name() == topic[0]) command = known.get();
    }
    if (command == nullptr) {
      return Error{Errc::usage, fmt::format("unknown command '{}'", topic[0]),
                   suggestion(topic[0], names, "`ff -h` lists the commands.")};
    }
    topic.erase(topic.begin());
    FF_TRY(resolve_subcommand(command, topic));
    if (!topic.empty()) {
      return Error{Errc::usage, fmt::format("ff {} has no command '{}'", command->path(), topic[0]),
                   fmt::format("`ff {} -h` explains it.", command->path())};
    }
    page = help_page(*command, HelpForm::full);
  }
  session.out.raw_text(page);
  session.out.data({{"help", page}});
  return {};
}

// The former name of `ff generate`.
Result<void> run_emit(Session& session, const std::string& what,
                      const std::vector<std::string>& where) {
  if (what != "systemd" && what != "cron") {
    // A word that names no directory yet is more likely a kind of files than a new directory.
    if (what.find('/') == what.npos && !std::filesystem::is_directory(what)) {
      return Error{Errc::usage, fmt::format("--emit: unknown kind of files '{}'", printable(what)),
                   "ff can write docs, systemd and cron: see ff generate -h."};
    }
    return generate_docs(session, what);
  }
  if (where.size() > 1) return fail(Errc::usage, "--emit {} takes one directory", what);
  const auto into = where.empty() ? std::nullopt : std::optional(where[0]);
  return what == "cron" ? generate_cron(session, into) : generate_units(session, into);
}

Result<void> run_help(const HelpOptions& options, Session& session) {
  const bool for_others = options.emit == "systemd" || options.emit == "cron";
  const int asked = int{!options.topic.empty() && !for_others} + int{options.emit.has_value()} +
                    int{options.install.has_value()} + int{options.versions};
  if (asked > 1) {
    return fail(Errc::usage, "a topic, --install and --versions exclude each other");
  }
  if (options.emit) return run_emit(session, *options.emit, options.topic);
  if (options.install) return install_links(session, *options.install);
  if (options.versions) return show_versions(session);
  return show_topic(session, options.topic);
}

}  // namespace

void declare_help(Command& help) {
  auto& o = help.keep<HelpOptions>();
  help.about(
      "Explains a command and its subcommands in full. Two more topics: `config` lists every "
      "setting with its current value and the source of that value; `exit-codes` lists the exit "
      "codes that all commands share.");
  help.example("ff help config", "every setting, its value, and the file and line it comes from");
  help.example("ff help --install /usr/local/bin", "make a link ff-NAME for each command");
  help.example("ff help --install /sbin", "with mount.ff, which mount(8) calls for the type ff");
  Binding topic = text(o.topic, "COMMAND");
  topic.kind = Kind::command;
  topic.choices = {"config", "exit-codes"};
  help.argument("COMMAND", std::move(topic), "A command, its subcommand, or a topic").optional();
  help.option("--emit", dir(o.emit), "The old name of `ff generate`").hidden();
  help.option("--install", dir(o.install), "Make a link to this program in DIR for each command");
  help.flag("--versions", o.versions, "Print the version that each linked library reports");
  help.run([&o](Session& session) { return run_help(o, session); });
}

}  // namespace ff::cmd
