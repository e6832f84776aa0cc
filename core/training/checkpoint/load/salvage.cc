// salvage.cc: checks every chunk, writes a repaired index of the intact parts, restores from it.
#include "training/checkpoint/load/salvage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/format/lease.h"
#include "training/checkpoint/format/safetensors.h"
#include "training/checkpoint/load/restore.h"
#include "training/checkpoint/load/staging.h"
#include "training/checkpoint/load/tensor_files.h"

namespace ff::checkpoint {
namespace {

using BadChunks = std::map<simd::Digest, std::string>;  // with the reason

struct SalvageWork {
  Context& context;
  const Store& store;
  SalvageReport& report;
  Lease* lease;

  void lose(LostItem lost) {
    if (report.lost_count++ < kLostShown) report.lost.push_back(std::move(lost));
  }
};

std::vector<ChunkExtent>* written_extents(Record& record) {
  if (auto* file = std::get_if<FileRecord>(&record)) return &file->extents;
  auto* tensor = std::get_if<TensorRecord>(&record);
  return tensor == nullptr ? nullptr : &tensor->extents;
}

// Read jobs for every chunk that the readable lines of an index refer to.
class ChunkSource final : public ReadSource {
 public:
  explicit ChunkSource(IndexReader reader) : reader_(std::move(reader)) {}

  Result<std::optional<ReadJob>> next() override {
    for (;;) {
      if (auto job = builder_.take()) return std::optional(std::move(job));
      if (ended_) return std::optional<ReadJob>();
      FF_TRY(auto record, reader_.next());
      if (!record) {
        ended_ = true;
        builder_.flush();
      } else if (auto* extents = written_extents(*record)) {
        builder_.add_all(std::move(*extents), nullptr, 0);
      }
    }
  }

 private:
  IndexReader reader_;
  JobBuilder builder_;
  bool ended_ = false;
};

Result<BadChunks> check_chunks(SalvageWork& work) {
  BadChunks bad;
  FF_TRY(auto reader,
         IndexReader::open_damaged(work.context.disk, work.store.index_path(work.report.name),
                                   work.store.digest_kind(), {}));
  ChunkSource source(std::move(reader));
  ReadPlan plan{
      .context = work.context,
      .store = work.store,
      .source = source,
      .lease = work.lease,
      .on_damage = [&](const simd::Digest& chunk, const std::string& reason) -> Result<void> {
        bad.emplace(chunk, reason);
        return {};
      }};
  FF_TRY(run_reads(plan));
  return bad;
}

// The identity of a file: its rank and name.
using FileKey = std::pair<uint32_t, std::string>;
FileKey key_of(const FileRecord& file) { return {file.rank, file.name}; }

// The content of the repaired index.
struct Repaired {
  std::set<FileKey> damaged;  // safetensors files with damage
  bool rank_folders = false;  // names of several ranks collide
  uint64_t entries = 0;       // intact files (directories do not count), and tensors
};

// Reads the damaged index and writes the repaired one.
class Repair {
 public:
  Repair(SalvageWork& work, const BadChunks& bad, IndexWriter& writer)
      : work_(work), bad_(bad), writer_(writer), section_({}) {}

  Result<Repaired> run();

 private:
  void skipped(uint64_t line_number, std::string_view line);
  Result<void> begin_file(FileRecord file);
  Result<void> begin_nameless(uint64_t line_number);
  Result<void> add_tensor(const TensorRecord& tensor, uint64_t line_number);
  Result<void> end_file();
  bool belongs(const TensorRecord& tensor);
  void read_header();
  std::optional<std::string> damage(const std::vector<ChunkExtent>& extents) const;

  SalvageWork& work_;
  const BadChunks& bad_;
  IndexWriter& writer_;
  Repaired out_;
  std::set<std::string> names_;
  bool gap_ = false;  // lines were lost since the last good one

