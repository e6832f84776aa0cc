// `ff generate`: files that follow from the tables of options (manual pages, completions), and
// files for systemd and cron that run this program.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "cmd/cli/cli.h"
#include "cmd/help/emit.h"

namespace ff::cmd {
namespace {

namespace fs = std::filesystem;

struct GenerateOptions {
  std::string dir;
  std::optional<std::string> into;
};

Result<void> write_file(const fs::path& path, std::string_view text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) return errno_error(error.value(), path.parent_path().string());
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return errno_error(errno, path.string());
  int failed = 0;
  while (!text.empty() && failed == 0) {
    const ssize_t wrote = ::write(fd, text.data(), text.size());
    if (wrote < 0) {
      failed = errno == EINTR ? 0 : errno;
    } else {
      text.remove_prefix(static_cast<size_t>(wrote));
    }
  }
  if (::close(fd) != 0 && failed == 0) failed = errno;
  if (failed != 0) return errno_error(failed, path.string());
  return {};
}

Result<void> write_files(Session& session, const fs::path& dir,
                         const std::vector<EmittedFile>& files) {
  Json written = Json::array();
  for (const EmittedFile& file : files) {
    FF_TRY(session.stop.check());
    const fs::path path = dir / file.path;
    FF_TRY(write_file(path, file.text));
    session.out.line("{}", path.string());
    written.push_back(path.string());
  }
  session.out.data({{"files", std::move(written)}});
  return {};
}

// Writes to a directory, or to standard output.
Result<void> write_or_print(Session& session, const std::optional<std::string>& into,
                            const std::vector<EmittedFile>& files, const char* member) {
  if (into) return write_files(session, *into, files);
  Json texts = Json::object();
  for (const EmittedFile& file : files) {
    session.out.raw_text(fmt::format("# {}\n{}\n", file.path, file.text));
    texts[file.path] = file.text;
  }
  session.out.data({{member, std::move(texts)}});
  return {};
}

}  // namespace

Result<std::string> program_path() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return errno_error(error.value(), "/proc/self/exe");
  return program.string();
}

Result<void> generate_docs(Session& session, const std::string& dir) {
  std::vector<EmittedFile> files = emit_man(session.commands);
  for (EmittedFile& file : emit_completions(session.commands)) files.push_back(std::move(file));
  return write_files(session, dir, files);
}

Result<void> generate_units(Session& session, const std::optional<std::string>& into) {
  FF_TRY(const std::string program, program_path());
  return write_or_print(session, into, emit_units(program), "units");
}

Result<void> generate_cron(Session& session, const std::optional<std::string>& into) {
  FF_TRY(const std::string program, program_path());
  return write_or_print(session, into, emit_cron(program), "files");
}

void declare_generate(Command& generate) {
  auto& o = generate.keep<GenerateOptions>();
  generate.about(
      "Writes files that this program knows how to make: its manual pages and shell completions, "
      "units for systemd, and a line for cron. Files that exist are replaced.");
  Command& docs = generate.sub("docs", "Write manual pages and shell completions");
  docs.about(
      "Writes the manual pages to DIR/man and the completions for bash, zsh and fish to "
      "DIR/completions.");
  docs.argument("DIR", dir(o.dir), "Directory to write to; ff creates it");
  docs.example("ff generate docs .", "update the pages in the source tree");
  docs.run([&o](Session& session) { return generate_docs(session, o.dir); });

  Command& units = generate.sub("systemd", "Write units for systemd");
  units.about(
      "Writes units that start the daemons of ff with this program. Without DIR the command prints "
      "them.");
  units.argument("DIR", dir(o.into), "Directory to write to");
  units.example("ff generate systemd /etc/systemd/system", "then: systemctl daemon-reload");
  units.run([&o](Session& session) { return generate_units(session, o.into); });

  Command& cron = generate.sub("cron", "Write a line for cron");
  cron.about(
      "Writes a file for cron that checks this node once a week ('ff validate'). Without DIR the "
      "command prints it.");
  cron.argument("DIR", dir(o.into), "Directory to write to");
  cron.example("ff generate cron /etc/cron.d", "check this node once a week");
  cron.run([&o](Session& session) { return generate_cron(session, o.into); });
}

}  // namespace ff::cmd
