// A FUSE request and its reply (linux/fuse.h): a header, a struct of the operation, then names or
// data.
#pragma once

#include <linux/fuse.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "storage/chain/buffer_pool.h"
#include "storage/meta/inode.h"

namespace ff::mount {

constexpr uint64_t kWriteMax = kMiB;  // bytes per WRITE or READ
// The bit of fuse_in_header::unique in requests that the kernel repeats (FUSE_UNIQUE_RESEND, since
// Linux 6.9; the installed header is older).
constexpr uint64_t kUniqueResend = uint64_t{1} << 63;

struct FuseRequest {
  fuse_in_header header = {};
  std::string body = {};                          // after the header, without the data of a WRITE
  ByteView payload = {};                          // data of a WRITE
  std::shared_ptr<const void> buffer_owner = {};  // keeps `payload` valid; null: until the reply
  std::optional<size_t> entry = {};               // of FuseUring; none: from /dev/fuse
  int device = -1;                                // the descriptor of /dev/fuse it came from
  ByteSpan reply_room = {};                       // for the data of a READ; may be empty

  // Reads the next struct of the body. Errc::failed with EIO: the body is too short.
  template <class T>
  Result<T> read_struct() {
    static_assert(std::is_trivially_copyable_v<T>);
    if (body.size() - at_ < sizeof(T)) return truncated_error();
    T value;
    std::memcpy(&value, body.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  // Reads the next NUL-terminated name.
  Result<std::string> name();
  std::string_view rest() const { return std::string_view(body).substr(at_); }
  // A READ of a program that has opened the file with O_DIRECT: the kernel keeps no page of it.
  bool is_direct_read() const;

 private:
  Error truncated_error() const;
  size_t at_ = 0;
};

// Whether a program waits for the reply. The kernel sends a RELEASE after close(2) has returned.
inline bool is_awaited(const fuse_in_header& header) {
  return header.opcode != FUSE_RELEASE && header.opcode != FUSE_RELEASEDIR;
}

struct FuseReply {
  std::string bytes = {};
  chain::BufferPool::Buffer memory = {};  // holds `data`, unless that is in `reply_room`
  ByteView data = {};                     // sent after `bytes`
};

template <class T>
void append_struct(std::string& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}
template <class T>
FuseReply reply_of(const T& value) {
  FuseReply reply;
  append_struct(reply.bytes, value);
  return reply;
}

// The attributes for stat(2).
fuse_attr attributes_of(const meta::Inode& inode);
// The file type bits of st_mode: S_IFREG and so on.
uint32_t type_of(meta::InodeType kind);
// None: not a type that a file system stores.
std::optional<meta::InodeType> kind_of(uint32_t mode);

// The errno that the kernel gets for an error.
int errno_of(const Error& error);

// Converts the seconds and nanoseconds of the protocol.
int64_t time_of(uint64_t seconds, uint32_t ns);

}  // namespace ff::mount
