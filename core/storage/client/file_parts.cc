// file_parts.cc: the chunks of a file go to the chains of its stripe in turn.
#include "storage/client/file_parts.h"

#include <algorithm>
#include <cerrno>

namespace ff::client {

std::vector<FilePart> file_parts(meta::InodeId inode, uint64_t chunk_size,
                                 const std::vector<cluster::ChainId>& chains, uint64_t offset,
                                 uint64_t size) {
  std::vector<FilePart> parts;
  for (uint64_t done = 0; done < size;) {
    const uint64_t index = (offset + done) / chunk_size;
    const uint64_t begin = (offset + done) % chunk_size;
    const uint64_t length = std::min(size - done, chunk_size - begin);
    parts.push_back({.chain = chains[index % chains.size()],
                     .id = {inode, index},
                     .offset = begin,
                     .size = length,
                     .at = done});
    done += length;
  }
  return parts;
}

Error with_errno(Error error) {
  if (error.sys != 0) return error;
  switch (error.code) {
    case Errc::disk_full: error.sys = ENOSPC; break;
    case Errc::refused: error.sys = EACCES; break;
    case Errc::deadline: error.sys = ETIMEDOUT; break;
    case Errc::interrupted: error.sys = EINTR; break;
    default: error.sys = EIO;
  }
  return error;
}

}  // namespace ff::client
