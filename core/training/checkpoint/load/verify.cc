// verify.cc: checks checkpoints and their chunks.
//
// A first pass reads all indexes: it finds damaged indexes, and lists the distinct uses of chunks
// (32 bytes each), from which a sample may be drawn. A second pass reads the indexes one after the
// other; it reads and checks each use on the list and removes it, so that a chunk of many
// checkpoints is read once. A damaged chunk is read again for the next checkpoint.
#include "training/checkpoint/load/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/format/data_section.h"
#include "training/checkpoint/format/lease.h"
#include "training/checkpoint/format/sorted_set.h"
#include "training/checkpoint/load/read_worker.h"
#include "training/checkpoint/load/restore.h"
#include "training/checkpoint/load/set_aside.h"

namespace ff::checkpoint {
namespace {

// The bytes of one chunk that an index uses together, without repeated ones.
struct Use {
  ChunkKey chunk;
  uint64_t pieces = 0;  // hash of offsets, lengths and CRCs
  uint64_t bytes = 0;
  friend auto operator<=>(const Use&, const Use&) = default;
};

Use use_of(const ReadJob& job) {
  simd::Digester digester(simd::DigestKind::xxh128);
  for (const auto& piece : job.pieces) {
    std::array<std::byte, 12> packed;
    store_le(packed.data(), piece.chunk_offset);
    store_le(packed.data() + 4, piece.length);
    store_le(packed.data() + 8, piece.crc.value_or(0));
    digester.update(packed);
  }
  return {chunk_key(*job.chunk), chunk_key(digester.finish()).first, job.bytes()};
}

// The uses of an index as read jobs, front to back; checks every rule of the index on the way.
class UseReader {
 public:
  static Result<UseReader> open(io::Disk& disk, const Store& store, const StepName& name) {
    FF_TRY(auto reader, IndexReader::open(disk, store.index_path(name)));
    const auto& header = reader.header();
    if (header.run != name.run || header.step != name.step) {
      return fail(Errc::corrupt, "index {}, line 1: this is the index of {}", reader.path(),
                  printable(StepName{header.run, header.step}.text()));
    }
    return UseReader(std::move(reader));
  }

  Result<std::optional<ReadJob>> next() {
    for (;;) {
      while (auto job = builder_.take()) {
        if (!job->chunk) continue;
        auto& pieces = job->pieces;
        pieces.erase(std::unique(pieces.begin(), pieces.end(), same_bytes), pieces.end());
        return job;
      }
      if (reader_.end()) return std::optional<ReadJob>();
      FF_TRY(auto record, reader_.next());
      if (!record) {
        FF_TRY(section_.end());
        builder_.flush();
      } else if (auto* file = std::get_if<FileRecord>(&*record)) {
        FF_TRY(section_.end());
        builder_.flush();
        section_.begin(*file);
        builder_.add_all(std::move(file->extents), nullptr, 0);
      } else if (auto* tensor = std::get_if<TensorRecord>(&*record)) {
        FF_TRY(section_.add(*tensor));
        builder_.add_all(std::move(tensor->extents), nullptr, 0);
      }
    }
  }

  // After next() has returned nothing.
  const simd::Digest& digest() const { return reader_.end()->index; }

 private:
  explicit UseReader(IndexReader reader) : reader_(std::move(reader)), section_(reader_.path()) {}

  static bool same_bytes(const ReadPiece& a, const ReadPiece& b) {
    return a.chunk_offset == b.chunk_offset && a.length == b.length && a.crc == b.crc;
  }

  IndexReader reader_;
  JobBuilder builder_;
  DataSection section_;  // of the current file
};

class Verifier {
 public:
  // `inside` is the directory of the store, for all writes (Disk::beneath).
  Verifier(Context& context, io::Disk& inside, const Store& store, const VerifyOptions& options,
           VerifyReport& report)
      : context_(context),
        inside_{.disk = inside,
                .clock = context.clock,
                .rng = context.rng,
                .stop = context.stop,
                .progress = context.progress,
                .threads = 1},
        store_(store),
        options_(options),
        report_(report) {}

