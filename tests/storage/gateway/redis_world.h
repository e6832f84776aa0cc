// A gateway over a store in memory, and clients whose other end is the test, in simulated time.
#pragma once

#include <algorithm>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "platform/base/metrics.h"
#include "platform/base/rng.h"
#include "platform/net/stream.h"
#include "platform/sim/sim_world.h"
#include "storage/gateway/gateway.h"
#include "storage/gateway/gateway_connection.h"
#include "storage/gateway/memory_store.h"

namespace ff::gateway {

// Plain bytes from and to the test.
class TextStream final : public net::Stream {
 public:
  explicit TextStream(Loop& loop) : readable_(loop), writable_(loop) {
    readable_.set();
    writable_.set();
  }
  void feed(std::string_view text) {
    in_ += text;
    readable_.set();
  }
  void end() {
    ended_ = true;
    readable_.set();
  }
  bool closed() const { return closed_; }
  size_t unread() const { return in_.size() - read_; }
  // What has been sent since the last call.
  std::string sent() { return std::exchange(out_, {}); }
  // Takes so many bytes more; by default all.
  void take(size_t bytes) {
    room_ = bytes;
    writable_.set();
  }

  Result<std::optional<size_t>> try_read(std::span<const ByteSpan> into) override {
    if (closed_ || (unread() == 0 && ended_)) return std::optional<size_t>(0);
    if (unread() == 0) {
      readable_.reset();
      return std::optional<size_t>();
    }
    const size_t part = std::min(unread(), into[0].size());
    std::copy_n(as_bytes(in_).data() + read_, part, into[0].data());
    read_ += part;
    return std::optional(part);
  }
  Result<std::optional<size_t>> try_write(std::span<const ByteView> from) override {
    const size_t part = std::min(room_, from[0].size());
    if (part == 0) {
      writable_.reset();
      return std::optional<size_t>();
    }
    out_ += as_text(from[0].first(part));
    if (room_ != SIZE_MAX) room_ -= part;
    return std::optional(part);
  }
  Event& readable() override { return readable_; }
  Event& writable() override { return writable_; }
  void close() override {
    closed_ = true;
    readable_.set();
    writable_.set();
  }
  std::string peer() const override { return "test"; }
  std::string local() const override { return "gateway"; }

 private:
  std::string in_, out_;
  size_t read_ = 0;
  size_t room_ = SIZE_MAX;
  bool ended_ = false, closed_ = false;
  Event readable_, writable_;
};

struct RedisWorld {
  explicit RedisWorld(std::shared_ptr<const auth::Keyring> keyring = nullptr)
      : passwords(std::move(keyring), world.clock()) {
    gateway.start(store, "127.0.0.1:6379");
  }
  ~RedisWorld() {
    // A while at most: the gateway ends what is under way.
    run_task(world.loop(), gateway.close(0));
  }

  // A client; the stream is valid while the world is.
  class Client {
   public:
    Client(RedisWorld& world, uint64_t id) : world_(world), gate_(world.world.loop()) {
      auto made = std::make_unique<TextStream>(world.world.loop());
      stream = made.get();
      RedisClient state;
      state.id = id;
      state.connected_ns = state.active_ns = world.world.now_ns();
      state.authenticated = !world.passwords.required();
      connection_.emplace(world.gateway, std::move(made), std::move(state));
      gate_.spawn(connection_->run());
    }
    ~Client() {
      connection_->drain();
      run_task(world_.world.loop(), gate_.close(fail(Errc::interrupted, "the test is over")));
    }
    // Sends text, and returns what comes back.
    std::string say(std::string_view text) {
      stream->feed(text);
      return settle();
    }
    std::string settle() {
      world_.world.run_for(1);
      return stream->sent();
    }
    RedisConnection& connection() { return *connection_; }

    TextStream* stream = nullptr;

   private:
    RedisWorld& world_;
    std::optional<RedisConnection> connection_;
    Gate gate_;
  };

  sim::SimWorld world;
  SeededRng rng{7};
  Metrics metrics;
  MemoryStore store{world.loop()};
  PasswordCheck passwords;
  Gateway gateway{world.loop(), rng, metrics, passwords, GatewayOptions{.software = "ff test"}};
};

// A request as clients encode it.
inline std::string encode_request(const std::vector<std::string>& words) {
  std::string out = fmt::format("*{}\r\n", words.size());
  for (const std::string& word : words) out += fmt::format("${}\r\n{}\r\n", word.size(), word);
  return out;
}

}  // namespace ff::gateway
