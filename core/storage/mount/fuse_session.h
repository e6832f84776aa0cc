// The FUSE session: it gets requests of the kernel from /dev/fuse or over io_uring (fuse_uring.h),
// runs each as a task and replies. Owned by one loop, which must never access files of its own
// mount: that would deadlock. Its workers (fuse_worker.h) answer READ requests on other loops while
// several programs use the mount; all other requests come to this loop.
#pragma once

#include <sched.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "platform/base/fd_watch.h"
#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "storage/mount/caller_resolver.h"
#include "storage/mount/device_reader.h"
#include "storage/mount/follow_cpu.h"
#include "storage/mount/fuse_device.h"
#include "storage/mount/fuse_request.h"
#include "storage/mount/fuse_uring.h"
#include "storage/mount/fuse_worker.h"
#include "storage/mount/kernel_cache.h"
#include "storage/mount/kernel_notifier.h"
#include "storage/mount/operations.h"
#include "storage/mount/spread_load.h"
#include "storage/mount/virtual_dir.h"

namespace ff::mount {

class FuseSession final : public KernelCache {
 public:
  struct WorkerLoop {
    SystemLoop& loop;  // outlives the session
    std::unique_ptr<client::SnapshotReader> reader = {};
  };
  struct Options {
    ByteSpan slots;         // request buffers, a multiple of kSlotBytes
    std::string name = {};  // mount name for programs (ioctl)
    bool read_only = false;
    bool io_uring = true;  // where the kernel offers it
    std::vector<WorkerLoop> workers = {};
    // What open files let workers read; needed with workers.
    const client::ReadSnapshots* snapshots = nullptr;
    // A descriptor of /dev/fuse for a worker, by its number. -1: it shares that of the session.
    std::function<Fd(size_t worker)> worker_device = [](size_t) { return Fd(); };
    // With a recovery table (client/recovery_table.h).
    bool resend = false;                             // continue the session of a predecessor
    std::function<void(bool resends)> on_init = {};  // whether the kernel can repeat requests
    std::function<void()> on_healthy = {};  // called once, when it has answered many requests
  };
  static constexpr uint64_t kSlotBytes = FuseSlots::kBytes;

  // All outlive it.
  FuseSession(SystemLoop& loop, FuseDevice& device, chain::BufferPool& memory,
              CallerResolver& callers, Metrics& metrics, Options options);
  ~FuseSession() override;

  // Serves until the file system is unmounted or this is cancelled. `operations` outlives it, and
  // close(). `virtual_dir` outlives it, too; may be null.
  Task<Result<void>> run(Operations& operations, VirtualDir* virtual_dir);
  // Cancels all requests. Later requests of programs fail.
  Task<void> close();

  // No request is in progress.
  bool idle() const { return running_.empty() && workers_idle(); }
  // Bytes of slots in use.
  uint64_t slot_bytes() const {
    const size_t entries = uring_ == nullptr ? 0 : uring_->in_use();
    return (slots_.in_use() + entries) * kSlotBytes;
  }
  // For a process that hands over: the workers read no further requests.
  void stop_workers_reading();
  // The routing of the cluster has changed: tells the workers.
  void on_routing(const cluster::Routing& routing);
  // Workers take part in the work, because several programs have requests at once.
  bool spreads() const { return spread_.on(); }

  // KernelCache.
  void invalidate_attributes(meta::InodeId inode) override;
  Task<void> invalidate_pages(meta::InodeId inode, uint64_t offset, uint64_t size) override;
  void invalidate_pages_async(meta::InodeId inode, uint64_t offset, uint64_t size) override;

 private:
  using ReplyTask = Task<Result<FuseReply>>;
  using Handler = ReplyTask (FuseSession::*)(FuseRequest& request);
  struct Call {
    Handler handler = nullptr;
    const char* name = "";
    Histogram* seconds = nullptr;
  };
  static constexpr size_t kCalls = 64;

  void register_handlers();
  Result<DeviceReader::State> read_device(FuseRequest& request);
  Task<Result<bool>> receive(FdWatch& watch, FuseRequest& request);
  void dispatch(FuseRequest request);
  void init(FuseRequest& request);
  Result<void> prepare_uring(uint64_t offered);
  void start_uring();
  void use_device(Error why);
  void start_workers();
  bool workers_idle() const;
  void take_back(std::vector<FuseRequest> requests);
  void on_uring_request(FuseRequest request);
  void on_device_request(FuseRequest request);
  void spread(const FuseRequest& request, size_t awaited, bool alone);
  void follow_device();
  void follow(std::optional<size_t> cpu, bool alone);
  void interrupt(FuseRequest& request);
  void forget(FuseRequest& request);
  Task<void> serve(FuseRequest request);
  Task<void> interrupt_later(uint64_t unique);
  void on_answered(const FuseRequest& request);
  Task<void> serve_repeated(FuseRequest request);
  void end_repeated();
  void send_reply(const FuseRequest& request, const Result<FuseReply>& reply);
  void write_reply(const FuseRequest& request, int error, std::string_view bytes, ByteView data);

