// metadata.cc: life of a disk's metadata: creation, opening, changes, checkpoints.
#include "storage/chunk/metadata.h"

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::chunk {
namespace {

constexpr std::string_view kRunPrefix = "chunks.run-";

constexpr uint64_t kDiskShare = 512;  // of a disk, for the segments before a checkpoint
constexpr size_t kCheckpointSegmentsMax = 64;
constexpr size_t kLateSegments = 16;  // while a checkpoint is under way

}  // namespace

MetadataLogLimits metadata_log_limits(uint64_t disk_bytes) {
  MetadataLogLimits limits;
  const uint64_t share = disk_bytes / kDiskShare / limits.segment_bytes;
  limits.checkpoint_segments =
      std::clamp<uint64_t>(share, limits.checkpoint_segments, kCheckpointSegmentsMax);
  limits.data_segments_max = limits.checkpoint_segments + kLateSegments;
  return limits;
}

Metadata::Metadata(const MetadataOptions& options)
    : disk_(options.disk),
      dir_(options.dir),
      rng_(std::make_unique<SeededRng>(options.rng.next())),
      log_(options.disk, options.dir, options.disk_id, *rng_, options.log.segment_bytes),
      checkpoint_{.disk = options.disk_id},
      limits_(options.log) {}

Result<void> Metadata::create(const MetadataOptions& options, RowSource& rows) {
  FF_TRY(const auto entries, options.disk.list(options.dir));
  for (const io::DirEntry& entry : entries) {
    const bool ours = entry.name.starts_with("chunks.index") ||
                      entry.name.starts_with("chunks.log-") || entry.name.starts_with(kRunPrefix);
    if (ours) FF_TRY(options.disk.remove(io::join(options.dir, entry.name)));
  }
  Metadata made(options);
  FF_TRY(const RunInfo run, write_run(options.disk, options.dir, made.next_run_++, rows));
  if (run.bytes > 0) made.checkpoint_.runs.push_back(run);
  return made.start();
}

Result<std::unique_ptr<Metadata>> Metadata::open(const MetadataOptions& options) {
  FF_TRY(auto checkpoint, read_checkpoint(options.disk, options.dir));
  if (!options.disk_id.empty() && checkpoint.disk != options.disk_id) {
    return Error{Errc::corrupt,
                 fmt::format("{}: this is not the metadata of disk {}", metadata_path(options.dir),
                             options.disk_id),
                 "Restore files that belong together, or empty the folder."};
  }
  MetadataOptions found = options;
  found.disk_id = checkpoint.disk;
  std::unique_ptr<Metadata> opened(new Metadata(found));
  opened->checkpoint_ = std::move(checkpoint);
  FF_TRY(opened->remove_leftovers());
  FF_TRY(opened->log_.open(opened->checkpoint_.segment, opened->checkpoint_.lsn,
                           [&](std::string_view rows) { return opened->rows_.apply(rows); }));
  return opened;
}

// Runs that no index names.
Result<void> Metadata::remove_leftovers() {
  FF_TRY(const auto entries, disk_.list(dir_));
  for (const io::DirEntry& entry : entries) {
    if (!entry.name.starts_with(kRunPrefix)) continue;
    const auto number = parse_u64(std::string_view(entry.name).substr(kRunPrefix.size()));
    if (!number) continue;
    next_run_ = std::max(next_run_, *number + 1);
    const auto named = std::ranges::find(checkpoint_.runs, *number, &RunInfo::number);
    if (named == checkpoint_.runs.end()) FF_TRY(disk_.remove(io::join(dir_, entry.name)));
  }
  return {};
}

Result<void> Metadata::scan(const Visit& visit) {
  std::vector<std::unique_ptr<RowSource>> sources;
  sources.push_back(rows_.source());
  FF_TRY(auto runs, open_runs(disk_, dir_, checkpoint_.runs, 0));
  for (auto& run : runs) sources.push_back(std::move(run));
  RowMerge merge(std::move(sources), true);
  for (;;) {
    FF_TRY(const auto row, merge.next());
    if (!row) return {};
    FF_TRY(visit(static_cast<RowKind>(row->key[0]), row->key, row->value));
  }
}

CheckpointJob Metadata::job(uint64_t end) {
  CheckpointJob job{.disk = &disk_,
                    .dir = dir_,
                    .disk_crc = log_.disk_crc(),
                    .before = checkpoint_,
                    .segments = {},
                    .run_number = next_run_++,
                    .next_segment = log_.sequence(),
                    .next_lsn = log_.first_lsn(),
                    .next_file = log_.file()};
  for (const ClosedSegment& segment : log_.closed()) {
    if (segment.sequence >= end) {
      job.next_segment = segment.sequence;
      job.next_lsn = segment.first_lsn;
      job.next_file = segment.file;
      break;
    }
    job.segments.push_back(segment);
  }
  return job;
}

Result<void> Metadata::start(const RowChanges& changes, const RowChanges& first) {
  FF_TRY(log_.rotate());
  std::string rows;
  append_rows(rows, first);
  if (!rows.empty()) FF_TRY(log_.append(rows));
  rows.clear();
  append_rows(rows, changes);
  FF_TRY(rows_.apply(rows));
  FF_TRY(checkpoint_, job(log_.sequence()).write(std::exchange(rows_, {})));
  log_.release(checkpoint_.segment);
  log_.set_durable(log_.end_lsn());
  return {};
}

Result<void> Metadata::apply(const RowChanges& changes) {
  std::string rows;
  append_rows(rows, changes);
  return apply(rows);
}

Result<void> Metadata::apply(std::string_view rows) {
  if (failure_) return *failure_;
  FF_TRY(log_.append(rows));
  if (acked_ != nullptr) acked_->advance(position());
  return {};
}

Result<void> Metadata::flush() {
  const uint64_t position_before = position();
  for (const auto& file : log_.unsynced_files()) FF_TRY(file->sync());
  log_.set_durable(position_before);
  return {};
}

CheckpointJob Metadata::begin_checkpoint(uint64_t end) {
  FF_CHECK(!checkpointing_);
  checkpointing_ = true;
  return job(end);
}

void Metadata::finish_checkpoint(Result<Checkpoint> done) {
  checkpointing_ = false;
  tried_ = 0;
  if (done) {
    checkpoint_ = std::move(*done);
    log_.release(checkpoint_.segment);
  } else if (done.error().code == Errc::disk_full) {
    put_off_checkpoint();
  } else {
    failure_ = std::move(done).error();
  }
}

void Metadata::checkpoint_if_needed() {
  if (needs_checkpoint()) finish_checkpoint(begin_checkpoint(segment()).run());
}

uint64_t Metadata::stored_bytes() const {
  uint64_t bytes = position() - checkpoint_.lsn;
  for (const RunInfo& run : checkpoint_.runs) bytes += run.bytes;
  return bytes;
}

}  // namespace ff::chunk
