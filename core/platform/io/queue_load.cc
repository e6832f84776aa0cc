// queue_load.cc: a completed operation starts the next one in its slot.
#include "platform/io/queue_load.h"

#include <optional>

namespace ff::io {

Result<void> run_queue_load(
    IoQueue& queue, size_t depth, const std::function<bool(uint64_t number)>& more,
    const std::function<void(size_t slot, uint64_t number, IoQueue::Done)>& start,
    const std::function<void(size_t slot, uint64_t number)>& ended) {
  std::optional<Error> error;
  uint64_t next = 0;
  std::function<void(size_t)> begin = [&](size_t slot) {
    if (error || !more(next)) return;
    const uint64_t number = next++;
    start(slot, number, [&, slot, number](Result<size_t> result) {
      if (!result && !error) error = std::move(result).error();
      if (!error) ended(slot, number);
      begin(slot);
    });
  };
  for (size_t slot = 0; slot < depth; slot++) begin(slot);
  while (queue.in_flight() > 0) queue.run();
  if (error) return std::move(*error);
  return {};
}

}  // namespace ff::io
