// packed_chunks.cc: the sorted arrays. They grow in small steps, since they are many.
#include "storage/chunk/packed_chunks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "platform/base/check.h"

namespace ff::chunk {
namespace {

constexpr size_t kLeafMax = 256;  // chunks
constexpr size_t kLeafStep = 32;

}  // namespace

PackedChunks::Leaves::iterator PackedChunks::leaf_of(const ChunkId& id) {
  const auto after = leaves_.upper_bound(id);
  return after == leaves_.begin() ? after : std::prev(after);
}

PackedChunks::Leaves::const_iterator PackedChunks::leaf_of(const ChunkId& id) const {
  const auto after = leaves_.upper_bound(id);
  return after == leaves_.begin() ? after : std::prev(after);
}

const PackedChunk* PackedChunks::find(const ChunkId& id) const {
  const PackedChunk* const found = first_from(id);
  return found != nullptr && found->id == id ? found : nullptr;
}

const PackedChunk* PackedChunks::first_from(const ChunkId& id) const {
  auto leaf = leaf_of(id);
  if (leaf == leaves_.end()) return nullptr;
  const auto at = std::ranges::lower_bound(leaf->second, id, {}, &PackedChunk::id);
  if (at != leaf->second.end()) return &*at;
  return ++leaf == leaves_.end() ? nullptr : &leaf->second.front();
}

const PackedChunk* PackedChunks::last_before(const ChunkId& id) const {
  auto leaf = leaf_of(id);
  if (leaf == leaves_.end()) return nullptr;
  const auto at = std::ranges::lower_bound(leaf->second, id, {}, &PackedChunk::id);
  if (at != leaf->second.begin()) return &*std::prev(at);
  return leaf == leaves_.begin() ? nullptr : &std::prev(leaf)->second.back();
}

void PackedChunks::insert(const PackedChunk& chunk) {
  ++size_;
  auto found = leaf_of(chunk.id);
  if (found == leaves_.end()) {
    found = leaves_.try_emplace(ChunkId{}).first;
  } else if (chunk.id < found->first) {  // the first leaf, since one before it was erased
    auto node = leaves_.extract(found);
    node.key() = ChunkId{};
    found = leaves_.insert(std::move(node)).position;
  }
  Leaf* leaf = &found->second;
  if (leaf->size() >= kLeafMax && leaf->back().id < chunk.id) {
    // Chunks that come in their order leave full arrays behind.
    leaf = &leaves_.try_emplace(chunk.id).first->second;
  } else if (leaf->size() >= kLeafMax) {
    const auto middle = leaf->begin() + kLeafMax / 2;
    Leaf upper(middle, leaf->end());
    leaf->erase(middle, leaf->end());
    leaf->shrink_to_fit();
    const ChunkId begin = upper.front().id;
    Leaf& stored = leaves_.try_emplace(begin, std::move(upper)).first->second;
    if (begin <= chunk.id) leaf = &stored;
  }
  if (leaf->size() == leaf->capacity()) leaf->reserve(leaf->size() + kLeafStep);
  leaf->insert(std::ranges::lower_bound(*leaf, chunk.id, {}, &PackedChunk::id), chunk);
}

void PackedChunks::erase(const ChunkId& id) {
  const auto found = leaf_of(id);
  FF_CHECK(found != leaves_.end());
  Leaf& leaf = found->second;
  const auto at = std::ranges::lower_bound(leaf, id, {}, &PackedChunk::id);
  FF_CHECK(at != leaf.end() && at->id == id);
  leaf.erase(at);
  --size_;
  if (leaf.empty()) {
    leaves_.erase(found);
  } else if (leaf.capacity() - leaf.size() >= 2 * kLeafStep) {
    leaf.shrink_to_fit();
  }
}

}  // namespace ff::chunk
