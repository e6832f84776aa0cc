// A stream whose other end is the test.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "platform/net/stream.h"

namespace ff::http {

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
  // The client closes its side.
  void end() {
    ended_ = true;
    readable_.set();
  }
  // At most so many bytes with each read, and with each write.
  void cut(size_t bytes) { piece_ = bytes; }
  // Takes so many bytes more; by default all.
  void take(size_t bytes) {
    room_ = bytes;
    writable_.set();
  }
  bool closed() const { return closed_; }
  const std::string& sent() const { return out_; }
  size_t unread() const { return in_.size() - read_; }

  Result<std::optional<size_t>> try_read(std::span<const ByteSpan> into) override {
    if (closed_ || (unread() == 0 && ended_)) return std::optional<size_t>(0);
    if (unread() == 0) {
      readable_.reset();
      return std::optional<size_t>();
    }
    const size_t part = std::min({unread(), into[0].size(), piece_});
    std::copy_n(as_bytes(in_).data() + read_, part, into[0].data());
    read_ += part;
    return std::optional(part);
  }
  Result<std::optional<size_t>> try_write(std::span<const ByteView> from) override {
    const size_t part = std::min({room_, from[0].size(), piece_});
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
  std::string local() const override { return "server"; }

 private:
  std::string in_, out_;
  size_t read_ = 0;
  size_t piece_ = SIZE_MAX;
  size_t room_ = SIZE_MAX;
  bool ended_ = false;
  bool closed_ = false;
  Event readable_, writable_;
};

}  // namespace ff::http
