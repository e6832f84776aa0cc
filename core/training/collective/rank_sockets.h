// The Unix sockets between the ranks of a host, and the thread that serves them. Rank 0 listens on
// an abstract socket named after the job; the other ranks connect, and each end checks that the
// other runs as the same user. Once all have joined, or one does not fit, rank 0 stops listening
// and only then tells them, so that the next communicator of the same name never meets this one. It
// sends the operation table to every rank, or the error. Later it forwards each region that a rank
// shares: a message with a file descriptor (SCM_RIGHTS). A socket that closes without a goodbye
// marks its rank as failed in the operation table.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/result.h"
#include "platform/base/system_loop.h"
#include "platform/base/task.h"
#include "platform/net/socket.h"
#include "training/collective/host_state.h"

namespace ff::collective {

class RankSockets {
 public:
  explicit RankSockets(HostState& state);
  ~RankSockets();

  // Starts the thread, which lets the ranks join until this steady time.
  void start(int64_t until_ns);
  // Of joining; nothing while it goes on.
  std::optional<Result<void>> outcome();
  // Says goodbye to the other ranks and joins the thread.
  void stop();

  // Announce a region to all other ranks of the host, or withdraw it.
  void share_region(const std::shared_ptr<const net::SharedRegion>& region);
  void withdraw_region(const net::SharedRegion& region);

 private:
  struct Message;
  struct Peer;

  bool is_leader() const { return state_.self.rank == 0; }
  net::Address address() const;
  void set_outcome(Result<void> outcome);
  Task<void> join(int64_t until_ns);
  Error timeout_error() const;
  Task<void> stop_listening();

  // Rank 0 only.
  Task<Result<void>> lead();
  Task<void> accept();
  Task<void> greet(std::unique_ptr<net::SocketStream> stream);
  Result<void> check_hello(const Message& hello) const;
  void send_error(Peer& peer, const Error& error);
  // The other ranks only.
  Task<Result<void>> follow();
  Task<Result<void>> receive_welcome(Peer& leader);
  Task<Error> receive_error(Peer& leader, const Message& refused);

  std::unique_ptr<Peer> make_peer(std::unique_ptr<net::SocketStream> stream);
  Task<Result<void>> receive(Peer& peer, Message& message);
  Task<void> receive_loop(uint32_t rank);
  Result<void> handle(uint32_t from, Peer& peer, const Message& message);
  void on_disconnect(uint32_t rank, const Error& error);
  // `owner` keeps `fd` open.
  void send(Peer& peer, const Message& message, int fd, std::shared_ptr<const void> owner,
            std::string text = {});
  void send_to_all(const Message& message, int fd, std::shared_ptr<const void> owner);
  Task<void> write_queue(Peer& peer);
  Task<Result<void>> write(net::SocketStream& stream, ByteView bytes);
  Task<void> close();

  HostState& state_;
  SystemLoop loop_;
  std::optional<Gate> gate_;
  std::optional<Gate> joining_;  // rank 0: connections whose ranks have not joined yet
  Event all_joined_;
  std::unique_ptr<net::SocketListener> listener_;
  std::optional<Error> refusal_;
  std::map<uint32_t, std::unique_ptr<Peer>> peers_;  // rank 0: all others; the others: rank 0
  std::vector<std::unique_ptr<Peer>> refused_;       // rank 0: those that do not fit
  std::mutex mutex_;
  std::optional<Result<void>> outcome_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace ff::collective
