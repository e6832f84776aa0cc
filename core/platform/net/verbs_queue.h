// One reliable queue pair and its buffers: what the stream and the bulk of a connection share.
//
// Every message is a SEND with an immediate word:
//
//   imm := flags:u16 credits:u16        flags: 1 the end, nothing follows
//
// A message with bytes takes one receive of the peer's and is sent only on a credit for it. Credits
// come back in the immediate word of any message; when half are owed and nothing goes out, in one
// without bytes. Such empty messages, of which the end is one, have receives of their own: at most
// two for credits are ever on their way, since half the receives lie between them. So a receive is
// always there, and a sender never has to try again.
//
// A queue that fails, or whose peer has ended, gives up its queue pair at once: from then on the
// device touches no memory for it. What had been received stays readable.
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
#include "platform/net/socket.h"
#include "platform/net/verbs.h"
#include "platform/net/verbs_setup.h"

namespace ff::net {

constexpr uint16_t kReceives = 32;            // messages with bytes on their way at once
constexpr uint16_t kEmptyReceives = 4;        // without; two for credits, one for the end
constexpr uint32_t kMessageBytes = 8 * kKiB;  // two buffers per receive: 512 KiB a connection
constexpr uint16_t kWritesMax = 16;           // RDMA WRITEs under way at once
constexpr uint16_t kReadsMax = 16;            // RDMA READs
// One WRITE or READ: frames of other calls go between.
constexpr uint32_t kBulkBytes = 256 * kKiB;

enum class BulkVerb : uint8_t { write, read };

class VerbsQueue : public std::enable_shared_from_this<VerbsQueue> {
 public:
  static Result<std::shared_ptr<VerbsQueue>> make(VerbsDevice& device, std::string peer);
  ~VerbsQueue();

  VerbsDevice& device() const { return device_; }
  const std::string& peer() const { return peer_; }

  // Set-up: both ends connect() to the other's endpoint, then start() with the socket that says
  // whether the peer is alive.
  VerbsEndpoint endpoint() const;
  Result<void> connect(const VerbsEndpoint& peer);
  void start(std::unique_ptr<SocketStream> socket);

  // As Stream says.
  Result<std::optional<size_t>> read(std::span<const ByteSpan> into);
  Result<std::optional<size_t>> write(std::span<const ByteView> from);
  Event readable;
  Event writable;
  // Sends the end, and stays until the peer has it.
  void finish();

  // Moves `local` to or from `offset` of the slice. Whatever happens, `local` is free when it ends.
  Task<Result<void>> transfer(BulkVerb verb, Slice slice, uint64_t offset, ByteSpan local);

  // Takes what the device has done.
  void poll();
  // Fails the queue, if it lives.
  void lose(Error error);
  // Gives the queue pair up.
  void shut();
  // Nothing of what was sent is on its way any more.
  Task<Result<void>> settled();

 private:
  class CreditReturn;
  class Transfer;
  // A received message with bytes not read yet.
  struct Received {
    uint16_t buffer = 0;
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  // A WRITE or READ under way.
  struct BulkSlot {
    Transfer* transfer = nullptr;
    BulkVerb verb = BulkVerb::write;
    Semaphore::Hold hold;
  };

  VerbsQueue(VerbsDevice& device, std::string peer);
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
  Result<void> post_bulk(BulkSlot slot, const Slice& slice, uint64_t offset, ByteSpan local,
                         uint32_t key);
  void release(uint16_t receive_buffer);
  void return_credits();

  Result<void> take(const ibv_wc& done);
  Result<void> take_receive(const ibv_wc& done, uint16_t buffer);
  Error status_error(const ibv_wc& done) const;
  Result<void> cut_peer_off();
  void end_slot(uint16_t slot, bool well);
  Task<void> watch_peer();
  bool sends_pending() const;
  // Why nothing can be sent any more; with the peer's name.
  Error gone() const;

  VerbsDevice& device_;
  std::string peer_;
  uint32_t psn_;
  std::array<std::byte, 16> nonce_;
  std::optional<Error> error_;  // without the peer's name
  bool ended_ = false;          // by the peer
  bool closed_ = false;         // by finish()

  std::unique_ptr<std::byte[]> buffers_;
  VerbsMemory::Hold buffers_hold_;
  std::deque<Received> received_;
  uint16_t owed_ = 0;  // credits to give back
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
  Event settled_;

  std::unique_ptr<SocketStream> socket_;
  VerbsPtr<ibv_cq> completions_;
  VerbsPtr<ibv_qp> pair_;
  Gate gate_;
};

}  // namespace ff::net
