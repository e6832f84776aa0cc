// bucket_removal.cc: looks for an object first, and then removes what is no object.
#include "storage/s3/bucket_removal.h"

#include <cerrno>
#include <utility>

#include "storage/client/walk.h"
#include "storage/s3/key_walk.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

namespace {

Error bucket_not_empty() {
  return s3_error(S3Code::bucket_not_empty, "The bucket you tried to delete is not empty.");
}

Task<Result<void>> remove_contents(ObjectStore& store, meta::Caller caller, meta::InodeView dir) {
  meta::MetaClient& metadata = store.metadata();
  client::DirLister lister(metadata, caller, dir.ref(), true);
  for (;;) {
    FF_CO_TRY(auto entry, co_await lister.next());
    if (!entry) co_return Result<void>();
    const bool hidden = entry->name.starts_with(kHiddenPrefix);
    if (entry->kind != meta::InodeType::directory) {
      if (!hidden) co_return bucket_not_empty();
      FF_CO_TRY(co_await metadata.unlink(caller, dir.ref(), entry->name, std::nullopt));
    } else if (hidden) {
      FF_CO_TRY(co_await metadata.remove_tree(caller, dir.ref(), entry->name));
    } else if (entry->view) {
      FF_CO_TRY(co_await remove_contents(store, caller, *entry->view));
      FF_CO_TRY(co_await metadata.rmdir(caller, dir.ref(), entry->name));
    }
  }
}

}  // namespace

Task<Result<void>> remove_bucket(ObjectStore& store, meta::Caller caller, std::string bucket) {
  FF_CO_TRY(auto dir, co_await store.find_bucket(caller, bucket));
  KeyWalk walk(store, caller, dir, {});
  FF_CO_TRY(const auto first, co_await walk.next());
  if (first) co_return bucket_not_empty();
  auto removed = co_await remove_contents(store, caller, std::move(dir));
  if (removed) {
    const auto gone =
        co_await store.metadata().rmdir(std::move(caller), store.root(), std::move(bucket));
    if (!gone) removed = gone.error();
  }
  if (!removed && removed.error().sys == ENOTEMPTY) co_return bucket_not_empty();
  FF_CO_TRY(removed);
  co_return co_await store.finish_change();
}

}  // namespace ff::s3
