// Memory files of programs, which this daemon maps for a time. Their owner may cut one off at any
// moment: kernel I/O on what is missing then ends with EFAULT, but loads and stores raise SIGBUS,
// which would end the daemon and the mount of everybody. So a handler of that signal puts a page of
// zeros where it was raised, if that is in memory of a program; everywhere else the signal is what
// it always was. That page is no longer the program's, so the memory counts as lost from then on.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "platform/base/bytes.h"
#include "platform/base/fd.h"
#include "platform/base/result.h"

namespace ff::mount {

// Ranges guarded at once.
constexpr size_t kGuardsMax = 8192;

// While it lives, loads and stores in the range raise no signal.
class BusGuard {
 public:
  BusGuard() = default;
  // Errc::busy: there are kGuardsMax of them.
  static Result<BusGuard> make(ByteSpan range);
  BusGuard(BusGuard&& other) noexcept;
  BusGuard& operator=(BusGuard&& other) noexcept;
  ~BusGuard();

  // Set once it has kept a signal off; valid as long as the guard.
  const std::atomic<bool>& used() const;

 private:
  size_t number_ = kGuardsMax;
};

struct ForeignFile {
  Fd fd = {};
  uint64_t size = 0;
};
// A file in /dev/shm that the user owns; root may name anybody's. Nothing else is ever opened: not
// what a link leads to, nor another file system, which could keep this thread waiting.
Result<ForeignFile> open_foreign(const std::string& path, uint32_t uid);

// A file as this process sees it. `hold` is what keeps it mapped, and guarded.
struct ForeignMemory {
  ByteSpan bytes = {};
  const std::atomic<bool>* used_guard = nullptr;
  std::shared_ptr<const void> hold = {};

  // Some of it was not there when this process went there: what it has written since may have gone
  // nowhere.
  bool lost() const { return used_guard != nullptr && used_guard->load(); }
};
Result<ForeignMemory> map_foreign(const ForeignFile& file);

}  // namespace ff::mount
