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
  const auto damaged = read_damaged(disk, store, name);
  if (damaged && *damaged && (*damaged)->index_digest == info.summary->end.index.hex()) {
    info.damage = fmt::format("{} damaged or missing chunks, found {}", (*damaged)->chunks,
                              format_time((*damaged)->found.at_ns));
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

namespace {

// The readable checkpoint with the highest step, and its index.
struct HighestStep {
  StepName name;
  simd::Digest index;
};

Result<std::optional<HighestStep>> highest_step(io::Disk& disk, const Store& store,
                                                const std::string& run, bool& committed) {
  committed = false;
  FF_TRY(const auto steps, list_steps(disk, store, run));
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const StepName name{run, *step};
    const auto summary = read_summary(disk, store.index_path(name));
    if (summary) return std::optional(HighestStep{name, summary->end.index});
    committed = committed || summary.error().code != Errc::not_found;
  }
  return std::optional<HighestStep>();
}

}  // namespace

Result<StepName> latest_step(io::Disk& disk, const Store& store, const std::string& run) {
  bool committed = false;
  FF_TRY(const auto highest, highest_step(disk, store, run, committed));
  if (highest) return highest->name;
  return Error{Errc::not_found,
               fmt::format("run '{}' has no {} checkpoint in {}", run,
                           committed ? "readable" : "committed", store.path()),
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

// Another process may commit or forget meanwhile: the one that writes last sees what all did.
Result<void> update_latest(Context& context, const Store& store, const std::string& run) {
  for (;;) {
    FF_TRY(context.stop.check());
    bool committed = false;
    FF_TRY(const auto highest, highest_step(context.disk, store, run, committed));
    if (!highest) return {};
    const auto mark = read_latest(context.disk, store, run);
    if (mark && mark->step == highest->name.step && mark->index_digest == highest->index.hex()) {
      return {};
    }
    FF_TRY(write_latest(context, store, highest->name, highest->index));
  }
}

namespace {

// A mark of verify beside an index: a sealed line.
struct StepMark {
  std::string path;
  std::string index_digest;
  Verification found = {};
  std::optional<uint64_t> chunks = {};  // damaged ones
};

Result<void> write_mark(Context& context, std::string_view kind, const StepMark& mark) {
  std::string line =
      fmt::format(R"({{"{}":1,"index":"{}","at":"{}","at_ns":{},"ff":)", kind, mark.index_digest,
                  format_time(mark.found.at_ns), mark.found.at_ns);
  append_json_string(line, mark.found.ff_version);
  if (mark.chunks) line += fmt::format(R"(,"chunks":{})", *mark.chunks);
  return io::replace_file(context.disk, mark.path, seal_line(std::move(line)),
                          context.rng.hex_id());
}

Result<std::optional<StepMark>> read_mark(io::Disk& disk, const std::string& path) {
  auto text = io::read_file(disk, path, kMarkFileMax);
  if (!text) {
    if (text.error().code == Errc::not_found) return std::optional<StepMark>();
    return std::move(text).error();
  }
  std::string_view line = *text;
  if (line.ends_with('\n')) line.remove_suffix(1);
  const auto index = sealed_text(line, "index");
  if (!line_is_sealed(line) || !text->ends_with('\n') || !index) {
    return Error{Errc::corrupt, fmt::format("{}: damaged (CRC32C mismatch)", path),
                 "'ff checkpoint verify' writes it again."};
  }
  const auto chunks = sealed_number(line, "chunks").value_or(0);
  return std::optional(StepMark{.path = path,
                                .index_digest = *index,
                                .found = {.at_ns = sealed_number(line, "at_ns").value_or(0),
                                          .ff_version = sealed_text(line, "ff").value_or("")},
                                .chunks = static_cast<uint64_t>(std::max<int64_t>(0, chunks))});
}

}  // namespace

Result<void> write_verified(Context& context, const Store& store, const StepName& name,
                            const simd::Digest& index_digest, std::string_view ff_version) {
  return write_mark(context, "verified",
                    {.path = store.verified_path(name),
                     .index_digest = index_digest.hex(),
                     .found = {context.clock.wall_ns(), std::string(ff_version)}});
}

Result<std::optional<VerifiedMark>> read_verified(io::Disk& disk, const Store& store,
                                                  const StepName& name) {
  FF_TRY(auto mark, read_mark(disk, store.verified_path(name)));
  if (!mark) return std::optional<VerifiedMark>();
  return std::optional(VerifiedMark{std::move(mark->found), std::move(mark->index_digest)});
}

Result<void> write_damaged(Context& context, const Store& store, const StepName& name,
                           const simd::Digest& index_digest, const DamagedMark& mark) {
  return write_mark(context, "damaged",
                    {.path = store.damaged_path(name),
                     .index_digest = index_digest.hex(),
                     .found = {context.clock.wall_ns(), mark.found.ff_version},
                     .chunks = mark.chunks});
}

Result<std::optional<DamagedMark>> read_damaged(io::Disk& disk, const Store& store,
                                                const StepName& name) {
  FF_TRY(auto mark, read_mark(disk, store.damaged_path(name)));
  if (!mark) return std::optional<DamagedMark>();
  return std::optional(DamagedMark{.found = std::move(mark->found),
                                   .index_digest = std::move(mark->index_digest),
                                   .chunks = mark->chunks.value_or(0)});
}

}  // namespace ff::checkpoint
