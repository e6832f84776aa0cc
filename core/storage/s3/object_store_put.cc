// object_store_put.cc: objects and folders that are made.
#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/text.h"
#include "storage/s3/object_store.h"
#include "storage/s3/object_writer.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

namespace {

constexpr uint32_t kFileMode = 0666;
constexpr uint32_t kFolderMode = 0777;
// The pieces of a transfer, while more than half, more than a quarter, or less of the memory is
// free.
struct PieceSize {
  size_t bytes;
  size_t count;
};
constexpr PieceSize kPieces = {2 * kMiB, 4}, kFewPieces = {kMiB, 2}, kSmallPieces = {256 * kKiB, 2};
static_assert(kPieces.bytes * kPieces.count == kTransferBytes);
// Others may remove the folder of a key while it is empty.
constexpr int kFolderAttempts = 8;
constexpr int64_t kDropNs = 10 * kSecond;

Error key_conflict(std::string_view what) {
  return s3_error(S3Code::invalid_request,
                  "Objects are files here, and {} is a file or a folder that does not allow this "
                  "key.",
                  what);
}

// What stands in the way of a folder is no folder.
Error as_put_error(Error error) {
  if (error.sys == ENOTDIR || error.sys == EISDIR || error.sys == ELOOP) {
    return key_conflict("a part of it");
  }
  return error;
}

}  // namespace

std::string ObjectStore::hidden_name(std::string_view kind) {
  return fmt::format("{}{}-{:016x}", kHiddenPrefix, kind, rng_.next());
}

uint32_t ObjectStore::file_mode() const { return kFileMode & ~options_.umask; }

Task<Result<meta::InodeView>> ObjectStore::make_dir(meta::Caller caller, meta::InodeRef dir,
                                                    std::string name) {
  meta::Namespace::CreateOptions options;
  options.kind = meta::InodeType::directory;
  options.mode = kFolderMode & ~options_.umask;
  co_return co_await metadata().create(std::move(caller), std::move(dir), std::move(name),
                                       std::move(options));
}

Task<Result<ObjectStore::Folder>> ObjectStore::make_folders(meta::Caller caller, std::string bucket,
                                                            std::vector<std::string> names) {
  Folder folder;
  FF_CO_TRY(folder.dir, co_await find_bucket(caller, std::move(bucket)));
  for (std::string& name : names) {
    auto next = co_await lookup_dir(caller, folder.dir.ref(), name);
    if (!next && next.error().code == Errc::not_found) {
      next = co_await make_dir(caller, folder.dir.ref(), name);
      if (next) folder.made.push_back({folder.dir, name});
      if (!next && next.error().code == Errc::exists) {
        next = co_await lookup_dir(caller, folder.dir.ref(), name);
      }
    }
    if (!next) co_return as_put_error(std::move(next).error());
    folder.dir = std::move(*next);
  }
  co_return folder;
}

Task<Result<ObjectStore::HiddenFile>> ObjectStore::create_hidden_in(meta::Caller caller,
                                                                    meta::InodeView dir) {
  HiddenFile hidden;
  hidden.name = hidden_name("put");
  meta::Namespace::CreateOptions options;
  options.mode = file_mode();
  const meta::InodeRef ref = dir.ref();
  hidden.folder.dir = std::move(dir);
  FF_CO_TRY(hidden.file,
            co_await files_.create(std::move(caller), ref, hidden.name, std::move(options)));
  co_return hidden;
}

Task<Result<ObjectStore::HiddenFile>> ObjectStore::create_hidden(meta::Caller caller,
                                                                 std::string bucket,
                                                                 std::vector<std::string> folders) {
  for (int attempt = 1;; attempt++) {
    auto folder = co_await make_folders(caller, bucket, folders);
    Result<HiddenFile> hidden = fail(Errc::not_found, "the folder is gone");
    if (folder) {
      hidden = co_await create_hidden_in(caller, folder->dir);
      if (hidden) {
        hidden->folder.made = std::move(folder->made);
        co_return hidden;
      }
      HiddenFile none;
      none.folder = std::move(*folder);
      co_await drop(caller, none);
    } else {
      hidden = std::move(folder).error();
    }
    if (attempt == kFolderAttempts || !is_missing(hidden.error())) co_return hidden;
  }
}

