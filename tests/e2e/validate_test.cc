// `ff validate` as operators call it: verdicts and exit codes, what is written down and told, cron,
// an ordinary user, Ctrl-C. Trees of made-up machines give the verdicts; loads are this machine's.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <fmt/format.h>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "e2e/child.h"

namespace ff::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class ValidateTest : public testing::Test {
 protected:
  ProcessResult validate(std::vector<std::string> words) {
    words.insert(words.begin(), "validate");
    return run_ff(std::move(words), {{"FF_STATE", dir_ / "state"}});
  }
  Json data(std::vector<std::string> words, int exit) {
    words.emplace_back("--json");
    const ProcessResult ran = validate(std::move(words));
    EXPECT_EQ(ran.exit, exit) << ran.out << ran.err;
    const Json envelope = Json::parse(ran.out, nullptr, false);
    EXPECT_TRUE(envelope.is_object()) << ran.out;
    return envelope.is_object() ? envelope["data"] : Json();
  }
  // A network card on 8 lanes of 16.
  std::string degraded_tree() {
    const std::string port = "tree/sys/devices/pci0000:00/0000:00:01.0/";
    const std::string card = port + "0000:01:00.0/";
    for (const auto& [name, text] :
         std::map<std::string, std::string>{{port + "max_link_speed", "16.0 GT/s PCIe\n"},
                                            {port + "max_link_width", "16\n"},
                                            {card + "class", "0x020700\n"},
                                            {card + "vendor", "0x15b3\n"},
                                            {card + "device", "0x101b\n"},
                                            {card + "current_link_speed", "16.0 GT/s PCIe\n"},
                                            {card + "current_link_width", "8\n"},
                                            {card + "max_link_speed", "16.0 GT/s PCIe\n"},
                                            {card + "max_link_width", "16\n"}}) {
      write_file(dir_ / name, text);
    }
    const fs::path devices = dir_.path() / "tree/sys/bus/pci/devices";
    fs::create_directories(devices);
    fs::create_directory_symlink("../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0",
                                 devices / "0000:01:00.0");
    return dir_ / "tree";
  }

  TempDir dir_;
};

TEST_F(ValidateTest, ADegradedLinkIsNamedWithWhatToDo) {
  const std::string tree = degraded_tree();
  const ProcessResult ran = validate({"--root", tree, "--only", "pci.link"});
  EXPECT_EQ(ran.exit, 3);
  EXPECT_TRUE(has(ran.out,
                  "degraded\tpci.link\t0000:01:00.0 network card 15b3:101b\t16 GT/s x8\t"
                  "16 GT/s x16 (both ends of the link)\n"))
      << ran.out;
  EXPECT_TRUE(has(ran.out, "Reseat the card")) << ran.out;
  EXPECT_TRUE(has(ran.err, "this node is degraded: pci.link")) << ran.err;
  EXPECT_EQ(validate({"--root", tree, "--only", "pci.link", "--degraded-ok"}).exit, 0);
  EXPECT_EQ(validate({"--root", tree, "--only", "pci.link", "--prolog"}).exit, 0);

  const Json report = data({"--root", tree, "--only", "pci.link"}, 3);
  EXPECT_EQ(report["verdict"], "degraded");
  ASSERT_EQ(report["checks"].size(), 1u);
  const Json& check = report["checks"][0];
  EXPECT_EQ(check["name"], "pci.link");
  EXPECT_EQ(check["group"], "pci");
  EXPECT_EQ(check["verdict"], "degraded");
  EXPECT_EQ(check["value"], 128);
  EXPECT_EQ(check["unit"], "GT/s");
  EXPECT_EQ(check["expected"], "16 GT/s x16");
  EXPECT_EQ(check["source"], "both ends of the link");
  EXPECT_NE(check["hint"], "");
}

