// What S3 knows of an object beside its bytes: the ETag, header fields to return, tags. It is kept
// as the extended attribute "user.ff.s3" of the file, in lines:
//
//   ff-s3 1
//   etag 9b2cf535f27731c974343645a3985328-2
//   of 17 3 0 1024          inode, data version, truncations, length: the bytes that the ETag is of
//   field content-type text%2Fplain
//   tag project blue
//
// Who writes to the file through the mount changes its data version; the ETag is then another one,
// made of these numbers: it is no MD5, which its suffix "-0" tells clients.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/http/request_head.h"
#include "storage/meta/inode.h"

namespace ff::s3 {

constexpr std::string_view kAttributeName = "user.ff.s3";
// The field of the folder of a multipart upload that has its key, percent-encoded.
constexpr std::string_view kUploadKey = "ff-key";

struct ObjectAttributes {
  std::string etag = {};  // without quotes; empty: of a folder marker, or it is not known
  std::vector<http::Field> fields = {};  // content-type, x-amz-meta-..., in the order they came
  std::map<std::string, std::string> tags = {};
  bool operator==(const ObjectAttributes&) const = default;
};

// `inode`: of the file with the bytes of the ETag.
std::string format_attributes(const ObjectAttributes& attributes, const meta::Inode& inode);
// `text`: empty if the file has no attribute. The ETag is that of the file's present bytes.
ObjectAttributes parse_attributes(std::string_view text, const meta::Inode& inode);

// The fields of a request that belong to the object. Errors are S3's: they are too long.
Result<std::vector<http::Field>> object_fields(const http::RequestHead& head);

}  // namespace ff::s3
