// verbs_connect.cc: the set-up exchange, and the stream and bulk transfers over one queue pair.
#include <array>
#include <map>
#include <utility>

#include "platform/net/verbs_queue_pair.h"

namespace ff::net {

namespace {

// Time limit of the whole set-up: some packets in both directions.
constexpr int64_t kSetUpNs = 5'000'000'000;

class VerbsStream final : public Stream {
 public:
  VerbsStream(std::shared_ptr<VerbsQueuePair> queue, std::string local)
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
  std::shared_ptr<VerbsQueuePair> queue_;
  std::string local_;
};

class VerbsBulk final : public Bulk {
 public:
  explicit VerbsBulk(std::shared_ptr<VerbsQueuePair> queue) : queue_(std::move(queue)) {}

  Result<void> register_memory(ByteView memory, bool writable, RemoteBuffer& buffer) override {
    if (memory.empty()) return {};
    const auto use =
        writable ? VerbsRegistrationCache::Use::sink : VerbsRegistrationCache::Use::source;
    // Memory that cannot be registered (some file mappings, over the limit of locked memory) uses
    // frames.
    auto hold = queue_->device().registrations().acquire(memory, use);
    if (!hold) return {};
    buffer.address = reinterpret_cast<uintptr_t>(memory.data());
    buffer.key = hold->remote_key();
    shared_.emplace(buffer.token, std::move(*hold));
    return {};
  }
  void deregister_memory(const RemoteBuffer& buffer) override { shared_.erase(buffer.token); }

  Task<Result<void>> push(const RemoteBuffer& sink, uint64_t offset, ByteView from) override {
    const ByteSpan local(const_cast<std::byte*>(from.data()), from.size());
    return queue_->transfer(BulkVerb::write, sink, offset, local);
  }
  Task<Result<void>> pull(const RemoteBuffer& source, uint64_t offset, ByteSpan into) override {
    return queue_->transfer(BulkVerb::read, source, offset, into);
  }

 private:
  std::shared_ptr<VerbsQueuePair> queue_;
  std::map<uint64_t, VerbsRegistrationCache::Reference> shared_;  // by token
};

// Sends `mine` and receives the peer's value.
template <size_t N>
Task<Result<std::array<std::byte, N>>> trade(Stream& stream, std::array<std::byte, N> mine) {
  std::array<std::byte, N> theirs;
  FF_CO_TRY(co_await write_all(stream, mine));
  FF_CO_TRY(co_await read_all(stream, theirs));
  co_return theirs;
}

Task<Result<void>> set_up(Stream& stream, VerbsQueuePair& queue) {
  const EndpointBytes mine = encode_endpoint(queue.endpoint());
  FF_CO_TRY(const EndpointBytes theirs, co_await trade(stream, mine));
  FF_CO_TRY(const VerbsEndpoint peer, parse_endpoint(theirs));
  FF_CO_TRY(queue.connect(peer));
  std::array<std::byte, sizeof(uint32_t)> ready;
  store_le(ready.data(), kReadyMagic);
  FF_CO_TRY(ready, co_await trade(stream, ready));
  if (load_le<uint32_t>(ready.data()) != kReadyMagic) {
    co_return fail(Errc::corrupt, "the peer answered the set-up with {:#010x}",
                   load_le<uint32_t>(ready.data()));
  }
  co_return Result<void>();
}

// Exchanges one byte over the queue pairs, to detect fabrics without a route.
Task<Result<void>> exchange_byte(VerbsStream& stream) {
  constexpr std::array<std::byte, 1> kByte = {std::byte{1}};
  const auto reached = co_await trade(stream, kByte);
  if (reached) co_return Result<void>();
  co_return reached.error();
}

}  // namespace

Task<Result<std::unique_ptr<Connection>>> connect_verbs(VerbsDevice& device,
                                                        std::unique_ptr<Stream> stream,
                                                        std::string name) {
  Loop& loop = device.loop();
  const std::string peer = name + " (verbs)";
  const std::string local = stream->local();
  FF_CO_TRY(const auto queue, VerbsQueuePair::make(device, peer));
  const int64_t deadline_ns = loop.now_ns() + kSetUpNs;
  auto setting_up = set_up(*stream, *queue);
  auto done = co_await with_deadline(loop, deadline_ns,
                                     "the peer did not finish the set-up of RDMA in time",
                                     std::move(setting_up));
  if (!done) co_return std::move(done).error().with_context(peer + ": ");
  queue->start(std::move(stream));
  auto frames = std::make_unique<VerbsStream>(queue, local);
  auto reaching = exchange_byte(*frames);
  done = co_await with_deadline(loop, deadline_ns, "no data of the peer arrived over RDMA in time",
                                std::move(reaching));
  if (!done) co_return std::move(done).error().with_context(peer + ": ");
  co_return std::make_unique<Connection>(loop, std::move(frames),
                                         std::make_unique<VerbsBulk>(queue));
}

}  // namespace ff::net
