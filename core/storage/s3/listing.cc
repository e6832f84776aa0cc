// listing.cc: walks keys, groups them, and asks for the ETags of all keys of a page at once.
#include "storage/s3/listing.h"

#include <utility>

#include "platform/base/task_group.h"
#include "storage/s3/key_walk.h"

namespace ff::s3 {

namespace {

constexpr size_t kAttributesAtOnce = 64;

// "a/" of "a/b" with the delimiter "/"; empty: the key is in no group.
std::string group_of(const std::string& key, const ListQuery& query) {
  if (query.delimiter.empty()) return {};
  const size_t found = key.find(query.delimiter, query.prefix.size());
  if (found == std::string::npos) return {};
  return key.substr(0, found + query.delimiter.size());
}

Task<Result<void>> read_etag(ObjectStore& store, meta::Caller caller, WalkedKey from,
                             Semaphore& limit, ListedKey& to) {
  FF_CO_TRY(const auto permit, co_await limit.acquire(1));
  const meta::Inode inode = from.view.inode;
  auto info = co_await store.info_of(std::move(caller), std::move(from.view), from.marker);
  // Who may not read the object, or comes after it was removed, sees that it is there.
  to.etag = info ? info->attributes.etag : parse_attributes("", inode).etag;
  co_return Result<void>();
}

}  // namespace

Task<Result<ListPage>> list_keys(ObjectStore& store, meta::Caller caller, meta::InodeView bucket,
                                 ListQuery query) {
  ListPage page;
  if (query.max_keys == 0) co_return page;
  KeyWalk walk(store, caller, std::move(bucket), {.prefix = query.prefix, .after = query.after});
  if (!query.after.empty() && group_of(query.after, query) == query.after) walk.skip(query.after);
  std::vector<WalkedKey> walked;
  for (;;) {
    FF_CO_TRY(auto found, co_await walk.next());
    if (!found) break;
    if (page.groups.size() + walked.size() == query.max_keys) {
      page.truncated = true;
      break;
    }
    std::string group = group_of(found->key, query);
    page.last = group.empty() ? found->key : group;
    if (group.empty()) {
      walked.push_back(std::move(*found));
    } else {
      page.groups.push_back(group);
      walk.skip(std::move(group));
    }
  }
  page.keys.resize(walked.size());
  Semaphore limit(store.loop(), kAttributesAtOnce);
  TaskGroup reading(store.loop());
  for (size_t i = 0; i < walked.size(); i++) {
    const meta::Inode& inode = walked[i].view.inode;
    page.keys[i] = {.key = walked[i].key,
                    .size = walked[i].marker ? 0 : inode.length,
                    .mtime_s = inode.mtime_ns / kSecond};
    reading.add(read_etag(store, caller, std::move(walked[i]), limit, page.keys[i]));
  }
  FF_CO_TRY(co_await reading.join());
  co_return page;
}

}  // namespace ff::s3
