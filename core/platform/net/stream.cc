// stream.cc: defaults for streams without file descriptors, and transfers of complete messages.
#include "platform/net/stream.h"

#include "platform/base/check.h"

namespace ff::net {

Result<std::optional<size_t>> Stream::try_write_file(std::span<const ByteView>, const FilePlace&,
                                                     size_t) {
  FF_CHECK(!"this stream writes no files");
  return std::optional<size_t>();
}

void Stream::send_descriptor(int) { FF_CHECK(!"this stream carries no descriptors"); }

std::optional<int> Stream::receive_descriptor() { return std::nullopt; }

Task<Result<void>> write_all(Stream& stream, ByteView bytes) {
  while (!bytes.empty()) {
    FF_CO_TRY(const auto wrote, stream.try_write({&bytes, 1}));
    if (wrote) {
      bytes = bytes.subspan(*wrote);
    } else {
      FF_CO_TRY(co_await stream.writable().wait());
    }
  }
  co_return Result<void>();
}

Task<Result<void>> read_all(Stream& stream, ByteSpan bytes) {
  while (!bytes.empty()) {
    FF_CO_TRY(const auto got, stream.try_read({&bytes, 1}));
    if (!got) {
      FF_CO_TRY(co_await stream.readable().wait());
    } else if (*got == 0) {
      co_return fail(Errc::unreachable, "the peer closed the connection");
    } else {
      bytes = bytes.subspan(*got);
    }
  }
  co_return Result<void>();
}

}  // namespace ff::net
