// object_key.cc: the parts of a key.
#include "storage/s3/object_key.h"

#include <algorithm>

#include "platform/base/text.h"
#include "storage/meta/inode.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

bool is_key_part(std::string_view name) {
  return !name.starts_with(kHiddenPrefix) && valid_utf8(name);
}

Result<ObjectPath> parse_key(std::string_view key) {
  if (key.size() > kKeyMax) {
    return s3_error(S3Code::key_too_long, "The key has {} bytes; {} are the most.", key.size(),
                    kKeyMax);
  }
  if (!valid_utf8(key)) return s3_error(S3Code::invalid_uri, "The key is not UTF-8.");
  ObjectPath path;
  std::string_view rest = key;
  path.marker = rest.ends_with('/');
  if (path.marker) rest.remove_suffix(1);
  for (const std::string_view part : split(rest, '/')) {
    if (part.empty() || part == "." || part == ".." || part.find('\0') != part.npos) {
      return s3_error(S3Code::invalid_argument,
                      "Objects are files here, and no file can have this key: it begins with '/', "
                      "or has '//', a part '.' or '..', or a NUL character.");
    }
    if (part.size() > meta::kNameMax) {
      return s3_error(S3Code::key_too_long,
                      "Objects are files here, and a part of this key between two '/' has {} "
                      "bytes; {} are the most.",
                      part.size(), meta::kNameMax);
    }
    if (part.starts_with(kHiddenPrefix)) {
      return s3_error(S3Code::invalid_argument,
                      "Parts of keys that begin with '{}' are reserved for uploads under way.",
                      kHiddenPrefix);
    }
    path.folders.emplace_back(part);
  }
  path.name = std::move(path.folders.back());
  path.folders.pop_back();
  return path;
}

Result<void> check_new_bucket(std::string_view name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
  };
  const auto is_end = [&](char c) { return is_allowed(c) && c != '.' && c != '-'; };
  const bool valid = name.size() >= 3 && name.size() <= 63 &&
                     std::ranges::all_of(name, is_allowed) && is_end(name.front()) &&
                     is_end(name.back()) && name.find("..") == name.npos;
  if (valid) return {};
  return s3_error(
      S3Code::invalid_bucket_name,
      "Names of buckets have 3 to 63 characters of a-z 0-9 . - and begin and end with a "
      "letter or digit.");
}

bool is_bucket_name(std::string_view name) {
  return !name.empty() && !name.starts_with('.') && name.size() <= meta::kNameMax &&
         name.find('/') == name.npos && name.find('\0') == name.npos && valid_utf8(name);
}

}  // namespace ff::s3
