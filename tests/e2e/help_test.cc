// `ff help`: pages, generated files and that the committed ones are current, links, libraries.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "e2e/child.h"
#include "storage/gateway/command_table.h"
#include "storage/s3/s3_call.h"

namespace ff::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

TEST(Help, short_and_long_forms) {
  const ProcessResult brief = probe({"store", "put", "-h"});
  EXPECT_EQ(brief.exit, 0);
  EXPECT_EQ(brief.err, "");
  EXPECT_EQ(brief.out.find("Put files into the store\n\nUsage: ff store put [OPTIONS] PATH...\n"),
            0u);
  for (const std::string line :
       {"  PATH...  What to put\n", "  -t, --tensor GLOB", "Only these (may repeat)", "--part SIZE",
        "(default: 4MiB; setting: store.part;", "(default: 1h; setting:", "--format raw|packed",
        "--[no-]compress", "  -f, --force", "--store DIR",
        "Options of every ff store command:", "-q, --quiet", "--no-header",
        "Network options, which `ff store --help` explains:\n  --cluster-key\n"}) {
    EXPECT_NE(brief.out.find(line), std::string::npos) << line << "\n" << brief.out;
  }
  for (const std::string absent : {"Examples:", "--old-tag", "--tls", "--cluster-key FILE"}) {
    EXPECT_EQ(brief.out.find(absent), std::string::npos) << absent;
  }
  const ProcessResult full = probe({"store", "put", "--help"});
  for (const std::string line : {"Puts each PATH. It's quoted.", "Examples:\n  ff store put model",
                                 "Exit codes:", "  130  interrupted"}) {
    EXPECT_NE(full.out.find(line), std::string::npos) << line;
  }
  EXPECT_EQ(probe({"help", "store", "put"}).out, full.out);
  EXPECT_EQ(probe({"help", "help"}).out, probe({"help", "--help"}).out);
  // -h counts anywhere, also where something is missing or inside a cluster.
  EXPECT_EQ(probe({"store", "put", "--level", "3", "-h"}).out, brief.out);
  EXPECT_EQ(probe({"store", "put", "-qh"}).out, brief.out);
  EXPECT_EQ(Json::parse(probe({"store", "put", "-h", "--json"}).out)["data"]["help"], brief.out);
  for (const std::string& page : {brief.out, full.out, probe({"--help"}).out}) {
    for (size_t at = 0; at < page.size();) {
      const size_t end = page.find('\n', at);
      EXPECT_LE(end - at, 80u) << page.substr(at, end - at);
      at = end + 1;
    }
  }
}

TEST(Help, explains_shared_options_once_and_hides_old_ones) {
  const ProcessResult store = probe({"store", "-h"});
  EXPECT_NE(store.out.find("Network options:\n      --cluster-key FILE"), std::string::npos)
      << store.out;
  EXPECT_EQ(store.out.find("\n  inner"), std::string::npos) << store.out;
  EXPECT_EQ(store.out.find("--tls"), std::string::npos) << store.out;
  const TempDir dir;
  ASSERT_EQ(probe({"generate", "docs", dir.path().string()}).exit, 0);
  const std::string page = read_file(dir / "man/ff-store.1");
  const size_t once = page.find(".B \"\\-\\-cluster\\-key FILE\"");
  ASSERT_NE(once, std::string::npos) << page;
  EXPECT_EQ(page.find(".B \"\\-\\-cluster\\-key FILE\"", once + 1), std::string::npos);
  for (const std::string file :
       {"man/ff-store.1", "completions/ff.bash", "completions/_ff", "completions/ff.fish"}) {
    const std::string text = read_file(dir / file);
    EXPECT_EQ(text.find("old-tag"), std::string::npos) << file;
    EXPECT_EQ(text.find("inner"), std::string::npos) << file;
  }
  EXPECT_NE(read_file(dir / "man/ff.1").find(".B \"store.tls\""), std::string::npos);
}

