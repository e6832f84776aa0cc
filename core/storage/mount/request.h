// A request of the kernel and the answer to it, in the protocol of linux/fuse.h: a header, a struct
// of the operation, then names or bytes.
#pragma once

#include <linux/fuse.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "storage/chain/memory.h"
#include "storage/meta/inode.h"

namespace ff::mount {

constexpr uint64_t kWriteMax = kMiB;  // bytes of one WRITE, or READ

struct Request {
  fuse_in_header header = {};
  std::string body = {};                    // behind the header; of a WRITE without its bytes
  ByteView payload = {};                    // of a WRITE
  std::shared_ptr<const void> keeper = {};  // keeps the payload

  // The struct at the front, and what comes behind it. Errc::failed with EIO: it is shorter.
  template <class T>
  Result<T> take() {
    static_assert(std::is_trivially_copyable_v<T>);
    if (body.size() - at_ < sizeof(T)) return cut_short();
    T value;
    std::memcpy(&value, body.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  // A name, which a zero ends.
  Result<std::string> name();
  std::string_view rest() const { return std::string_view(body).substr(at_); }

 private:
  Error cut_short() const;
  size_t at_ = 0;
};

struct Reply {
  std::string bytes = {};
  chain::Memory::Bytes memory = {};  // of what was read
  ByteView data = {};                // in it, comes behind `bytes`
};

template <class T>
void append_struct(std::string& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}
template <class T>
Reply reply_of(const T& value) {
  Reply reply;
  append_struct(reply.bytes, value);
  return reply;
}

// What stat(2) says of an inode.
fuse_attr attributes_of(const meta::Inode& inode);
// S_IFREG and so on, of st_mode.
uint32_t type_of(meta::Kind kind);
// Nothing for what no file system keeps.
std::optional<meta::Kind> kind_of(uint32_t mode);

// What the kernel is told of an error.
int errno_of(const Error& error);

// Seconds and nanoseconds as the protocol has them.
int64_t time_of(uint64_t seconds, uint32_t ns);

}  // namespace ff::mount
