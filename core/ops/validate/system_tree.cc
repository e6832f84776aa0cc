// system_tree.cc: reads files of unknown size (sysfs attributes), and resolves symlinks by their
// text.
#include "ops/validate/system_tree.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::validate {

namespace {

constexpr int kLinksMax = 8;

// The number at the end of a name; nothing: none.
std::optional<uint64_t> tail_number(std::string_view name) {
  const size_t digits = name.find_last_not_of("0123456789");
  return parse_u64(name.substr(digits == name.npos ? 0 : digits + 1));
}

bool before(const std::string& left, const std::string& right) {
  const auto a = tail_number(left), b = tail_number(right);
  if (a && b && *a != *b) return *a < *b;
  return left < right;
}

// "/a/b/../c/./d" -> "/a/c/d".
std::string normal(std::string_view path) {
  std::vector<std::string_view> parts;
  for (const std::string_view part : split(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
      continue;
    }
    parts.push_back(part);
  }
  std::string made;
  for (const std::string_view part : parts) made.append("/").append(part);
  return made.empty() ? "/" : made;
}

}  // namespace

SystemTree::SystemTree(io::Disk& disk, std::string root) : disk_(disk), root_(std::move(root)) {
  while (root_.ends_with('/')) root_.pop_back();
}

Result<std::string> SystemTree::bytes(const std::string& path) const {
  return io::read_file(disk_, on_disk(path), kTextMax);
}

Result<std::string> SystemTree::text(const std::string& path) const {
  FF_TRY(std::string content, bytes(path));
  if (content.ends_with('\n')) content.pop_back();
  return content;
}

Result<double> SystemTree::number(const std::string& path) const {
  FF_TRY(const std::string content, text(path));
  const auto first =
      std::ranges::find_if_not(content, [](unsigned char c) { return std::isspace(c); });
  double value = 0;
  const auto [end, error] = std::from_chars(content.data() + (first - content.begin()),
                                            content.data() + content.size(), value);
  if (error != std::errc() || !std::isfinite(value)) {
    return fail(Errc::failed, "{}: '{}' where a number should be", path,
                printable(std::string_view(content).substr(0, 40)));
  }
  return value;
}

std::optional<std::string> SystemTree::maybe_text(const std::string& path) const {
  auto found = text(path);
  return found ? std::optional(std::move(*found)) : std::nullopt;
}

std::optional<double> SystemTree::maybe_number(const std::string& path) const {
  const auto found = number(path);
  return found ? std::optional(*found) : std::nullopt;
}

bool SystemTree::exists(const std::string& path) const {
  const auto there = io::exists(disk_, on_disk(path));
  return there && *there;
}

std::vector<std::string> SystemTree::list(const std::string& dir) const {
  std::vector<std::string> names;
  const auto entries = disk_.list(on_disk(dir));
  if (!entries) return names;
  for (const io::DirEntry& entry : *entries) names.push_back(entry.name);
  return names;
}

std::vector<std::string> SystemTree::list(const std::string& dir, std::string_view prefix) const {
  std::vector<std::string> names = list(dir);
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(prefix); });
  std::ranges::sort(names, before);
  return names;
}

std::string SystemTree::link_text(const std::string& path) const {
  auto target = disk_.read_symlink(on_disk(path));
  return target ? std::move(*target) : "";
}

std::string SystemTree::follow(const std::string& path) const {
  std::string at = path;
  for (int i = 0; i < kLinksMax; i++) {
    const auto info = disk_.info(on_disk(at));
    if (!info) return "";
    if (info->kind != io::FileKind::symlink) return i > 0 ? at : "";
    const auto target = disk_.read_symlink(on_disk(at));
    if (!target) return "";
    at = normal(target->starts_with('/') ? *target : io::join(io::parent(at), *target));
  }
  return "";
}

}  // namespace ff::validate