TEST(Help, of_ff_lists_every_command) {
  const ProcessResult top = run_ff({"-h"});
  EXPECT_EQ(top.exit, 0);
  EXPECT_NE(top.out.find("Explain a command"), std::string::npos);
  EXPECT_NE(top.out.find("--version"), std::string::npos);
  EXPECT_EQ(run_ff({"help"}).out, run_ff({"--help"}).out);
  const ProcessResult wrong = run_ff({"help", "hlep"});
  EXPECT_EQ(wrong.exit, 2);
  EXPECT_NE(wrong.err.find("Did you mean help?"), std::string::npos);
  EXPECT_EQ(probe({"help", "store", "putt"}).exit, 2);
  EXPECT_EQ(probe({"help", "mount", "more"}).exit, 2);
  EXPECT_EQ(probe({"help", "store", "--versions"}).exit, 2);
}

TEST(Help, exit_codes_are_those_of_the_design) {
  const ProcessResult ran = run_ff({"help", "exit-codes"});
  EXPECT_EQ(ran.exit, 0);
  EXPECT_EQ(ran.out.find("EXIT\tMEANING\n0\tdone, and true\n1\tcould not be done"), 0u);
  std::vector<int> codes;
  const Json data = Json::parse(run_ff({"help", "exit-codes", "--json"}).out)["data"];
  for (const Json& code : data["codes"]) codes.push_back(code["exit"]);
  EXPECT_EQ(codes, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 130}));
}

