// Names of buckets and objects, and what paths of the file system can hold of them.
//
// An object "a/b/c" is the file c in the folder b in the folder a of its bucket. A key that ends in
// "/" is a folder that was made as an object ("folder marker"), which has no bytes. No file can
// have the keys "a//b", "/a", "a/./b", "a/../b", and those with a part above 255 bytes or with a
// NUL.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"

namespace ff::s3 {

constexpr size_t kKeyMax = 1024;  // bytes of a key
// Names that begin so are the gateway's: uploads under way, which no client sees as objects.
constexpr std::string_view kHiddenPrefix = ".ff-s3-";

struct ObjectPath {
  std::vector<std::string> folders;
  std::string name;     // of the file, or of the last folder
  bool marker = false;  // the key ends in "/"
};

// The error is S3's, for a request that would create the key; no object can have such a key.
Result<ObjectPath> parse_key(std::string_view key);
// Whether a name in a folder can be a part of a key.
bool is_key_part(std::string_view name);

// As a name for a new bucket (S3's rules for names, 3 to 63 of a-z 0-9 . -).
Result<void> check_new_bucket(std::string_view name);
// Whether a folder of this name is a bucket.
bool is_bucket_name(std::string_view name);

}  // namespace ff::s3
