// task_dir.cc: reading, parsing and writing the files of a task directory.
#include "training/task/task_dir.h"

#include <algorithm>
#include <array>

#include "platform/base/text.h"

namespace ff::task {
namespace {

constexpr std::string_view kBlanks = " \t";

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

bool is_reason(std::string_view word) {
  return !word.empty() && word.size() <= kReasonMax && std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

TaskFile ignored_file(const std::string& path, std::string_view why) {
  TaskFile file;
  file.ignored = fmt::format("{}: {}", path, why);
  return file;
}

}  // namespace

std::string heartbeat_name(uint32_t rank) { return fmt::format("heartbeat.{}", rank); }

TaskFile read_task_file(io::Disk& disk, const std::string& path) {
  const auto file = disk.open(path, {.no_follow = true});
  if (!file && file.error().code == Errc::not_found) return {};
  if (!file) return {.line = {}, .ignored = file.error().message, .mtime_ns = 0};
  const auto info = (*file)->info();
  if (!info) return {.line = {}, .ignored = info.error().message, .mtime_ns = 0};
  if (info->kind != io::FileKind::regular) return ignored_file(path, "not a regular file");
  std::array<std::byte, kTaskFileMax + 1>
      bytes;  // one more than allowed: the file may grow meanwhile
  const auto got = (*file)->read_at(bytes, 0);
  if (!got) return {.line = {}, .ignored = got.error().message, .mtime_ns = 0};
  if (*got > kTaskFileMax)
    return ignored_file(path, fmt::format("more than {} bytes", kTaskFileMax));
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), *got);
  if (!text.ends_with('\n')) return ignored_file(path, "it does not end in a newline");
  text.remove_suffix(1);
  if (text.find('\n') != text.npos) return ignored_file(path, "more than one line");
  return {.line = std::string(trimmed(text)), .ignored = {}, .mtime_ns = info->mtime_ns};
}

bool is_regular_file(io::Disk& disk, const std::string& path) {
  const auto info = disk.info(path);
  return info && info->kind == io::FileKind::regular;
}

std::string temporary_name(Rng& rng, std::string_view dir, std::string_view name) {
  return fmt::format("{}/.{}.{:016x}.tmp", dir, name, rng.next());
}

Result<void> write_line(io::Disk& disk, const std::string& path, std::string_view line) {
  const std::string text = fmt::format("{}\n", line);
  FF_CHECK(text.size() <= kTaskFileMax);
  FF_TRY(const auto file, disk.open(path, {.access = io::AccessMode::write,
                                           .create = true,
                                           .exclusive = true,
                                           .no_follow = true,
                                           .mode = 0644}));
  auto written = file->write_at(std::as_bytes(std::span(text)), 0);
  if (!written) (void)disk.remove(path);
  return written;
}

std::optional<StopRequest> parse_stop(std::string_view line) {
  const size_t blank = line.find_first_of(kBlanks);
  if (blank == line.npos || !is_reason(line.substr(0, blank))) return std::nullopt;
  const auto deadline = parse_u64(trimmed(line.substr(blank)));
  if (!deadline || *deadline > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return StopRequest{.reason = std::string(line.substr(0, blank)),
                     .deadline_s = static_cast<int64_t>(*deadline)};
}

std::optional<uint64_t> parse_step(std::string_view line) { return parse_u64(line); }

std::optional<uint32_t> parse_life_state(std::string_view line) {
  const auto word = parse_u64(line);
  if (!word || *word > UINT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(*word);
}

Result<std::string> stop_line(const StopRequest& request) {
  if (!is_reason(request.reason)) {
    return fail(Errc::usage,
                "'{}' is not a valid stop reason: use up to {} of a-z, 0-9, '_' and '-'",
                printable(request.reason), kReasonMax);
  }
  if (request.deadline_s < 0) {
    return fail(Errc::usage, "the deadline is {} s before 1970", -request.deadline_s);
  }
  return fmt::format("{} {}", request.reason, request.deadline_s);
}

}  // namespace ff::task