TEST(Help, versions_of_every_library) {
  const Json data = Json::parse(run_ff({"help", "--versions", "--json"}).out)["data"];
  std::set<std::string> names;
  for (const Json& library : data["libraries"]) {
    names.insert(library["name"]);
    EXPECT_FALSE(library["version"].get<std::string>().empty()) << library["name"];
  }
  for (const std::string name : {"curl", "libpq", "sqlite", "verbs", "numa", "fuse", "uring",
                                 "protobuf", "openssl", "zstd", "xxhash", "cli11", "fmt"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

std::set<std::string> files_in(const fs::path& dir) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) names.insert(entry.path().filename());
  return names;
}

TEST(Emit, committed_files_are_current) {
  const TempDir dir;
  const ProcessResult ran = run_ff({"generate", "docs", dir.path().string()});
  ASSERT_EQ(ran.exit, 0) << ran.err;
  for (const std::string folder : {"man", "completions"}) {
    const fs::path committed = fs::path(FF_SOURCE_DIR) / folder;
    EXPECT_EQ(files_in(dir / folder), files_in(committed));
    for (const std::string& name : files_in(dir / folder)) {
      EXPECT_EQ(read_file(fs::path(dir / folder) / name), read_file(committed / name))
          << folder << "/" << name
          << " is not what the option tables say: run `ff generate docs .`";
    }
  }
}

TEST(Emit, manual_pages_render_cleanly) {
  const TempDir dir;
  ASSERT_EQ(probe({"generate", "docs", dir / "probe"}).exit, 0);
  ASSERT_EQ(run_ff({"generate", "docs", dir / "ff"}).exit, 0);
  for (const std::string program : {"probe", "ff"}) {
    const fs::path man = fs::path(dir / program) / "man";
    ASSERT_TRUE(files_in(man).contains("ff.1"));
    for (const std::string& name : files_in(man)) {
      SCOPED_TRACE(program + "/" + name);
      const std::string page = man / name;
      const ProcessResult groff = run({.argv = {"groff", "-man", "-Tutf8", "-ww", "-z", page}});
      EXPECT_EQ(groff.exit, 0);
      EXPECT_EQ(groff.err, "");
      const ProcessResult mandoc = run({.argv = {"mandoc", "-Tlint", "-Werror", page}});
      EXPECT_EQ(mandoc.exit, 0) << mandoc.out;
    }
  }
  const ProcessResult page =
      run({.argv = {"man", "-l", dir / "probe/man/ff-store.1"},
           .env = {{"MANWIDTH", "100"}, {"MANPAGER", "cat"}, {"LC_ALL", "C.UTF-8"}}});
  for (const std::string text :
       {".A line that opens with a dot, and a \\ backslash.", "It's quoted.", "--part SIZE",
        "ff store put [OPTIONS] PATH...", "FF_PART", "EXIT STATUS"}) {
    EXPECT_NE(page.out.find(text), std::string::npos) << text << "\n" << page.out;
  }
}

TEST(Emit, says_what_it_cannot_write) {
  const ProcessResult ran = probe({"generate", "docs", "/dev/null/x"});
  EXPECT_EQ(ran.exit, 1);
  EXPECT_EQ(ran.err.find("ff generate docs: /dev/null/x/man: "), 0u) << ran.err;
}

TEST(Emit, has_its_old_name_for_scripts) {
  const TempDir dir;
  ASSERT_EQ(probe({"generate", "docs", dir / "new"}).exit, 0);
  ASSERT_EQ(probe({"help", "--emit", dir / "old"}).exit, 0);
  EXPECT_EQ(files_in(fs::path(dir / "old") / "man"), files_in(fs::path(dir / "new") / "man"));
  EXPECT_EQ(run_ff({"help", "--emit", "cron"}).out, run_ff({"generate", "cron"}).out);
  EXPECT_EQ(run_ff({"help", "--emit", "systemd"}).out, run_ff({"generate", "systemd"}).out);
  EXPECT_EQ(run_ff({"help", "--emit", "systemd", "a", "b"}).exit, 2);
  const ProcessResult unknown = run_ff({"help", "--emit", "grafana"});
  EXPECT_EQ(unknown.exit, 2);
  EXPECT_TRUE(has(unknown.err, "unknown kind of files 'grafana'")) << unknown.err;
  EXPECT_TRUE(has(unknown.err, "docs, systemd and cron")) << unknown.err;
  EXPECT_FALSE(fs::exists("grafana"));
  EXPECT_EQ(run_ff({"generate", "grafana"}).exit, 2);
  EXPECT_EQ(run_ff({"help", "-h"}).out.find("--emit"), std::string::npos);
}

const std::set<std::string> kConfinedUnits = {"ff-serve-meta.service", "ff-serve-storage.service",
                                              "ff-schedule-serve.service", "ff-serve-kv.service"};

// Writes the units to `dir`.
void generate_units(const TempDir& dir) {
  const ProcessResult ran = run_ff({"generate", "systemd", dir.path().string()});
  ASSERT_EQ(ran.exit, 0) << ran.err;
}

bool has_systemd_analyze() {
  return run({.argv = {"sh", "-c", "command -v systemd-analyze"}}).exit == 0;
}

TEST(Systemd, units_that_it_takes) {
  const TempDir dir;
  generate_units(dir);
  std::set<std::string> daemons = {"ff-mount@.service", "ff-up@.service",
                                   "ff-schedule-agent.service"};
  daemons.insert(kConfinedUnits.begin(), kConfinedUnits.end());
  std::set<std::string> all = daemons;
  all.insert({"ff-validate.service", "ff-validate.timer", "ff-users.service", "ff-serve-kv.socket",
              "ff-serve-kv-s3.socket"});
  EXPECT_EQ(files_in(dir.path()), all);
  const std::string runs = "\nExecStart=" + fs::canonical(FF_BINARY).string() + " ";
  EXPECT_NE(read_file(dir / "ff-validate.service").find(runs + "validate "), std::string::npos);
  // Read-only mounts of its own would look like errors of disks.
  EXPECT_EQ(read_file(dir / "ff-validate.service").find("ProtectSystem="), std::string::npos);
  EXPECT_NE(read_file(dir / "ff-validate.timer").find("\nFixedRandomDelay=true\n"),
            std::string::npos);
  for (const std::string& name : daemons) {
    const std::string unit = read_file(dir / name);
    for (const std::string line : {runs.c_str(), "\nType=notify\n", "\nRestart=on-failure\n",
                                   "\nLimitNOFILE=", "\nLimitMEMLOCK=infinity\n", "[Install]"}) {
      EXPECT_NE(unit.find(line), std::string::npos) << line << " in " << name;
    }
    // What mounts does so for the whole machine, and tasks inherit what the agent has.
    const bool confined = kConfinedUnits.contains(name);
    for (const std::string line : {"\nProtectSystem=", "\nPrivateTmp=", "\nPrivateMounts=",
                                   "\nUser=", "\nCapabilityBoundingSet=\n", "\nLoadCredential="}) {
      EXPECT_EQ(unit.find(line) != std::string::npos, confined) << line << " in " << name;
    }
  }
  const ProcessResult printed = run_ff({"generate", "systemd"});
  EXPECT_NE(printed.out.find("# ff-up@.service\n" + read_file(dir / "ff-up@.service")),
            std::string::npos);
  EXPECT_EQ(run_ff({"generate", "systemd", "a", "b"}).exit, 2);
  if (!has_systemd_analyze()) GTEST_SKIP() << "systemd-analyze is not installed";
  for (const std::string name :
       {"ff-serve-meta.service", "ff-serve-storage.service", "ff-mount@mnt-data.service",
        "ff-serve-kv.service", "ff-serve-kv.socket", "ff-serve-kv-s3.socket",
        "ff-up@data-ff.service", "ff-schedule-serve.service", "ff-schedule-agent.service",
        "ff-validate.service", "ff-validate.timer", "ff-users.service"}) {
    const ProcessResult checked =
        run({.argv = {"systemd-analyze", "verify", "--man=no", dir / name}});
    EXPECT_EQ(checked.exit, 0) << checked.err;
    EXPECT_EQ(checked.err.find("ff-"), std::string::npos) << checked.err;
  }
}

TEST(Systemd, units_with_little_exposure) {
  if (!has_systemd_analyze()) GTEST_SKIP() << "systemd-analyze is not installed";
  const TempDir dir;
  generate_units(dir);
  std::set<std::string> names = kConfinedUnits;
  names.insert("ff-users.service");
  for (const std::string& name : names) {
    // Fails above 2.5 of 10.
    const ProcessResult rated = run({.argv = {"systemd-analyze", "security", "--offline=true",
                                              "--no-pager", "--threshold=25", dir / name}});
    EXPECT_EQ(rated.exit, 0) << rated.out << rated.err;
  }
}

// As systemd runs it: a directory of root gets the daemon's user, all others stay as they are.
TEST(Systemd, disks_get_the_user_of_the_daemon) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root changes owners";
  const TempDir dir;
  generate_units(dir);
  const std::string unit = read_file(dir / "ff-serve-storage.service");
  const std::string before = "ExecStartPre=+-/bin/sh -c '";
  const size_t at = unit.find(before);
  ASSERT_NE(at, std::string::npos);
  std::string script = unit.substr(at + before.size());
  script.resize(script.find('\''));
  for (size_t i = 0; (i = script.find("$$", i)) != script.npos; i++) script.erase(i, 1);
  for (size_t i = 0; (i = script.find("\\\n", i)) != script.npos;) script.replace(i, 2, " ");
  for (size_t i = 0; (i = script.find("ff-storage", i)) != script.npos;) {
    script.replace(i, std::strlen("ff-storage"), "65534");
  }
  fs::create_directories(dir.path() / "old/below");
  fs::create_directories(dir.path() / "owned/below");
  fs::create_directories(dir.path() / "other");
  ASSERT_EQ(::chown((dir / "owned").c_str(), 65534, 65534), 0);
  const ProcessResult ran =
      run({.argv = {"sh", "-c", script, "sh", "--disk", dir / "old", dir / "owned",
                    "--disk=" + (dir / "new"), "--format", "--meta", dir / "other"}});
  EXPECT_EQ(ran.exit, 0) << ran.err;
  const auto owner = [&dir](const std::string& name) {
    struct stat info = {};
    return ::stat((dir / name).c_str(), &info) == 0 ? static_cast<int>(info.st_uid) : -1;
  };
  EXPECT_EQ(owner("old"), 65534);
  EXPECT_EQ(owner("old/below"), 65534);
  EXPECT_EQ(owner("new"), 65534);
  EXPECT_EQ(owner("owned/below"), 0);
  EXPECT_EQ(owner("other"), 0);
}

