// object_store.cc: buckets, and reading and removing objects.
#include "storage/s3/object_store.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/text.h"
#include "storage/client/walk.h"
#include "storage/s3/cors.h"
#include "storage/s3/hash.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

namespace {

Error no_such_key() { return s3_error(S3Code::no_such_key, "The specified key does not exist."); }

Error no_such_bucket() {
  return s3_error(S3Code::no_such_bucket, "The specified bucket does not exist.");
}

bool is_directory(const meta::InodeView& view) { return view.inode.is(meta::InodeType::directory); }

}  // namespace

bool is_missing(const Error& error) {
  return error.code == Errc::not_found || error.sys == ENOENT || error.sys == ENOTDIR ||
         error.sys == ELOOP || error.code == Errc::stale;
}

Error as_key_error(Error error) {
  if (is_missing(error)) return no_such_key();
  return error;
}

ObjectStore::ObjectStore(client::FileSystem& files, Rng& rng, StoreOptions options)
    : files_(files),
      rng_(rng),
      options_(std::move(options)),
      memory_(files.loop(), options_.memory / kKiB),
      buffers_(options_.arena) {}

Task<Result<void>> ObjectStore::open(meta::Caller self) {
  meta::InodeRef ref = meta::root();
  if (options_.root != "/") {
    FF_CO_TRY(const auto view,
              co_await client::resolve_path(metadata(), std::move(self), options_.root, true));
    if (!is_directory(view)) {
      co_return fail(Errc::usage, "{}: not a folder", printable(options_.root));
    }
    ref = view.ref();
  }
  root_ = std::move(ref);
  co_return Result<void>();
}

// A folder; what is missing or no folder (a symbolic link, too) is an error of is_missing().
Task<Result<meta::InodeView>> ObjectStore::lookup_dir(meta::Caller caller, meta::InodeRef dir,
                                                      std::string name) {
  const std::string what = printable(name);
  FF_CO_TRY(auto view,
            co_await metadata().lookup(std::move(caller), std::move(dir), std::move(name)));
  if (!is_directory(view)) co_return errno_error(ENOTDIR, what);
  co_return view;
}

Task<Result<meta::InodeView>> ObjectStore::find_bucket(meta::Caller caller, std::string bucket) {
  if (!is_bucket_name(bucket)) co_return no_such_bucket();
  auto found = co_await lookup_dir(std::move(caller), root_, std::move(bucket));
  if (!found && is_missing(found.error())) co_return no_such_bucket();
  co_return found;
}

Task<Result<std::vector<BucketInfo>>> ObjectStore::list_buckets(meta::Caller caller) {
  client::DirLister lister(metadata(), std::move(caller), root_, true);
  std::vector<BucketInfo> buckets;
  for (;;) {
    FF_CO_TRY(auto entry, co_await lister.next());
    if (!entry) co_return buckets;
    if (entry->kind != meta::InodeType::directory || !is_bucket_name(entry->name)) continue;
    BucketInfo info{.name = std::move(entry->name)};
    if (entry->view) info.created_s = entry->view->inode.btime_ns / kSecond;
    buckets.push_back(std::move(info));
  }
}

Task<Result<void>> ObjectStore::create_bucket(meta::Caller caller, std::string bucket) {
  FF_CO_TRY(check_new_bucket(bucket));
  const uint32_t uid = caller.uid;
  auto made = co_await make_dir(caller, root_, bucket);
  if (made) co_return co_await finish_change();
  if (made.error().code != Errc::exists) co_return std::move(made).error();
  const auto found = co_await find_bucket(std::move(caller), std::move(bucket));
  if (found && found->inode.uid == uid) {
    co_return s3_error(S3Code::bucket_already_owned_by_you,
                       "Your previous request to create the named bucket succeeded and you "
                       "already own it.");
  }
  co_return s3_error(S3Code::bucket_already_exists, "The requested bucket name is not available.");
}