Task<Result<TransferPieces>> ObjectStore::acquire_pieces(uint64_t size) {
  const uint64_t free = memory_.available() * kKiB;
  PieceSize of = kSmallPieces;
  if (free > options_.memory / 4) of = kFewPieces;
  if (free > options_.memory / 2) of = kPieces;
  TransferPieces pieces;
  pieces.bytes = std::max<uint64_t>(std::min<uint64_t>(size, of.bytes), 1);
  const uint64_t count =
      std::min<uint64_t>((std::max<uint64_t>(size, 1) - 1) / pieces.bytes + 1, of.count);
  FF_CO_TRY(pieces.permit, co_await memory_.acquire((count * pieces.bytes + kKiB - 1) / kKiB));
  for (uint64_t i = 0; i < count; i++) pieces.buffers.push_back(buffers_.allocate(pieces.bytes));
  co_return pieces;
}

Task<Result<std::string>> ObjectStore::write_bytes(client::File& file, uint64_t at,
                                                   ObjectSource& source, bool wants_md5) {
  FF_CO_TRY(const auto pieces, co_await acquire_pieces(source.size().value_or(UINT64_MAX)));
  HashThreads& threads = options_.hashing != nullptr ? *options_.hashing : no_threads_;
  const std::string known_md5 = source.checked_md5();
  ObjectWriter writer(
      loop(), threads, source, pieces,
      [&file, at](uint64_t offset, ByteView bytes) { return file.write(at + offset, bytes); });
  FF_CO_TRY(co_await writer.run(wants_md5 && known_md5.empty()));
  co_return known_md5.empty() ? writer.md5() : hex(as_bytes(known_md5));
}

Task<Result<ObjectStore::Written>> ObjectStore::fill(HiddenFile& hidden, ObjectSource& source,
                                                     bool wants_md5) {
  Written written;
  auto done = co_await write_bytes(*hidden.file, 0, source, wants_md5);
  Result<void> stored = done ? Result<void>() : Result<void>(done.error());
  if (done && options_.durable) stored = co_await hidden.file->sync();
  const auto closed = co_await hidden.file->close();
  FF_CO_TRY(stored);
  FF_CO_TRY(closed);
  written.md5 = std::move(*done);
  FF_CO_TRY(written.view, co_await metadata().stat(hidden.file->ref(), false));
  co_return written;
}

Task<Result<void>> ObjectStore::publish(meta::Caller caller, HiddenFile& hidden, std::string name,
                                        bool must_be_new) {
  meta::MetaClient::Rename rename;
  rename.from_dir = rename.to_dir = hidden.folder.dir.ref();
  if (hidden.below) rename.from_dir = hidden.below->ref();
  rename.from = hidden.name;
  rename.to = std::move(name);
  rename.no_replace = must_be_new;
  const auto renamed = co_await metadata().rename(std::move(caller), std::move(rename));
  if (!renamed && renamed.error().code == Errc::exists && must_be_new) {
    co_return s3_error(S3Code::precondition_failed, "There is an object with this key.");
  }
  if (!renamed) co_return as_put_error(renamed.error());
  co_return co_await finish_change();
}

Task<Result<void>> ObjectStore::drop_names(meta::Caller caller, const HiddenFile& hidden) {
  if (hidden.file != nullptr) {
    (void)co_await hidden.file->close();
    FF_CO_TRY(
        co_await metadata().unlink(caller, hidden.folder.dir.ref(), hidden.name, std::nullopt));
  }
  for (auto made = hidden.folder.made.rbegin(); made != hidden.folder.made.rend(); ++made) {
    FF_CO_TRY(co_await metadata().rmdir(caller, made->parent.ref(), made->name));
  }
  co_return Result<void>();
}