// The names behind ".B GROUP" of a page: "APPEND, CLIENT GETNAME, ....".
std::multiset<std::string> names_of_group(const std::string& page, const std::string& group) {
  const std::string mark = "\n.TP\n.B " + group + "\n";
  const size_t begin = page.find(mark);
  if (begin == page.npos) return {};
  std::string text = page.substr(begin + mark.size());
  text.resize(text.find(".\n."));
  std::ranges::replace(text, '\n', ' ');
  std::multiset<std::string> names;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(", ", at), text.size());
    names.insert(text.substr(at, end - at));
    at = end + 2;
  }
  return names;
}

TEST(Pages, that_of_the_file_system_names_what_gateways_have) {
  const std::string page = read_file(fs::path(FF_SOURCE_DIR) / "man/ff-storage.7");
  std::map<std::string, std::multiset<std::string>> groups;
  const auto add = [&groups](const gateway::CommandRow& row) {
    std::string name = gateway::upper_case(row.name);
    std::ranges::replace(name, '|', ' ');
    groups[std::string(row.group)].insert(std::move(name));
  };
  for (const gateway::CommandRow& row : gateway::command_table()) {
    if (row.handler != nullptr) add(row);
    for (const gateway::CommandRow& sub : row.subcommands) add(sub);
  }
  for (const auto& [group, names] : groups) {
    EXPECT_EQ(names_of_group(page, group), names) << "man/ff-storage.7 says others for " << group;
  }
  std::multiset<std::string> operations;
  for (const s3::OperationRow& row : s3::operation_table()) operations.emplace(row.name);
  EXPECT_EQ(names_of_group(page, "S3"), operations) << "man/ff-storage.7 says others for S3";
}

