// block_relay.cc: gathering and spreading, in the thread that exchanges data with other hosts.
#include "training/collective/block_relay.h"

#include <cstring>

#include "training/collective/message_reader.h"

namespace ff::collective {

namespace {

Error malformed_blocks() {
  return fail(Errc::corrupt, "malformed blocks of an all-to-all arrived");
}

}  // namespace

// Of a rank of this host: a pair for each rank of the job.
Result<BlockPair*> BlockRelay::pairs_of(uint64_t number, uint32_t local) {
  const SharedAddress at = group_.operations().request(number, local).in;
  FF_TRY(std::byte* const memory, group_.resolve(local, at, world_.ranks() * sizeof(BlockPair)));
  return reinterpret_cast<BlockPair*>(memory);
}

void BlockRelay::begin(uint64_t number) {
  const auto others = static_cast<uint32_t>(world_.nodes.size()) - 1;
  begun_ = number + 1;
  running_[number] = {.has_sent = std::vector<bool>(others + 1),
                      .has_stored = std::vector<bool>(others + 1),
                      .missing = 2 * others};
  for (uint32_t step = 1; step <= others; step++) {
    const uint32_t to = (node_ + step) % (others + 1);
    auto gathered = gather(number, to);
    if (!gathered) return links_.fail_job(std::move(gathered).error());
    links_.send(to, kBlocks, *gathered, number);
  }
  for (uint32_t node = 0; node <= others; node++) {
    const auto early = early_.extract({number, node});
    if (!early) continue;
    if (auto spread_out = spread(number, node, as_bytes(early.mapped())); !spread_out)
      return links_.fail_job(std::move(spread_out).error());
  }
  finish_if_done(number);
}

// The message with the blocks for the ranks of a node.
Result<std::string> BlockRelay::gather(uint64_t number, uint32_t to) {
  const WorldNode& there = world_.nodes[to];
  const uint64_t most = gathered_block_max(own().ranks(), there.ranks());
  std::string sizes, blocks;
  for (uint32_t local = 0; local < own().ranks(); local++) {
    FF_TRY(const BlockPair* const pairs, pairs_of(number, local));
    for (uint32_t rank = 0; rank < there.ranks(); rank++) {
      const BlockPair& pair = pairs[there.first_rank + rank];
      append_le(sizes, pair.in_bytes);
      if (pair.in_bytes == 0 || pair.in_bytes > most) continue;
      FF_TRY(const std::byte* const block, group_.resolve(local, pair.in, pair.in_bytes));
      blocks.append(reinterpret_cast<const char*>(block), pair.in_bytes);
    }
  }
  return sizes + blocks;
}

Result<void> BlockRelay::handle(uint32_t node, uint32_t method, uint64_t number, ByteView message) {
  return method == kBlocks ? handle_blocks(number, node, message)
                           : handle_stored(number, node, message);
}

// Takes note of the first such message of the node. False: none is awaited, since the ranks have
// started different operations; the announcements will show which.
bool BlockRelay::take(std::vector<bool> Running::*messages, uint64_t number, uint32_t node) {
  const auto running = running_.find(number);
  if (running == running_.end() || (running->second.*messages)[node]) return false;
  (running->second.*messages)[node] = true;
  running->second.missing--;
  return true;
}

Result<void> BlockRelay::handle_blocks(uint64_t number, uint32_t node, ByteView message) {
  if (number >= begun_) {
    // At most kInflightMax operations of a node are not complete.
    const auto first = early_.lower_bound({begun_, 0});
    size_t held = 0;
    for (auto next = first; next != early_.end(); ++next) held += next->first.second == node;
    if (held >= kInflightMax) return malformed_blocks();
    early_[{number, node}] = std::string(as_text(message));
    return {};
  }
  FF_TRY(spread(number, node, message));
  finish_if_done(number);
  return {};
}

// Stores the blocks of another host in the outputs of the ranks of this one.
Result<void> BlockRelay::spread(uint64_t number, uint32_t from, ByteView message) {
  if (!take(&Running::has_sent, number, from)) return {};
  const WorldNode& there = world_.nodes[from];
  const uint64_t most = gathered_block_max(own().ranks(), there.ranks());
  MessageReader sizes(message);
  MessageReader blocks(message);
  (void)blocks.read_bytes(uint64_t{8} * own().ranks() * there.ranks());
  std::string expected;
  bool agrees = true;
  for (uint32_t rank = 0; rank < there.ranks(); rank++) {
    for (uint32_t local = 0; local < own().ranks(); local++) {
      FF_TRY(BlockPair* const pairs, pairs_of(number, local));
      BlockPair& pair = pairs[there.first_rank + rank];
      pair.their_in = sizes.read<uint64_t>();
      append_le(expected, pair.out_bytes);
      agrees &= pair.their_in == pair.out_bytes;
      if (pair.their_in > most) continue;
      const ByteView block = blocks.read_bytes(pair.their_in);
      if (!blocks.good()) return malformed_blocks();
      if (block.empty() || pair.their_in != pair.out_bytes) continue;
      FF_TRY(std::byte* const to, group_.resolve(local, pair.out, pair.out_bytes));
      std::memcpy(to, block.data(), block.size());
    }
  }
  if (!blocks.at_end()) return malformed_blocks();
  links_.send(from, kStored, agrees ? std::string_view() : expected, number);
  return {};
}

Result<void> BlockRelay::handle_stored(uint64_t number, uint32_t node, ByteView message) {
  if (!take(&Running::has_stored, number, node)) return {};
  const WorldNode& there = world_.nodes[node];
  MessageReader reader(message);
  for (uint32_t local = 0; local < own().ranks() && reader.more(); local++) {
    FF_TRY(BlockPair* const pairs, pairs_of(number, local));
    for (uint32_t rank = 0; rank < there.ranks(); rank++) {
      pairs[there.first_rank + rank].their_out = reader.read<uint64_t>();
    }
  }
  if (!reader.at_end()) return malformed_blocks();
  finish_if_done(number);
  return {};
}

void BlockRelay::finish_if_done(uint64_t number) {
  const auto running = running_.find(number);
  if (running == running_.end()) return;
  if (running->second.missing > 0) return;
  running_.erase(running);
  links_.complete(number);
}

}  // namespace ff::collective
