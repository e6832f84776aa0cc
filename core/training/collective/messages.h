// Messages of one rank to and from others: point-to-point, and those of gather, scatter and
// all-to-all. On one host, the rank that posts the second of a send and its receive copies the
// bytes: once if one of both has memory of all ranks, else through a staging copy. Between hosts,
// rank 0 of each passes them on (message_relay.h). message_table.h matches them.
//
// Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "platform/base/result.h"
#include "platform/base/stop_token.h"
#include "training/collective/host_group.h"
#include "training/collective/staging.h"
#include "training/collective/world.h"

namespace ff::collective {

// A message in flight, of this rank.
struct Message {
  MessageTable::Kind kind = MessageTable::Kind::send;
  uint32_t peer = 0;  // rank; kAnyRank of a receive becomes the sender when it is complete
  uint64_t tag = 0;
  uint64_t offset = 0, bytes = 0;  // in `memory`
  std::shared_ptr<StagedMemory> memory = {};
  std::optional<uint32_t> entry = {};  // in the message table; none: it is complete
  std::optional<Error> error = {};     // of a complete one
};

class Messages {
 public:
  // `world`: null when all ranks of the job are on this host.
  Messages(HostGroup& group, const World* world, const StopToken& stop, int64_t limit_ns)
      : group_(group),
        world_(world),
        stop_(stop),
        limit_ns_(limit_ns),
        table_(group.operations().messages()) {}

  // Posts a message. A peer that expects another number of bytes is an error of wait(). Errors:
  // those of MessageTable::post() and HostGroup::resolve().
  Result<void> start(Message& message);
  // Waits until this steady time. Errc::usage: sender and receiver named different sizes, which
  // only this message suffers from; every other error fails the job: Errc::unreachable: a rank is
  // gone; Errc::deadline names the peer that is late; Errc::interrupted. `context` begins the
  // error: "all-to-all (operation 3): ".
  Result<void> wait(Message& message, int64_t until_ns, const std::string& context);
  // The error of a message whose peer has named another number of bytes.
  Error mismatch_error(const Message& message, const MessageTable::Peer& peer) const;
  // Gives up a message that never gets a match.
  void withdraw(Message& message);

 private:
  bool is_local(uint32_t rank) const;
  uint32_t own_rank() const { return group_.self().first_rank + group_.self().rank; }
  std::string name_of(uint32_t rank) const;
  std::string text_of(const Message& message) const;
  MessageTable::Posting posting_of(const Message& message) const;
  Result<MessageTable::Posted> post(const Message& message, const MessageRequest& request,
                                    bool enters);
  Result<void> transfer(Message& message, uint32_t match);
  Result<void> wait_done(const Message& message, int64_t until_ns, const std::string& context);
  Error straggler_error(const Message& message, const std::string& context);
  std::optional<uint32_t> departed_peer(const Message& message) const;

  HostGroup& group_;
  const World* const world_;
  const StopToken& stop_;
  const int64_t limit_ns_;
  MessageTable table_;
  std::mutex starting_;  // a waiting thread may start the other end of a message with another size
};

}  // namespace ff::collective
