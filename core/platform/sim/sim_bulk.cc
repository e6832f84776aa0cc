// sim_bulk.cc: remote buffers as offsets in shared memory.
#include "platform/sim/sim_bulk.h"

#include <cstring>
#include <functional>

namespace ff::sim {

namespace {

constexpr uint32_t kKey = 1;  // key of the whole shared memory

}  // namespace

Result<void> SimBulk::register_memory(ByteView memory, bool, net::RemoteBuffer& buffer) {
  const std::byte* const begin = memory_.own.data();
  const std::byte* const end = begin + memory_.own.size();
  const std::less_equal<> before;
  const bool inside = before(begin, memory.data()) && before(memory.data() + memory.size(), end);
  if (memory_.own.empty() || !inside) return {};
  buffer.key = kKey;
  buffer.address = static_cast<uint64_t>(memory.data() - begin);
  return {};
}

Result<ByteSpan> SimBulk::place(const net::RemoteBuffer& buffer, uint64_t offset,
                                uint64_t size) const {
  if (closed_) return fail(Errc::unreachable, "the connection is closed");
  const uint64_t all = memory_.peers.size();
  const bool inside = buffer.address <= all && offset <= all - buffer.address &&
                      size <= all - buffer.address - offset;
  if (buffer.key != kKey || !inside) {
    return fail(Errc::corrupt, "the peer named memory that it does not share");
  }
  return memory_.peers.subspan(buffer.address + offset, size);
}

Task<Result<void>> SimBulk::push(const net::RemoteBuffer& sink, uint64_t offset, ByteView from) {
  FF_CO_TRY(const ByteSpan there, place(sink, offset, from.size()));
  if (!from.empty()) std::memcpy(there.data(), from.data(), from.size());
  co_return Result<void>();
}

Task<Result<void>> SimBulk::pull(const net::RemoteBuffer& source, uint64_t offset, ByteSpan into) {
  FF_CO_TRY(const ByteSpan there, place(source, offset, into.size()));
  if (!into.empty()) std::memcpy(into.data(), there.data(), into.size());
  co_return Result<void>();
}

std::optional<ByteSpan> SimBulk::mapped_memory(const net::RemoteBuffer& buffer) {
  const auto there = place(buffer, 0, buffer.size);
  return there ? std::optional(*there) : std::nullopt;
}

}  // namespace ff::sim
