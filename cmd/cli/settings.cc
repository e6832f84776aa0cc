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

Result<void> assign(const Option& option, std::span<const std::string> texts,
                    const std::string& source) {
  Result<void> done = option.binding().assign(texts);
  if (done) return {};
  Error error = std::move(done).error().with_context(source + ": ");
  error.code = Errc::usage;
  return error;
}

Result<Settings> Settings::load(std::span<const std::unique_ptr<Command>> commands) {
  Settings settings;
  FF_TRY(settings.load(configurable_options(commands), UnknownKeys::refuse));
  return settings;
}

Result<Settings> Settings::load(const Command& command) {
  std::vector<const Option*> options;
  collect_set_options(command, options);
  Settings settings;
  FF_TRY(settings.load(options, UnknownKeys::ignore));
  return settings;
}

Result<void> Settings::load(const std::vector<const Option*>& options, UnknownKeys unknown) {
  std::vector<ConfigKey> keys;
  for (const Option* option : options) {
    if (!option->config_key().empty()) keys.push_back({option->config_key(), type_of(*option)});
    const std::string& old = option->old_config_key();
    if (!old.empty()) keys.push_back({old, type_of(*option)});
  }
  FF_TRY(config_, Config::load(config_paths(), keys, unknown));
  return {};
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

Result<void> assign_settings(const Command& command) {
  FF_TRY(const auto settings, Settings::load(command));
  for (const Option& option : command.options()) {
    const auto given = settings.find(option);
    if (given) FF_TRY(assign(option, std::span(&given->text, 1), given->source));
  }
  return {};
}

}  // namespace ff::cmd
