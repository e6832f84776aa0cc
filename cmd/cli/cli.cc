// The table of a command: options, arguments, subcommands. FF_CHECK reports a wrong declaration,
// which any test would find.
#include "cmd/cli/cli.h"

#include <algorithm>

#include "platform/base/check.h"

namespace ff::cmd {

Option::Option(std::string names, Binding binding, std::string description)
    : binding_(std::move(binding)), description_(std::move(description)) {
  if (!names.starts_with('-')) {
    positional_ = true;
    required_ = !binding_.is_optional || binding_.repeatable;
    long_ = std::move(names);
    return;
  }
  const size_t comma = names.find(',');
  if (comma != std::string::npos) {
    short_ = names.substr(0, comma);
    FF_CHECK(short_.size() == 2);
  }
  long_ = comma == std::string::npos ? std::move(names) : names.substr(comma + 1);
  FF_CHECK(long_.starts_with("--") && long_.size() > 2);
}

Option& Option::config(std::string key) {
  FF_CHECK(!positional_ && !binding_.repeatable && key.find('.') != std::string::npos);
  config_key_ = std::move(key);
  return *this;
}

Option& Option::env(std::string name) {
  FF_CHECK(!positional_ && !binding_.repeatable && name.starts_with("FF_"));
  env_name_ = std::move(name);
  return *this;
}

Option& Option::old_config(std::string key) {
  FF_CHECK(!config_key_.empty() && key.find('.') != std::string::npos);
  old_config_key_ = std::move(key);
  return *this;
}

Option& Option::alias(std::string old_name) {
  FF_CHECK(!positional_ && old_name.starts_with('-') && old_name.size() > 1);
  aliases_.push_back(std::move(old_name));
  return *this;
}

bool Option::is_named(std::string_view word) const {
  if (word == long_ || (!short_.empty() && word == short_)) return true;
  return std::ranges::find(aliases_, word) != aliases_.end();
}

std::string Option::synopsis() const {
  if (positional_) return long_ + (binding_.repeatable ? "..." : "");
  std::string text = short_.empty() ? "" : short_ + ", ";
  if (negatable()) {
    text += "--[no-]" + long_.substr(2);
  } else {
    text += long_;
  }
  return is_flag() ? text : text + " " + binding_.placeholder;
}

Command::Command(std::string name, std::string summary, const Command* parent)
    : name_(std::move(name)), summary_(std::move(summary)), parent_(parent) {}

Command& Command::about(std::string text) {
  about_ = std::move(text);
  return *this;
}

Command& Command::example(std::string line, std::string description) {
  examples_.push_back({std::move(line), std::move(description)});
  return *this;
}

Option& Command::option(std::string names, Binding binding, std::string description) {
  Option& added =
      options_.emplace_back(std::move(names), std::move(binding), std::move(description));
  FF_CHECK(!added.positional());
  return added;
}

Option& Command::flag(std::string names, bool& field, std::string description) {
  return option(std::move(names), cmd::flag(field), std::move(description));
}

Option& Command::argument(std::string name, Binding binding, std::string description) {
  FF_CHECK(subs_.empty() && (arguments_.empty() || !arguments_.back().binding().repeatable));
  Option& added =
      arguments_.emplace_back(std::move(name), std::move(binding), std::move(description));
  FF_CHECK(added.positional());
  return added;
}

Command& Command::sub(std::string name, std::string summary) {
  FF_CHECK(arguments_.empty() && !action_ && find(name) == nullptr);
  return subs_.emplace_back(std::move(name), std::move(summary), this);
}

Command& Command::default_sub(std::string name, std::string summary) {
  FF_CHECK(default_ == nullptr);
  Command& added = sub(std::move(name), std::move(summary));
  default_ = &added;
  return added;
}

Command& Command::blocking(int64_t default_ns) {
  timeout_ns_ = default_ns;
  Binding binding = duration(timeout_ns_);
  if (default_ns == 0) binding.default_text.clear();
  option("--timeout", std::move(binding), "Give up after this time, with exit code 6")
      .section(kCommonOptions);
  return *this;
}

Command& Command::run(Run action) {
  FF_CHECK(subs_.empty());
  action_ = std::move(action);
  return *this;
}

Command& Command::link(ProgramLink link) {
  links_.push_back(std::move(link));
  return *this;
}

std::string Command::path() const {
  return parent_ == nullptr ? name_ : parent_->path() + " " + name_;
}

std::vector<const Option*> Command::all_options() const {
  std::vector<const Option*> all;
  if (default_ != nullptr) {
    for (const Option& option : default_->options_) all.push_back(&option);
  }
  for (const Command* at = this; at != nullptr; at = at->parent_) {
    for (const Option& option : at->options_) all.push_back(&option);
  }
  return all;
}

std::vector<const Option*> Command::visible_options() const {
  std::vector<const Option*> shown = all_options();
  std::erase_if(shown, [](const Option* option) { return option->is_hidden(); });
  return shown;
}

std::vector<const Command*> Command::visible_subs() const {
  std::vector<const Command*> shown;
  for (const Command& sub : subs_) {
    if (!sub.hidden_) shown.push_back(&sub);
  }
  return shown;
}

const Command* Command::find(std::string_view sub_name) const {
  for (const Command& sub : subs_) {
    if (sub.name_ == sub_name) return &sub;
  }
  return nullptr;
}

std::vector<std::unique_ptr<Command>> declare_all(std::span<const CommandEntry> commands) {
  std::vector<std::unique_ptr<Command>> all;
  for (const CommandEntry& entry : commands) {
    all.push_back(std::make_unique<Command>(std::string(entry.name), std::string(entry.summary)));
    entry.declare(*all.back());
  }
  return all;
}

}  // namespace ff::cmd
