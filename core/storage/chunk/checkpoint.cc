// checkpoint.cc: the index, and the work of a checkpoint.
#include "storage/chunk/checkpoint.h"

#include <optional>
#include <utility>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/simd/crc32c.h"

namespace ff::chunk {
namespace {

constexpr std::string_view kIndexMagic = "ff-metadata ";
constexpr uint64_t kIndexFormat = 2;
constexpr std::string_view kIndexCrc = " crc=";
constexpr uint64_t kIndexMax = 64 * kKiB;

std::string crc_text(std::string_view text) {
  return fmt::format("{:08x}", simd::crc32c(as_bytes(text)));
}

// Removes and returns what precedes the first `separator`.
std::string_view take_until(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

std::optional<std::string_view> field(std::string_view& words, std::string_view name) {
  const std::string_view word = take_until(words, ' ');
  if (!word.starts_with(name)) return std::nullopt;
  return word.substr(name.size());
}

std::optional<std::vector<RunInfo>> parse_runs(std::string_view text) {
  std::vector<RunInfo> runs;
  if (text == "-") return runs;
  while (!text.empty()) {
    std::string_view item = take_until(text, ',');
    const auto number = parse_u64(take_until(item, ':'));
    const auto bytes = parse_u64(take_until(item, ':'));
    const auto crc = parse_u64(item);
    if (!number || !bytes || !crc || *crc > UINT32_MAX) return std::nullopt;
    runs.push_back({.number = *number, .bytes = *bytes, .crc = static_cast<uint32_t>(*crc)});
  }
  return runs;
}

}  // namespace

std::string metadata_path(const std::string& dir) { return io::join(dir, "chunks.index"); }

std::string to_line(const Checkpoint& checkpoint) {
  std::string runs;
  for (const RunInfo& run : checkpoint.runs) {
    if (!runs.empty()) runs += ',';
    runs += fmt::format("{}:{}:{}", run.number, run.bytes, run.crc);
  }
  std::string line =
      fmt::format("{}{} disk={} segment={} lsn={} runs={}", kIndexMagic, kIndexFormat,
                  checkpoint.disk, checkpoint.segment, checkpoint.lsn, runs.empty() ? "-" : runs);
  const std::string crc = crc_text(line);
  line += kIndexCrc;
  line += crc;
  line += '\n';
  return line;
}

Result<Checkpoint> parse_checkpoint(std::string_view line, const std::string& path) {
  Error damaged{Errc::corrupt, fmt::format("{}: damaged", path),
                "Check the health of the disk; its data is replicated on other disks."};
  const size_t crc = line.rfind(kIndexCrc);
  if (!line.starts_with(kIndexMagic) || crc == std::string_view::npos ||
      line.substr(crc + kIndexCrc.size()) != crc_text(line.substr(0, crc)) + "\n") {
    return damaged;
  }
  std::string_view words = line.substr(0, crc).substr(kIndexMagic.size());
  const auto format = parse_u64(take_until(words, ' '));
  if (format && *format > kIndexFormat) {
    return fail(Errc::newer_format, "{}: the metadata has format {}, and this ff supports {}", path,
                *format, kIndexFormat);
  }
  const auto disk = field(words, "disk=");
  const auto segment = field(words, "segment=");
  const auto lsn = field(words, "lsn=");
  const auto runs_text = field(words, "runs=");
  if (format != kIndexFormat || !disk || !segment || !lsn || !runs_text) return damaged;
  const auto segment_number = parse_u64(*segment);
  const auto lsn_number = parse_u64(*lsn);
  auto runs = parse_runs(*runs_text);
  if (!segment_number || !lsn_number || !runs) return damaged;
  return Checkpoint{.disk = std::string(*disk),
                    .segment = *segment_number,
                    .lsn = *lsn_number,
                    .runs = std::move(*runs)};
}

Result<Checkpoint> read_checkpoint(io::Disk& disk, const std::string& dir) {
  const std::string path = metadata_path(dir);
  FF_TRY(const std::string line, io::read_file(disk, path, kIndexMax));
  return parse_checkpoint(line, path);
}

Result<std::vector<std::unique_ptr<RowSource>>> open_runs(io::Disk& disk, const std::string& dir,
                                                          const std::vector<RunInfo>& runs,
                                                          size_t first) {
  std::vector<std::unique_ptr<RowSource>> sources;
  for (size_t i = runs.size(); i > first; --i) {
    FF_TRY(auto run, RunReader::open(disk, dir, runs[i - 1]));
    sources.push_back(std::move(run));
  }
  return sources;
}

Result<Checkpoint> CheckpointJob::run() const {
  LogRows rows;
  std::string memory;
  for (const ClosedSegment& segment : segments) {
    FF_TRY(read_closed_segment(disk_crc, segment, memory,
                               [&](std::string_view entry) { return rows.apply(entry); }));
  }
  return write(rows);
}

Result<Checkpoint> CheckpointJob::write(const LogRows& rows) const {
  uint64_t bytes = next_lsn - before.lsn;
  size_t kept = before.runs.size();
  while (kept > 0 && before.runs[kept - 1].bytes <= 2 * bytes) bytes += before.runs[--kept].bytes;
  std::vector<std::unique_ptr<RowSource>> sources;
  sources.push_back(rows.source());
  FF_TRY(auto merged, open_runs(*disk, dir, before.runs, kept));
  for (auto& source : merged) sources.push_back(std::move(source));
  RowMerge merge(std::move(sources), kept == 0);
  FF_TRY(const RunInfo made, write_run(*disk, dir, run_number, merge));
  Checkpoint after = before;
  after.segment = next_segment;
  after.lsn = next_lsn;
  after.runs.resize(kept);
  if (made.bytes > 0) after.runs.push_back(made);
  // The index names a segment only when that is durable: so a missing one is noticed.
  auto synced = next_file->sync();
  if (!synced) {
    synced.error().code = Errc::failed;  // entries of the log may be lost
    return std::move(synced).error();
  }
  FF_TRY(disk->sync_dir(dir));
  FF_TRY(io::replace_file(*disk, metadata_path(dir), to_line(after), "new"));
  // A run that is left over is removed by the next open().
  for (size_t i = kept; i < before.runs.size(); ++i) {
    (void)disk->remove(run_path(dir, before.runs[i].number));
  }
  return after;
}

}  // namespace ff::chunk
