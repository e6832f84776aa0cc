// Exclusive right to change one chunk, for the sources of the chunk store. While it exists, other
// changes of the chunk fail with Errc::busy.
//
// An absent chunk has a map entry only while it is claimed.
#pragma once

#include <utility>

#include "storage/chunk/chunk_store.h"

namespace ff::chunk {

class ChunkStore::Claim {
 public:
  Claim(TargetId target, Target& entry, ChunkId id, Chunk& chunk)
      : target_id_(target), target_(&entry), id_(id), chunk_(&chunk) {
    chunk.busy = true;
    ++entry.busy;
  }
  Claim(Claim&& other) noexcept
      : target_id_(other.target_id_),
        target_(other.target_),
        id_(other.id_),
        chunk_(std::exchange(other.chunk_, nullptr)),
        channel_(other.channel_) {}
  Claim& operator=(Claim&&) = delete;
  ~Claim() {
    if (chunk_ == nullptr) return;
    chunk_->busy = false;
    --target_->busy;
    if (const auto call = std::exchange(chunk_->when_released, {})) call(*chunk_);
    if (channel_) target_->busy_channels.erase(target_->busy_channels.find(*channel_));
    if (chunk_->versions.absent()) target_->chunks.erase(id_);
  }

  // Also locks the channel result, so that it is not pruned meanwhile.
  void lock_channel(const RequestId& request_id) {
    channel_ = Channel(request_id.client, request_id.channel);
    target_->busy_channels.insert(*channel_);
  }

  TargetId target_id() const { return target_id_; }
  Target& target() const { return *target_; }
  ChunkId id() const { return id_; }
  Chunk& chunk() const { return *chunk_; }
  const ChunkVersions& versions() const { return chunk_->versions; }

 private:
  const TargetId target_id_;
  Target* const target_;
  const ChunkId id_;
  Chunk* chunk_;
  std::optional<Channel> channel_;
};

}  // namespace ff::chunk
