// The keys of ff.toml follow from the option tables: name, and type from the option's kind.
#include "cmd/cli/settings.h"

#include <algorithm>
#include <cstdlib>

namespace ff::cmd {
namespace {

void collect_set_options(const Command& command, std::vector<const Option*>& found) {
  for (const Option& option : command.options()) {
    if (!option.config_key().empty() || !option.env_name().empty()) found.push_back(&option);
  }
  for (const Command& sub : command.subs()) collect_set_options(sub, found);
}

// Sort key of options; equal for options of the same setting.
std::pair<std::string_view, std::string_view> identity(const Option& option) {
  return {option.config_key(), option.env_name()};
}

ConfigType type_of(const Option& option) {
  switch (option.binding().kind) {
    case Kind::flag: return ConfigType::flag;
    case Kind::number: return ConfigType::number;
    case Kind::size:
    case Kind::duration: return ConfigType::quantity;
    default: return ConfigType::text;
  }
}

}  // namespace

std::vector<const Option*> configurable_options(
    std::span<const std::unique_ptr<Command>> commands) {
  std::vector<const Option*> found;
  for (const auto& command : commands) collect_set_options(*command, found);
  // A visible option replaces a hidden option of the same setting.
  std::ranges::stable_sort(found, [](const Option* a, const Option* b) {
    if (identity(*a) != identity(*b)) return identity(*a) < identity(*b);
    return !a->is_hidden() && b->is_hidden();
  });
  const auto same = [](const Option* a, const Option* b) { return identity(*a) == identity(*b); };
  found.erase(std::unique(found.begin(), found.end(), same), found.end());
  return found;
}

Result<Settings> Settings::load(std::span<const std::unique_ptr<Command>> commands) {
  std::vector<ConfigKey> keys;
  for (const Option* option : configurable_options(commands)) {
    if (!option->config_key().empty()) keys.push_back({option->config_key(), type_of(*option)});
    const std::string& old = option->old_config_key();
    if (!old.empty()) keys.push_back({old, type_of(*option)});
  }
  Settings settings;
  FF_TRY(settings.config_, Config::load(config_paths(), keys));
  return settings;
}

std::optional<SettingValue> Settings::find(const Option& option) const {
  if (!option.env_name().empty()) {
    const char* value = std::getenv(option.env_name().c_str());
    if (value != nullptr && *value != '\0') return SettingValue{value, option.env_name()};
  }
  for (const std::string& key : {option.config_key(), option.old_config_key()}) {
    if (key.empty()) continue;
    if (const ConfigValue* value = config_.find(key)) {
      return SettingValue{value->text, fmt::format("{}:{}", value->file, value->line)};
    }
  }
  return std::nullopt;
}

}  // namespace ff::cmd
