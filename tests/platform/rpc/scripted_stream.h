// A connection whose other end is the test itself, frame by frame, in simulated time.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/check.h"
#include "platform/net/connection.h"
#include "platform/net/frame.h"
#include "platform/sim/sim_world.h"

namespace ff::rpc {

class ScriptedStream final : public net::Stream {
 public:
  explicit ScriptedStream(Loop& loop) : readable_(loop), writable_(loop) {
    readable_.set();
    writable_.set();
  }
  // Delivers bytes to the connection.
  void feed(const net::FrameHeader& head, std::string_view message = {}) {
    net::append_frame(in_, head, message);
    readable_.set();
  }
  void end() {
    ended_ = true;
    readable_.set();
  }
  bool closed() const { return closed_; }
  // The frames that the connection has sent since the last call; appends payloads to `payloads`.
  std::vector<net::Frame> sent() {
    std::vector<net::Frame> frames;
    ByteView rest = as_bytes(out_);
    net::FrameFault fault = net::FrameFault::none;
    while (rest.size() >= net::kFrameHeaderBytes) {
      const auto head = net::parse_frame_header(rest, fault);
      FF_CHECK(head.ok());
      const ByteView message = rest.subspan(net::kFrameHeaderBytes, head->message_len);
      frames.push_back({*head, std::string(as_text(message))});
      rest = rest.subspan(net::kFrameHeaderBytes + head->message_len);
      payloads += as_text(rest.first(head->payload_len));
      rest = rest.subspan(head->payload_len);
    }
    out_.clear();
    return frames;
  }

  Result<std::optional<size_t>> try_read(std::span<const ByteSpan> into) override {
    if (closed_) return std::optional<size_t>(0);
    if (in_.empty() && ended_) return std::optional<size_t>(0);
    if (in_.empty()) {
      readable_.reset();
      return std::optional<size_t>();
    }
    const size_t part = std::min(in_.size(), into[0].size());
    std::copy_n(as_bytes(in_).data(), part, into[0].data());
    in_.erase(0, part);
    return std::optional(part);
  }
  Result<std::optional<size_t>> try_write(std::span<const ByteView> from) override {
    if (blocked) {
      writable_.reset();
      return std::optional<size_t>();
    }
    size_t total = 0;
    for (const ByteView piece : from) {
      out_ += as_text(piece);
      total += piece.size();
    }
    return std::optional(total);
  }
  Event& readable() override { return readable_; }
  Event& writable() override { return writable_; }
  void close() override {
    closed_ = true;
    readable_.set();
    writable_.set();
  }
  std::string peer() const override { return "script"; }
  std::string local() const override { return "test"; }

  bool blocked = false;  // takes no bytes
  std::string payloads;  // of all that sent() has told of

 private:
  std::string in_;
  std::string out_;
  bool ended_ = false;
  bool closed_ = false;
  Event readable_;
  Event writable_;
};

// A Bulk that makes a connection one-sided; pushes still use frames.
class ScriptedBulk final : public net::Bulk {
 public:
  explicit ScriptedBulk(ByteSpan memory) : memory_(memory) {}
  bool same_host() const override { return true; }
  Result<void> register_memory(ByteView, bool, net::RemoteBuffer&) override { return {}; }
  Task<Result<void>> push(const net::RemoteBuffer&, uint64_t, ByteView) override {
    co_return fail(Errc::failed, "not in this test");
  }
  Task<Result<void>> pull(const net::RemoteBuffer&, uint64_t, ByteSpan) override {
    co_return fail(Errc::failed, "not in this test");
  }
  std::optional<ByteSpan> mapped_memory(const net::RemoteBuffer&) override { return memory_; }

 private:
  ByteSpan memory_;
};

// The world of one connection and the script at its other end.
struct Scripted {
  explicit Scripted(std::unique_ptr<net::Bulk> bulk = nullptr) {
    auto made = std::make_unique<ScriptedStream>(loop);
    stream = made.get();
    connection = std::make_unique<net::Connection>(loop, std::move(made), std::move(bulk));
  }
  // Lets what is ready happen.
  void settle() { world.run_for(1); }
  std::vector<net::Frame> sent() {
    settle();
    return stream->sent();
  }

  sim::SimWorld world;
  sim::SimLoop& loop = world.loop();
  ScriptedStream* stream = nullptr;             // the connection's
  std::unique_ptr<net::Connection> connection;  // until a Channel or ServerConnection owns it
};

}  // namespace ff::rpc