  meta::InodeId inode(uint64_t nodeid) const;
  meta::InodeId inode_of(const FuseRequest& request) const { return inode(request.header.nodeid); }
  uint64_t nodeid(meta::InodeId inode) const;
  meta::Caller caller_of(const FuseRequest& request);
  fuse_entry_out entry_of(const meta::Inode& inode, int64_t fetched_ns) const;
  Result<FuseReply> entry_reply(const Result<meta::Inode>& inode) const;
  FuseReply attributes_reply(const meta::Inode& inode, int64_t fetched_ns) const;

  // fuse_session_calls.cc
  ReplyTask lookup(FuseRequest& request);
  ReplyTask getattr(FuseRequest& request);
  ReplyTask setattr(FuseRequest& request);
  ReplyTask readlink(FuseRequest& request);
  ReplyTask symlink(FuseRequest& request);
  ReplyTask mknod(FuseRequest& request);
  ReplyTask mkdir(FuseRequest& request);
  ReplyTask unlink(FuseRequest& request);
  ReplyTask rmdir(FuseRequest& request);
  ReplyTask rename(FuseRequest& request);
  ReplyTask rename2(FuseRequest& request);
  ReplyTask rename_to(FuseRequest& request, uint64_t to_dir, uint32_t flags);
  ReplyTask link(FuseRequest& request);
  ReplyTask open(FuseRequest& request);
  ReplyTask create(FuseRequest& request);
  ReplyTask read(FuseRequest& request);
  ReplyTask write(FuseRequest& request);
  ReplyTask flush(FuseRequest& request);
  ReplyTask release(FuseRequest& request);
  ReplyTask fsync(FuseRequest& request);
  ReplyTask fallocate(FuseRequest& request);
  ReplyTask lseek(FuseRequest& request);
  ReplyTask statfs(FuseRequest& request);
  ReplyTask setxattr(FuseRequest& request);
  ReplyTask getxattr(FuseRequest& request);
  ReplyTask listxattr(FuseRequest& request);
  ReplyTask removexattr(FuseRequest& request);
  ReplyTask opendir(FuseRequest& request);
  ReplyTask readdir(FuseRequest& request);
  ReplyTask readdirplus(FuseRequest& request);
  ReplyTask list(FuseRequest& request, bool plus);
  bool add_entry(std::string& out, const DirectoryHandle::Entry& entry, bool plus, size_t room);
  ReplyTask releasedir(FuseRequest& request);
  ReplyTask fsyncdir(FuseRequest& request);
  ReplyTask syncfs(FuseRequest& request);

  // fuse_session_ioctl.cc
  ReplyTask ioctl(FuseRequest& request);
  Task<Result<void>> remove_open_tree(meta::Caller caller, meta::InodeId inode);
  Task<Result<void>> ioctl_link(FuseRequest& request);
  Task<Result<void>> ioctl_punch_hole(FuseRequest& request, uint64_t handle);
  Task<Result<void>> ioctl_move(FuseRequest& request);
  Task<Result<void>> ioctl_remove(FuseRequest& request);

  SystemLoop& loop_;
  FuseDevice& device_;
  chain::BufferPool& memory_;
  CallerResolver& callers_;
  Options options_;
  FuseSlots slots_;  // of requests from /dev/fuse
  DeviceReader reader_;
  std::unique_ptr<FuseUring> uring_;
  std::set<Event*> invalidations_;  // that requests wait for
  FollowCpu follow_;
  SpreadLoad spread_;
  bool stopping_ = false;  // workers
  // Requests from /dev/fuse whose programs wait (is_awaited).
  struct Arrived {
    size_t count = 0;     // since the device had no more
    bool alone = true;    // small, and no other was under way
    uint32_t thread = 0;  // of the last one
  };
  Arrived arrived_;
  size_t awaited_ = 0;           // under way
  cpu_set_t allowed_cpus_ = {};  // of the loop
  std::array<Call, kCalls> calls_ = {};
  Operations* operations_ = nullptr;
  VirtualDir* virtual_dir_ = nullptr;
  std::unordered_map<uint64_t, CancelScope*> running_;  // by the unique number of the request
  uint64_t answered_ = 0;
  bool healthy_ = false;
  // Requests of the predecessor: whether the kernel may still repeat some, and those that it has
  // repeated and that were not answered yet.
  bool repeats_ = false;
  size_t repeated_ = 0;
  ReadMetrics reads_;
  Counter& written_bytes_;
  FailureLog failures_;
  KernelNotifier notifier_;
  Gate gate_;
  FuseWorker::Shared shared_;
  std::vector<Fd> worker_devices_;
  std::vector<std::unique_ptr<FuseWorker>> workers_;
};

}  // namespace ff::mount