TEST_F(ValidateTest, WhatCouldNotRunIsNoPass) {
  fs::create_directories(dir_.path() / "tree/proc");
  const std::string tree = dir_ / "tree";
  const ProcessResult ran = validate({"--root", tree, "--only", "network"});
  EXPECT_EQ(ran.exit, 4);
  EXPECT_TRUE(has(ran.out, "could-not-run\tnetwork.ib")) << ran.out;
  EXPECT_TRUE(has(ran.err, "could not run: network.ib")) << ran.err;
  EXPECT_EQ(validate({"--root", tree, "--only", "network", "--degraded-ok"}).exit, 4);
  EXPECT_EQ(validate({"--root", tree, "--only", "network", "--require", "network"}).exit, 3);
  EXPECT_EQ(validate({"--only", "host.cpu", "--require", "host"}).exit, 0);
  EXPECT_EQ(validate({"--only", "host.cpu", "--require", "pci"}).exit, 3) << "it was not looked at";
  EXPECT_EQ(validate({"--root", tree, "--only", "network", "--prolog"}).exit, 0);
  EXPECT_EQ(validate({"--root", dir_ / "nowhere"}).exit, 1);
  const ProcessResult nothing = validate({"--root", tree, "--only", "cpu"});
  EXPECT_EQ(nothing.exit, 4);
  EXPECT_TRUE(has(nothing.err, "nothing was checked")) << nothing.err;
  EXPECT_EQ(data({"--only", "cpu", "--budget", "500ms"}, 4)["verdict"], "could-not-run");
}

TEST_F(ValidateTest, ASavedLogIsJudged) {
  const std::string log = dir_ / "kern.log";
  write_file(
      log,
      "[  100.000001] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n");
  const ProcessResult ran = validate({"--only", "log", "--log", log});
  EXPECT_EQ(ran.exit, 3);
  EXPECT_TRUE(has(ran.out, "fail\tlog.xid\t0000:3b:00\tXid 79, GPU has fallen off the bus"))
      << ran.out;
  EXPECT_TRUE(has(ran.out, "paper: uncorrectable GPU failure")) << ran.out;
  EXPECT_TRUE(has(ran.err, log + ": the node of this log is not fit for work")) << ran.err;
  EXPECT_EQ(validate({"--only", "log", "--log", log, "--prolog"}).exit, 3);
  write_file(log, "[    0.000000] Linux version 6.1.0\n\x1b[31m NVRM: \x01 nothing\n");
  EXPECT_EQ(validate({"--only", "log", "--log", log}).exit, 0);
  EXPECT_EQ(validate({"--only", "log", "--log", dir_ / "none"}).exit, 4);
  // It may be of another machine: nothing is filed as a run of this one, or runs on this one.
  const Json report = data({"--log", log}, 0);
  EXPECT_EQ(report["host"], "");
  EXPECT_EQ(report["log"], log);
  for (const Json& check : report["checks"]) EXPECT_EQ(check["group"], "log") << check;
  EXPECT_EQ(validate({"--only", "host.cpu", "--log", log}).exit, 2);
  EXPECT_EQ(validate({"--log", log, "--drain", "--scheduler", "127.0.0.1:1"}).exit, 2);
  EXPECT_EQ(validate({"--log", log, "--textfile", dir_ / "nowhere"}).exit, 0);
  EXPECT_FALSE(fs::exists(dir_.path() / "state/validate.db"));
}

