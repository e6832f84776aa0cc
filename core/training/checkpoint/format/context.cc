// context.cc: the worker threads of bulk actions.
#include "training/checkpoint/format/context.h"

#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace ff::checkpoint {

Result<void> run_workers(unsigned count, std::atomic<bool>& failed,
                         const std::function<Result<void>(unsigned)>& body) {
  std::mutex mutex;
  std::optional<Error> first;
  auto run_one = [&](unsigned index) {
    auto result = body(index);
    if (result) return;
    const std::lock_guard lock(mutex);
    failed.store(true);
    if (!first) first = std::move(result).error();
  };
  if (count <= 1) {
    run_one(0);
  } else {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < count; i++) threads.emplace_back(run_one, i);
  }
  if (first) return std::move(*first);
  return {};
}

}  // namespace ff::checkpoint
