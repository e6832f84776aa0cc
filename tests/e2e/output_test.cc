// What comes out where: data and talk, the envelope, escaping, colour, progress, lost readers, full
// disks, signals.
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "e2e/child.h"

namespace ff::test {
namespace {

using Json = nlohmann::json;

TEST(Output, data_and_talk_are_apart) {
  const ProcessResult plain = probe({"talk", "--rows", "2"});
  EXPECT_EQ(plain.exit, 0);
  EXPECT_EQ(plain.out, "name none\nNAME\tSIZE\nrow\t0\nrow\t100\n");
  EXPECT_EQ(probe({"talk", "--rows", "2", "--no-header"}).out, "name none\nrow\t0\nrow\t100\n");
  EXPECT_EQ(probe({"talk", "--rows", "0"}).out, "name none\n");
  EXPECT_EQ(plain.err, "a note\nwarning: a warning about nothing\n");
  EXPECT_EQ(probe({"talk", "--quiet"}).err, "warning: a warning about nothing\n");
  EXPECT_EQ(probe({"talk", "-v"}).err, "a note\na detail\nwarning: a warning about nothing\n");
}

TEST(Output, terminals_get_aligned_titled_coloured_tables) {
  const auto on_terminal = [](std::map<std::string, std::string> env) {
    return run({.argv = {"ff", "talk", "--rows", "2"},
                .env = std::move(env),
                .program = FF_PROBE,
                .stdout_terminal = true});
  };
  EXPECT_EQ(on_terminal({}).out,
            "name none\r\n\x1b[1mNAME\x1b[0m  \x1b[1mSIZE\x1b[0m\r\n"
            "row      \x1b[32m0\x1b[0m\r\nrow    \x1b[32m100\x1b[0m\r\n");
  const std::string plain = "name none\r\nNAME  SIZE\r\nrow      0\r\nrow    100\r\n";
  EXPECT_EQ(on_terminal({{"NO_COLOR", "1"}}).out, plain);
  EXPECT_EQ(on_terminal({{"TERM", "dumb"}}).out, plain);
  const ProcessResult bare = run({.argv = {"ff", "talk", "--rows", "2", "--no-header"},
                                  .env = {{"NO_COLOR", "1"}},
                                  .program = FF_PROBE,
                                  .stdout_terminal = true});
  EXPECT_EQ(bare.out, "name none\r\nrow    0\r\nrow  100\r\n");
}

TEST(Output, long_tables_stream) {
  const ProcessResult ran = run({.argv = {"ff", "talk", "--rows", "5000"},
                                 .env = {{"NO_COLOR", "1"}},
                                 .program = FF_PROBE,
                                 .stdout_terminal = true});
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 5002);
  EXPECT_NE(ran.out.find("row   499900\r\n"), std::string::npos);
}

TEST(Output, control_bytes_from_outside_are_escaped) {
  const std::string name = "a\x1b[31m\rb\nc\td\xff";
  const std::string shown = "a\\x1b[31m\\x0db\\x0ac\\x09d\\xff";
  const ProcessResult plain = probe({"talk", "--rows=1", "--name", name});
  EXPECT_EQ(plain.out, "name " + shown + "\nNAME\tSIZE\n" + shown + "\t0\n");
  EXPECT_NE(plain.err.find("about " + shown + "\n"), std::string::npos);
  // Also what the person typed, in an error.
  EXPECT_EQ(probe({"x\x1b[31m"}).err.find('\x1b'), std::string::npos);
  const Json json = Json::parse(probe({"talk", "--json", "--name", name + "</script>"}).out);
  EXPECT_EQ(json["data"]["name"], "a\x1b[31m\rb\nc\td\xEF\xBF\xBD</script>");
}

TEST(Envelope, holds_what_cli_md_says) {
  const ProcessResult ran = probe({"talk", "--json", "--rows", "2"});
  EXPECT_EQ(ran.exit, 0);
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(ran.out, R"({"ff":"1","command":"talk","exit":0,"data":{"rows":2,"name":"none"},)"
                     R"("warnings":["a warning about nothing"],"error":null})"
                     "\n");
  EXPECT_EQ(Json::parse(probe({"store", "put", "x", "--json"}).out)["command"], "store put");
}

TEST(Envelope, holds_errors_and_their_data) {
  const ProcessResult ran = probe({"talk", "--json", "--fail", "disk_full"});
  EXPECT_EQ(ran.exit, 1);
  EXPECT_EQ(ran.err, "");
  const Json json = Json::parse(ran.out);
  EXPECT_EQ(json["exit"], 1);
  EXPECT_EQ(json["data"]["rows"], 3);
  EXPECT_EQ(json["error"]["code"], "disk_full");
  EXPECT_EQ(json["error"]["message"], "it \"broke\"\x1b[31m");
  EXPECT_EQ(json["error"]["hint"], "Mend it.");
}

TEST(Envelope, holds_usage_errors_wherever_json_stands) {
  const std::vector<std::vector<std::string>> lines{
      {"--json", "hlep"},
      {"hlep", "--json"},
      {"store", "--json"},
      {"store", "putt", "--json"},
      {"store", "put", "--nothing", "--json"},
      {"store", "put", "--json", "x", "--part"},
      {"--json"},
  };
  for (const auto& line : lines) {
    SCOPED_TRACE(line.front() + " " + line.back());
    const ProcessResult ran = probe(line);
    EXPECT_EQ(ran.exit, 2);
    EXPECT_EQ(ran.err, "");
    const Json json = Json::parse(ran.out);
    EXPECT_EQ(json["error"]["code"], "usage");
    EXPECT_EQ(json["exit"], 2);
    EXPECT_EQ(json["data"], Json::object());
  }
  // After `--` it is an operand.
  EXPECT_EQ(probe({"store", "put", "--nothing", "--", "--json"}).out, "");
}

TEST(Envelope, streams_are_one_object_a_line) {
  const ProcessResult ran = probe({"stream", "--json", "--count", "3"});
  EXPECT_EQ(ran.exit, 0);
  std::vector<Json> lines;
  for (size_t at = 0; at < ran.out.size(); at = ran.out.find('\n', at) + 1) {
    lines.push_back(Json::parse(ran.out.substr(at, ran.out.find('\n', at) - at)));
  }
  ASSERT_EQ(lines.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(lines[i]["data"]["line"], i);
    EXPECT_EQ(lines[i]["command"], "stream");
  }
  EXPECT_EQ(probe({"stream", "--count", "2"}).out, "line 0\nline 1\n");
}

TEST(Exit, follows_from_the_error_alone) {
  const std::map<std::string, int> codes{
      {"failed", 1},  {"usage", 2},     {"corrupt", 3},       {"incomplete", 4},
      {"refused", 5}, {"deadline", 6},  {"interrupted", 130}, {"not_found", 1},
      {"exists", 1},  {"disk_full", 1}, {"newer_format", 5},  {"unsupported", 1},
  };
  for (const auto& [name, exit] : codes) {
    SCOPED_TRACE(name);
    const ProcessResult ran = probe({"talk", "--quiet", "--fail", name});
    EXPECT_EQ(ran.exit, exit);
    const std::string said =
        name == "interrupted" ? "interrupted\n" : "ff talk: it \"broke\"\\x1b[31m\n  Mend it.\n";
    EXPECT_EQ(ran.err, "warning: a warning about nothing\n" + said);
  }
}

TEST(Exit, a_failed_write_to_stdout_is_1) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"ff", "talk", "--quiet"},
                                                {"ff", "talk", "--json"},
                                                {"ff", "--version"},
                                                {"ff", "-h"},
                                                {"ff", "store", "--help"},
                                                {"ff", "help", "config"},
                                                {"ff", "stream", "--count", "100000"}}) {
    SCOPED_TRACE(words.back());
    const ProcessResult ran = run({.argv = words, .program = FF_PROBE, .stdout_path = "/dev/full"});
    EXPECT_EQ(ran.exit, 1);
    EXPECT_NE(ran.err.find("standard output: No space left on device"), std::string::npos);
  }
  // A command that failed for its own reason keeps that exit code.
  EXPECT_EQ(run({.argv = {"ff", "talk", "--fail", "corrupt"},
                 .program = FF_PROBE,
                 .stdout_path = "/dev/full"})
                .exit,
            3);
}

