// store.cc: opening and creating checkpoint stores.
#include "training/checkpoint/format/store.h"

#include <fmt/format.h>

#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/files.h"
#include "training/checkpoint/format/sealed_line.h"

namespace ff::checkpoint {
namespace {

constexpr uint64_t kStoreFileMax = 64 * kKiB;
constexpr size_t kRunNameMax = 128;
constexpr uint32_t kSharedBits = 022;  // a directory that others may write

std::string store_file(const std::string& path) { return io::join(path, kStoreFileName); }

// A directory that may become a store: it has only entries of the file system itself, or of a
// creation in progress.
bool counts_as_empty(const std::vector<io::DirEntry>& entries) {
  for (const auto& entry : entries) {
    if (entry.name != "lost+found" && !entry.name.starts_with(kStoreFileName)) return false;
  }
  return true;
}

enum class Place { absent, empty, store, foreign };

// Look for the file last: the creation of a store writes it before everything else, so entries
// without the file are no store.
Result<Place> look_at(io::Disk& disk, const std::string& path) {
  const auto entries = disk.list(path);
  if (!entries && entries.error().code == Errc::not_found) return Place::absent;
  if (!entries) return entries.error();
  FF_TRY(const bool there, io::exists(disk, store_file(path)));
  if (there) return Place::store;
  return counts_as_empty(*entries) ? Place::empty : Place::foreign;
}

Error not_a_store(const std::string& path) {
  return Error{
      Errc::refused,
      fmt::format("{}: not a checkpoint store (no {} in it) and not empty", path, kStoreFileName),
      "Name a store, or an absent or empty directory for a new one, with --store."};
}

}  // namespace

std::string StepName::text() const { return fmt::format("{}@{}", run, step); }

Result<void> check_run_name(std::string_view run) {
  bool good = !run.empty() && run.size() <= kRunNameMax && run.front() != '.';
  for (const char c : run) {
    good = good &&
           (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-');
  }
  if (good) return {};
  return Error{Errc::usage, fmt::format("'{}' cannot be a run name", printable(run)),
               "Use letters, digits, '.', '_' and '-', at most 128, not starting with '.'."};
}

Result<Store> Store::open(io::Disk& disk, const std::string& path) {
  FF_TRY(const auto place, look_at(disk, path));
  if (place == Place::foreign) return not_a_store(path);
  if (place != Place::store) {
    const auto what =
        place == Place::absent ? "no such store" : "an empty directory, not yet a store";
    return Error{Errc::not_found, fmt::format("{}: {}", path, what),
                 "'ff checkpoint save --store DIR' creates one."};
  }
  auto text = io::read_file(disk, store_file(path), kStoreFileMax);
  if (!text) return std::move(text).error();
  const std::string where = store_file(path);
  std::string_view line = *text;
  if (line.ends_with('\n')) line.remove_suffix(1);
  const auto version = sealed_number(line, "ff_store");
  const auto id = sealed_text(line, "id");
  const auto digest = sealed_text(line, "digest");
  if (!line_is_sealed(line) || text->back() != '\n' || !version) {
    return Error{Errc::corrupt, fmt::format("{}: damaged (CRC32C mismatch)", where),
                 "Restore it from a backup, or restore checkpoints with 'ff checkpoint salvage'."};
  }
  if (*version > kFormatVersion) {
    return Error{Errc::newer_format,
                 fmt::format("{}: store format {} is newer than {}, the newest this ff knows",
                             where, *version, kFormatVersion),
                 "Use the ff version that created the store, or a newer one."};
  }
  if (!id || !digest || *version < 1)
    return fail(Errc::corrupt, "{}: no id or digest kind in it", where);
  FF_TRY(const auto kind, simd::parse_digest_kind(*digest));
  return Store(path, *id, kind);
}

Result<Store> Store::open_damaged(io::Disk& disk, const std::string& path) {
  auto store = open(disk, path);
  if (store || store.error().code == Errc::newer_format) return store;
  for (unsigned byte = 0; byte <= 0xff; byte++) {
    Store found(path, {}, simd::DigestKind::xxh128);
    const auto names = disk.list(found.chunk_dir(byte));
    if (!names) continue;
    for (const auto& entry : *names) {
      for (const auto kind : {simd::DigestKind::xxh128, simd::DigestKind::sha256}) {
        if (!simd::parse_digest(kind, entry.name)) continue;
        found.digest_ = kind;
        return found;
      }
    }
  }
  return store;
}

Result<void> Store::create(Context& context, const std::string& path,
                           const CreateOptions& options) {
  if (auto made = io::make_dirs(context.disk, path); !made) {
    Error error = std::move(made).error();
    if (error.hint.empty()) error.hint = "Name a directory that can be created with --store.";
    return error;
  }
  FF_TRY(const auto info, context.disk.info(path));
  const bool shared = (info.mode & kSharedBits) != 0;
  const auto kind =
      options.digest.value_or(shared ? simd::DigestKind::sha256 : simd::DigestKind::xxh128);
  const std::string id = context.rng.hex_id();
  const std::string line = seal_line(
      fmt::format(R"({{"ff_store":{},"id":"{}","digest":"{}","created":"{}")", kFormatVersion, id,
                  simd::digest_kind_name(kind), format_time(context.clock.wall_ns())));
  const std::string unfinished = fmt::format("{}.{}.tmp", store_file(path), id);
  {
    FF_TRY(auto file,
           context.disk.open(unfinished,
                             {.access = io::AccessMode::write, .create = true, .exclusive = true}));
    FF_TRY(file->write_at(as_bytes(line), 0));
    FF_TRY(file->sync());
  }
  // Exclusive creation: of two processes at the same time one wins, and both use its store.
  auto linked = context.disk.link(unfinished, store_file(path));
  auto removed = context.disk.remove(unfinished);
  if (!linked && linked.error().code != Errc::exists) return std::move(linked).error();
  if (!removed && removed.error().code != Errc::not_found) return std::move(removed).error();
  return context.disk.sync_dir(path);
}

Result<void> Store::make_folders(io::Disk& disk) const {
  FF_TRY(const bool made, io::exists(disk, chunk_dir(0xff)));
  if (made) return {};
  for (const auto& dir : {chunks_dir(), runs_dir(), tmp_dir(), trash_dir()}) {
    FF_TRY(io::make_dirs(disk, dir));
  }
  for (unsigned byte = 0; byte <= 0xff; byte++) {
    // The last folder shows that all exist: it is created after the others are durable.
    if (byte == 0xff) FF_TRY(disk.sync_dir(chunks_dir()));
    auto result = disk.make_dir(chunk_dir(byte), 0777);
    if (!result && result.error().code != Errc::exists) return std::move(result).error();
  }
  return disk.sync_dir(chunks_dir());
}

Result<Store> Store::open_or_create(Context& context, const std::string& path,
                                    const CreateOptions& options) {
  FF_TRY(const auto place, look_at(context.disk, path));
  if (place == Place::foreign) return not_a_store(path);
  if (place != Place::store) FF_TRY(create(context, path, options));
  FF_TRY(auto store, open(context.disk, path));
  FF_TRY(const auto info, context.disk.info(store_file(path)));
  if (store.digest_ == simd::DigestKind::xxh128 && info.uid != options.uid && options.uid != 0) {
    return Error{Errc::refused,
                 fmt::format("{}: a private store of user id {}; its xxh128 digests do not protect "
                             "against other writers",
                             path, info.uid),
                 "Save to a store of your own, or to one made with --digest sha256."};
  }
  FF_TRY(store.make_folders(context.disk));
  return store;
}

std::string Store::chunk_dir(unsigned first_byte) const {
  return fmt::format("{}/chunks/{:02x}", path_, first_byte);
}

std::string Store::chunk_path(const simd::Digest& chunk) const {
  return fmt::format("{}/{}", chunk_dir(std::to_integer<unsigned>(chunk.bytes[0])), chunk.hex());
}

std::string Store::trash_path(const simd::Digest& chunk) const {
  return fmt::format("{}/{}", trash_dir(), chunk.hex());
}

std::string Store::step_dir(const StepName& name) const {
  return fmt::format("{}/{}", run_dir(name.run), name.step);
}

Result<std::unique_ptr<io::File>> open_chunk_file(io::Disk& disk, const Store& store,
                                                  const simd::Digest& chunk, bool direct) {
  const io::OpenOptions options{.direct = direct};
  auto file = disk.open(store.chunk_path(chunk), options);
  if (file || file.error().code != Errc::not_found) return file;
  auto trashed = disk.open(store.trash_path(chunk), options);
  if (trashed || trashed.error().code != Errc::not_found) return trashed;
  // A saver may have restored it from the trash between the two lookups.
  auto again = disk.open(store.chunk_path(chunk), options);
  if (again || again.error().code != Errc::not_found) return again;
  return fail(Errc::corrupt, "the chunk file is missing");
}

}  // namespace ff::checkpoint
