// The removal of a bucket, which must have no objects.
#pragma once

#include <string>

#include "storage/s3/object_store.h"

namespace ff::s3 {

// Uploads under way and empty folders go with the bucket. Errors are S3's BucketNotEmpty and
// NoSuchBucket, or those of the file system.
Task<Result<void>> remove_bucket(ObjectStore& store, meta::Caller caller, std::string bucket);

}  // namespace ff::s3