// What the kernel has forgotten since the last run, the journal has.
TEST_F(ValidateTest, TheJournalIsAskedForWhatTheKernelForgot) {
  double up = 0;
  std::istringstream(read_file("/proc/uptime")) >> up;
  if (up > 6 * 86'400) GTEST_SKIP() << "the kernel remembers a week";
  write_file(dir_ / "bin/journalctl",
             "#!/bin/sh\necho \"$@\" >" + (dir_ / "asked") +
                 "\necho \"$(date -d '-156 hours' +%Y-%m-%dT%H:%M:%S.000000%:z) host kernel: "
                 "NVRM: Xid (PCI:0000:3b:00): 48, DBE\"\n");
  fs::permissions(dir_ / "bin/journalctl", fs::perms::all);
  const ProcessResult ran =
      run_ff({"validate", "--only", "log"},
             {{"FF_STATE", dir_ / "state"}, {"PATH", dir_ / "bin" + ":/usr/bin:/bin"}});
  EXPECT_EQ(ran.exit, 3) << ran.out << ran.err;
  EXPECT_TRUE(has(ran.out, "log.xid\t0000:3b:00\tXid 48")) << ran.out;
  const std::string asked = read_file(dir_ / "asked");
  EXPECT_TRUE(has(asked, "_TRANSPORT=kernel") && has(asked, "--since=@")) << asked;
  // Told once: the next run asks for what came after this one.
  EXPECT_EQ(run_ff({"validate", "--only", "log"},
                   {{"FF_STATE", dir_ / "state"}, {"PATH", dir_ / "bin" + ":/usr/bin:/bin"}})
                .exit,
            0);
}

TEST_F(ValidateTest, WordsThatAreNoneAreExplained) {
  EXPECT_TRUE(has(validate({"--only", "netwrok"}).err, "Did you mean network?"));
  EXPECT_EQ(validate({"--only", "netwrok"}).exit, 2);
  EXPECT_EQ(validate({"--require", "pci.lnik"}).exit, 2);
  EXPECT_EQ(validate({"--level", "weakly"}).exit, 2);
  EXPECT_EQ(validate({"--budget", "soon"}).exit, 2);
  EXPECT_EQ(validate({"--only", "host.cpu", "--notify", "ftp://x"}).exit, 2);
  const ProcessResult unknown = validate({"lsit"});
  EXPECT_EQ(unknown.exit, 2);
  EXPECT_TRUE(has(unknown.err, "Did you mean list?")) << unknown.err;
  EXPECT_TRUE(has(validate({"--levle", "quick"}).err, "Did you mean --level?"));
  EXPECT_TRUE(has(validate({"--level=quick", "adpot"}).err, "Did you mean adopt?"));
}

TEST_F(ValidateTest, AloneItIsItsRun) {
  const ProcessResult alone = validate({"-h"});
  EXPECT_EQ(alone.exit, 0);
  EXPECT_TRUE(has(alone.out, "Usage: ff validate [COMMAND] [OPTIONS]")) << alone.out;
  for (const char* const word :
       {"  adopt ", "  report ", "--level quick|weekly|burn-in", "--prolog"}) {
    EXPECT_TRUE(has(alone.out, word)) << word;
  }
  const ProcessResult named = validate({"run", "-h"});
  EXPECT_TRUE(has(named.out, "Usage: ff validate run [OPTIONS]")) << named.out;
  const ProcessResult sub = validate({"adopt", "-h"});
  EXPECT_FALSE(has(sub.out, "--level")) << "options of a run are a run's alone";
}

TEST_F(ValidateTest, AdoptedPartsAreAskedForAndOthersAreNot) {
  const Json dry = data({"adopt", "--dry-run"}, 0);
  EXPECT_EQ(dry["adopted"], false);
  ASSERT_TRUE(dry["parts"].contains("cores"));
  const Json never = data({"--only", "host.inventory"}, 4);
  EXPECT_EQ(never["checks"][0]["verdict"], "could-not-run");
  EXPECT_EQ(data({"adopt"}, 0)["adopted"], true);
  EXPECT_EQ(data({"--only", "host.inventory"}, 0)["checks"][0]["verdict"], "pass");
  // This machine is a node without what it has not: nothing of it is left open.
  for (const Json& check : data({"--only", "network.bond", "--only", "pci"}, 0)["checks"]) {
    EXPECT_NE(check["verdict"], "could-not-run") << check;
  }
  // What is skipped is no pass, for nobody who reads it.
  if (fs::exists("/proc/net/bonding")) GTEST_SKIP() << "this machine has bonds";
  const Json skipped = data({"--only", "network.bond", "--textfile", dir_.path().string()}, 0);
  EXPECT_EQ(skipped["verdict"], "skipped");
  const std::string text = read_file(dir_ / "ff_validate.prom");
  EXPECT_TRUE(has(text, "\nff_validate_skipped{check=\"network.bond\",part=\"\"} 1\n")) << text;
  EXPECT_FALSE(has(text, "ff_validate_check{") || has(text, "\nff_validate_verdict ")) << text;
  const ProcessResult required = validate({"--only", "network.bond", "--require", "network.bond"});
  EXPECT_EQ(required.exit, 3);
  EXPECT_TRUE(has(required.err, "not fit for work: network.bond")) << required.err;
}

TEST_F(ValidateTest, ATerminalShowsWhatRuns) {
  Child run({.argv = {FF_BINARY, "validate", "--only", "host.cpu"},
             .env = {{"FF_STATE", dir_ / "state"}},
             .stderr_terminal = true});
  EXPECT_EQ(run.finish(), 0) << run.err;
  EXPECT_TRUE(has(run.err, "0 of 1 checks done, host.cpu for ")) << run.err;
  EXPECT_FALSE(has(validate({"--only", "host.cpu"}).err, "checks done")) << "it is no terminal";
}

TEST_F(ValidateTest, ARunIsWrittenDownReportedAndTold) {
  fs::create_directories(dir_.path() / "prom");
  // Another test may run a task on this node.
  const std::vector<std::string> words = {"--only",     "cpu",         "--only", "host.cpu",
                                          "--textfile", dir_ / "prom", "--json", "--force"};
  EXPECT_EQ(validate({"report"}).exit, 1);
  // A core may be slow while other tests run beside this one: that is a verdict like any other.
  const auto degraded = [&] {
    const ProcessResult ran = validate(words);
    EXPECT_TRUE(ran.exit == 0 || ran.exit == 3) << ran.out << ran.err;
    return ran.exit == 3;
  };
  const bool first = degraded();
  const bool last = degraded();
  const auto verdict = [](bool is_degraded) { return is_degraded ? "degraded" : "pass"; };
  const Json report = data({"report"}, 0);
  ASSERT_EQ(report["runs"].size(), 2u);
  EXPECT_EQ(report["runs"][0]["verdict"], verdict(last)) << report["runs"];
  EXPECT_EQ(report["runs"][1]["verdict"], verdict(first)) << report["runs"];
  bool gemm = false;
  for (const Json& value : report["values"]) {
    gemm |= value["name"] == "cpu.kernels" && value["part"] == "gemm" &&
            value["values"].size() == 2 && value["values"][0]["value"].get<double>() > 0;
  }
  EXPECT_TRUE(gemm) << report;
  EXPECT_TRUE(has(validate({"report"}).out, "cpu.kernels\tgemm\t"));

  const std::string text = read_file(dir_ / "prom/ff_validate.prom");
  EXPECT_TRUE(has(text, last ? "\nff_validate_verdict 2\n" : "\nff_validate_verdict 0\n")) << text;
  const std::string gemm_line = "ff_validate_check{check=\"cpu.kernels\",part=\"gemm\"} ";
  EXPECT_TRUE(has(text, gemm_line + "0\n") || (last && has(text, gemm_line + "2\n"))) << text;
  EXPECT_TRUE(has(text, "unit=\"FLOP/s\"} ")) << text;
  const std::regex line(R"((# (HELP|TYPE) ff_\w+ .+|ff_\w+(\{\w+=".*"(,\w+=".*")*\})? \S+))");
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one);) EXPECT_TRUE(std::regex_match(one, line)) << one;
  EXPECT_EQ(validate({"--only", "host.cpu", "--textfile", dir_ / "nowhere"}).exit, 1);
}

