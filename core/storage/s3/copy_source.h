// The object that a copy is made of (x-amz-copy-source).
#pragma once

#include <string>

#include "storage/s3/s3_call.h"

namespace ff::s3 {

struct CopySource {
  std::string bucket;
  std::string key;
};

// Errors are S3's.
Result<CopySource> parse_copy_source(const S3Call& call);
// Finds it, and checks the conditions of the request for it.
Task<Result<ObjectInfo>> find_copy_source(S3Call& call, CopySource from);

}  // namespace ff::s3
