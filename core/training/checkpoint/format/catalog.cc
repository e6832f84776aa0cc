// catalog.cc: listing a store and resolving names in it.
#include "training/checkpoint/format/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/files.h"
#include "training/checkpoint/format/sealed_line.h"

namespace ff::checkpoint {
namespace {

constexpr uint64_t kMarkFileMax = 64 * kKiB;
constexpr std::string_view kDefaultRun = "default";

// A whole decimal number without sign or leading zero.
std::optional<uint64_t> parse_number(std::string_view text) {
  if (text.size() > 1 && text.front() == '0') return std::nullopt;
  return parse_u64(text);
}

std::string unescape_attempt(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ec == std::errc()) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string attempt_dir_name(uint32_t world, std::string_view attempt) {
  std::string name = fmt::format("{}-", world);
  for (const char c : attempt) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '.' || c == '_' || c == '-') {
      name += c;
    } else {
      name += fmt::format("%{:02x}", byte);
    }
  }
  return name;
}

Result<std::vector<std::string>> list_runs(io::Disk& disk, const Store& store) {
  std::vector<std::string> runs;
  const auto entries = disk.list(store.runs_dir());
  if (!entries) {  // a crash during creation leaves the store without it
    if (entries.error().code == Errc::not_found) return runs;
    return entries.error();
  }
  for (const auto& entry : *entries) {
    if (entry.kind == io::FileKind::directory && check_run_name(entry.name)) {
      runs.push_back(entry.name);
    }
  }
  return runs;
}

