// repair.cc: finds what is damaged, then asks one source after the other for it.
#include "training/checkpoint/retention/repair.h"

#include <fmt/format.h>

#include <iterator>
#include <set>
#include <utility>

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
  Repairer(Context& context, const Store& store, Lease& lease, io::Buffers memory,
           std::set<simd::Digest> wanted)
      : context_(context),
        store_(store),
        lease_(lease),
        memory_(std::move(memory)),
        wanted_(std::move(wanted)) {}

  Result<void> from_set_aside();
  Result<void> from_store(const std::string& path);
  Result<void> from_files(const std::string& path);
  bool done() const { return wanted_.empty(); }

 private:
  // Removes the chunks from `wanted_` for which `is_stored`, a Result<bool>(chunk), is true.
  template <class IsStored>
  Result<void> drop_stored(IsStored is_stored);
  Result<void> drop_intact();
  Result<bool> copy(const std::string& from, const simd::Digest& chunk);

  Context& context_;
  const Store& store_;
  Lease& lease_;
  io::Buffers memory_;             // a chunk file and its data
  std::set<simd::Digest> wanted_;  // chunks that are still damaged or missing
};

template <class IsStored>
Result<void> Repairer::drop_stored(IsStored is_stored) {
  for (auto chunk = wanted_.begin(); chunk != wanted_.end();) {
    FF_TRY(context_.stop.check());
    FF_TRY(const bool stored, is_stored(*chunk));
    chunk = stored ? wanted_.erase(chunk) : std::next(chunk);
  }
  return {};
}

// Copies a chunk file that is intact; false if it is not, or not there.
Result<bool> Repairer::copy(const std::string& from, const simd::Digest& chunk) {
  io::Disk& disk = context_.disk;
  FF_TRY(lease_.renew_if_due());
  const auto file = disk.open(from, {});
  if (!file && file.error().code == Errc::not_found) return false;
  if (!file) return file.error();
  const auto got = (*file)->read_at(memory_.slot(0), 0);
  if (!got || !open_chunk(memory_.slot(0).first(*got), chunk, memory_.slot(1), true)) return false;
  const std::string unfinished = io::join(lease_.folder(), context_.rng.hex_id());
  {
    FF_TRY(auto out,
           disk.open(unfinished,
                     {.access = io::AccessMode::write, .create = true, .exclusive = true}));
    FF_TRY(out->write_at(memory_.slot(0).first(*got), 0));
    FF_TRY(out->sync());
  }
  FF_TRY(disk.rename(unfinished, store_.chunk_path(chunk)));
  FF_TRY(disk.sync_dir(store_.chunk_dir(std::to_integer<unsigned>(chunk.bytes[0]))));
  return true;
}

// A read error of the device that has passed, or a file that a saver wrote just before.
Result<void> Repairer::from_set_aside() {
  return drop_stored(
      [&](const simd::Digest& chunk) { return copy(store_.set_aside_path(chunk), chunk); });
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
  return drop_stored([&](const simd::Digest& chunk) -> Result<bool> {
    FF_TRY(const bool copied, copy(source.chunk_path(chunk), chunk));
    if (copied) return true;
    return copy(source.trash_path(chunk), chunk);
  });
}

// The index does not tell how the files were cut, by tensor or as plain bytes: both are tried.
Result<void> Repairer::from_files(const std::string& path) {
  const auto by_tensor = store_chunks(context_, store_, lease_, {path}, wanted_, false);
  if (!by_tensor && by_tensor.error().code != Errc::failed) return by_tensor.error();
  FF_TRY(drop_intact());
  if (done()) return {};
  FF_TRY(store_chunks(context_, store_, lease_, {path}, wanted_, true));
  return drop_intact();
}

Result<void> Repairer::drop_intact() {
  return drop_stored([&](const simd::Digest& chunk) -> Result<bool> {
    auto intact = chunk_file_is_intact(context_.disk, store_.chunk_path(chunk), chunk);
    if (!intact && intact.error().code == Errc::not_found) return false;
    return intact;
  });
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
  FF_TRY(auto memory, io::Buffers::make(2, kChunkFileMax));
  Repairer repairer(context, store, lease, std::move(memory),
                    {before.bad_chunks.begin(), before.bad_chunks.end()});
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
