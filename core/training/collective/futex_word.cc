// futex_word.cc: a short spin, then futex(2).
#include "training/collective/futex_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace ff::collective {

namespace {

// A running rank finishes a piece in less; more than this costs as much as two wake-ups.
constexpr int64_t kSpinNs = 10'000;

}  // namespace

bool FutexWord::wait(Clock& clock, int64_t until_ns, const std::function<bool()>& until) {
  const int64_t spin_until_ns = clock.steady_ns() + kSpinNs;
  for (;;) {
    const uint32_t seen = word_.load(std::memory_order_acquire);
    if (until()) return true;
    const int64_t now_ns = clock.steady_ns();
    if (now_ns >= until_ns) return false;
    if (now_ns < spin_until_ns) continue;
    const int64_t left_ns = std::min<int64_t>(until_ns - now_ns, 3600 * kSecond);
    const timespec time{.tv_sec = left_ns / kSecond, .tv_nsec = left_ns % kSecond};
    (void)::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word_), FUTEX_WAIT, seen, &time,
                    nullptr, 0);
  }
}

void FutexWord::wake(int waiters) {
  word_.fetch_add(1, std::memory_order_acq_rel);
  (void)::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word_), FUTEX_WAKE, waiters, nullptr,
                  nullptr, 0);
}

}  // namespace ff::collective
