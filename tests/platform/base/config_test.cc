// Settings files: which files are read, which one takes precedence, and errors in them.
#include "platform/base/config.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace ff {
namespace {

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "ff-config-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string write(const std::string& name, const std::string& toml) {
    std::ofstream(dir_ / name) << toml;
    return dir_ / name;
  }
  // The "LINE: message" of the error; "" if the text loads.
  std::string wrong(const std::string& toml) {
    const std::string path = write("wrong.toml", toml);
    const Result<Config> config = Config::load({{path}, true}, kKeys);
    if (config) return "";
    EXPECT_EQ(config.error().code, Errc::usage);
    hint_ = config.error().hint;
    EXPECT_EQ(config.error().message.find(path + ":"), 0u);
    return config.error().message.substr(path.size() + 1);
  }

  const std::vector<ConfigKey> kKeys{{"store.path", ConfigType::text},
                                     {"store.deep.level", ConfigType::number},
                                     {"store.fast", ConfigType::flag},
                                     {"store.grace", ConfigType::quantity}};
  std::filesystem::path dir_;
  std::string hint_;
};

TEST_F(ConfigTest, first_file_wins_and_every_value_knows_its_line) {
  const ConfigPaths paths{{write("user.toml", "# mine\n[store]\npath = \"/user\"\n"),
                           dir_ / "absent.toml",
                           write("etc.toml",
                                 "[store]\npath = \"/etc\"\nfast = true\ngrace = 90\n"
                                 "[store.deep]\nlevel = -2\n")}};
  const Result<Config> config = Config::load(paths, kKeys);
  ASSERT_TRUE(config.ok()) << config.error().message;
  ASSERT_NE(config->find("store.path"), nullptr);
  EXPECT_EQ(config->find("store.path")->text, "/user");
  EXPECT_EQ(config->find("store.path")->file, paths.files[0]);
  EXPECT_EQ(config->find("store.path")->line, 3u);
  EXPECT_EQ(config->find("store.fast")->text, "true");
  EXPECT_EQ(config->find("store.grace")->text, "90");
  EXPECT_EQ(config->find("store.deep.level")->text, "-2");
  EXPECT_EQ(config->find("store.deep.level")->line, 6u);
  EXPECT_EQ(config->find("store"), nullptr);
}

TEST_F(ConfigTest, every_way_to_write_a_key) {
  EXPECT_EQ(wrong("store.path = 'x'\nstore.deep.level = 1.5\n"), "");
  EXPECT_EQ(wrong("store = { path = 'x', grace = '1h' }\n"), "");
  EXPECT_EQ(wrong(""), "");
  EXPECT_EQ(wrong("[store]\n[store.deep]\n"), "");
}

TEST_F(ConfigTest, unknown_keys_are_errors_with_the_nearest_one) {
  EXPECT_EQ(wrong("[store]\nfast = true\npaht = 'x'\n"), "3: unknown setting store.paht");
  EXPECT_EQ(hint_, "Did you mean store.path? `ff help config` lists every setting.");
  EXPECT_EQ(wrong("[zzzzzzzzz]\nq = 1\n"), "1: unknown setting zzzzzzzzz");
  EXPECT_EQ(hint_, "`ff help config` lists every setting.");
  EXPECT_EQ(wrong("path = 'x'\n"), "1: unknown setting path");
  EXPECT_EQ(wrong("\nstore.deep.x.y = 1\n"), "2: unknown setting store.deep.x");
}

TEST_F(ConfigTest, wrong_types_are_errors) {
  EXPECT_EQ(wrong("[store]\npath = 1\n"), "2: store.path must be text in quotes");
  EXPECT_EQ(wrong("[store]\nfast = 'yes'\n"), "2: store.fast must be true or false");
  EXPECT_EQ(wrong("store.deep.level = '1'\n"), "1: store.deep.level must be a number");
  EXPECT_EQ(wrong("store.grace = 1.5\n"),
            "1: store.grace must be text in quotes with a unit, or a whole number");
  EXPECT_EQ(wrong("[store.path]\n"), "1: store.path must be text in quotes");
  EXPECT_EQ(wrong("store.path = ['a']\n"), "1: store.path must be text in quotes");
  EXPECT_EQ(wrong("store = 1\n"), "1: unknown setting store");
}

TEST_F(ConfigTest, syntax_errors_name_the_line) {
  EXPECT_EQ(wrong("[store]\npath = \n").substr(0, 3), "2: ");
  EXPECT_EQ(wrong("[store\n").substr(0, 3), "1: ");
  EXPECT_EQ(wrong("[store]\npath='a'\npath='b'\n").substr(0, 3), "3: ");
}

TEST_F(ConfigTest, files_that_cannot_be_read) {
  const Result<Config> absent = Config::load({{dir_ / "absent.toml"}, true}, kKeys);
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, Errc::not_found);
  const Result<Config> folder = Config::load({{dir_.string()}, false}, kKeys);
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().message.find(dir_.string()), 0u);
  const std::string large = write("large.toml", std::string(2 << 20, '#'));
  const Result<Config> refused = Config::load({{large}, false}, kKeys);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::usage);
}

TEST_F(ConfigTest, paths_follow_the_environment) {
  ::unsetenv("FF_CONFIG");
  ::unsetenv("XDG_CONFIG_HOME");
  ::setenv("HOME", "/h", 1);
  EXPECT_EQ(config_paths().files,
            (std::vector<std::string>{"/h/.config/ff/ff.toml", "/etc/ff/ff.toml"}));
  EXPECT_FALSE(config_paths().must_exist);
  ::setenv("XDG_CONFIG_HOME", "relative", 1);
  EXPECT_EQ(config_paths().files[0], "/h/.config/ff/ff.toml");
  ::setenv("XDG_CONFIG_HOME", "/x", 1);
  EXPECT_EQ(config_paths().files, (std::vector<std::string>{"/x/ff/ff.toml", "/etc/ff/ff.toml"}));
  ::setenv("FF_CONFIG", "/only.toml", 1);
  EXPECT_EQ(config_paths().files, (std::vector<std::string>{"/only.toml"}));
  EXPECT_TRUE(config_paths().must_exist);
}

}  // namespace
}  // namespace ff
