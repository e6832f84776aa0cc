// Cancel: the wish that a tree of tasks ends, with the error it shall end with. Waits (wait.h)
// hook themselves in and end; code between two waits is never interrupted. One loop.
#pragma once

#include <optional>
#include <utility>

#include "platform/base/intrusive_list.h"
#include "platform/base/result.h"

namespace ff {

class Cancel {
 public:
  // Told once. on_cancel() may not run or destroy tasks: it wakes them.
  class Hook : public ListLink<Hook> {
   public:
    virtual void on_cancel() = 0;

   protected:
    ~Hook() = default;
  };

  bool requested() const { return reason_.has_value(); }
  // Only after request().
  const Error& reason() const { return *reason_; }
  // The first request counts.
  void request(Error reason) {
    if (requested()) return;
    reason_ = std::move(reason);
    while (!hooks_.empty()) hooks_.pop_front().on_cancel();
  }
  // Before request() only.
  void add(Hook& hook) { hooks_.push_back(hook); }

 private:
  std::optional<Error> reason_;
  IntrusiveList<Hook> hooks_;
};

}  // namespace ff