TEST(Exit, a_reader_that_goes_away_ends_it_quietly) {
  for (const bool json : {false, true}) {
    Launch launch{.argv = {"ff", "stream"}, .program = FF_PROBE};
    if (json) launch.argv.push_back("--json");
    Child child(launch);
    ASSERT_TRUE(child.wait_for_out("0"));
    child.close_stdout();
    EXPECT_EQ(child.finish(), 128 + SIGPIPE);
    EXPECT_EQ(child.err, "");
  }
  const ProcessResult shell = run({.argv = {"bash", "-c", FF_PROBE " stream | head -n 1"}});
  EXPECT_EQ(shell.out, "line 0\n");
  EXPECT_EQ(shell.err, "");
  EXPECT_EQ(shell.exit, 0);
}

TEST(Signals, stop_a_command_cleanly) {
  for (const int number : {SIGINT, SIGTERM}) {
    Child child({.argv = {"ff", "wait"}, .program = FF_PROBE});
    ASSERT_TRUE(child.wait_for_out("ready"));
    child.signal(number);
    EXPECT_EQ(child.finish(), 130);
    EXPECT_EQ(child.err, "interrupted\n");
  }
  Child child({.argv = {"ff", "wait", "--json"}, .program = FF_PROBE});
  ASSERT_TRUE(child.wait_for_out("{"));
  child.signal(SIGINT);
  EXPECT_EQ(child.finish(), 130);
  EXPECT_EQ(child.err, "");
  const Json last = Json::parse(child.out.substr(child.out.find('\n') + 1));
  EXPECT_EQ(last["error"]["code"], "interrupted");
  EXPECT_EQ(last["exit"], 130);
}