TEST_F(ValidateTest, AChangedNameInAPageIsText) {
  // What is written on a page comes from the machine: a log, a disk's model. Runs of earlier
  // versions on saved logs are not on it.
  EXPECT_EQ(validate({"--only", "host.cpu"}).exit, 0);
  sqlite3* history = nullptr;
  ASSERT_EQ(::sqlite3_open((dir_ / "state/validate.db").c_str(), &history), SQLITE_OK);
  const char* const change =
      "UPDATE finding SET verdict = 'fail', found = '</td><script>alert(1)</script>', "
      "hint = 'Replace it.';"
      "INSERT INTO run VALUES (9, 9, '', '/tmp/kern.log', 'burn-in', 'fail', 1.0);";
  ASSERT_EQ(::sqlite3_exec(history, change, nullptr, nullptr, nullptr), SQLITE_OK);
  ::sqlite3_close(history);
  const std::string page_path = dir_ / "page.html";
  EXPECT_EQ(validate({"report", "--html", page_path}).exit, 0);
  const std::string page = read_file(page_path);
  EXPECT_TRUE(has(page, "&lt;script&gt;alert(1)")) << page;
  EXPECT_FALSE(has(page, "<script")) << page;
  EXPECT_TRUE(has(page, "Replace it.")) << page;
  EXPECT_TRUE(has(page, "width=device-width") && has(page, "@media (max-width: ")) << "for phones";
  EXPECT_FALSE(has(page, "burn-in")) << page;
  for (const char* const other : {"http://", "https://", "src=", "@import", "url("}) {
    EXPECT_FALSE(has(page, other)) << "the page needs " << other;
  }
}

