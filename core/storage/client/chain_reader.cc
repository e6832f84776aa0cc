// chain_reader.cc: leaves to the owner of the file what needs the metadata service.
#include "storage/client/chain_reader.h"

#include <algorithm>
#include <utility>

#include "storage/chain/capability.h"
#include "storage/client/file_parts.h"

namespace ff::client {

Task<SnapshotReader::Answer> ChainReader::read(ReadSnapshotRef snapshot, uint64_t offset,
                                               ByteSpan into) {
  if (offset + into.size() > snapshot->length) co_return std::nullopt;
  if (loop_.now_ns() >= snapshot->until_ns) co_return std::nullopt;
  const std::vector<FilePart> parts =
      file_parts(snapshot->inode, snapshot->chunk_size, snapshot->chains, offset, into.size());
  std::vector<chain::ChainClient::ReadIo> pieces;
  for (const FilePart& part : parts) {
    pieces.push_back({.chain = part.chain,
                      .id = part.id,
                      .offset = part.offset,
                      .into = into.subspan(part.at, part.size),
                      .capability = snapshot->capability});
  }
  auto got = co_await storage_.read(std::move(pieces));
  std::optional<Error> failed;
  for (size_t i = 0; i < parts.size(); i++) {
    if (!got[i]) {
      const Error& error = got[i].error();
      // A missing chunk is a hole only if the file is still there.
      if (error.code == Errc::not_found || chain::is_capability_expired(error)) {
        co_return std::nullopt;
      }
      failed = with_errno(std::move(got[i]).error());
      continue;
    }
    const FilePart& part = parts[i];
    const uint64_t bytes = got[i]->bytes;
    std::ranges::fill(into.subspan(part.at + bytes, part.size - bytes), std::byte{0});
  }
  if (failed) co_return Result<uint64_t>(std::move(*failed));
  co_return Result<uint64_t>(uint64_t{into.size()});
}

void ChainReader::set_routing(const cluster::Routing& routing) {
  routing_ = routing;
  storage_.on_routing_change();
}

}  // namespace ff::client
