// gate.cc: the root coroutine of a spawned task. The loop starts it, so that spawn() never runs
// task code on the caller's stack; the coroutine frame destroys itself at its end.
#include "platform/base/gate.h"

namespace ff {

struct Gate::RootPromise : ListLink<RootPromise>, Runnable {
  RootPromise(Gate& owner, const Task<void>&) : gate(owner), cancel(&owner.cancel_) {}
  ~RootPromise() { gate.on_task_end(); }

  Root get_return_object();
  std::suspend_always initial_suspend() const noexcept { return {}; }
  std::suspend_never final_suspend() const noexcept { return {}; }
  void unhandled_exception() const noexcept { FF_CHECK(!"an exception left a task"); }
  void return_void() const {}
  void on_wake() override { std::coroutine_handle<RootPromise>::from_promise(*this).resume(); }

  Gate& gate;
  CancellationToken* cancel;
};

struct Gate::Root {
  using promise_type = RootPromise;
  RootPromise& promise;
};

Gate::Root Gate::RootPromise::get_return_object() { return {*this}; }

Gate::Root Gate::run(Gate&, Task<void> task) { co_await std::move(task); }

Gate::Gate(Loop& loop) : loop_(loop), empty_(loop) { empty_.set(); }

Gate::~Gate() {
  while (!roots_.empty()) {
    std::coroutine_handle<RootPromise>::from_promise(roots_.pop_front()).destroy();
  }
}

void Gate::spawn(Task<void> task) {
  running_++;
  empty_.reset();
  RootPromise& root = run(*this, std::move(task)).promise;
  roots_.push_back(root);
  loop_.wake(root);
}

void Gate::on_task_end() {
  if (--running_ == 0) empty_.set();
}

Task<void> Gate::wait_empty() { (void)co_await wait_for(empty_).shielded(); }

Task<void> Gate::close(Error reason) {
  cancel_.request(std::move(reason));
  co_await wait_empty();
}

CancelScope::CancelScope(Loop& loop, CancellationToken* parent, int64_t deadline_ns,
                         std::string_view what)
    : parent_(parent), what_(what), timer_(loop) {
  if (parent_ != nullptr) {
    if (parent_->requested()) {
      cancel_.request(parent_->reason());
    } else {
      parent_->add(*this);
    }
  }
  if (deadline_ns != INT64_MAX) timer_.set(deadline_ns, *this);
}

void CancelScope::on_wake() { cancel_.request(Error{Errc::deadline, std::string(what_), {}}); }

}  // namespace ff
