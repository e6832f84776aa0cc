// Parts of a multipart upload that are written where they belong in the object, so that completing
// the upload copies nothing. They lie in one file of the folder of the upload, part N at (N - 1)
// times the size of a part:
//
//   data          the file; its name is "sealed" from the first attempt on to complete the upload
//   place-00003   the reservation of the place of part 3. It has the ETag and the size of the part,
//                 as kPlaceAttribute, once the part is there
//
// The folder has the size of a part as kPlaceAttribute: the first part that may set it has done so.
//
// Each place is written by one request at most, the one that has made its reservation. What is
// uploaded again, or does not fit, becomes a file of its own (multipart.h); it replaces the part in
// the place, whose reservation then says "replaced". A reservation is made before the file is
// looked up, and the file is renamed before reservations are listed: if each one in the list has a
// part, nobody writes to the file any more, and it can become the object.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "storage/s3/object_store.h"

namespace ff::s3 {

constexpr uint64_t kPartMin = 5 * kMiB;  // bytes of all parts but the last
constexpr uint32_t kPartNumberMax = 10'000;
constexpr std::string_view kPlaceAttribute = "user.ff.s3.part";

class PartPlaces {
 public:
  // `dir`: the folder of the upload.
  PartPlaces(ObjectStore& store, meta::Caller caller, meta::InodeView dir)
      : store_(store), caller_(std::move(caller)), dir_(std::move(dir)) {}

  // For a new upload: makes the file.
  Task<Result<void>> create();

  // The reservation of the place of a part.
  struct Reservation {
    std::optional<meta::InodeRef> by = {};    // also of another request; none: there is none
    std::optional<meta::InodeRef> file = {};  // to write to; none: no place for this request
    uint64_t offset = 0;
  };
  Task<Result<Reservation>> reserve(uint32_t number, std::optional<uint64_t> size);
  // The part is in its place.
  Task<Result<void>> fulfil(const Reservation& reservation, const std::string& etag, uint64_t size);
  // The part is in a file of its own now.
  Task<Result<void>> replace(const Reservation& reservation);

  // A part that is in its place.
  struct Part {
    std::string etag;
    uint64_t size = 0;
    int64_t mtime_s = 0;
    uint64_t offset = 0;
  };
  struct Found {
    std::map<uint32_t, Part> parts = {};  // by number
    uint64_t part_size = 0;
    bool settled = true;  // each reservation has its part
  };
  Task<Result<Found>> find();
  // From now on no request writes to the file that is not in find() before it is settled. Empty:
  // the upload has none.
  Task<Result<std::optional<meta::InodeView>>> seal();
  static constexpr std::string_view kSealedName = "sealed";

 private:
  Task<Result<uint64_t>> part_size();
  Task<Result<uint64_t>> agree_on_size(uint32_t number, uint64_t size, uint64_t chunk);
  Task<Result<Reservation>> place_of(uint32_t number, uint64_t size, meta::InodeRef by);

  ObjectStore& store_;
  const meta::Caller caller_;
  const meta::InodeView dir_;
};

}  // namespace ff::s3