TEST(Signals, a_second_ctrl_c_kills) {
  Child child({.argv = {"ff", "wait", "--stubborn"}, .program = FF_PROBE});
  ASSERT_TRUE(child.wait_for_out("ready"));
  child.signal(SIGTERM);
  // Signals that wait together arrive in an order of the kernel's: the next one waits for this.
  ASSERT_TRUE(child.wait_for_out("told"));
  child.signal(SIGTERM);  // only an impatient person kills
  child.signal(SIGINT);
  EXPECT_EQ(child.finish(), 128 + SIGINT);
  EXPECT_EQ(child.err, "");
}

TEST(Signals, an_ignored_ctrl_c_stays_ignored) {
  Child child({.argv = {"bash", "-c", "trap '' INT; exec " FF_PROBE " wait"}});
  ASSERT_TRUE(child.wait_for_out("ready"));
  child.signal(SIGINT);
  child.signal(SIGINT);
  child.signal(SIGTERM);
  EXPECT_EQ(child.finish(), 130);
}

TEST(Timeout, ends_a_blocking_command_with_6) {
  const ProcessResult ran = probe({"wait", "--timeout", "10ms"});
  EXPECT_EQ(ran.exit, 6);
  EXPECT_EQ(ran.err.find("ff wait: "), 0u);
  EXPECT_EQ(probe({"mount", "--timeout", "1s"}).exit, 2);  // nothing to wait for
}

TEST(Progress, draws_on_a_terminal_and_erases_itself) {
  Child child(
      {.argv = {"ff", "copy"}, .program = FF_PROBE, .stderr_terminal = true, .stdin_open = true});
  ASSERT_TRUE(child.wait_for_err("copy  [##########..........]  50%  2.00GiB of 4.00GiB  "));
  ASSERT_TRUE(child.wait_for_err("GiB/s"));
  ASSERT_TRUE(child.wait_for_err("ETA "));
  EXPECT_EQ(child.finish(), 0);
  // Erased: after the last bar comes the code that clears the line, and nothing else.
  const size_t last_bar = child.err.rfind("copy  [");
  ASSERT_NE(last_bar, std::string::npos);
  EXPECT_EQ(child.err.substr(child.err.rfind('\r')), "\r\x1b[K");
  EXPECT_GT(child.err.rfind('\r'), last_bar);
  EXPECT_EQ(child.err.find('\n'), std::string::npos);
}

TEST(Progress, talk_never_mixes_with_the_bar) {
  Child child(
      {.argv = {"ff", "copy"}, .program = FF_PROBE, .stderr_terminal = true, .stdin_open = true});
  ASSERT_TRUE(child.wait_for_err("copy  ["));
  child.write_stdin("x");
  ASSERT_TRUE(child.wait_for_err("during"));
  EXPECT_EQ(child.finish(), 0);
  EXPECT_NE(child.err.find("\r\x1b[Kduring\r\n"), std::string::npos) << child.err;
}

TEST(Progress, is_silent_elsewhere) {
  EXPECT_EQ(probe({"copy"}).err, "");
  for (const std::string option : {"--quiet", "--json"}) {
    const ProcessResult ran =
        run({.argv = {"ff", "copy", option}, .program = FF_PROBE, .stderr_terminal = true});
    EXPECT_EQ(ran.err, "") << option;
  }
}

}  // namespace
}  // namespace ff::test
