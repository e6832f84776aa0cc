// CancellationToken: asks a tree of tasks to end, and carries the error that they end with. Each
// wait (wait.h) registers a hook and ends when the token is cancelled; code between two waits is
// never interrupted. All users run on one loop. (Compare CancellationToken of .NET and Tokio.)
#pragma once

#include <optional>
#include <utility>

#include "platform/base/intrusive_list.h"
#include "platform/base/result.h"

namespace ff {

class CancellationToken {
 public:
  // The token calls on_cancel() once. It may wake tasks, but not resume or destroy them.
  class Hook : public ListLink<Hook> {
   public:
    virtual void on_cancel() = 0;

   protected:
    ~Hook() = default;
  };

  bool requested() const { return reason_.has_value(); }
  // Only valid after request().
  const Error& reason() const { return *reason_; }
  // Cancels with `reason`; later requests have no effect.
  void request(Error reason) {
    if (requested()) return;
    reason_ = std::move(reason);
    while (!hooks_.empty()) hooks_.pop_front().on_cancel();
  }
  // Only allowed before request().
  void add(Hook& hook) { hooks_.push_back(hook); }

 private:
  std::optional<Error> reason_;
  IntrusiveList<Hook> hooks_;
};

}  // namespace ff
