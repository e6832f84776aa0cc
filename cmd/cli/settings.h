// Values of options that are not on the command line: from the environment, then from the files of
// base/config.h. The configurable options of all commands are known keys, so every command checks
// the whole file.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cmd/cli/cli.h"
#include "platform/base/config.h"
#include "platform/base/result.h"

namespace ff::cmd {

struct SettingValue {
  std::string text;    // as on the command line
  std::string source;  // "FF_STORE" or "/etc/ff/ff.toml:3"
};

// All options with a key or an environment variable, sorted by key, without duplicates.
std::vector<const Option*> configurable_options(std::span<const std::unique_ptr<Command>> commands);

class Settings {
 public:
  static Result<Settings> load(std::span<const std::unique_ptr<Command>> commands);
  // An empty variable counts as not set.
  std::optional<SettingValue> find(const Option& option) const;

 private:
  Config config_;
};

}  // namespace ff::cmd
