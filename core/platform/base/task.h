// Task<T>: a lazy coroutine. It starts when it is awaited and returns a T to its awaiter (compare
// folly::coro::Task). The whole call tree below one root belongs to one loop (loop.h), so nothing
// here is synchronised.
//
// A task inherits the CancellationToken (cancellation.h) of the task that awaits it; what really
// waits (wait.h) registers there. So cancellation needs no argument: it ends the innermost wait
// with an error, which propagates like any other error.
//
// A task with a Result returns Errc::busy if it lacks memory (std::bad_alloc).
//
// Destroying a suspended Task destroys the frames below it: each awaitable unregisters itself from
// the source that would have woken it. The code avoids symmetric transfer: in sanitizer builds
// GCC 12 compiles it to real calls, and a loop over tasks that never suspend would overflow the
// stack.
#pragma once

#include <coroutine>
#include <optional>
#include <type_traits>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/result.h"

namespace ff {

class CancellationToken;

template <class T>
class Task;

namespace task_detail {

struct PromiseBase {
  std::coroutine_handle<> awaiter;
  CancellationToken* cancel = nullptr;
  bool in_await_suspend = false;  // the awaiter's await_suspend is on the stack

  struct FinalAwaiter {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      PromiseBase& promise = self.promise();
      if (!promise.in_await_suspend) promise.awaiter.resume();
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
};

template <class T>
constexpr bool kIsResult = false;
template <class T>
constexpr bool kIsResult<Result<T>> = true;

// The error of the exception that is being handled. Only memory may be missing: a peer or a file
// may have asked for more than there is. Every other exception is a bug.
Error exception_error() noexcept;

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;

  Task<T> get_return_object();
  template <class U = T>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  void unhandled_exception() noexcept {
    if constexpr (kIsResult<T>) {
      value.emplace(exception_error());
    } else {
      FF_CHECK(!"an exception left a task");
    }
  }
  T take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() const {}
  void unhandled_exception() const noexcept { FF_CHECK(!"an exception left a task"); }
  void take() const {}
};

}  // namespace task_detail

template <class T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = task_detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  struct Awaiter {
    Handle child;
    std::optional<CancellationToken*> scope;  // else the awaiting task's

    bool await_ready() const { return false; }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> parent) const {
      auto& promise = child.promise();
      promise.awaiter = parent;
      promise.cancel = scope.value_or(parent.promise().cancel);
      promise.in_await_suspend = true;
      child.resume();
      promise.in_await_suspend = false;
      return !child.done();
    }
    T await_resume() const { return child.promise().take(); }
  };
  Awaiter operator co_await() && { return {handle_, std::nullopt}; }
  // Awaits it under another CancellationToken than the awaiting task's: co_await
  // std::move(task).with_cancellation(c).
  Awaiter with_cancellation(CancellationToken& cancel) && { return {handle_, &cancel}; }
  // Awaits it without cancellation (compare asyncio.shield).
  Awaiter shielded() && { return {handle_, nullptr}; }

 private:
  friend promise_type;
  explicit Task(Handle handle) : handle_(handle) {}

  Handle handle_;
};

namespace task_detail {

template <class T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise>::from_promise(*this));
}

inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise>::from_promise(*this));
}

}  // namespace task_detail

}  // namespace ff

// FF_TRY (result.h) for coroutines.
#define FF_CO_TRY(...) FF_TRY_PICK(__VA_ARGS__, FF_CO_TRY_BIND, FF_CO_TRY_DROP)(__VA_ARGS__)
#define FF_CO_TRY_DROP(expr)                   \
  do {                                         \
    if (auto ff_result = (expr); !ff_result) { \
      co_return std::move(ff_result).error();  \
    }                                          \
  } while (false)
#define FF_CO_TRY_BIND(declaration, expr)                          \
  auto FF_TRY_CAT(ff_result_, __LINE__) = (expr);                  \
  if (!FF_TRY_CAT(ff_result_, __LINE__)) {                         \
    co_return std::move(FF_TRY_CAT(ff_result_, __LINE__)).error(); \
  }                                                                \
  declaration = std::move(FF_TRY_CAT(ff_result_, __LINE__)).value()
