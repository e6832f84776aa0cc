// sim_bulk.cc: slices are places in the memory that is shared.
#include "platform/sim/sim_bulk.h"

#include <algorithm>
#include <functional>

namespace ff::sim {

namespace {

constexpr uint32_t kKey = 1;  // of all the memory

}  // namespace

Result<void> SimBulk::share(ByteView memory, bool, net::Slice& slice) {
  const std::byte* const begin = memory_.own.data();
  const std::byte* const end = begin + memory_.own.size();
  const std::less_equal<> before;
  const bool inside = before(begin, memory.data()) && before(memory.data() + memory.size(), end);
  if (memory_.own.empty() || !inside) return {};
  slice.key = kKey;
  slice.address = static_cast<uint64_t>(memory.data() - begin);
  return {};
}

Result<ByteSpan> SimBulk::place(const net::Slice& slice, uint64_t offset, uint64_t size) const {
  if (closed_) return fail(Errc::unreachable, "the connection is closed");
  const uint64_t all = memory_.peers.size();
  const bool inside =
      slice.address <= all && offset <= all - slice.address && size <= all - slice.address - offset;
  if (slice.key != kKey || !inside) {
    return fail(Errc::corrupt, "the peer named memory that it does not share");
  }
  return memory_.peers.subspan(slice.address + offset, size);
}

Task<Result<void>> SimBulk::push(const net::Slice& sink, uint64_t offset, ByteView from) {
  FF_CO_TRY(const ByteSpan there, place(sink, offset, from.size()));
  std::ranges::copy(from, there.begin());
  co_return Result<void>();
}

Task<Result<void>> SimBulk::pull(const net::Slice& source, uint64_t offset, ByteSpan into) {
  FF_CO_TRY(const ByteSpan there, place(source, offset, into.size()));
  std::ranges::copy(there, into.begin());
  co_return Result<void>();
}

std::optional<ByteSpan> SimBulk::reach(const net::Slice& slice) {
  const auto there = place(slice, 0, slice.size);
  return there ? std::optional(*there) : std::nullopt;
}

}  // namespace ff::sim