  Result<void> run();

 private:
  // Read jobs for the uses of one checkpoint that are still on the list.
  class Source final : public ReadSource {
   public:
    Source(Verifier& verifier, UseReader reader)
        : verifier_(verifier), reader_(std::move(reader)) {}
    Result<std::optional<ReadJob>> next() override {
      for (;;) {
        FF_TRY(auto job, reader_.next());
        if (!job || verifier_.wanted(*job)) return job;
      }
    }
    const simd::Digest& digest() const { return reader_.digest(); }

   private:
    Verifier& verifier_;
    UseReader reader_;
  };

  Result<void> list();
  Result<void> scan(const StepName& name);
  void draw();
  bool wanted(const ReadJob& job);
  Result<void> check(const StepName& name, Lease* lease);
  Result<void> mark_intact(const StepName& name, const simd::Digest& index);
  Result<void> mark_damaged(const StepName& name, const simd::Digest& index, uint64_t chunks);
  Result<void> remove_mark(const StepName& name, const std::string& path);
  Result<void> set_aside();
  void report_chunks(const StepName& name, const std::map<simd::Digest, std::string>& bad);
  Result<void> index_error(const StepName& name, Error error);
  Result<void> check_latest(const std::string& run);
  Result<void> check_marks(const StepName& name);
  bool whole() const { return options_.sample >= 1; }

