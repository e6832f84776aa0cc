// One page of a listing of a bucket (ListObjects): keys, and groups of keys that have the same text
// up to a delimiter.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "storage/s3/object_store.h"

namespace ff::s3 {

struct ListQuery {
  std::string prefix = {};
  std::string delimiter = {};
  std::string after = {};  // a key or a group
  size_t max_keys = 1000;  // keys and groups
};

struct ListedKey {
  std::string key;
  uint64_t size = 0;
  int64_t mtime_s = 0;
  std::string etag = {};
};

struct ListPage {
  std::vector<ListedKey> keys;
  std::vector<std::string> groups;  // CommonPrefixes
  bool truncated = false;
  std::string last = {};  // of both: where the next page goes on
};

Task<Result<ListPage>> list_keys(ObjectStore& store, meta::Caller caller, meta::InodeView bucket,
                                 ListQuery query);

}  // namespace ff::s3
