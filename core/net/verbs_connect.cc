// verbs_connect.cc: the set-up exchange, and the two halves of a connection over one queue.
#include <array>
#include <map>
#include <utility>

#include "net/verbs_queue.h"

namespace ff::net {

namespace {

// Of the whole set-up: some packets both ways.
constexpr int64_t kSetUpNs = 10'000'000'000;

class VerbsStream final : public Stream {
 public:
  VerbsStream(std::shared_ptr<VerbsQueue> queue, std::string local)
      : queue_(std::move(queue)), local_(std::move(local)) {}
  ~VerbsStream() override { queue_->finish(); }

  Result<std::optional<size_t>> try_read(std::span<const ByteSpan> into) override {
    return queue_->read(into);
  }
  Result<std::optional<size_t>> try_write(std::span<const ByteView> from) override {
    return queue_->write(from);
  }
  Event& readable() override { return queue_->readable; }
  Event& writable() override { return queue_->writable; }
  void close() override { queue_->finish(); }
  std::string peer() const override { return queue_->peer(); }
  std::string local() const override { return local_; }

 private:
  std::shared_ptr<VerbsQueue> queue_;
  std::string local_;
};

class VerbsBulk final : public Bulk {
 public:
  explicit VerbsBulk(std::shared_ptr<VerbsQueue> queue) : queue_(std::move(queue)) {}

  Result<void> share(ByteView memory, bool writable, Slice& slice) override {
    if (memory.empty()) return {};
    const auto use = writable ? VerbsMemory::Use::sink : VerbsMemory::Use::source;
    // What cannot be registered (files of some kinds, more than may be pinned) goes through frames.
    auto hold = queue_->device().memory().acquire(memory, use);
    if (!hold) return {};
    slice.address = reinterpret_cast<uintptr_t>(memory.data());
    slice.key = hold->remote_key();
    shared_.emplace(slice.token, std::move(*hold));
    return {};
  }
  void unshare(const Slice& slice) override { shared_.erase(slice.token); }

  Task<Result<void>> push(const Slice& sink, uint64_t offset, ByteView from) override {
    const ByteSpan local(const_cast<std::byte*>(from.data()), from.size());
    return queue_->transfer(BulkVerb::write, sink, offset, local);
  }
  Task<Result<void>> pull(const Slice& source, uint64_t offset, ByteSpan into) override {
    return queue_->transfer(BulkVerb::read, source, offset, into);
  }

 private:
  std::shared_ptr<VerbsQueue> queue_;
  std::map<uint64_t, VerbsMemory::Hold> shared_;  // by token
};

Task<Result<void>> write_all(SocketStream& socket, ByteView bytes) {
  while (!bytes.empty()) {
    const std::array<ByteView, 1> from = {bytes};
    FF_CO_TRY(const auto wrote, socket.try_write(from));
    if (wrote) {
      bytes = bytes.subspan(*wrote);
    } else {
      FF_CO_TRY(co_await socket.writable().wait());
    }
  }
  co_return Result<void>();
}

Task<Result<void>> read_all(SocketStream& socket, ByteSpan bytes) {
  while (!bytes.empty()) {
    const std::array<ByteSpan, 1> into = {bytes};
    FF_CO_TRY(const auto got, socket.try_read(into));
    if (!got) {
      FF_CO_TRY(co_await socket.readable().wait());
    } else if (*got == 0) {
      co_return fail(Errc::unreachable, "the peer closed the connection during the set-up");
    } else {
      bytes = bytes.subspan(*got);
    }
  }
  co_return Result<void>();
}

Task<Result<void>> set_up(SocketStream& socket, VerbsQueue& queue) {
  const auto mine = encode_endpoint(queue.endpoint());
  FF_CO_TRY(co_await write_all(socket, mine));
  std::array<std::byte, kEndpointBytes> bytes;
  FF_CO_TRY(co_await read_all(socket, bytes));
  FF_CO_TRY(const VerbsEndpoint peer, parse_endpoint(bytes));
  FF_CO_TRY(queue.connect(peer));
  std::array<std::byte, sizeof(uint32_t)> ready;
  store_le(ready.data(), kReadyMagic);
  FF_CO_TRY(co_await write_all(socket, ready));
  FF_CO_TRY(co_await read_all(socket, ready));
  if (load_le<uint32_t>(ready.data()) != kReadyMagic) {
    co_return fail(Errc::corrupt, "the peer answered the set-up with {:#010x}",
                   load_le<uint32_t>(ready.data()));
  }
  co_return Result<void>();
}

}  // namespace

Task<Result<std::unique_ptr<Connection>>> connect_verbs(VerbsDevice& device, Socket socket) {
  Loop& loop = device.loop();
  const std::string peer = socket.peer.text() + " (verbs)";
  const std::string local = socket.local.text();
  FF_CO_TRY(auto stream, SocketStream::make(loop, std::move(socket)));
  FF_CO_TRY(const auto queue, VerbsQueue::make(device, peer));
  auto done = co_await with_deadline(loop, loop.now_ns() + kSetUpNs,
                                     "the peer did not finish the set-up of RDMA in time",
                                     set_up(*stream, *queue));
  if (!done) co_return std::move(done).error().within(peer + ": ");
  queue->start(std::move(stream));
  co_return std::make_unique<Connection>(loop, std::make_unique<VerbsStream>(queue, local),
                                         std::make_unique<VerbsBulk>(queue));
}

}  // namespace ff::net
