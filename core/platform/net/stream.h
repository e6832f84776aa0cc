// A stream of bytes to one peer: the lower half of the transport seam. Connection (connection.h)
// makes frames and bulk of it; what carries the bytes is one of
//
//   SocketStream  TCP and Unix sockets (socket.h)        TlsStream    TLS 1.3 over one (tls.h)
//   VerbsStream   SEND and RECV of an RC queue pair      SimStream    sim/sim_net.h
//
// Nothing here waits: try_read and try_write do what can be done now, and the events tell when more
// can. Destroying the stream closes it, too. Errors do not name the peer: the connection does.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"

namespace ff::net {

class Stream {
 public:
  virtual ~Stream() = default;

  // Bytes read into the pieces in order; 0 when the peer has closed its side; nothing when there
  // are none yet: wait for readable(). At least one byte of space is given.
  virtual Result<std::optional<size_t>> try_read(std::span<const ByteSpan> into) = 0;
  // Bytes taken of the pieces in order; nothing when none can be: wait for writable(). The next
  // call then offers at least as many bytes; what stands in them may differ.
  virtual Result<std::optional<size_t>> try_write(std::span<const ByteView> from) = 0;
  // Reset by a try_ that gave nothing, which also says anew which event that is.
  virtual Event& readable() = 0;
  virtual Event& writable() = 0;

  // So many bytes are sure to come: readable() need not be set for the first of them. Said again
  // before each wait.
  virtual void expect(size_t /*bytes*/) {}

  // No more bytes either way; the peer sees the end. Both events are set from then on.
  virtual void close() = 0;

  // Both ends, for messages: "10.0.0.1:4000 (tcp)".
  virtual std::string peer() const = 0;
  virtual std::string local() const = 0;

  // Descriptors beside the bytes (Unix sockets). A descriptor sent arrives no later than the last
  // byte of the write that follows.
  virtual bool carries_descriptors() const { return false; }
  virtual void send_descriptor(int fd);
  // The next one that came, now the caller's to close; nothing when none did.
  virtual std::optional<int> take_descriptor();
};

// All of the bytes. Errc::unreachable when the peer closes its side first.
Task<Result<void>> write_all(Stream& stream, ByteView bytes);
Task<Result<void>> read_all(Stream& stream, ByteSpan bytes);

}  // namespace ff::net