// Takes one POST, writes its body to a file, and answers with a status.
std::string hook_server(const std::string& body_path, int status) {
  return "import http.server\n"
         "class Hook(http.server.BaseHTTPRequestHandler):\n"
         "  def do_POST(self):\n"
         "    body = self.rfile.read(int(self.headers['Content-Length']))\n"
         "    open('" +
         body_path +
         "', 'wb').write(body)\n"
         "    self.send_response(" +
         std::to_string(status) +
         ")\n"
         "    self.end_headers()\n"
         "  def log_message(self, *words): pass\n"
         "server = http.server.HTTPServer(('127.0.0.1', 0), Hook)\n"
         "print('port', server.server_port, flush=True)\n"
         "server.serve_forever()\n";
}

TEST_F(ValidateTest, AWebHookIsToldOfWhatIsNotWell) {
  const std::string tree = degraded_tree();
  Child server({.argv = {"python3", "-c", hook_server(dir_ / "body", 204)}});
  ASSERT_TRUE(server.wait_for_out("\n")) << server.err;
  const std::string url =
      "http://127.0.0.1:" + server.out.substr(5, server.out.size() - 6) + "/s3cret";
  EXPECT_EQ(validate({"--root", tree, "--only", "pci.link", "--notify", url}).exit, 3);
  const Json told = Json::parse(read_file(dir_ / "body"), nullptr, false);
  EXPECT_EQ(told["verdict"], "degraded");
  EXPECT_EQ(told["checks"][0]["name"], "pci.link");
  fs::remove(dir_ / "body");
  EXPECT_EQ(validate({"--only", "host.cpu", "--notify", url}).exit, 0);
  EXPECT_FALSE(fs::exists(dir_ / "body")) << "all was well";

  Child refusing({.argv = {"python3", "-c", hook_server(dir_ / "body", 500)}});
  ASSERT_TRUE(refusing.wait_for_out("\n")) << refusing.err;
  const std::string bad =
      "http://127.0.0.1:" + refusing.out.substr(5, refusing.out.size() - 6) + "/s3cret";
  const ProcessResult ran = validate({"--root", tree, "--only", "pci.link", "--notify", bad});
  EXPECT_EQ(ran.exit, 3) << "the verdict is not the hook's";
  EXPECT_TRUE(has(ran.err, "status 500")) << ran.err;
  EXPECT_FALSE(has(ran.err, "s3cret")) << ran.err;
}

