// Where values come from: line, environment, the user's file, the machine's file, default; and what
// is said about files that are wrong.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "e2e/child.h"

namespace ff::test {
namespace {

using Json = nlohmann::json;

// What `store put` printed after `key=`.
std::string value(const ProcessResult& ran, const std::string& key) {
  const size_t at = ran.out.find(key + "=");
  if (at == std::string::npos) return "(nothing) " + ran.err;
  const size_t from = at + key.size() + 1;
  return ran.out.substr(from, ran.out.find_first_of(" \n", from) - from);
}

// Runs the probe where /etc is a directory of its own with this ff.toml, in a mount namespace.
ProcessResult with_etc(const std::string& toml, const std::vector<std::string>& words,
                       std::map<std::string, std::string> env) {
  std::vector<std::string> argv{"unshare",
                                "--user",
                                "--map-root-user",
                                "--mount",
                                "sh",
                                "-c",
                                "mount -t tmpfs none /etc && mkdir /etc/ff && "
                                "printf %s \"$ETC_TOML\" > /etc/ff/ff.toml && exec " FF_PROBE
                                " \"$@\"",
                                "sh"};
  argv.insert(argv.end(), words.begin(), words.end());
  env["ETC_TOML"] = toml;
  return run({.argv = std::move(argv), .env = std::move(env)});
}

TEST(Precedence, flag_then_environment_then_user_then_machine_then_default) {
  const TempDir home;
  const std::string etc = "[store]\nlevel = 2\npart = \"2K\"\ngrace = 7\nformat = \"packed\"\n";
  if (with_etc("", {"store", "put", "x"}, {}).exit != 0) {
    GTEST_SKIP() << "unshare --user --mount is not allowed here: /etc cannot be replaced";
  }
  write_file(home / ".config/ff/ff.toml", "[store]\nlevel = 3\npart = 3072\ngrace = \"9s\"\n");
  const std::map<std::string, std::string> env{
      {"HOME", home.path().string()}, {"FF_LEVEL", "4"}, {"FF_PART", "4K"}};
  const ProcessResult all = with_etc(etc, {"store", "put", "x", "--level", "5"}, env);
  EXPECT_EQ(value(all, "level"), "5");        // the line
  EXPECT_EQ(value(all, "part"), "4096");      // the environment
  EXPECT_EQ(value(all, "grace"), "9");        // the user's file
  EXPECT_EQ(value(all, "format"), "packed");  // the machine's file
  EXPECT_EQ(value(all, "store"), "default-store");
}

TEST(Precedence, each_source_alone) {
  const TempDir home;
  write_file(home / "xdg/ff/ff.toml", "[store]\npath = \"/from/xdg\"\ncompress = true\n");
  write_file(home / ".config/ff/ff.toml", "[store]\npath = \"/from/home\"\n");
  write_file(home / "only.toml", "[store]\npath = \"/from/only\"\n");
  const std::string at_home = home.path().string();
  const std::vector<std::string> put{"store", "put", "x"};
  EXPECT_EQ(value(probe(put, {{"HOME", at_home}}), "store"), "/from/home");
  const ProcessResult xdg = probe(put, {{"HOME", at_home}, {"XDG_CONFIG_HOME", home / "xdg"}});
  EXPECT_EQ(value(xdg, "store"), "/from/xdg");
  EXPECT_EQ(value(xdg, "compress"), "true");
  const ProcessResult off = probe({"store", "put", "x", "--no-compress"},
                                  {{"HOME", at_home}, {"XDG_CONFIG_HOME", home / "xdg"}});
  EXPECT_EQ(value(off, "compress"), "false");
  EXPECT_EQ(value(probe(put, {{"HOME", at_home}, {"FF_CONFIG", home / "only.toml"}}), "store"),
            "/from/only");
  EXPECT_EQ(value(probe(put, {{"HOME", at_home}, {"FF_STORE_PATH", "/env"}}), "store"), "/env");
  // Empty is not set.
  EXPECT_EQ(value(probe(put, {{"HOME", at_home}, {"FF_STORE_PATH", ""}}), "store"), "/from/home");
  EXPECT_EQ(value(probe(put, {{"FF_COMPRESS", "1"}}), "compress"), "true");
}

TEST(WrongSettings, name_file_line_and_nearest_key) {
  const TempDir dir;
  const std::map<std::string, std::string> env{{"FF_CONFIG", dir / "ff.toml"}};
  const auto put = [&](const std::string& toml) {
    write_file(dir / "ff.toml", toml);
    return probe({"store", "put", "x"}, env);
  };
  const std::string at = "ff store put: " + dir / "ff.toml" + ":";
  const ProcessResult misspelt = put("[store]\nlevel = 1\npth = \"/x\"\n");
  EXPECT_EQ(misspelt.exit, 2);
  EXPECT_EQ(misspelt.err, at + "3: unknown setting store.pth\n  Did you mean store.path? "
                               "`ff help config` lists every setting.\n");
  EXPECT_EQ(put("[store]\nlevel = \"high\"\n").err, at + "2: store.level must be a number\n");
  EXPECT_EQ(put("[store]\npart = \"4Q\"\n").exit, 2);
  EXPECT_EQ(put("[store]\npart = \"4Q\"\n").err.find(at + "2: '4Q'"), 0u);
  EXPECT_EQ(put("[store\n").exit, 2);
  EXPECT_EQ(put("[store\n").err.find(at + "1: "), 0u);
  const ProcessResult variable = probe({"store", "put", "x"}, {{"FF_LEVEL", "high"}});
  EXPECT_EQ(variable.exit, 2);
  EXPECT_EQ(variable.err.find("ff store put: FF_LEVEL: 'high' is not a whole number"), 0u);
  // Named and not there; and with --json.
  const ProcessResult missing =
      probe({"store", "put", "x", "--json"}, {{"FF_CONFIG", dir / "none.toml"}});
  EXPECT_EQ(missing.exit, 1);
  EXPECT_EQ(Json::parse(missing.out)["error"]["code"], "not_found");
  // Help and commands without settings work all the same.
  put("[store\n");
  EXPECT_EQ(probe({"store", "put", "-h"}, env).exit, 0);
  EXPECT_EQ(probe({"mount"}, env).exit, 0);
}

TEST(Settings, have_old_keys_and_hidden_options) {
  const TempDir dir;
  const std::map<std::string, std::string> env{{"FF_CONFIG", dir / "ff.toml"}};
  const auto tag = [&](const std::string& toml) {
    write_file(dir / "ff.toml", toml);
    const ProcessResult ran = probe({"store", "put", "x"}, env);
    EXPECT_EQ(ran.err, "");
    const size_t at = ran.out.find("tag=");
    return ran.out.substr(at, ran.out.find('\n', at) - at);
  };
  EXPECT_EQ(tag("[store]\nold-tag = \"a\"\n"), "tag=a");
  EXPECT_EQ(tag("[store]\nold-tag = \"a\"\ntag = \"b\"\n"), "tag=b");
  EXPECT_EQ(tag("[store]\ntls = \"file\"\n"), "tag=none");
}

TEST(HelpConfig, says_where_every_value_comes_from) {
  const TempDir dir;
  write_file(dir / "ff.toml", "[store]\ngrace = \"90m\"\nlevel = 9\n");
  const std::map<std::string, std::string> env{
      {"FF_CONFIG", dir / "ff.toml"}, {"FF_LEVEL", "4"}, {"FF_COMPRESS", "yes"}};
  const ProcessResult plain = probe({"help", "config"}, env);
  EXPECT_EQ(plain.exit, 0);
  EXPECT_EQ(plain.out,
            "SETTING\tVALUE\tFROM\tENVIRONMENT\n"
            "store.compress\tyes\tFF_COMPRESS\tFF_COMPRESS\n"
            "store.format\traw\tdefault\t-\n"
            "store.grace\t90m\t" +
                dir / "ff.toml" +
                ":2\t-\n"
                "store.level\t4\tFF_LEVEL\tFF_LEVEL\n"
                "store.part\t4MiB\tdefault\tFF_PART\n"
                "store.path\tdefault-store\tdefault\tFF_STORE_PATH\n"
                "store.tag\t-\tnot set\t-\n"
                "store.tls\t-\tnot set\t-\n");
  EXPECT_EQ(probe({"help", "config", "--no-header"}, env).out, plain.out.substr(31));
  const Json settings =
      Json::parse(probe({"help", "config", "--json"}, env).out)["data"]["settings"];
  std::map<std::string, Json> values;
  for (const Json& setting : settings) values[setting["setting"]] = setting["value"];
  EXPECT_EQ(values["store.part"], 4194304);  // plain bytes
  EXPECT_EQ(values["store.grace"], 5400.0);  // seconds
  EXPECT_EQ(values["store.level"], 4);
  EXPECT_EQ(values["store.compress"], true);
  EXPECT_EQ(probe({"help", "config"}, {{"FF_LEVEL", "high"}}).exit, 2);
  write_file(dir / "ff.toml", "[nothing]\na = 1\n");
  EXPECT_EQ(probe({"help", "config"}, {{"FF_CONFIG", dir / "ff.toml"}}).exit, 2);
}

}  // namespace
}  // namespace ff::test
