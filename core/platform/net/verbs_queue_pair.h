// One reliable-connected queue pair and its buffers, shared by the stream and the bulk transfers of
// a connection.
//
// Every message is a SEND with an immediate word:
//
//   imm := flags:u16 credits:u16        flags: 1 end of stream
//
// Flow control: a message with data consumes one posted receive of the peer, and needs one credit.
// Every message returns credits in its immediate word; if half of them are owed and no message is
// due, an empty message returns them. Empty messages (credits, end of stream) have receives of
// their own: at most two credit messages are in flight, since half of the receives lie between
// them. So a receive is always posted, and RNR retries never happen.
//
// When the queue fails or the peer has ended, the queue pair is destroyed at once: the device then
// accesses no memory for it. Received data stays readable.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/wait.h"
#include "platform/net/bulk.h"
#include "platform/net/stream.h"
#include "platform/net/verbs.h"
#include "platform/net/verbs_setup.h"

namespace ff::net {

constexpr uint16_t kReceives = 32;            // data messages in flight
constexpr uint16_t kEmptyReceives = 4;        // empty messages in flight: credits and end
constexpr uint32_t kMessageBytes = 8 * kKiB;  // two buffers per receive: 512 KiB per connection
constexpr uint16_t kWritesMax = 16;           // RDMA WRITEs in flight
constexpr uint16_t kReadsMax = 16;            // RDMA READs in flight
// Bytes of one WRITE or READ, so that frames of other calls fit in between.
constexpr uint32_t kBulkBytes = 256 * kKiB;

enum class BulkVerb : uint8_t { write, read };

class VerbsQueuePair : public std::enable_shared_from_this<VerbsQueuePair> {
 public:
  static Result<std::shared_ptr<VerbsQueuePair>> make(VerbsDevice& device, std::string peer);
  ~VerbsQueuePair();

  VerbsDevice& device() const { return device_; }
  const std::string& peer() const { return peer_; }

  // Set-up: both ends connect() to the other's endpoint, then start() with the connection of the
  // set-up, which shows whether the peer is alive.
  VerbsEndpoint endpoint() const;
  Result<void> connect(const VerbsEndpoint& peer);
  void start(std::unique_ptr<Stream> stream);

  // See Stream::try_read() and try_write().
  Result<std::optional<size_t>> read(std::span<const ByteSpan> into);
  Result<std::optional<size_t>> write(std::span<const ByteView> from);
  Event readable;
  Event writable;
  // Sends the end of stream and keeps the queue pair until the peer has acknowledged it.
  void finish();

  // Transfers `local` to or from `offset` of the buffer. When it returns, even with an error, the
  // device no longer uses `local`.
  Task<Result<void>> transfer(BulkVerb verb, RemoteBuffer buffer, uint64_t offset, ByteSpan local);

  // Handles the completions of the device.
  void poll();
  // Fails the queue, unless it has ended already.
  void set_failed(Error error);
  void destroy_pair();
  // Waits until all sent messages are acknowledged.
  Task<Result<void>> wait_drained();

 private:
  class CreditReturn;
  class Transfer;
  // A received message with unread bytes.
  struct Received {
    uint16_t buffer = 0;
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  // A WRITE or READ in flight.
  struct BulkSlot {
    Transfer* transfer = nullptr;
    BulkVerb verb = BulkVerb::write;
    Semaphore::Permit hold;
  };

  VerbsQueuePair(VerbsDevice& device, std::string peer);
  Result<void> create();
  Result<void> to_init();
  Result<void> to_receive(const VerbsEndpoint& peer);
  Result<void> to_send(const VerbsEndpoint& peer);

  std::byte* receive_buffer(uint16_t buffer) { return buffers_.get() + buffer * kMessageBytes; }
  std::byte* send_buffer(uint16_t buffer) {
    return receive_buffer(static_cast<uint16_t>(kReceives + kEmptyReceives + buffer));
  }
  Result<void> post_receive(uint16_t buffer);
  // size 0: an empty message.
  Result<void> post_send(uint16_t buffer, size_t size, uint16_t flags);
  Result<void> post_bulk(BulkSlot slot, const RemoteBuffer& buffer, uint64_t offset, ByteSpan local,
                         uint32_t key);
  void release(uint16_t receive_buffer);
  void return_credits();

  Result<void> handle_completion(const ibv_wc& done);
  Result<void> handle_receive(const ibv_wc& done, uint16_t buffer);
  Error status_error(const ibv_wc& done) const;
  Result<void> revoke_remote_access();
  void complete_slot(uint16_t slot, bool well);
  Task<void> watch_peer();
  bool sends_pending() const;
  // The reason why nothing can be sent, with the peer's name.
  Error closed_error() const;

  VerbsDevice& device_;
  std::string peer_;
  uint32_t psn_;
  std::optional<Error> error_;  // without the peer's name
  bool ended_ = false;          // by the peer
  bool closed_ = false;         // by finish()

  std::unique_ptr<std::byte[]> buffers_;
  VerbsRegistrationCache::Reference buffers_hold_;
  std::deque<Received> received_;
  uint16_t owed_credits_ = 0;  // credits to return to the peer
  uint16_t credits_ = 0;
  uint16_t credits_max_ = 0;
  uint32_t message_max_ = 0;  // the peer's
  std::vector<uint16_t> free_sends_;
  uint16_t free_empty_sends_ = kEmptyReceives;
  std::unique_ptr<CreditReturn> credit_return_;

  std::vector<BulkSlot> slots_;
  std::vector<uint16_t> free_slots_;
  Semaphore writes_;
  std::optional<Semaphore> reads_;  // known with the peer
  Event drained_;

  std::unique_ptr<Stream> set_up_;
  VerbsPtr<ibv_cq> completions_;
  VerbsPtr<ibv_qp> pair_;
  Gate gate_;
};

}  // namespace ff::net
