// ff.toml: the settings of a user or a machine. The caller names every key that exists; anything
// else in a file is an error that says where and suggests the nearest key, because a misspelt
// setting that is silently ignored is found only when it hurts. Values come back as text with
// their file and line; the option they belong to parses them (cmd/cli/settings.cc).
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"

namespace ff {

enum class ConfigType : unsigned char {
  text,      // store = "/data/ckpt"
  flag,      // compress = true
  number,    // threads = 8
  quantity,  // a size or duration: grace = "1h", or a plain number of bytes or seconds
};

struct ConfigKey {
  std::string name;  // "checkpoint.store" for `store` under `[checkpoint]`
  ConfigType type = ConfigType::text;
};

struct ConfigValue {
  std::string text;
  std::string file;
  unsigned line = 0;
};

struct ConfigPaths {
  std::vector<std::string> files;  // the first that has a key wins
  bool must_exist = false;         // a file that is not there is an error, not an empty one
};

// $XDG_CONFIG_HOME/ff/ff.toml (or ~/.config/ff/ff.toml), then /etc/ff/ff.toml. FF_CONFIG names one
// file that stands in for both: jobs in containers and tests get exactly the settings they name.
ConfigPaths config_paths();

class Config {
 public:
  // Errors are `usage` (exit 2): unknown key, wrong type, TOML syntax; each with "FILE:LINE: ".
  // A file that exists and cannot be read keeps its own error.
  static Result<Config> load(const ConfigPaths& paths, std::span<const ConfigKey> keys);

  // The value of a key, or nullptr when no file has it.
  const ConfigValue* find(std::string_view name) const;

 private:
  std::map<std::string, ConfigValue, std::less<>> values_;
};

}  // namespace ff