Task<Result<std::optional<std::string>>> ObjectStore::bucket_cors(meta::Caller caller,
                                                                  std::string bucket) {
  FF_CO_TRY(const auto view, co_await find_bucket(caller, std::move(bucket)));
  if (view.inode.xattrs == 0) co_return std::optional<std::string>();
  co_return co_await metadata().get_xattr(std::move(caller), view.ref(),
                                          std::string(kCorsAttributeName));
}

Task<Result<void>> ObjectStore::set_bucket_cors(meta::Caller caller, std::string bucket,
                                                std::optional<std::string> text) {
  FF_CO_TRY(const auto view, co_await find_bucket(caller, std::move(bucket)));
  const bool removes = !text;
  const auto changed =
      co_await metadata().set_xattr(std::move(caller), view.ref(), std::string(kCorsAttributeName),
                                    std::move(text), meta::Namespace::XattrMode::any);
  if (!changed && !(removes && changed.error().sys == ENODATA)) co_return changed.error();
  co_return co_await finish_change();
}

Task<Result<std::vector<ObjectStore::Link>>> ObjectStore::find_links(
    meta::Caller caller, std::string bucket, std::vector<std::string> names) {
  std::vector<Link> links;
  FF_CO_TRY(auto dir, co_await find_bucket(caller, std::move(bucket)));
  links.push_back({std::move(dir)});
  for (std::string& name : names) {
    FF_CO_TRY(auto next, co_await lookup_dir(caller, links.back().dir.ref(), name));
    links.push_back({std::move(next), std::move(name)});
  }
  co_return links;
}

Task<Result<meta::InodeView>> ObjectStore::find_folder(meta::Caller caller, meta::InodeView from,
                                                       std::vector<std::string> names) {
  for (std::string& name : names) {
    FF_CO_TRY(from, co_await lookup_dir(caller, from.ref(), std::move(name)));
  }
  co_return from;
}

Task<Result<ObjectInfo>> ObjectStore::info_of(meta::Caller caller, meta::InodeView view,
                                              bool marker) {
  std::string text;
  if (view.inode.xattrs > 0) {
    FF_CO_TRY(auto value, co_await metadata().get_xattr(std::move(caller), view.ref(),
                                                        std::string(kAttributeName)));
    text = std::move(value).value_or("");
  }
  if (marker && text.empty()) co_return no_such_key();
  ObjectInfo info{.view = std::move(view), .attributes = {}, .marker = marker};
  info.attributes = parse_attributes(text, info.view.inode);
  if (marker) info.attributes.etag = hex(as_bytes(hash_of(HashKind::md5, "")));
  co_return info;
}

Task<Result<ObjectInfo>> ObjectStore::find(meta::Caller caller, std::string bucket,
                                           std::string key) {
  FF_CO_TRY(auto dir, co_await find_bucket(caller, std::move(bucket)));
  auto path = parse_key(key);
  if (!path) co_return no_such_key();
  auto folder = co_await find_folder(caller, std::move(dir), std::move(path->folders));
  if (!folder) co_return as_key_error(std::move(folder).error());
  auto view = co_await metadata().lookup(caller, folder->ref(), std::move(path->name));
  if (!view) co_return as_key_error(std::move(view).error());
  const bool right_kind =
      path->marker ? is_directory(*view) : view->inode.is(meta::InodeType::file);
  if (!right_kind) co_return no_such_key();
  co_return co_await info_of(std::move(caller), std::move(*view), path->marker);
}

Task<Result<std::shared_ptr<client::File>>> ObjectStore::open_file(meta::Caller caller,
                                                                   const ObjectInfo& object) {
  auto file = co_await files_.open(std::move(caller), object.view.ref(), meta::kMayRead);
  if (!file) co_return as_key_error(std::move(file).error());
  co_return file;
}

ObjectReader::Next ObjectReader::take(ByteSpan into) {
  const Next next{offset_, into.first(std::min<uint64_t>(into.size(), left_))};
  offset_ += next.into.size();
  left_ -= next.into.size();
  return next;
}

