// Multipart uploads: the parts of an object lie in a hidden folder beside it, which only the user
// of the upload may enter, until they are completed to one object or aborted. They are in one file,
// where they belong in the object (part_places.h), or each in a file of its own. If all are in the
// one file, and nothing else is, it becomes the object; otherwise they are copied.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "storage/s3/object_store.h"
#include "storage/s3/part_places.h"

namespace ff::s3 {

struct UploadName {
  std::string bucket;
  std::string key;
  std::string id;
};

struct PartInfo {
  uint32_t number = 0;
  std::string etag;
  uint64_t size = 0;
  int64_t mtime_s = 0;
};

struct ListedUpload {
  std::string key;
  std::string id;
  int64_t created_s = 0;
};

class Uploads {
 public:
  explicit Uploads(ObjectStore& store) : store_(store) {}  // which outlives it

  // Returns the id of the upload. Errors of all calls are S3's, or those of the file system.
  Task<Result<std::string>> create(meta::Caller caller, std::string bucket, std::string key,
                                   std::vector<http::Field> fields);
  Task<Result<PartInfo>> put_part(meta::Caller caller, UploadName upload, uint32_t number,
                                  ObjectSource& source);
  // In the order of their numbers.
  Task<Result<std::vector<PartInfo>>> list_parts(meta::Caller caller, UploadName upload);
  // `parts`: number and ETag, in the order of their numbers.
  struct WantedPart {
    uint32_t number = 0;
    std::string etag;
  };
  Task<Result<ObjectInfo>> complete(meta::Caller caller, UploadName upload,
                                    std::vector<WantedPart> parts, PutCondition condition);
  Task<Result<void>> abort(meta::Caller caller, UploadName upload);
  // In the order of their keys and ids. What the caller may not read is left out.
  Task<Result<std::vector<ListedUpload>>> list(meta::Caller caller, std::string bucket,
                                               std::string prefix);

 private:
  struct Folder {
    meta::InodeView beside;  // in which it is
    meta::InodeView dir;
    std::vector<http::Field> fields;
  };
  struct StoredPart {
    PartInfo info;
    std::optional<meta::InodeView> file;  // of its own; none: it is in its place
    uint64_t offset = 0;                  // in its file
  };
  struct StoredParts {
    std::vector<StoredPart> parts;  // in the order of their numbers
    bool settled = true;            // as PartPlaces::Found has it
  };
  Task<Result<Folder>> find(meta::Caller caller, UploadName upload);
  Task<Result<StoredParts>> stored_parts(meta::Caller caller, meta::InodeView dir);
  Task<Result<PartInfo>> put_in_place(meta::Caller caller, PartPlaces& places,
                                      PartPlaces::Reservation reservation, uint32_t number,
                                      ObjectSource& source);
  Task<Result<PartInfo>> put_in_file(meta::Caller caller, PartPlaces& places,
                                     PartPlaces::Reservation reservation, uint32_t number,
                                     Folder folder, ObjectSource& source);
  // The parts that a request to complete names. Errors are S3's.
  static Result<std::vector<StoredPart>> choose_parts(const StoredParts& stored,
                                                      const std::vector<WantedPart>& wanted);
  Task<Result<ObjectInfo>> rename_to_object(const ObjectStore::NewObject& object,
                                            const Folder& folder, meta::InodeView sealed);
  Task<Result<void>> list_below(meta::Caller caller, meta::InodeView dir, std::string path,
                                std::string prefix, std::vector<ListedUpload>& found);

  ObjectStore& store_;
};

}  // namespace ff::s3
