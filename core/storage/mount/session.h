// The talk with the kernel: requests are read from the device, each becomes a task, and its answer
// is written back. Owned by one loop, which is never to touch files of its own mount: it would wait
// for itself.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "platform/base/fd_watch.h"
#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "storage/mount/callers.h"
#include "storage/mount/device.h"
#include "storage/mount/kernel.h"
#include "storage/mount/notifier.h"
#include "storage/mount/operations.h"
#include "storage/mount/request.h"
#include "storage/mount/virtual_dir.h"

namespace ff::mount {

class Session final : public Kernel {
 public:
  struct Options {
    ByteSpan slots;         // memory for requests, in whole slots
    std::string name = {};  // of the mount, for programs that ask (ioctl)
    bool read_only = false;
  };
  // Bytes of a slot: a page that ends with the header, and the most that a program may write.
  static constexpr uint64_t kSlotBytes = kWriteMax + 4 * kKiB;

  // All outlive it.
  Session(Loop& loop, Device& device, chain::Memory& memory, Callers& callers, Metrics& metrics,
          Options options);
  ~Session() override;

  // Until somebody unmounts it, or it is cancelled. `operations` outlives it, and close().
  // `virtual_dir`, which outlives it too: may be null.
  Task<Result<void>> run(Operations& operations, VirtualDir* virtual_dir);
  // Ends what is under way. Requests of programs fail from now on.
  Task<void> close();

  // Bytes of slots that hold requests now.
  uint64_t slot_bytes() const { return slots_.size() - free_slots_.size() * kSlotBytes; }

  // Kernel.
  void forget_attributes(meta::InodeId inode) override;
  Task<void> forget_pages(meta::InodeId inode, uint64_t offset, uint64_t size) override;
  void drop_pages(meta::InodeId inode, uint64_t offset, uint64_t size) override;

 private:
  using Answer = Task<Result<Reply>>;
  using Handler = Answer (Session::*)(Request& request);
  struct Call {
    Handler handler = nullptr;
    const char* name = "";
    Histogram* seconds = nullptr;
  };
  static constexpr size_t kCalls = 64;

  void declare_calls();
  Task<Result<bool>> receive(FdWatch& watch);
  void take(ByteView bytes, std::shared_ptr<const void> slot);
  Request request_of(ByteView bytes, std::shared_ptr<const void> slot);
  void init(Request& request);
  void interrupt(Request& request);
  void forget(Request& request);
  Task<void> serve(Request request);
  Task<void> give_up_later(uint64_t unique);
  void answer(uint64_t unique, const Result<Reply>& reply);
  void write(uint64_t unique, int error, std::string_view bytes, ByteView data);
  ByteSpan slot(size_t number) const { return slots_.subspan(number * kSlotBytes, kSlotBytes); }

  meta::InodeId inode(uint64_t node) const;
  meta::InodeId inode_of(const Request& request) const { return inode(request.header.nodeid); }
  uint64_t node(meta::InodeId inode) const;
  meta::Caller caller_of(const Request& request);
  fuse_entry_out entry_of(const meta::Inode& inode, int64_t seen_ns) const;
  Result<Reply> entry_reply(const Result<meta::Inode>& inode) const;
  Reply attributes_reply(const meta::Inode& inode, int64_t seen_ns) const;

  // session_calls.cc
  Answer lookup(Request& request);
  Answer getattr(Request& request);
  Answer setattr(Request& request);
  Answer readlink(Request& request);
  Answer symlink(Request& request);
  Answer mknod(Request& request);
  Answer mkdir(Request& request);
  Answer unlink(Request& request);
  Answer rmdir(Request& request);
  Answer rename(Request& request);
  Answer rename2(Request& request);
  Answer rename_to(Request& request, uint64_t to_dir, uint32_t flags);
  Answer link(Request& request);
  Answer open(Request& request);
  Answer create(Request& request);
  Answer read(Request& request);
  Answer write(Request& request);
  Answer flush(Request& request);
  Answer release(Request& request);
  Answer fsync(Request& request);
  Answer fallocate(Request& request);
  Answer lseek(Request& request);
  Answer statfs(Request& request);
  Answer setxattr(Request& request);
  Answer getxattr(Request& request);
  Answer listxattr(Request& request);
  Answer removexattr(Request& request);
  Answer opendir(Request& request);
  Answer readdir(Request& request);
  Answer readdirplus(Request& request);
  Answer list(Request& request, bool plus);
  bool add_entry(std::string& out, const Directory::Entry& entry, bool plus, size_t room);
  Answer releasedir(Request& request);
  Answer fsyncdir(Request& request);
  Answer syncfs(Request& request);

  // session_ioctl.cc
  Answer ioctl(Request& request);
  Task<Result<void>> remove_open_tree(meta::Caller caller, meta::InodeId inode);
  Task<Result<void>> link_order(Request& request);
  Task<Result<void>> punch_order(Request& request, uint64_t handle);
  Task<Result<void>> move_order(Request& request);
  Task<Result<void>> remove_order(Request& request);

  Loop& loop_;
  Device& device_;
  chain::Memory& memory_;
  Callers& callers_;
  const Options options_;
  const ByteSpan slots_;
  std::array<Call, kCalls> calls_ = {};
  Operations* operations_ = nullptr;
  VirtualDir* virtual_dir_ = nullptr;
  std::vector<size_t> free_slots_;
  Event slot_freed_;
  std::unordered_map<uint64_t, CancelScope*> running_;  // by the request's number
  int64_t complained_ns_ = 0;
  Gauge& under_way_;
  Counter& read_bytes_;
  Counter& written_bytes_;
  Counter& failed_;
  Notifier notifier_;
  Gate gate_;
};

}  // namespace ff::mount
