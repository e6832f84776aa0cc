// A mount that survives its own death. Its keeper is a small process that starts the process that
// serves the mount, holds the descriptor of /dev/fuse and the shared memory of the mount, and
// starts another serving process when the first one dies or is to be replaced. Programs wait
// meanwhile: requests stay in the kernel, which repeats those that were read and not answered
// (Linux 6.9, FUSE_NOTIFY_RESEND). What else the successor needs lies in the shared memory
// (client/recovery_table.h).
//
// The keeper also has the memory files of programs that use rings (ring_registry.h), until the
// serving process releases them. A serving process of a version that cannot do that ends the rings,
// and the keeper drops the files.
//
// The keeper does no I/O on files and never touches the mount, so it cannot hang with it. If it is
// killed, the kernel kills the serving process, and the mount is dead, as without a keeper.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/fd.h"
#include "platform/base/result.h"
#include "platform/base/stop_token.h"
#include "storage/mount/descriptor_store.h"
#include "storage/mount/keeper_channel.h"

namespace ff::mount {

struct KeeperOptions {
  std::vector<std::string> argv = {};  // of the serving process, which is this program
  std::string dir = {};                // its working directory
  // The first serving process serves; the text is from its KeeperLink::report_ready().
  std::function<Result<void>(const std::string& text)> on_ready = {};
  std::function<void()> on_tick = {};  // some times a second
};

// The keeper: returns when a serving process has ended and no other shall follow, with its error.
// When `stop` asks to stop, it sends SIGTERM to the serving process. The caller has one thread.
Result<void> keep_mount(const StopToken& stop, const KeeperOptions& options);

// The keeper's end in the serving process.
class KeeperLink final : public DescriptorStore {
 public:
  // Null: a keeper has not started this process.
  static Result<std::unique_ptr<KeeperLink>> connect();

  uint64_t restarts() const { return restarts_; }
  // The mount point; empty: the directory is not mounted yet.
  const std::string& dir() const { return dir_; }
  // A descriptor that a predecessor has given to the keeper; -1: there is none.
  Fd take(const std::string& name);
  // The keeper holds a duplicate from now on.
  Result<void> hold(const std::string& name, int fd);
  // Whether the keeper can store and release descriptors: those of older versions cannot.
  bool stores_descriptors() const { return version_ >= 2; }
  Result<void> store(const std::string& name, int fd) override;
  void release(const std::string& name) override;
  std::map<std::string, Fd> take_stored(std::string_view prefix) override;
  void report_mounted(const std::string& dir);
  void report_resends();
  // It has served for a while: its death is no reason to give up.
  void report_healthy();
  void report_ready(const std::string& text);
  // Before the process ends; with status 0: the mount has ended, and the keeper returns the error.
  void report_error(const Error& error);
  // Whether a successor waits.
  bool must_hand_over();
  // The exit status of a process that has handed over.
  static constexpr int kHandedOver = 75;

 private:
  explicit KeeperLink(Fd socket) : socket_(std::move(socket)) {}

  const Fd socket_;
  uint64_t restarts_ = 0;
  std::string dir_;
  uint64_t version_ = 1;  // of the keeper
  std::map<std::string, Fd> held_, stored_;
  bool hand_over_ = false;
};

// Asks the keeper of a mount to let this program serve it; returns when it does. Waits some time
// while another process is being started. `device`: of mounted_device(). Errors: no keeper serves
// the mount; the keeper belongs to another user; this program could not serve, and the former one
// continues.
Result<void> replace_mount(const StopToken& stop, const std::string& device);

}  // namespace ff::mount