TEST(Install, makes_links_that_run) {
  const TempDir dir;
  const ProcessResult first = probe({"help", "--install", dir.path().string()});
  EXPECT_EQ(first.exit, 0) << first.err;
  EXPECT_EQ(files_in(dir.path()),
            (std::set<std::string>{"ff-copy", "ff-generate", "ff-help", "ff-mount", "ff-store",
                                   "ff-stream", "ff-talk", "ff-wait", "mount.ff"}));
  EXPECT_EQ(run({.argv = {dir / "ff-mount", "a", "b"}}).out, "mounted a b\n");
  EXPECT_EQ(run({.argv = {dir / "mount.ff", "a", "b"}}).out, "mounted b a\n");
  EXPECT_EQ(run({.argv = {dir / "ff-mount", "no"}}).exit, 1);
  EXPECT_EQ(run({.argv = {dir / "mount.ff", "no"}}).exit, 32);
  EXPECT_EQ(run({.argv = {dir / "mount.ff", "a", "b", "c", "d"}}).exit, 1);
  EXPECT_EQ(run({.argv = {dir / "ff-store", "get", "r"}}).out, "run=r dest=default-store\n");
  const ProcessResult again = probe({"help", "--install", dir.path().string()});
  EXPECT_EQ(again.exit, 0);
  EXPECT_EQ(again.out, "");
  // A link that an older ff left is renewed.
  const fs::path link = dir / "ff-store", target = fs::read_symlink(link);
  fs::remove(link);
  fs::create_symlink(fs::path("/opt/old") / target.filename(), link);
  EXPECT_EQ(probe({"help", "--install", dir.path().string()}).out, link.string() + "\n");
  EXPECT_EQ(fs::read_symlink(link), target);
}

TEST(Install, leaves_what_is_not_its_own) {
  const TempDir dir;
  write_file(dir / "ff-talk", "mine");
  ProcessResult ran = probe({"help", "--install", dir.path().string()});
  EXPECT_EQ(ran.exit, 5);
  EXPECT_NE(ran.err.find("ff-talk: exists and is not a link to ff"), std::string::npos);
  EXPECT_EQ(read_file(dir / "ff-talk"), "mine");
  EXPECT_EQ(files_in(dir.path()).size(), 1u);  // nothing was made
  fs::remove(dir / "ff-talk");
  fs::create_symlink("/bin/true", dir / "ff-talk");
  EXPECT_EQ(probe({"help", "--install", dir.path().string()}).exit, 5);
  ran = probe({"help", "--install", dir / "absent"});
  EXPECT_EQ(ran.exit, 1);
  EXPECT_NE(ran.err.find("mkdir -p"), std::string::npos);
}

TEST(Install, has_no_mount_helper_without_a_mount_command) {
  const TempDir dir;
  ASSERT_EQ(run_ff({"help", "--install", dir.path().string()}).exit, 0);
  const bool mounts = run_ff({"-h"}).out.find("\n  mount ") != std::string::npos;
  EXPECT_EQ(files_in(dir.path()).contains("mount.ff"), mounts);
  EXPECT_TRUE(files_in(dir.path()).contains("ff-help"));
}

}  // namespace
}  // namespace ff::test