Task<Result<void>> ObjectReader::read_next(Next next) {
  if (next.into.empty()) co_return Result<void>();
  FF_CO_TRY(const uint64_t got, co_await file_->read(next.offset, next.into));
  if (got != next.into.size()) co_return fail(Errc::stale, "the object has become shorter");
  co_return Result<void>();
}

Task<Result<size_t>> ObjectReader::read(ByteSpan into) {
  const Next next = take(into);
  FF_CO_TRY(co_await read_next(next));
  co_return next.into.size();
}

Task<Result<void>> ObjectStore::set_text(meta::Caller caller, meta::InodeRef inode,
                                         std::string text) {
  FF_CO_TRY(co_await metadata().set_xattr(
      std::move(caller), std::move(inode), std::string(kAttributeName),
      std::optional(std::move(text)), meta::Namespace::XattrMode::any));
  co_return Result<void>();
}

Task<Result<void>> ObjectStore::set_attributes(meta::Caller caller, const ObjectInfo& object) {
  ObjectAttributes kept = object.attributes;
  if (object.marker || kept.etag.ends_with("-0")) kept.etag.clear();
  FF_CO_TRY(co_await set_text(std::move(caller), object.view.ref(),
                              format_attributes(kept, object.view.inode)));
  co_return co_await finish_change();
}

Task<Result<void>> ObjectStore::finish_change() {
  if (!options_.durable) co_return Result<void>();
  co_return co_await metadata().sync();
}

// Folders without objects are of no use to clients of S3, unless somebody has given them
// properties.
Task<void> ObjectStore::prune(meta::Caller caller, std::vector<Link> links) {
  while (links.size() > 1) {
    Link last = std::move(links.back());
    links.pop_back();
    const bool own_layout = last.dir.inode.layout != links.back().dir.inode.layout;
    if (last.dir.inode.xattrs > 0 || own_layout) co_return;
    const auto removed =
        co_await metadata().rmdir(caller, links.back().dir.ref(), std::move(last.name));
    if (!removed) co_return;
  }
}

Task<Result<void>> ObjectStore::prune_folders(meta::Caller caller, std::string bucket,
                                              std::string key) {
  FF_CO_TRY(auto path, parse_key(key));
  auto links = co_await find_links(caller, std::move(bucket), std::move(path.folders));
  if (links) co_await prune(std::move(caller), std::move(*links));
  co_return co_await finish_change();
}

Task<Result<void>> ObjectStore::remove(meta::Caller caller, std::string bucket, std::string key) {
  auto path = parse_key(key);
  if (!path) {
    FF_CO_TRY(co_await find_bucket(std::move(caller), std::move(bucket)));
    co_return Result<void>();
  }
  auto links = co_await find_links(caller, std::move(bucket), std::move(path->folders));
  if (!links && is_missing(links.error())) co_return Result<void>();
  if (!links) co_return std::move(links).error();
  if (path->marker) {
    auto dir = co_await lookup_dir(caller, links->back().dir.ref(), path->name);
    if (!dir && is_missing(dir.error())) co_return Result<void>();
    FF_CO_TRY(auto view, std::move(dir));
    if (view.inode.xattrs > 0) {
      auto changed = co_await metadata().set_xattr(caller, view.ref(), std::string(kAttributeName),
                                                   std::nullopt, meta::Namespace::XattrMode::any);
      if (!changed && changed.error().sys != ENODATA) co_return std::move(changed).error();
      if (changed) view = std::move(*changed);
    }
    links->push_back({std::move(view), std::move(path->name)});
  } else {
    const auto found = co_await metadata().lookup(caller, links->back().dir.ref(), path->name);
    if (found && !found->inode.is(meta::InodeType::file)) co_return Result<void>();
    const auto removed =
        co_await metadata().unlink(caller, links->back().dir.ref(), path->name, std::nullopt);
    if (!removed && is_missing(removed.error())) co_return Result<void>();
    FF_CO_TRY(removed);
  }
  co_await prune(std::move(caller), std::move(*links));
  co_return co_await finish_change();
}

}  // namespace ff::s3
