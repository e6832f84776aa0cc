// Loading ff.toml with toml++, whose nodes know their source line. A file is walked as a tree of
// tables; each leaf must be a known key of the right type. Files are read whole and bounded.
#include "platform/base/config.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "platform/base/text.h"

namespace ff {
namespace {

// Far above any real settings file; limits memory if the path is a data file by mistake.
constexpr size_t kMaxFileBytes = size_t{1} << 20;

// The content of a file; nullopt when it does not exist and need not.
Result<std::optional<std::string>> read_file(const std::string& path, bool must_exist) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) {
    if (!must_exist && (errno == ENOENT || errno == ENOTDIR)) return std::optional<std::string>();
    return errno_error(errno, path);
  }
  std::string content(kMaxFileBytes + 1, '\0');
  size_t filled = 0;
  int failed = 0;
  while (filled < content.size()) {
    const ssize_t got = ::read(fd, content.data() + filled, content.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) failed = errno;
    if (got <= 0) break;
    filled += static_cast<size_t>(got);
  }
  ::close(fd);
  if (failed != 0) return errno_error(failed, path);
  if (filled > kMaxFileBytes) {
    return fail(Errc::usage, "{}: larger than {} bytes, not a settings file", path, kMaxFileBytes);
  }
  content.resize(filled);
  return std::optional<std::string>(std::move(content));
}

std::string_view type_words(ConfigType type) {
  switch (type) {
    case ConfigType::text: return "text in quotes";
    case ConfigType::flag: return "true or false";
    case ConfigType::number: return "a number";
    case ConfigType::quantity: return "text in quotes with a unit, or a whole number";
  }
  return "";
}

// The value as option text; nullopt when the node has another type.
std::optional<std::string> value_text(const toml::node& node, ConfigType type) {
  if (type == ConfigType::flag) {
    const auto flag = node.as_boolean();
    return flag ? std::optional<std::string>(flag->get() ? "true" : "false") : std::nullopt;
  }
  if (type != ConfigType::number && node.is_string()) return node.as_string()->get();
  if (type != ConfigType::text && node.is_integer()) {
    return fmt::format("{}", node.as_integer()->get());
  }
  if (type == ConfigType::number && node.is_floating_point()) {
    return fmt::format("{}", node.as_floating_point()->get());
  }
  return std::nullopt;
}

// Collects the values of one file.
struct Walk {
  const std::string& file;
  std::span<const ConfigKey> keys;
  std::map<std::string, ConfigValue, std::less<>>& values;
  UnknownKeys unknown_keys;

  Error at(const toml::source_position& where, std::string message, std::string hint) const {
    return {Errc::usage, fmt::format("{}:{}: {}", file, where.line, message), std::move(hint)};
  }

  Error unknown(const std::string& name, const toml::source_position& where) const {
    std::vector<std::string> names;
    for (const ConfigKey& key : keys) names.push_back(key.name);
    const std::string near = nearest(name, names);
    return at(where, fmt::format("unknown setting {}", name),
              near.empty()
                  ? "`ff help config` lists every setting."
                  : fmt::format("Did you mean {}? `ff help config` lists every setting.", near));
  }

  bool is_section(const std::string& name) const {
    for (const ConfigKey& key : keys) {
      if (key.name.size() > name.size() && key.name.starts_with(name) &&
          key.name[name.size()] == '.') {
        return true;
      }
    }
    return false;
  }

  Result<void> table(const toml::table& table, const std::string& prefix) {
    for (const auto& [toml_key, node] : table) {
      const std::string name = prefix + std::string(toml_key.str());
      // toml++ gives an implicit section (`a.b = 1`) no line; its key has one.
      const toml::source_position where =
          node.source().begin.line != 0 ? node.source().begin : toml_key.source().begin;
      if (node.is_table() && is_section(name)) {
        FF_TRY(this->table(*node.as_table(), name + "."));
        continue;
      }
      const ConfigKey* known = nullptr;
      for (const ConfigKey& key : keys) {
        if (key.name == name) known = &key;
      }
      if (known == nullptr) {
        if (unknown_keys == UnknownKeys::ignore) continue;
        return unknown(name, where);
      }
      auto text = value_text(node, known->type);
      if (!text) {
        return at(where, fmt::format("{} must be {}", name, type_words(known->type)), "");
      }
      values.try_emplace(name, ConfigValue{std::move(*text), file, where.line});
    }
    return {};
  }
};

}  // namespace

ConfigPaths config_paths() {
  auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const std::string only = variable("FF_CONFIG"); !only.empty()) return {{only}, true};
  ConfigPaths paths;
  const std::string xdg = variable("XDG_CONFIG_HOME");
  const std::string home = variable("HOME");
  // The XDG Base Directory specification says to ignore relative paths.
  if (xdg.starts_with('/')) {
    paths.files.push_back(xdg + "/ff/ff.toml");
  } else if (home.starts_with('/')) {
    paths.files.push_back(home + "/.config/ff/ff.toml");
  }
  paths.files.push_back("/etc/ff/ff.toml");
  return paths;
}

Result<Config> Config::load(const ConfigPaths& paths, std::span<const ConfigKey> keys,
                            UnknownKeys unknown) {
  Config config;
  for (const std::string& path : paths.files) {
    FF_TRY(auto content, read_file(path, paths.must_exist));
    if (!content) continue;
    const toml::parse_result parsed = toml::parse(*content, path);
    if (!parsed) {
      const toml::parse_error& error = parsed.error();
      return fail(Errc::usage, "{}:{}: {}", path, error.source().begin.line, error.description());
    }
    Walk walk{path, keys, config.values_, unknown};
    FF_TRY(walk.table(parsed.table(), ""));
  }
  return config;
}

const ConfigValue* Config::find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

}  // namespace ff
