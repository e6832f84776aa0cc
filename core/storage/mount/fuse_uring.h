// FUSE over io_uring (Linux 6.14 and later, where fuse.enable_uring=1): the kernel puts requests
// into memory that this process has registered, and one system call returns replies and waits for
// the next requests. The kernel has a queue for each CPU, with the requests of the programs that
// run on it. A loop sleeps in the system call of its ring (LoopWaiter).
//
// An entry of a queue takes one request at a time. The ring that replies to it gets the next one:
// so the entries that a thread needs collect in its ring, and the kernel takes the entry that was
// used last. The first ring registers all entries.
//
// FORGET, INTERRUPT, and requests from before start() come through /dev/fuse.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
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

// The entries of all queues, which the rings of a mount share. The counts are thread-safe.
class UringEntries {
 public:
  struct Options {
    int fd = -1;           // /dev/fuse, which outlives it
    ByteSpan memory = {};  // kBytes for each entry; outlives the mount
    size_t queues = 0;     // possible_cpus()
    size_t entries = 0;    // for each queue: the requests under way of the programs on a CPU
  };
  // Bytes of memory for each entry: a page of headers, then the data of one request or reply.
  static constexpr uint64_t kBytes = 4 * kKiB + kWriteMax;

  explicit UringEntries(const Options& options);

  int fd() const { return fd_; }
  size_t size() const { return in_use_.size() * per_queue_; }
  ByteSpan memory(size_t entry) const { return memory_.subspan(entry * kBytes, kBytes); }
  // The CPU of the program that made a request.
  size_t cpu_of(size_t entry) const { return entry / per_queue_; }
  // Requests of a CPU that has no entry left wait in the kernel.
  bool exhausted(size_t entry) const { return in_use_[cpu_of(entry)] == per_queue_; }
  bool any_exhausted() const;
  size_t in_use() const;

 private:
  friend class FuseUring;
  const int fd_;
  const ByteSpan memory_;
  const size_t per_queue_;
  std::vector<std::atomic<size_t>> in_use_;  // entries with requests, by queue
};

class FuseUring final : private LoopWaiter, private Runnable {
 public:
  using OnRequest = std::function<void(FuseRequest)>;
  using OnFailure = std::function<void(Error)>;

  // On the thread of the loop; the first one before the reply to FUSE_INIT. `on_request` gets each
  // request, on the loop; it must be answered by reply() of one ring. `on_failure` is called once
  // if the kernel refuses a command. Errc::refused: io_uring is forbidden.
  static Result<std::unique_ptr<FuseUring>> create(SystemLoop& loop,
                                                   std::shared_ptr<UringEntries> entries,
                                                   OnRequest on_request, OnFailure on_failure);
  ~FuseUring();

  // Right after the reply to FUSE_INIT, in one ring: registers all entries. If the kernel refuses
  // one, all requests come through /dev/fuse.
  void register_entries();
  // Replies to a request. Bytes of `data` that lie in reply_room() already are not copied.
  void reply(size_t entry, uint64_t unique, int error, std::string_view bytes, ByteView data);
  // Another ring replies to this request; this ring replies to the request of another one.
  void give(size_t entry) { awaited_ -= is_awaited(header_of(entry)) ? 1 : 0; }
  void take(size_t entry) { awaited_ += is_awaited(header_of(entry)) ? 1 : 0; }

  const UringEntries& entries() const { return *entries_; }
  // Requests that this ring has to reply to, and whose programs wait for that (is_awaited).
  size_t awaited() const { return awaited_; }

 private:
  struct Ring;
  FuseUring(SystemLoop& loop, std::shared_ptr<UringEntries> entries, std::unique_ptr<Ring> ring);

  bool wait(int timeout_ms) override;
  void on_wake() override;
  void reap();
  void watch_loop();
  void submit(size_t entry, uint32_t command, uint64_t commit_id);
  void on_completion(size_t entry, int result);
  FuseRequest request_of(size_t entry) const;
  fuse_in_header header_of(size_t entry) const;
  // The memory of the reply to a request, which the request occupies until then.
  ByteSpan reply_room(size_t entry) const;

  SystemLoop& loop_;
  const std::shared_ptr<UringEntries> entries_;
  const std::unique_ptr<Ring> ring_;
  OnRequest on_request_;
  OnFailure on_failure_;
  size_t awaited_ = 0;
  std::deque<size_t> arrived_;  // entries whose requests have not been handed out
  bool loop_ready_ = false;     // a descriptor of the loop is ready
};

}  // namespace ff::mount