  std::optional<FileRecord> file_;  // the safetensors file of the current tensors
  bool whole_ = false;
  DataSection section_;  // of file_
  bool header_tried_ = false;
  std::optional<SafetensorsHeader> header_;  // of file_, once needed and if readable
  size_t in_header_ = 0;                     // index of the next tensor
};

std::optional<std::string> Repair::damage(const std::vector<ChunkExtent>& extents) const {
  if (bad_.empty()) return std::nullopt;
  for (const auto& extent : extents) {
    if (!extent.chunk) continue;
    const auto it = bad_.find(*extent.chunk);
    if (it != bad_.end()) return fmt::format("chunk {}: {}", it->first.hex(), it->second);
  }
  return std::nullopt;
}

void Repair::skipped(uint64_t line_number, std::string_view line) {
  gap_ = true;
  LostItem lost{.file = {}, .tensor = {}, .reason = {}};
  const auto name = line_name(line);
  const LineType type = line_type(line);
  if (type == LineType::end) return;  // run() reports that it is missing
  if (name && type == LineType::file) lost.file = *name;
  if (name && type == LineType::tensor) {
    lost.file = file_ ? file_->name : std::string();
    lost.tensor = *name;
  }
  lost.reason = fmt::format("line {} of the index is damaged", line_number);
  work_.lose(std::move(lost));
}

Result<Repaired> Repair::run() {
  FF_TRY(
      auto reader,
      IndexReader::open_damaged(
          work_.context.disk, work_.store.index_path(work_.report.name), work_.store.digest_kind(),
          [this](uint64_t number, std::string_view line) { skipped(number, line); }));
  gap_ = false;  // no tensors were lost with a damaged header line
  for (;;) {
    FF_TRY(work_.context.stop.check());
    FF_TRY(auto record, reader.next());
    if (!record) break;
    if (auto* file = std::get_if<FileRecord>(&*record)) {
      FF_TRY(end_file());
      FF_TRY(begin_file(std::move(*file)));
    } else if (const auto* tensor = std::get_if<TensorRecord>(&*record)) {
      FF_TRY(add_tensor(*tensor, reader.line_number()));
    }
  }
  FF_TRY(end_file());
  if (!reader.end()) {
    work_.lose({.file = {},
                .tensor = {},
                .reason = "the index has no intact end line; files may be missing from it"});
  }
  return std::move(out_);
}

Result<void> Repair::begin_file(FileRecord file) {
  gap_ = false;
  const auto reason = damage(file.extents);
  if (reason) work_.lose({.file = file.name, .tensor = {}, .reason = *reason});
  if (reason && file.kind != EntryKind::safetensors) return {};
  if (!names_.insert(file.name).second) out_.rank_folders = true;
  FF_TRY(writer_.add(file));
  if (file.kind != EntryKind::safetensors) {
    out_.entries += file.kind == EntryKind::directory ? 0 : 1;
    return {};
  }
  whole_ = !reason;
  section_.begin(file);
  header_tried_ = false;
  header_.reset();
  in_header_ = 0;
  file_ = std::move(file);
  return {};
}

// A file for tensors after damaged lines, whose own file line may be lost.
Result<void> Repair::begin_nameless(uint64_t line_number) {
  FF_TRY(end_file());
  FileRecord file;
  file.name = fmt::format("salvaged-line-{}.safetensors", line_number);
  file.kind = EntryKind::safetensors;
  FF_TRY(begin_file(std::move(file)));
  whole_ = false;
  return {};
}

// The header of file_, which lists its tensors.
void Repair::read_header() {
  header_tried_ = true;
  const auto text = checkpoint::read_header(work_.context, work_.store, file_->extents);
  if (!text || text->size() > file_->size) return;
  auto header = SafetensorsHeader::parse(std::string_view(*text).substr(kSafetensorsLengthBytes),
                                         file_->size - text->size());
  if (header) header_ = std::move(*header);
}

// The header and the index both list tensors in the order of their data.
bool Repair::belongs(const TensorRecord& tensor) {
  if (!file_) return false;
  if (!header_tried_) read_header();
  if (!header_) return false;
  for (size_t i = in_header_; i < header_->count(); i++) {
    const auto listed = header_->tensor(i);
    if (listed.name != tensor.name) continue;
    in_header_ = i + 1;
    return listed.dtype == tensor.dtype && listed.shape == tensor.shape &&
           listed.begin == tensor.offset && listed.end - listed.begin == tensor.size;
  }
  return false;
}

Result<void> Repair::add_tensor(const TensorRecord& tensor, uint64_t line_number) {
  if (gap_ || !file_) {
    // A damaged line may have been the line of another file.
    if (belongs(tensor)) {
      whole_ = false;
    } else {
      FF_TRY(begin_nameless(line_number));
    }
    gap_ = false;
  }
  if (!section_.add(tensor)) whole_ = false;
  if (const auto reason = damage(tensor.extents)) {
    whole_ = false;
    work_.lose({.file = file_->name, .tensor = tensor.name, .reason = *reason});
    return {};
  }
  out_.entries++;
  return writer_.add(tensor);
}

Result<void> Repair::end_file() {
  if (!file_) return {};
  // This also finds tensors whose lines are missing without damage elsewhere.
  whole_ = whole_ && section_.end();
  if (!whole_) out_.damaged.insert(key_of(*file_));
  if (whole_) out_.entries++;
  file_.reset();
  return {};
}

Result<void> read_all(SalvageWork& work, ReadSource& source) {
  ReadPlan plan{
      .context = work.context,
      .store = work.store,
      .source = source,
      .lease = work.lease,
      .on_damage = [&](const simd::Digest& chunk, const std::string& reason) -> Result<void> {
        // It was intact in the first pass.
        return damaged_chunk(work.context.disk, work.store, work.report.name, chunk, reason);
      }};
  return run_reads(plan);
}

Result<void> restore(SalvageWork& work, const Repaired& repaired, const std::string& index_path,
                     const Staging& staging) {
  const auto damaged = [&](const FileRecord& file) {
    return repaired.damaged.contains(key_of(file));
  };
  const RestorePaths places(repaired.rank_folders);
  TensorSelection selection;
  selection.file = damaged;
  selection.metadata_may_fail = true;
  selection.index_disk = &staging.disk();
  selection.path = [&](const FileRecord* file, uint32_t) {
    return io::join(staging.dir(), places.of(*file));
  };
  FF_TRY(auto partial, TensorFilesSource::plan(work.context, work.store, work.report.name,
                                               index_path, selection));
  FF_TRY(auto whole,
         RestoreSource::plan(work.context, index_path, staging.disk(), staging.dir(),
                             {.file = [&](const FileRecord& file) { return !damaged(file); },
                              .rank_folders = repaired.rank_folders,
                              .index_disk = &staging.disk()}));
  FF_TRY(check_space(staging.disk(), staging.dir(),
                     add_or_max(partial.count().stored_bytes, whole.count().stored_bytes)));
  partial.write_to(staging.disk());
  // Intact files last: that pass sets the modes of directories.
  FF_TRY(read_all(work, partial));
  FF_TRY(read_all(work, whole));
  FF_TRY(whole.finish());
  work.report.files_whole = whole.count().files;
  work.report.files_partial = partial.count().files;
  work.report.tensors = whole.count().tensors + partial.count().tensors;
  work.report.bytes = whole.count().bytes + partial.count().bytes;
  return {};
}

}  // namespace

Result<SalvageReport> salvage(Context& context, const std::string& store_path,
                              const SalvageOptions& options) {
  const int64_t began = context.clock.steady_ns();
  FF_TRY(const auto store, Store::open_damaged(context.disk, store_path));
  SalvageReport report;
  report.store_file_damaged = store.id().empty();
  FF_TRY(report.name, resolve_step(context.disk, store, options.name));
  auto lease =
      Lease::try_acquire(context, store, {.action = "salvage", .name = report.name, .attempt = {}});
  SalvageWork work{context, store, report, lease ? &*lease : nullptr};
  const auto summary = read_summary(context.disk, store.index_path(report.name));
  if (summary) context.progress.total = 2 * summary->end.size;  // checked, then restored
  FF_TRY(auto staging, Staging::open(context, options.dest));
  FF_TRY(const auto bad, check_chunks(work));

  const std::string index_path = io::join(staging.dir(), context.rng.hex_id() + ".jsonl");
  HeaderRecord header;
  header.digest = store.digest_kind();
  header.run = report.name.run;
  header.step = report.name.step;
  FF_TRY(auto writer, IndexWriter::create(staging.disk(), index_path, header));
  FF_TRY(const auto repaired, Repair(work, bad, writer).run());
  FF_TRY(writer.finish());
  if (repaired.entries == 0 && report.lost_count > 0) {
    return Error{Errc::corrupt,
                 fmt::format("{}: nothing could be restored; first problem: {}", report.name.text(),
                             report.lost.front().reason),
                 "An earlier step may be intact: run 'ff checkpoint verify --all'."};
  }
  FF_TRY(restore(work, repaired, index_path, staging));
  FF_TRY(staging.disk().remove(index_path));
  FF_TRY(staging.commit());
  report.elapsed_ns = context.clock.steady_ns() - began;
  return report;
}

}  // namespace ff::checkpoint