Task<void> ObjectStore::drop(meta::Caller caller, HiddenFile& hidden) {
  const auto dropped =
      co_await with_deadline(loop(), loop().now_ns() + kDropNs, "removing an unfinished upload",
                             drop_names(std::move(caller), hidden))
          .shielded();
  if (!dropped) {
    log_debug("an unfinished upload is left", {{"error", dropped.error().message}});
  }
}

// Somebody may change the object between this and the rename.
Task<Result<void>> ObjectStore::check_condition(const NewObject& object) {
  if (object.condition.must_be_new && object.key.ends_with('/')) {
    const auto there = co_await find(object.caller, object.bucket, object.key);
    if (!there) co_return Result<void>();
    co_return s3_error(S3Code::precondition_failed, "There is an object with this key.");
  }
  if (object.condition.must_match.empty()) co_return Result<void>();
  FF_CO_TRY(const auto found, co_await find(object.caller, object.bucket, object.key));
  const std::string& wanted = object.condition.must_match;
  if (wanted == "*" || wanted == found.attributes.etag) co_return Result<void>();
  co_return s3_error(S3Code::precondition_failed, "The object has another ETag.");
}

Task<Result<ObjectInfo>> ObjectStore::put_file(const NewObject& object, HiddenFile& hidden,
                                               std::string name, ObjectSource& source) {
  FF_CO_TRY(auto written, co_await fill(hidden, source, object.attributes.etag.empty()));
  ObjectInfo info{.view = std::move(written.view), .attributes = object.attributes};
  if (info.attributes.etag.empty()) info.attributes.etag = std::move(written.md5);
  FF_CO_TRY(co_await set_text(object.caller, info.view.ref(),
                              format_attributes(info.attributes, info.view.inode)));
  FF_CO_TRY(co_await check_condition(object));
  FF_CO_TRY(co_await publish(object.caller, hidden, std::move(name), object.condition.must_be_new));
  co_return info;
}

Task<Result<ObjectInfo>> ObjectStore::put_marker(NewObject object, ObjectPath path,
                                                 ObjectSource& source) {
  std::array<std::byte, 1> piece = {};
  FF_CO_TRY(const size_t got, co_await source.read(piece));
  if (got > 0) {
    co_return s3_error(S3Code::invalid_argument,
                       "Objects are files here, and a key that ends in '/' is a folder, which has "
                       "no bytes.");
  }
  run_jobs(source.take_jobs(ByteView()));
  FF_CO_TRY(source.check());
  FF_CO_TRY(co_await check_condition(object));
  path.folders.push_back(std::move(path.name));
  FF_CO_TRY(auto folder,
            co_await make_folders(object.caller, object.bucket, std::move(path.folders)));
  object.attributes.etag.clear();
  FF_CO_TRY(co_await set_text(object.caller, folder.dir.ref(),
                              format_attributes(object.attributes, folder.dir.inode)));
  FF_CO_TRY(co_await finish_change());
  FF_CO_TRY(folder.dir, co_await metadata().stat(folder.dir.ref(), false));
  co_return co_await info_of(std::move(object.caller), std::move(folder.dir), true);
}

Task<Result<ObjectInfo>> ObjectStore::put(NewObject object, ObjectSource& source) {
  FF_CO_TRY(auto path, parse_key(object.key));
  if (path.marker) co_return co_await put_marker(std::move(object), std::move(path), source);
  FF_CO_TRY(auto hidden,
            co_await create_hidden(object.caller, object.bucket, std::move(path.folders)));
  auto done = co_await put_file(object, hidden, std::move(path.name), source);
  if (!done) co_await drop(object.caller, hidden);
  co_return done;
}

}  // namespace ff::s3
