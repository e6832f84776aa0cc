// The files of a tar archive, without unpacking it: the formats of POSIX (ustar, pax) and of GNU
// tar, whose headers are 512 bytes each, before the bytes of a file, which are padded to 512.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/stop_token.h"
#include "platform/io/disk.h"

namespace ff::record {

struct TarMember {
  std::string name;    // without "./" in front
  uint64_t begin = 0;  // of its bytes in the archive
  uint64_t bytes = 0;
};

struct TarMembers {
  std::vector<TarMember> files;  // in the order of the archive
  uint64_t left_out = 0;         // links and special files
};

// Of several archives one after the other: the files of all. Errc::corrupt: no tar archive, a
// damaged one, or one that was cut off; failed: a compressed archive, or one with sparse files.
Result<TarMembers> read_tar(io::File& archive, const StopToken& stop);

}  // namespace ff::record
