// repair.cc: finds what is damaged, then asks one source after the other for it.
#include "training/checkpoint/retention/repair.h"

#include <fmt/format.h>

#include <set>

#include "platform/io/buffers.h"
#include "platform/io/files.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/format/lease.h"
#include "training/checkpoint/load/set_aside.h"
#include "training/checkpoint/save/save.h"

namespace ff::checkpoint {
namespace {

class Repairer {
 public:
  Repairer(Context& context, const Store& store, Lease& lease, std::set<simd::Digest> wanted)
      : context_(context), store_(store), lease_(lease), wanted_(std::move(wanted)) {}

  Result<void> from_set_aside();
  Result<void> from_store(const std::string& path);
  Result<void> from_files(const std::string& path);
  bool done() const { return wanted_.empty(); }

 private:
  Result<void> forget_stored();
  Result<bool> copy(const std::string& from, const simd::Digest& chunk);

  Context& context_;
  const Store& store_;
  Lease& lease_;
  std::set<simd::Digest> wanted_;  // chunks that are still damaged or missing
};

// Copies a chunk file that is intact; false if it is not, or not there.
Result<bool> Repairer::copy(const std::string& from, const simd::Digest& chunk) {
  io::Disk& disk = context_.disk;
  FF_TRY(context_.stop.check());
  FF_TRY(lease_.renew_if_due());
  const auto file = disk.open(from, {});
  if (!file && file.error().code == Errc::not_found) return false;
  if (!file) return file.error();
  FF_TRY(auto memory, io::Buffers::make(2, kChunkFileMax));
  const auto got = (*file)->read_at(memory.slot(0), 0);
  if (!got || !open_chunk(memory.slot(0).first(*got), chunk, memory.slot(1), true)) return false;
  const std::string unfinished = io::join(lease_.folder(), context_.rng.hex_id());
  {
    FF_TRY(auto out,
           disk.open(unfinished,
                     {.access = io::AccessMode::write, .create = true, .exclusive = true}));
    FF_TRY(out->write_at(memory.slot(0).first(*got), 0));
    FF_TRY(out->sync());
  }
  FF_TRY(disk.rename(unfinished, store_.chunk_path(chunk)));
  FF_TRY(disk.sync_dir(store_.chunk_dir(std::to_integer<unsigned>(chunk.bytes[0]))));
  return true;
}

// A read error of the device that has passed, or a file that a saver wrote just before.
Result<void> Repairer::from_set_aside() {
  std::set<simd::Digest> left;
  for (const auto& chunk : wanted_) {
    FF_TRY(const bool copied, copy(store_.set_aside_path(chunk), chunk));
    if (!copied) left.insert(chunk);
  }
  wanted_ = std::move(left);
  return {};
}

Result<void> Repairer::from_store(const std::string& path) {
  FF_TRY(const auto source, Store::open(context_.disk, path));
  if (source.digest_kind() != store_.digest_kind()) {
    return Error{Errc::refused,
                 fmt::format("{}: its chunks are named by {}, those of {} by {}", path,
                             simd::digest_kind_name(source.digest_kind()), store_.path(),
                             simd::digest_kind_name(store_.digest_kind())),
                 "Load the checkpoint from there, and name the loaded files as the source."};
  }
  std::set<simd::Digest> left;
  for (const auto& chunk : wanted_) {
    FF_TRY(bool copied, copy(source.chunk_path(chunk), chunk));
    if (!copied) {
      FF_TRY(copied, copy(source.trash_path(chunk), chunk));
    }
    if (!copied) left.insert(chunk);
  }
  wanted_ = std::move(left);
  return {};
}

// The index does not tell how the files were cut, by tensor or as plain bytes: both are tried.
Result<void> Repairer::from_files(const std::string& path) {
  const auto by_tensor = store_chunks(context_, store_, lease_, {path}, wanted_, false);
  if (!by_tensor && by_tensor.error().code != Errc::failed) return by_tensor.error();
  FF_TRY(forget_stored());
  if (done()) return {};
  FF_TRY(store_chunks(context_, store_, lease_, {path}, wanted_, true));
  return forget_stored();
}

Result<void> Repairer::forget_stored() {
  std::set<simd::Digest> left;
  for (const auto& chunk : wanted_) {
    FF_TRY(context_.stop.check());
    const auto intact = chunk_file_is_intact(context_.disk, store_.chunk_path(chunk), chunk);
    if (!intact && intact.error().code != Errc::not_found) return intact.error();
    if (!intact || !*intact) left.insert(chunk);
  }
  wanted_ = std::move(left);
  return {};
}

}  // namespace

Result<RepairReport> repair(Context& context, const std::string& store_path,
                            const RepairOptions& options) {
  const int64_t began = context.clock.steady_ns();
  FF_TRY(const auto store, Store::open(context.disk, store_path));
  RepairReport report;
  FF_TRY(report.name, resolve_step(context.disk, store, options.name));
  FF_TRY(auto lease,
         Lease::acquire(context, store, {.action = "repair", .name = report.name, .attempt = {}}));
  VerifyOptions verifying;
  verifying.names = {report.name.text()};
  verifying.ff_version = options.ff_version;
  FF_TRY(const auto before, verify(context, store_path, verifying));
  report.damaged = before.bad_chunks.size();
  if (!before.damaged.empty() && before.bad_chunks.empty()) {
    return Error{Errc::corrupt,
                 fmt::format("{}: {}", before.damage.front().where, before.damage.front().reason),
                 "Repair needs an intact index. 'ff checkpoint salvage' restores what the readable "
                 "lines name."};
  }
  Repairer repairer(context, store, lease, {before.bad_chunks.begin(), before.bad_chunks.end()});
  FF_TRY(repairer.from_set_aside());
  for (const auto& source : options.sources) {
    if (repairer.done()) break;
    const auto store_file = io::exists(context.disk, io::join(source, kStoreFileName));
    const bool is_store = store_file && *store_file;  // an error: `source` is no directory
    FF_TRY(is_store ? repairer.from_store(source) : repairer.from_files(source));
  }
  if (report.damaged > 0) {
    FF_TRY(auto after, verify(context, store_path, verifying));
    report.repaired = report.damaged - std::min(report.damaged, uint64_t{after.bad_chunks.size()});
    report.left = std::move(after.damage);
  }
  report.elapsed_ns = context.clock.steady_ns() - began;
  return report;
}

}  // namespace ff::checkpoint
