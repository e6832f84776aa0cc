// FUSE over io_uring (Linux 6.14 and later, where fuse.enable_uring=1): the kernel puts requests
// into memory that this process has registered, and one system call returns replies and waits for
// the next requests. The kernel has a queue for each CPU, with the requests of the programs that
// run on it. All queues are served by one ring, in whose system call the loop sleeps (LoopWaiter).
//
// FORGET, INTERRUPT, and requests from before start() come through /dev/fuse.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/system_loop.h"
#include "storage/mount/fuse_request.h"

namespace ff::mount {

// Why the kernel does not offer it, with the switch as a hint.
Error uring_not_offered();
// CPUs that this kernel could have, each of which has a queue. Errc::failed: unknown.
Result<size_t> possible_cpus();

class FuseUring final : private LoopWaiter, private Runnable {
 public:
  struct Options {
    int fd = -1;           // /dev/fuse, which outlives it
    ByteSpan memory = {};  // kEntryBytes for each entry; outlives the mount
    size_t queues = 0;     // possible_cpus()
    size_t entries = 0;    // for each queue: the requests under way of the programs on a CPU
  };
  // Bytes of memory for each entry: a page of headers, then the data of one request or reply.
  static constexpr uint64_t kEntryBytes = 4 * kKiB + kWriteMax;

  // On the thread of the loop, before the reply to FUSE_INIT. Errc::refused: io_uring is forbidden.
  static Result<std::unique_ptr<FuseUring>> create(SystemLoop& loop, const Options& options);
  ~FuseUring();

  // Right after the reply to FUSE_INIT: registers all queues. `on_request` gets each request, on
  // the loop; it must be answered by reply(). `on_failure` is called once if the kernel refuses a
  // queue: all requests then come through /dev/fuse.
  void start(std::function<void(FuseRequest)> on_request, std::function<void(Error)> on_failure);
  // Replies to a request. Bytes of `data` that lie in reply_room() already are not copied.
  void reply(size_t entry, uint64_t unique, int error, std::string_view bytes, ByteView data);
  // The memory of the reply to a request, which the request occupies until then.
  ByteSpan reply_room(size_t entry) const;

  // Requests of a CPU that has no entry left wait in the kernel.
  bool exhausted(size_t entry) const { return in_use_[entry / per_queue_] == per_queue_; }
  // The CPU of the program that made a request.
  size_t cpu_of(size_t entry) const { return entry / per_queue_; }
  bool any_exhausted() const { return std::ranges::find(in_use_, per_queue_) != in_use_.end(); }
  size_t in_use() const;
  // Requests under way whose programs wait for the reply (is_awaited).
  size_t awaited() const { return awaited_; }

 private:
  struct Ring;
  FuseUring(SystemLoop& loop, const Options& options, std::unique_ptr<Ring> ring);

  bool wait(int timeout_ms) override;
  void on_wake() override;
  void reap();
  void watch_loop();
  void submit(size_t entry, uint32_t command, uint64_t commit_id);
  void on_completion(size_t entry, int result);
  FuseRequest request_of(size_t entry) const;
  fuse_in_header header_of(size_t entry) const;
  ByteSpan memory_of(size_t entry) const;

  SystemLoop& loop_;
  const int fd_;
  const ByteSpan memory_;
  const size_t per_queue_;
  const std::unique_ptr<Ring> ring_;
  std::function<void(FuseRequest)> on_request_;
  std::function<void(Error)> on_failure_;
  std::vector<size_t> in_use_;  // entries with requests, by queue
  size_t awaited_ = 0;
  std::deque<size_t> arrived_;  // entries whose requests have not been handed out
  bool loop_ready_ = false;     // a descriptor of the loop is ready
};

}  // namespace ff::mount