TEST_F(ValidateTest, TwoRunsDoNotDisturbEachOtherAndCtrlCEndsOne) {
  // It runs until it is interrupted, beside whatever else does.
  const std::map<std::string, std::string> env = {{"FF_STATE", dir_ / "state"}};
  Child first({.argv = {FF_BINARY, "validate", "--only", "cpu", "--level", "burn-in", "--force"},
               .env = env});
  const std::string holder = fmt::format(" {} ", first.pid());
  EXPECT_TRUE(eventually([&] { return has(read_file("/proc/locks"), holder); }));
  const ProcessResult second = validate({"--only", "host.cpu"});
  EXPECT_EQ(second.exit, 1);
  EXPECT_TRUE(has(second.err, "another ff validate is running")) << second.err;
  write_file(dir_ / "kern.log", "[    0.000000] Linux version 6.1.0\n");
  EXPECT_EQ(validate({"--log", dir_ / "kern.log"}).exit, 0) << "a saved log waits for nobody";
  first.signal(SIGINT);
  EXPECT_EQ(first.finish(), 130);
  EXPECT_TRUE(eventually([&] { return validate({"--only", "host.cpu"}).exit == 0; }));
}

TEST_F(ValidateTest, ADeadlineOfTheWholeRunIsKept) {
  const ProcessResult ran = validate({"--only", "cpu", "--level", "weekly", "--timeout", "1s"});
  EXPECT_EQ(ran.exit, 6) << ran.err;
}

TEST_F(ValidateTest, AWholeRunOfThisMachineRunsEveryCheck) {
  EXPECT_EQ(validate({"adopt", "--quiet"}).exit, 0);
  // On a busy machine the run takes long, but never stands still: --verbose tells of each check
  // when it ends.
  Child run({.argv = {FF_BINARY, "validate", "--verbose", "--force", "--no-header"},
             .env = {{"FF_STATE", dir_ / "state"}}});
  const Json checks = data({"list"}, 0)["checks"];
  for (const Json& check : checks) {
    EXPECT_TRUE(run.wait_for_err(check["name"].get<std::string>() + ": ")) << check << run.err;
  }
  const int exit = run.finish();
  EXPECT_TRUE(exit == 0 || exit == 3 || exit == 4) << run.err;
  std::set<std::string> groups;
  std::istringstream rows(run.out);
  for (std::string row; std::getline(rows, row);) {
    const size_t tab = row.find('\t');
    if (tab == row.npos) continue;
    groups.insert(row.substr(tab + 1, row.find('.', tab) - tab - 1));
    EXPECT_FALSE(row.starts_with("fail")) << row;
  }
  for (const Json& check : checks) EXPECT_TRUE(groups.contains(check["group"])) << run.out;
  for (const auto& entry : fs::directory_iterator(dir_.path() / "state")) {
    EXPECT_TRUE(entry.path().filename().string().starts_with("validate.")) << entry.path();
  }
}

// A host name whose delay within four hours is none (validate.cc: FNV-1a).
std::string prompt_host() {
  for (int i = 0;; i++) {
    const std::string name = "node" + std::to_string(i);
    uint64_t hash = 14'695'981'039'346'656'037ULL;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1'099'511'628'211ULL;
    if (hash % (4 * 3600) == 0) return name;
  }
}