Result<std::vector<uint64_t>> list_steps(io::Disk& disk, const Store& store,
                                         const std::string& run) {
  std::vector<uint64_t> steps;
  const auto entries = disk.list(store.run_dir(run));
  if (!entries) {
    if (entries.error().code == Errc::not_found) return steps;
    return entries.error();
  }
  for (const auto& entry : *entries) {
    const auto step = parse_number(entry.name);
    if (step && entry.kind == io::FileKind::directory) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<std::vector<uint64_t>> committed_steps(io::Disk& disk, const Store& store,
                                              const std::string& run) {
  std::vector<uint64_t> committed;
  FF_TRY(const auto steps, list_steps(disk, store, run));
  for (const uint64_t step : steps) {
    FF_TRY(const bool there, io::exists(disk, store.index_path({run, step})));
    if (there) committed.push_back(step);
  }
  return committed;
}

Result<std::vector<SaveAttempt>> list_attempts(io::Disk& disk, const Store& store,
                                               const StepName& name) {
  std::vector<SaveAttempt> attempts;
  const auto dirs = disk.list(store.shards_dir(name));
  if (!dirs) {
    if (dirs.error().code == Errc::not_found) return attempts;
    return dirs.error();
  }
  for (const auto& dir : *dirs) {
    const auto dash = dir.name.find('-');
    const auto world = parse_number(std::string_view(dir.name).substr(0, dash));
    if (dash == std::string::npos || !world || *world > UINT32_MAX) continue;
    SaveAttempt attempt{.id = unescape_attempt(std::string_view(dir.name).substr(dash + 1)),
                        .world = static_cast<uint32_t>(*world),
                        .present = {},
                        .missing = {},
                        .missing_count = 0,
                        .newest_ns = 0};
    const std::string path = io::join(store.shards_dir(name), dir.name);
    const auto shards = disk.list(path);
    if (!shards) continue;  // a commit has removed them meanwhile
    for (const auto& shard : *shards) {
      std::string_view stem = shard.name;
      if (!stem.ends_with(".jsonl")) continue;
      stem.remove_suffix(6);
      const auto rank = parse_number(stem);
      if (!rank || *rank >= *world) continue;
      attempt.present.push_back(static_cast<uint32_t>(*rank));
      const auto info = disk.info(io::join(path, shard.name));
      if (info) attempt.newest_ns = std::max(attempt.newest_ns, info->mtime_ns);
    }
    std::sort(attempt.present.begin(), attempt.present.end());
    attempt.missing_count = *world - attempt.present.size();
    auto next = attempt.present.begin();
    for (uint32_t rank = 0; rank < *world && attempt.missing.size() < kMissingShown; rank++) {
      if (next != attempt.present.end() && *next == rank) {
        ++next;
      } else {
        attempt.missing.push_back(rank);
      }
    }
    attempts.push_back(std::move(attempt));
  }
  return attempts;
}

Result<StepInfo> step_info(io::Disk& disk, const Store& store, const StepName& name) {
  StepInfo info{.name = name,
                .committed = false,
                .summary = {},
                .damage = {},
                .verified = {},
                .attempts = {}};
  FF_TRY(info.committed, io::exists(disk, store.index_path(name)));
  if (!info.committed) {
    FF_TRY(info.attempts, list_attempts(disk, store, name));
    return info;
  }
  auto summary = read_summary(disk, store.index_path(name));
  if (!summary) {
    info.damage = summary.error().message;
    return info;
  }
  info.summary = std::move(*summary);
  const auto mark = read_verified(disk, store, name);
  if (mark && *mark && (*mark)->index_digest == info.summary->end.index.hex()) {
    info.verified = (*mark)->verified;
  }
  return info;
}

std::optional<LatestMark> read_latest(io::Disk& disk, const Store& store, const std::string& run) {
  const auto text = io::read_file(disk, store.latest_path(run), kMarkFileMax);
  if (!text || !text->ends_with('\n')) return std::nullopt;
  const std::string_view line = std::string_view(*text).substr(0, text->size() - 1);
  const auto space = line.find(' ');
  if (space == line.npos) return std::nullopt;
  const auto step = parse_number(line.substr(0, space));
  if (!step) return std::nullopt;
  return LatestMark{*step, std::string(line.substr(space + 1))};
}

Result<StepName> latest_step(io::Disk& disk, const Store& store, const std::string& run) {
  if (const auto mark = read_latest(disk, store, run)) {
    const StepName name{run, mark->step};
    const auto summary = read_summary(disk, store.index_path(name));
    if (summary && summary->end.index.hex() == mark->index_digest) return name;
  }
  FF_TRY(const auto steps, committed_steps(disk, store, run));
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (read_summary(disk, store.index_path({run, *step}))) return StepName{run, *step};
  }
  return Error{Errc::not_found,
               fmt::format("run '{}' has no {} checkpoint in {}", run,
                           steps.empty() ? "committed" : "readable", store.path()),
               "'ff checkpoint list' lists the checkpoints."};
}

Result<StepName> resolve_step(io::Disk& disk, const Store& store, std::string_view text) {
  const auto at = text.find('@');
  const std::string run(at == 0 ? kDefaultRun : text.substr(0, at));
  FF_TRY(check_run_name(run));
  if (at == text.npos) return latest_step(disk, store, run);
  const auto step = parse_number(text.substr(at + 1));
  if (!step) {
    return Error{Errc::usage, fmt::format("'{}' is not RUN@STEP", printable(text)),
                 "STEP is a whole number, as in 'default@1000'."};
  }
  const StepName name{run, *step};
  FF_TRY(const bool there, io::exists(disk, store.index_path(name)));
  if (there) return name;
  FF_TRY(const auto attempts, list_attempts(disk, store, name));
  if (!attempts.empty()) {
    return Error{Errc::not_found,
                 fmt::format("{} is incomplete: {} of {} ranks have not saved", name.text(),
                             attempts.front().missing_count, attempts.front().world),
                 "'ff checkpoint list' names the missing ranks."};
  }
  return Error{Errc::not_found, fmt::format("no checkpoint {} in {}", name.text(), store.path()),
               "'ff checkpoint list' lists the checkpoints."};
}

Result<void> write_latest(Context& context, const Store& store, const StepName& name,
                          const simd::Digest& index_digest) {
  return io::replace_file(context.disk, store.latest_path(name.run),
                          fmt::format("{} {}\n", name.step, index_digest.hex()),
                          context.rng.hex_id());
}

Result<void> write_verified(Context& context, const Store& store, const StepName& name,
                            const simd::Digest& index_digest, std::string_view ff_version) {
  const int64_t now = context.clock.wall_ns();
  std::string line = fmt::format(R"({{"verified":1,"index":"{}","at":"{}","at_ns":{},"ff":)",
                                 index_digest.hex(), format_time(now), now);
  append_json_string(line, ff_version);
  return io::replace_file(context.disk, store.verified_path(name), seal_line(std::move(line)),
                          context.rng.hex_id());
}

Result<std::optional<VerifiedMark>> read_verified(io::Disk& disk, const Store& store,
                                                  const StepName& name) {
  auto text = io::read_file(disk, store.verified_path(name), kMarkFileMax);
  if (!text) {
    if (text.error().code == Errc::not_found) return std::optional<VerifiedMark>();
    return std::move(text).error();
  }
  std::string_view line = *text;
  if (line.ends_with('\n')) line.remove_suffix(1);
  const auto index = sealed_text(line, "index");
  if (!line_is_sealed(line) || !text->ends_with('\n') || !index) {
    return Error{Errc::corrupt,
                 fmt::format("{}: damaged (CRC32C mismatch)", store.verified_path(name)),
                 "'ff checkpoint verify' writes it again."};
  }
  return std::optional(VerifiedMark{
      {sealed_number(line, "at_ns").value_or(0), sealed_text(line, "ff").value_or("")}, *index});
}

}  // namespace ff::checkpoint
