// All-to-all between hosts: local rank 0 of each host sends all small blocks of its ranks for the
// ranks of another host in one message.
//
//   this host                                another host
//   all ranks have posted the operation
//   gathers their blocks for that host
//   blocks: sizes of all, then the bytes  ->  once its ranks have posted the operation, too:
//                                             stores each block in the output of its rank
//                                         <-  stored: what its ranks expect, if they disagree
//
// The operation is complete on a host when all others have sent and stored its blocks. A block that
// the two ranks name with different sizes is not stored; both learn the size of the other
// (block_table.h). Larger blocks are messages (messages.h). Used by the loop of pipeline.h only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/result.h"
#include "training/collective/block_table.h"
#include "training/collective/host_group.h"
#include "training/collective/world.h"

namespace ff::collective {

class BlockRelay {
 public:
  // Methods of frames between nodes; pipeline_state.h has the others. A pair of ranks is one of
  // each host; pairs are in the order of the sender's, then of the receiver's rank.
  enum Method : uint32_t {
    kBlocks = 40,  // call: operation; bytes:u64 of each pair, then the blocks that are not messages
    kStored,       // call: operation; nothing, or bytes:u64 that each receiver of a pair expects
  };
  struct Links {
    std::function<void(uint32_t node, uint32_t method, std::string_view message, uint64_t number)>
        send;
    std::function<void(Error)> fail_job;
    std::function<void(uint64_t number)> complete;  // this host's part of the operation is done
  };
  BlockRelay(HostGroup& group, const World& world, uint32_t node, Links links)
      : group_(group), world_(world), node_(node), links_(std::move(links)) {}

  // All ranks of this host have posted this all-to-all.
  void begin(uint64_t number);
  // Errc::corrupt: the message is malformed.
  Result<void> handle(uint32_t node, uint32_t method, uint64_t number, ByteView message);
  bool is_idle() const { return running_.empty(); }

 private:
  struct Running {
    std::vector<bool> has_sent, has_stored;  // by node
    uint32_t missing = 0;                    // messages of other nodes
  };

  Result<BlockPair*> pairs_of(uint64_t number, uint32_t local);
  Result<std::string> gather(uint64_t number, uint32_t to);
  Result<void> spread(uint64_t number, uint32_t from, ByteView message);
  bool take(std::vector<bool> Running::*messages, uint64_t number, uint32_t node);
  Result<void> handle_stored(uint64_t number, uint32_t node, ByteView message);
  Result<void> handle_blocks(uint64_t number, uint32_t node, ByteView message);
  void finish_if_done(uint64_t number);
  const WorldNode& own() const { return world_.nodes[node_]; }

  HostGroup& group_;
  const World& world_;
  const uint32_t node_;
  const Links links_;
  uint64_t begun_ = 0;                   // the operation after the last one that has begun here
  std::map<uint64_t, Running> running_;  // by operation
  std::map<std::pair<uint64_t, uint32_t>, std::string> early_;  // blocks, by operation and node
};

}  // namespace ff::collective
