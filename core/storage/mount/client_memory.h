// Memory files of programs that this daemon maps. The owner may truncate such a file at any time:
// kernel I/O on missing pages then fails with EFAULT, but loads and stores raise SIGBUS, which
// would kill the daemon and with it the mount. So a SIGBUS handler maps a zero page at the faulting
// address if it lies in guarded memory of a program; elsewhere SIGBUS has its normal effect. The
// zero page is not shared with the program, so the memory counts as lost from then on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "platform/base/bytes.h"
#include "platform/base/fd.h"
#include "platform/base/result.h"

namespace ff::mount {

// Maximum number of guarded ranges.
constexpr size_t kGuardsMax = 8192;

// While it exists, loads and stores in the range do not raise SIGBUS.
class SigbusGuard {
 public:
  SigbusGuard() = default;
  // Errc::busy: kGuardsMax ranges are guarded already.
  static Result<SigbusGuard> make(ByteSpan range);
  SigbusGuard(SigbusGuard&& other) noexcept;
  SigbusGuard& operator=(SigbusGuard&& other) noexcept;
  ~SigbusGuard();

  // True after a SIGBUS was handled in the range. The reference is valid as long as the guard.
  const std::atomic<bool>& raised() const;

 private:
  size_t number_ = kGuardsMax;
};

struct ClientMemoryFile {
  Fd fd = {};
  uint64_t size = 0;
};
// Opens a file in /dev/shm that the user owns; root may open any. It follows no link and opens
// nothing on another file system, which could block this thread.
Result<ClientMemoryFile> open_client_memory(const std::string& path, uint32_t uid);
// The same file, which a predecessor of this process has opened. It may have no name any more.
Result<ClientMemoryFile> restore_client_memory(Fd fd, const std::string& path, uint32_t uid);

// A mapped file. `hold` keeps the mapping and its guard.
struct ClientMemory {
  ByteSpan bytes = {};
  const std::atomic<bool>* sigbus_raised = nullptr;
  std::shared_ptr<const void> hold = {};
  // Whether storage nodes may still write to it for a predecessor of this process; null: no.
  std::function<bool()> used_before = {};

  // A page was missing when this process accessed it; data written since may be lost.
  bool lost() const { return sigbus_raised != nullptr && sigbus_raised->load(); }
};
Result<ClientMemory> map_client_memory(const ClientMemoryFile& file);

}  // namespace ff::mount
