// Messages between ranks, in the memory that the ranks of a host share: matching, as MPI does it.
//
//   table := row*(kHostRanksMax + 1)
//   row   := queues futex message*kMessagesMax
//
// Each rank has a row with the messages that it has posted and that are not complete. A send and a
// receive match if sender, receiver and tag agree; of several, the oldest matches first. Whoever
// posts the second of a pair gets the first one as the match, and transfers the data. Otherwise the
// message waits in a queue: sends in that of the receiver ("unexpected messages"), receives in that
// of their own rank.
//
// In a job with several hosts, rank 0 of each host passes messages on (message_relay.h): it takes
// sends to other hosts from the queue of the last row, kRelayRow, and it posts the sends of other
// hosts from that row.
//
// A lock protects the queues of a row. A rank that dies while it holds one fails the job, so nobody
// waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "training/collective/collective_request.h"

namespace ff::collective {

constexpr uint32_t kAnyRank = UINT32_MAX;
// Of one rank: an all-to-all of the largest world has half as many.
constexpr uint32_t kMessagesMax = 16384;
constexpr uint32_t kRelayRow = kHostRanksMax;

struct MessageRequest {
  uint32_t source = 0;  // ranks of the job; of a receive also kAnyRank
  uint32_t destination = 0;
  uint64_t tag = 0;
  uint64_t bytes = 0;
  SharedAddress memory = {};  // of the rank that posts it
};

class MessageTable {
 public:
  struct Memory;
  static size_t bytes();
  // `memory` is zeroed at first. `has_failed`: whether the job has failed.
  MessageTable(void* memory, std::function<bool()> has_failed);

  enum class Kind : uint8_t { send, receive };
  struct Posting {
    uint32_t row = 0;  // local rank that posts it, or kRelayRow
    Kind kind = Kind::send;
    uint32_t queue_row = 0;  // local rank that receives; kRelayRow: on another host
  };
  struct Posted {
    std::optional<uint32_t> match = {};  // a message that the caller completes
    std::optional<uint32_t> own = {};    // the posted message
  };
  // Looks for a match only. Nothing if there is none, or if the relay posted it.
  Result<Posted> match(const Posting& posting, const MessageRequest& request);
  // The same, and enters the message into the table if it finds none, or if the relay posted the
  // match; then the relay transfers the data.
  Result<Posted> post(const Posting& posting, const MessageRequest& request);
  // Both: Errc::busy: kMessagesMax are unfinished; Errc::unreachable: the job has failed;
  // Errc::deadline: a rank does not release its lock.

  // Whether any rank has entered a message so far.
  bool is_used() const;

  // The oldest send to another host that was not taken yet. By the relay.
  Result<std::optional<uint32_t>> take_outbound();
  // Whether a rank of this host waits for a message of such a sender.
  Result<bool> waits_for(uint32_t row, const std::function<bool(uint32_t source)>& is_sender);

  enum class State : uint32_t { free, queued, matched, done };
  State state(uint32_t message) const;
  // Constant while the message is in the table.
  const MessageRequest& request(uint32_t message) const;
  static uint32_t row_of(uint32_t message) { return message / kMessagesMax; }
  // The other end, once they match: the message itself (if it is in the table), its rank and bytes.
  struct Peer {
    std::optional<uint32_t> message = {};
    uint32_t rank = 0;
    uint64_t bytes = 0;
  };
  Peer peer(uint32_t message) const;
  // As peer() has it, for an end that has no message in the table here.
  void set_peer(uint32_t message, const Peer& peer);
  // Of a message that matches: its data is transferred, or never will be. Wakes its rank.
  void complete(uint32_t message);
  // By the rank that has posted it: frees its place. Of a message that is done.
  void release(uint32_t message);
  // The same for one that has no match; false: it has one by now.
  Result<bool> withdraw(uint32_t message);

  // The rank whose message a rank of this host waits for, so that a late rank is not blamed for
  // another one that it waits for itself.
  void set_awaited(uint32_t row, std::optional<uint32_t> rank);
  std::optional<uint32_t> awaited(uint32_t row) const;
  // As FutexWord::wait(), for complete().
  bool wait(uint32_t row, Clock& clock, int64_t until_ns, const std::function<bool()>& until);
  // The rank that holds the lock of a row; kRelayRow: the relay.
  std::optional<uint32_t> lock_owner(uint32_t row) const;

 private:
  struct Message;
  struct Row;
  class Lock;

  Message& at(uint32_t message) const;
  Result<Posted> post(const Posting& posting, const MessageRequest& request, bool enters);
  std::optional<uint32_t> find(Row& row, const Posting& posting, const MessageRequest& request);
  Result<uint32_t> allocate(uint32_t row);
  static void show_order(Message& message);
  uint32_t next_of(uint32_t message) const;
  void append(uint32_t& head, uint32_t& tail, uint32_t message);
  void unlink(Row& row, uint32_t message);

  Memory* memory_;
  std::function<bool()> has_failed_;
};

// Follows the ranks for which `rank` and then the next ones wait, to the one that waits for none.
uint32_t last_awaited(uint32_t rank,
                      const std::function<std::optional<uint32_t>(uint32_t rank)>& awaited);

}  // namespace ff::collective
