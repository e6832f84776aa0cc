// Where the value of an option comes from when it is not on the line: the environment, then the
// files of base/config.h. Every configurable option of every command is a known key, so a file
// that serves one command is checked by all of them.
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

struct Given {
  std::string text;    // as the option would be written
  std::string source;  // "FF_STORE" or "/etc/ff/ff.toml:3"
};

// Every option that has a key or a variable, by key, each once.
std::vector<const Option*> configurable(std::span<const std::unique_ptr<Command>> commands);

class Settings {
 public:
  static Result<Settings> load(std::span<const std::unique_ptr<Command>> commands);
  // An empty variable counts as not set.
  std::optional<Given> find(const Option& option) const;

 private:
  Config config_;
};

}  // namespace ff::cmd