TEST_F(ValidateTest, TheLineForCronWorksAsPrinted) {
  const ProcessResult printed = run_ff({"generate", "cron"});
  EXPECT_EQ(printed.exit, 0);
  std::smatch parts;
  const std::regex line(R"(\n(\S+ \S+ \S+ \S+ \S+) root (\S+/ff validate [^\n]*--splay 4h)\n)");
  ASSERT_TRUE(std::regex_search(printed.out, parts, line)) << printed.out;
  EXPECT_EQ(parts[1], "0 3 * * 0");
  EXPECT_EQ(run_ff({"generate", "cron", dir_ / "cron.d"}).exit, 0);
  EXPECT_TRUE(has(read_file(dir_ / "cron.d/ff-validate"), parts[2]));
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives a host another name";
  EXPECT_EQ(validate({"adopt", "--quiet"}).exit, 0);
  // As cron runs it, on a host whose turn it is, but without loads: it says nothing until its end,
  // which a busy machine puts off.
  const std::string command =
      std::regex_replace(parts[2].str(), std::regex("weekly"), "quick --only host");
  const ProcessResult ran =
      run({.argv = {"unshare", "--uts", "sh", "-c",
                    "hostname " + prompt_host() + " && exec sh -c '" + command + "'"},
           .env = {{"FF_STATE", dir_ / "state"}}});
  EXPECT_TRUE(ran.exit == 0 || ran.exit == 3) << ran.err;
  EXPECT_FALSE(has(ran.out, "pass\t")) << "cron mails what is not well: " << ran.out;
  EXPECT_EQ(data({"report"}, 0)["runs"].size(), 1u);
}

TEST_F(ValidateTest, AnOrdinaryUserIsToldWhatCouldNotBeSeen) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root becomes somebody else";
  fs::permissions(dir_.path(), fs::perms::all);
  const std::vector<std::string> nobody = {"setpriv", "--reuid=65534", "--regid=65534",
                                           "--clear-groups", "--"};
  const auto as_nobody = [&](const std::vector<std::string>& words) {
    std::vector<std::string> argv = nobody;
    argv.insert(argv.end(), words.begin(), words.end());
    return run({.argv = argv, .env = {{"FF_STATE", dir_ / "state"}}});
  };
  const bool sees_log = as_nobody({"sh", "-c", "exec head -c 0 /dev/kmsg"}).exit == 0;
  const ProcessResult ran = as_nobody({FF_BINARY, "validate", "--json", "--only", "host", "--only",
                                       "log", "--only", "storage.health"});
  const Json report = Json::parse(ran.out, nullptr, false)["data"];
  ASSERT_TRUE(report.is_object()) << ran.out << ran.err;
  bool told = false;
  for (const Json& check : report["checks"]) {
    EXPECT_NE(check["verdict"], "fail") << check;
    EXPECT_TRUE(check["verdict"] != "could-not-run" || check["found"] != "") << check;
    told |= check["name"] == "log.kernel" && check["verdict"] == "could-not-run" &&
            check["hint"] == "Run it as root.";
  }
  EXPECT_NE(told, sees_log) << ran.out;
}

TEST_F(ValidateTest, AnXidIsExplainedByBothSources) {
  const ProcessResult ran = validate({"xid", "79"});
  EXPECT_EQ(ran.exit, 0);
  EXPECT_TRUE(has(ran.out, "RESTART_BM")) << ran.out;
  EXPECT_TRUE(has(ran.out, "uncorrectable GPU failure")) << ran.out;
  const Json both = data({"xid", "63", "94"}, 0);
  EXPECT_EQ(both["xids"].size(), 2u);
  EXPECT_EQ(both["xids"][0]["paper"]["class"], "memory ECC error");
  EXPECT_EQ(validate({"xid", "seventy"}).exit, 2);
  EXPECT_EQ(data({"xid"}, 0)["xids"].size(), 172u);
  // All that it knows, whatever else is asked.
  const ProcessResult mixed = validate({"xid", "13", "5000", "92", "94", "5001"});
  EXPECT_EQ(mixed.exit, 1);
  for (const char* const text : {"Xid 13: ", "Xid 92: high rate", "Xid 94: ", "who acts"}) {
    EXPECT_TRUE(has(mixed.out, text)) << mixed.out;
  }
  EXPECT_TRUE(has(mixed.err, "ff does not know Xid 5000, 5001")) << mixed.err;
  EXPECT_EQ(data({"xid", "5000", "92"}, 1)["unknown"], Json::array({5000}));
}

}  // namespace
}  // namespace ff::test
