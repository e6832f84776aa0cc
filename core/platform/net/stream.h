// A byte stream to one peer: the lower half of the transport seam. Connection (connection.h) adds
// frames and bulk transfers. Implementations:
//
//   SocketStream  TCP and Unix sockets (socket.h)        TlsStream    TLS 1.3 over one (tls.h)
//   VerbsStream   SEND and RECV of an RC queue pair      SimStream    sim/sim_net.h
//
// Non-blocking: try_read() and try_write() do what is possible now, the events signal when more is
// possible. The destructor closes the stream. Errors do not name the peer; the connection adds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"

namespace ff::net {

// Where bytes are in a file.
struct FilePlace {
  int fd = -1;
  uint64_t offset = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;

  // Number of bytes read into the pieces, in order; 0: the peer closed its side; empty: no bytes
  // yet, wait for readable(). The pieces have space for at least one byte.
  virtual Result<std::optional<size_t>> try_read(std::span<const ByteSpan> into) = 0;
  // Number of bytes accepted from the pieces, in order; empty: none now, wait for writable(). The
  // next call must offer at least as many bytes; their content may differ.
  virtual Result<std::optional<size_t>> try_write(std::span<const ByteView> from) = 0;
  // Whether try_write_file() works.
  virtual bool writes_files() const { return false; }
  // Like try_write() of `head` and then of `size` bytes of a file, which the network reads from the
  // memory of the file instead of a copy, and again when it repeats a packet: they must not change
  // before the peer has them.
  virtual Result<std::optional<size_t>> try_write_file(std::span<const ByteView> head,
                                                       const FilePlace& file, size_t size);
  // An empty result resets the event. Fetch the event again after each empty result.
  virtual Event& readable() = 0;
  virtual Event& writable() = 0;

  // Hint: at least this many bytes will arrive, so readable() need not be set for fewer. Valid for
  // one wait.
  virtual void expect(size_t /*bytes*/) {}

  // Closes both directions; the peer sees the end of the stream. Both events stay set.
  virtual void close() = 0;

  // Both ends, for messages: "10.0.0.1:4000 (tcp)".
  virtual std::string peer() const = 0;
  virtual std::string local() const = 0;

  // Passing of file descriptors (Unix sockets). A descriptor arrives no later than the last byte
  // of the following write.
  virtual bool carries_descriptors() const { return false; }
  virtual void send_descriptor(int fd);
  // The next received descriptor, owned by the caller; empty if there is none.
  virtual std::optional<int> receive_descriptor();
};

// Transfer all bytes. Errc::unreachable: the peer closed its side first.
Task<Result<void>> write_all(Stream& stream, ByteView bytes);
Task<Result<void>> read_all(Stream& stream, ByteSpan bytes);

}  // namespace ff::net