  Context& context_;
  Context inside_;
  const Store& store_;
  const VerifyOptions& options_;
  VerifyReport& report_;
  std::vector<StepName> names_;
  SortedSet<Use> uses_;
  std::vector<bool> to_read_;       // of uses_, by position
  std::set<simd::Digest> damaged_;  // in the checkpoints before
};

Result<void> Verifier::run() {
  FF_TRY(list());
  if (names_.empty()) return {};
  auto lease = Lease::try_acquire(context_, store_,
                                  {.action = "verify", .name = names_.front(), .attempt = {}});
  std::vector<StepName> readable;
  for (const auto& name : names_) {
    auto scanned = scan(name);
    if (scanned) {
      readable.push_back(name);
    } else {
      FF_TRY(index_error(name, std::move(scanned).error()));
    }
  }
  draw();
  for (const auto& name : readable) {
    auto checked = check(name, lease ? &*lease : nullptr);
    if (!checked) FF_TRY(index_error(name, std::move(checked).error()));
  }
  report_.bad_chunks.assign(damaged_.begin(), damaged_.end());
  return set_aside();
}

// After all checks, so that each checkpoint is told the same reason.
Result<void> Verifier::set_aside() {
  for (const auto& chunk : report_.bad_chunks) {
    FF_TRY(context_.stop.check());
    const auto moved = set_chunk_aside(inside_.disk, store_, chunk);
    if (!moved && moved.error().code == Errc::refused) return {};  // a read-only store
    if (!moved) return moved.error();
    report_.set_aside += *moved ? 1 : 0;
  }
  return {};
}

// The checkpoints to verify; with `all`, also `latest` and the `verified` marks.
Result<void> Verifier::list() {
  std::set<std::string> seen;
  for (const auto& text : options_.names) {
    FF_TRY(auto name, resolve_step(context_.disk, store_, text));
    if (seen.insert(name.text()).second) names_.push_back(std::move(name));
  }
  if (!options_.all) return {};
  FF_TRY(const auto runs, list_runs(context_.disk, store_));
  for (const auto& run : runs) {
    FF_TRY(check_latest(run));
    FF_TRY(const auto steps, committed_steps(context_.disk, store_, run));
    for (const uint64_t step : steps) {
      StepName name{run, step};
      FF_TRY(check_marks(name));
      if (seen.insert(name.text()).second) names_.push_back(std::move(name));
    }
  }
  return {};
}

Result<void> Verifier::scan(const StepName& name) {
  FF_TRY(auto reader, UseReader::open(context_.disk, store_, name));
  for (;;) {
    FF_TRY(context_.stop.check());
    FF_TRY(const auto job, reader.next());
    if (!job) return {};
    uses_.add(use_of(*job));
  }
}

// Draws exactly the wanted share; all sets of that size are equally likely.
void Verifier::draw() {
  uses_.sort_unique();
  const size_t total = uses_.keys().size();
  const auto share = static_cast<size_t>(std::ceil(options_.sample * static_cast<double>(total)));
  size_t left = std::min(total, share);
  report_.chunks_total = total;
  to_read_.assign(total, false);
  uint64_t bytes = 0;
  for (size_t i = 0; i < total && left > 0; i++) {
    if (context_.rng.below(total - i) >= left) continue;
    left--;
    to_read_[i] = true;
    bytes += uses_.keys()[i].bytes;
  }
  context_.progress.total = bytes;
}

// The caller holds the source's lock.
bool Verifier::wanted(const ReadJob& job) {
  const auto at = uses_.find(use_of(job));
  // A use that is not on the list belongs to a checkpoint that was replaced meanwhile.
  const bool fresh = at ? to_read_[*at] : whole();
  if (at) to_read_[*at] = false;
  if (fresh) {
    report_.chunks++;
    report_.bytes += job.bytes();
  }
  return fresh || damaged_.contains(*job.chunk);
}

Result<void> Verifier::check(const StepName& name, Lease* lease) {
  FF_TRY(auto reader, UseReader::open(context_.disk, store_, name));
  Source source(*this, std::move(reader));
  std::map<simd::Digest, std::string> bad;
  ReadPlan plan{
      .context = context_,
      .store = store_,
      .source = source,
      .deep = true,
      .lease = lease,
      .on_damage = [&](const simd::Digest& chunk, const std::string& reason) -> Result<void> {
        bad.emplace(chunk, reason);
        return {};
      }};
  FF_TRY(run_reads(plan));
  if (!bad.empty()) {
    report_.damaged.push_back(name);
    report_chunks(name, bad);
    return mark_damaged(name, source.digest(), bad.size());
  }
  if (whole()) FF_TRY(mark_intact(name, source.digest()));
  report_.intact.push_back(name);
  return {};
}

// A mark that cannot be written is no error: a read-only store, or a checkpoint that was forgotten
// meanwhile.
Result<void> ignore_unwritable(Result<void> marked) {
  if (!marked && (marked.error().code == Errc::refused || marked.error().code == Errc::not_found)) {
    return {};
  }
  return marked;
}

Result<void> Verifier::mark_intact(const StepName& name, const simd::Digest& index) {
  FF_TRY(ignore_unwritable(write_verified(inside_, store_, name, index, options_.ff_version)));
  return remove_mark(name, store_.damaged_path(name));
}

// Without the mark of an intact checkpoint, `forget` does not keep it instead of others.
Result<void> Verifier::mark_damaged(const StepName& name, const simd::Digest& index,
                                    uint64_t chunks) {
  FF_TRY(remove_mark(name, store_.verified_path(name)));
  const DamagedMark mark{.found = {.at_ns = 0, .ff_version = options_.ff_version},
                         .index_digest = {},
                         .chunks = chunks};
  return ignore_unwritable(write_damaged(inside_, store_, name, index, mark));
}

Result<void> Verifier::remove_mark(const StepName& name, const std::string& path) {
  FF_TRY(const bool there, io::exists(inside_.disk, path));
  if (!there) return {};
  auto removed = inside_.disk.remove(path);
  if (removed) removed = inside_.disk.sync_dir(store_.step_dir(name));
  return ignore_unwritable(std::move(removed));
}

void Verifier::report_chunks(const StepName& name, const std::map<simd::Digest, std::string>& bad) {
  std::set<simd::Digest> chunks;
  for (const auto& [chunk, reason] : bad) chunks.insert(chunk);
  auto users = chunk_users(context_.disk, store_.index_path(name), chunks);
  for (const auto& [chunk, reason] : bad) {
    report_.damage.push_back(
        {fmt::format("{}: chunk {}", name.text(), chunk.hex()), reason, std::move(users[chunk])});
  }
  damaged_.merge(chunks);
}

// A damaged index is damage of its checkpoint; a missing one was forgotten meanwhile; any other
// error ends the action.
Result<void> Verifier::index_error(const StepName& name, Error error) {
  if (error.code == Errc::not_found && options_.all) return {};
  if (error.code != Errc::corrupt) return error;
  const std::string path = store_.index_path(name);
  std::string_view reason = error.message;
  const std::string prefix = fmt::format("index {}, ", path);
  if (reason.starts_with(prefix)) reason.remove_prefix(prefix.size());
  report_.damaged.push_back(name);
  report_.damage.push_back({path, std::string(reason), "checkpoint " + name.text()});
  return {};
}

// Tries again while another process changes `latest`. A missing `latest` is no damage: a crash
// after a commit leaves none. Nor is one that is older than the index: a crash after a replacement.
Result<void> Verifier::check_latest(const std::string& run) {
  const std::string path = store_.latest_path(run);
  for (;;) {
    FF_TRY(context_.stop.check());
    const auto before = read_latest(context_.disk, store_, run);
    std::string problem;
    if (before) {
      const StepName name{run, before->step};
      const auto summary = read_summary(context_.disk, store_.index_path(name));
      if (!summary && summary.error().code == Errc::not_found) {
        problem = fmt::format("it names {}, which does not exist", name.text());
      } else if (summary && summary->end.index.hex() != before->index_digest) {
        const auto index = context_.disk.info(store_.index_path(name));
        const auto latest = context_.disk.info(path);
        if (index && latest && latest->mtime_ns < index->mtime_ns) return {};
        problem =
            fmt::format("it names an index of {} that differs from the existing one", name.text());
      }
    } else {
      FF_TRY(const bool there, io::exists(context_.disk, path));
      if (there) problem = "it cannot be read";
    }
    if (problem.empty()) return {};
    const auto after = read_latest(context_.disk, store_, run);
    if (before.has_value() != after.has_value() ||
        (before && (before->step != after->step || before->index_digest != after->index_digest))) {
      continue;
    }
    report_.damage.push_back({path, problem, "the name of the highest step"});
    return {};
  }
}

Result<void> Verifier::check_marks(const StepName& name) {
  const auto report = [&](const Error& error, const std::string& path,
                          std::string_view words) -> Result<void> {
    if (error.code != Errc::corrupt) return error;
    report_.damage.push_back({path, "damaged (CRC32C mismatch)",
                              fmt::format("the record that {} {}", name.text(), words)});
    return {};
  };
  const auto verified = read_verified(context_.disk, store_, name);
  if (!verified) {
    FF_TRY(report(verified.error(), store_.verified_path(name), "was verified"));
  }
  const auto damaged = read_damaged(context_.disk, store_, name);
  if (!damaged) FF_TRY(report(damaged.error(), store_.damaged_path(name), "is damaged"));
  return {};
}

}  // namespace

Result<VerifyReport> verify(Context& context, const std::string& store_path,
                            const VerifyOptions& options) {
  if (options.names.empty() && !options.all) {
    return Error{Errc::usage, "nothing to verify", "Name RUN[@STEP], or give --all."};
  }
  if (!(options.sample > 0 && options.sample <= 1)) {
    return Error{Errc::usage, "the sample must be above 0 and at most 100 %", {}};
  }
  const int64_t began = context.clock.steady_ns();
  VerifyReport report;
  const auto store = Store::open(context.disk, store_path);
  if (!store && store.error().code == Errc::corrupt && options.all) {
    // Nothing else can be checked without it.
    report.damage.push_back({io::join(store_path, "ff-store.json"), store.error().message,
                             "the description of the store"});
  } else if (!store) {
    return store.error();
  } else {
    FF_TRY(const auto inside, context.disk.beneath(store->path()));
    FF_TRY(Verifier(context, *inside, *store, options, report).run());
  }
  report.elapsed_ns = context.clock.steady_ns() - began;
  return report;
}

}  // namespace ff::checkpoint
