// Runs a task that never suspends from ordinary code.
#pragma once

#include <coroutine>
#include <optional>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/task.h"

namespace ff::kv {

namespace inline_detail {

struct Root {
  struct promise_type {
    CancellationToken* cancel = nullptr;
    Root get_return_object() const { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void unhandled_exception() const noexcept { FF_CHECK(!"an exception left a task"); }
    void return_void() const {}
  };
};

template <class T>
Root drive(Task<T> task, std::optional<T>& result) {
  result.emplace(co_await std::move(task));
}

}  // namespace inline_detail

// Returns the task's result. Aborts if the task suspends.
template <class T>
T run_inline(Task<T> task) {
  std::optional<T> result;
  inline_detail::drive(std::move(task), result);
  FF_CHECK(result.has_value());
  return std::move(*result);
}

}  // namespace ff::kv
