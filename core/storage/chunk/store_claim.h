// The right to change one chunk, for the units of the store: while it lasts, others are refused.
//
// A chunk that is absent has an entry only while it is claimed.
#pragma once

#include <utility>

#include "storage/chunk/store.h"

namespace ff::chunk {

class Store::Claim {
 public:
  Claim(TargetId target, Target& of, ChunkId id, Chunk& chunk)
      : target_id_(target), target_(&of), id_(id), chunk_(&chunk) {
    chunk.busy = true;
    ++of.busy;
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
    if (channel_) target_->changing.erase(target_->changing.find(*channel_));
    if (chunk_->versions.absent()) target_->chunks.erase(id_);
  }

  // Its result changes along with the chunk: it is not pruned meanwhile.
  void changes(const Writer& writer) {
    channel_ = Channel(writer.client, writer.channel);
    target_->changing.insert(*channel_);
  }

  TargetId target_id() const { return target_id_; }
  Target& target() const { return *target_; }
  ChunkId id() const { return id_; }
  Chunk& chunk() const { return *chunk_; }
  const Versions& versions() const { return chunk_->versions; }

 private:
  const TargetId target_id_;
  Target* const target_;
  const ChunkId id_;
  Chunk* chunk_;
  std::optional<Channel> channel_;
};

}  // namespace ff::chunk
