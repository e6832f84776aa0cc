// Messages between hosts: local rank 0 of each host passes them on, for all ranks of the host.
//
//   sender's host                            receiver's host
//   ready: rank, tag, bytes               ->  posts it into the message table (message_table.h)
//                                         <-  grant, once a receive matches: its memory
//   pushes the bytes into that memory
//   part: offset, bytes, CRC32C           ->  checks them; after the last part both are complete
//
// No bytes are sent before the receiver has memory for them, so a message that nobody receives
// delays no other. Used by the loop of pipeline.h only.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "platform/base/gate.h"
#include "platform/net/connection.h"
#include "training/collective/host_group.h"
#include "training/collective/world.h"

namespace ff::collective {

class MessageRelay {
 public:
  // Methods of frames between nodes; pipeline_state.h has the others.
  enum Method : uint32_t {
    kReady = 32,  // send:u32 source:u32 destination:u32 tag:u64 bytes:u64; `send` identifies it
    kGrant,       // send:u32 rank:u32 bytes:u64 of the receive, receive:u32,
                  // token:u64 size:u64 address:u64 key:u32. Other bytes: the sender's error
    kPart,        // receive:u32 offset:u64 bytes:u64 crc:u32: the bytes are stored
  };
  struct Links {
    std::function<net::Connection&(uint32_t node)> connection;
    std::function<void(uint32_t node, uint32_t method, std::string_view message)> send;
    std::function<void(Error)> fail_job;
    // A link that changes data: the node, and what arrived.
    std::function<void(uint32_t node, const std::string& what)> fail_link;
  };
  MessageRelay(Loop& loop, HostGroup& group, const World& world, uint32_t node, Links links);

  // Handles what has changed in the message table.
  void poll();
  // Errc::corrupt: the message is malformed.
  Result<void> handle(uint32_t node, uint32_t method, ByteView message);
  // A rank of another host sends and receives no more.
  void rank_departed(uint32_t rank);
  // Waits until no rank of this host has a message to or from another host in flight, then tells
  // the ranks that it passes on no more.
  Task<void> finish(int64_t until_ns);
  // Cancels what is in flight.
  Task<void> close();

 private:
  struct Ready {  // a send of another host
    uint32_t node = 0;
    uint32_t send = 0;
    MessageRequest request = {};
  };
  struct Incoming {
    uint32_t node = 0;
    uint64_t bytes = 0, received = 0;
    ByteSpan memory = {};
    net::Connection::Exposure exposure = {};
  };
  struct Grant {
    uint32_t send = 0, receive = 0;
    net::RemoteBuffer memory = {};
  };

  Result<void> poll_table();
  Result<void> post_ready(const Ready& ready);
  Result<void> check_departed();
  Result<bool> is_busy();
  Result<void> grant(const Ready& ready, uint32_t receive);
  Result<void> handle_ready(uint32_t node, ByteView message);
  Result<void> handle_grant(uint32_t node, ByteView message);
  Result<void> handle_part(uint32_t node, ByteView message);
  Task<void> push(uint32_t node, Grant grant, ByteView bytes);
  uint32_t local_of(uint32_t rank) const { return rank - group_.self().first_rank; }

  Loop& loop_;
  HostGroup& group_;
  const World& world_;
  const uint32_t node_;
  const Links links_;
  MessageTable table_;
  std::map<uint32_t, uint32_t> outgoing_;   // node by message, until it is granted
  std::map<uint32_t, Ready> posted_;        // by message of the relay, until it matches
  std::deque<Ready> waiting_;               // for a place in the table, in order
  std::map<uint32_t, Incoming> incoming_;   // by receive
  std::map<uint32_t, uint64_t> unmatched_;  // sends of each node that have no grant yet
  uint32_t pushing_ = 0;                    // messages
  std::set<uint32_t> departed_;
  Gate gate_;
};

}  // namespace ff::collective
