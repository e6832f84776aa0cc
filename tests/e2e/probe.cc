// A program with the frame of ff and commands of its own that do one thing each, so that tests can
// drive every path of the frame: all kinds of values, talk, streams, waiting, progress. It is built
// for tests only; nothing of it is in ff.
#include <unistd.h>

#include <array>
#include <thread>

#include "cmd/cli/cli.h"
#include "platform/base/bytes.h"
#include "platform/base/clock.h"

namespace ff::cmd {

void declare_generate(Command& command);
void declare_help(Command& command);

namespace {

struct StoreOptions {
  std::string store = "default-store", format = "raw", run = "main";
  std::optional<std::string> tag, key, tls;
  std::vector<std::string> paths, tensors;
  uint64_t part_bytes = 4 * kMiB;
  int64_t grace_ns = 3600 * kSecond;
  unsigned level = 1;
  bool compress = false, force = false;
};

Result<void> show_values(const StoreOptions& o, Session& s) {
  s.out.line("store={} part={} grace={} level={} format={} compress={} force={} tag={}", o.store,
             o.part_bytes, o.grace_ns / kSecond, o.level, o.format, o.compress, o.force,
             o.tag.value_or("none"));
  for (const std::string& path : o.paths) s.out.line("path={}", path);
  for (const std::string& tensor : o.tensors) s.out.line("tensor={}", tensor);
  s.out.data({{"store", o.store}, {"part", o.part_bytes}, {"paths", o.paths}});
  return {};
}

// A command with subcommands and every kind of option.
void declare_store(Command& store) {
  auto& o = store.keep<StoreOptions>();
  store.about("Keeps things.\n\n.A line that opens with a dot, and a \\ backslash.\n\n  a\n  b");
  store.option("--store", dir(o.store), "Where: a directory [or nothing]")
      .config("store.path")
      .env("FF_STORE_PATH");
  store.option("--cluster-key", file(o.key), "A key").section(kNetworkOptions);
  store.option("--tls", file(o.tls), "A certificate").config("store.tls").hidden();
  store.sub("inner", "For programs").hidden().run([](Session& s) -> Result<void> {
    s.out.line("inner");
    return {};
  });
  Command& put = store.sub("put", "Put files into the store");
  put.about("Puts each PATH. It's quoted.");
  put.example("ff store put model.bin", "Put one file");
  put.argument("PATH", file(o.paths), "What to put");
  put.option("-t,--tensor", text(o.tensors, "GLOB"), "Only these");
  put.option("--part", size(o.part_bytes), "Bytes a part").config("store.part").env("FF_PART");
  put.option("--grace", duration(o.grace_ns), "Time before deletion").config("store.grace");
  put.option("--level", number(o.level), "How hard to try").config("store.level").env("FF_LEVEL");
  put.option("--format", choice(o.format, {"raw", "packed"}), "Form").config("store.format");
  put.option("--tag", text(o.tag, "TAG"), "A name")
      .config("store.tag")
      .old_config("store.old-tag")
      .alias("--old-tag")
      .alias("-g");
  put.flag("--compress", o.compress, "Make smaller").config("store.compress").env("FF_COMPRESS");
  put.flag("-f,--force", o.force, "Overwrite");
  put.run([&o](Session& s) { return show_values(o, s); });
  Command& get = store.sub("get", "Get a run out of the store");
  get.argument("RUN", text(o.run, "RUN"), "Which");
  get.argument("DEST", dir(o.store), "Where to").optional();
  get.run([&o](Session& s) -> Result<void> {
    s.out.line("run={} dest={}", o.run, o.store);
    return {};
  });
}

struct TalkOptions {
  std::optional<std::string> fail_with, name;
  uint64_t rows = 3;
};

Result<void> talk(const TalkOptions& o, Session& s) {
  s.out.note("a note");
  s.out.detail("a detail");
  s.out.warn("a warning about {}", o.name.value_or("nothing"));
  s.out.line("name {}", o.name.value_or("none"));
  {
    Table table = s.out.table({{"NAME"}, {"SIZE", Align::right}});
    for (uint64_t i = 0; i < o.rows; ++i) {
      table.row({o.name.value_or("row"), {fmt::format("{}", i * 100), Color::green}});
    }
  }
  s.out.data({{"rows", o.rows}, {"name", o.name.value_or("none")}});
  if (o.fail_with) {
    for (int code = 0; code <= static_cast<int>(Errc::unsupported); ++code) {
      if (errc_name(static_cast<Errc>(code)) != *o.fail_with) continue;
      return Error{static_cast<Errc>(code), "it \"broke\"\x1b[31m", "Mend it."};
    }
  }
  return {};
}

void declare_talk(Command& command) {
  auto& o = command.keep<TalkOptions>();
  command.option("--fail", text(o.fail_with, "CODE"), "End with this error");
  command.option("--name", text(o.name, "NAME"), "A name from outside");
  command.option("--rows", number(o.rows), "Rows of the table");
  command.run([&o](Session& s) { return talk(o, s); });
}

// Lines, or with --json envelopes, until told to stop.
void declare_stream(Command& command) {
  auto& count = command.keep<std::optional<uint64_t>>();
  command.option("--count", number(count), "End after this many");
  command.run([&count](Session& s) -> Result<void> {
    for (uint64_t i = 0; !count || i < *count; ++i) {
      FF_TRY(s.stop.check());
      s.out.line("line {}", i);
      FF_TRY(s.out.emit({{"line", i}}));
    }
    return {};
  });
}

// Waits for an hour or until told to stop; --stubborn only says that it was told.
void declare_wait(Command& command) {
  auto& stubborn = command.keep<bool>();
  command.flag("--stubborn", stubborn, "Do not stop");
  command.blocking();
  command.run([&stubborn](Session& s) -> Result<void> {
    s.out.line("ready");
    FF_TRY(s.out.emit(Json::object()));
    Result<void> slept;
    while (slept) slept = s.stop.sleep_ns(3600 * kSecond);
    if (!stubborn) return slept;
    s.out.line("told");
    FF_TRY(s.out.emit(Json::object()));
    while (true) s.stop.clock().sleep_ns(kSecond);
  });
}

// Adds to a bar from two threads until stdin ends.
void declare_copy(Command& command) {
  command.run([](Session& s) -> Result<void> {
    Progress progress;
    progress.total = 4 * kGiB;
    const auto bar = s.out.progress("copy", progress, s.stop);
    bar->note("7 of 9 \x1b tensors");
    auto work = [&progress] {
      for (int i = 0; i < 1024; ++i) progress.done += kMiB;
    };
    std::thread other(work);
    work();
    other.join();
    char byte = 0;
    while (::read(STDIN_FILENO, &byte, 1) > 0) s.out.note("during");
    return {};
  });
}

// As mount.ff it reverses its arguments, and its errors are 32.
void declare_mount(Command& command) {
  auto& words = command.keep<std::vector<std::string>>();
  command.argument("WORD", text(words, "WORD"), "What to say").optional();
  command.link(
      {.name = "mount.ff",
       .arguments = [](std::vector<std::string> given) -> Result<std::vector<std::string>> {
         if (given.size() > 3) return fail(Errc::usage, "too much");
         return std::vector<std::string>(given.rbegin(), given.rend());
       },
       .exit_code = [](Errc code) { return code == Errc::usage ? 1 : 32; }});
  command.run([&words](Session& s) -> Result<void> {
    if (!words.empty() && words[0] == "no") return fail(Errc::failed, "no");
    s.out.line("mounted{}{}", words.empty() ? "" : " ", fmt::join(words, " "));
    return {};
  });
}

constexpr auto kCommands = std::to_array<CommandEntry>({
    {"copy", "Show a bar", declare_copy},
    {"generate", "Write files", declare_generate},
    {"help", "Explain", declare_help},
    {"mount", "Say that it ran", declare_mount},
    {"store", "Keep things in a store", declare_store},
    {"stream", "Print without end", declare_stream},
    {"talk", "Say things", declare_talk},
    {"wait", "Wait", declare_wait},
});

}  // namespace
}  // namespace ff::cmd

int main(int argc, char** argv) { return ff::cmd::run_program(ff::cmd::kCommands, argc, argv); }
