// ff.toml: the settings of a user or a machine. The caller lists every valid key; any other key in
// a file is an error that names file and line and suggests the nearest key, so that a misspelt
// setting is never ignored silently. Values are returned as text with their file and line; the
// option that they belong to parses them (cmd/cli/settings.cc).
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

// What to do with keys that the caller has not listed. A library ignores them: it does not know the
// keys of all commands.
enum class UnknownKeys : unsigned char { refuse, ignore };

struct ConfigValue {
  std::string text;
  std::string file;
  unsigned line = 0;
};

struct ConfigPaths {
  std::vector<std::string> files;  // if several files set a key, the first one wins
  bool must_exist = false;         // a missing file is an error instead of an empty file
};

// $XDG_CONFIG_HOME/ff/ff.toml (or ~/.config/ff/ff.toml), then /etc/ff/ff.toml. FF_CONFIG names one
// file that replaces both, so that jobs in containers and tests read exactly one known file.
ConfigPaths config_paths();

class Config {
 public:
  // Errors are `usage` (exit 2): unknown key, wrong type, TOML syntax; each begins "FILE:LINE: ".
  // If a file exists but cannot be read, the error is that of the read.
  static Result<Config> load(const ConfigPaths& paths, std::span<const ConfigKey> keys,
                             UnknownKeys unknown = UnknownKeys::refuse);

  // The value of a key, or nullptr when no file sets it.
  const ConfigValue* find(std::string_view name) const;

 private:
  std::map<std::string, ConfigValue, std::less<>> values_;
};

}  // namespace ff
