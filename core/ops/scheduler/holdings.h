// All that one node holds for the scheduler: attempts, in folders of its own that outlive the
// agent, and the lease that says how long ranks may run without a word of the scheduler.
//
//   DIR/lock       held by the one agent that has this folder
//   DIR/lease      when the scheduler last answered, and for how long that is good (shim/lease.h)
//   DIR/attempts/  what it holds (local_attempt.h)
//   DIR/ended/     logs of what it held, for a while
//
// The lease in the file may be a turn older than the true one: whoever cannot know better ends
// ranks too early rather than too late.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/scheduler/kept_logs.h"
#include "ops/scheduler/local_attempt.h"
#include "ops/scheduler/scheduler.pb.h"
#include "platform/auth/key.h"

namespace ff::scheduler {

class Holdings {
 public:
  struct Options {
    std::string dir;
    std::string tasks;              // where $FF_TASK_DIR folders lie; in memory, best
    std::vector<std::string> shim;  // the program that a shim is, and its words
    std::string cgroup;
    std::optional<auth::Key> key;
    uint32_t uid = 0;  // this process's
    int64_t keep_logs_ns = 0;
  };
  // Finds what an agent before it has left. Errc::refused: another agent has the folder.
  static Result<std::unique_ptr<Holdings>> open(io::Disk& disk, Clock& clock, Options options);
  ~Holdings();

  // What the scheduler is told.
  struct Report {
    std::vector<wire::Held> held;
    std::string scheduler;  // whose it is; empty: nothing is held
    std::string news;       // another text: tell it at once
  };
  // Carries orders out, looks at all that is held. Blocks; one thread at a time.
  Report turn(std::optional<wire::SyncReply> orders);

  const std::string& boot() const { return place_.boot; }
  const KeptLogs& logs() const { return logs_; }

  // From any thread. The call that was sent then was answered.
  void set_lease(int64_t sent_ns, int64_t lease_ns);
  int64_t lease_until_ns() const { return lease_until_ns_.load(); }
  // Ranks that may be running; and all of them killed. The second blocks.
  size_t living() const { return living_.all().size(); }
  void kill_living();
  // Ends all ranks, which is no failure of theirs: SIGTERM, SIGKILL after `patience_ns`. When no
  // other thread calls any more. False: some hang in the kernel.
  bool end_all(int64_t patience_ns);

 private:
  Holdings(io::Disk& disk, Clock& clock, Options options, std::string boot,
           std::unique_ptr<io::File> lock);
  Result<void> load();
  void read_lease();
  void write_lease();
  void obey(const wire::SyncReply& reply);
  Result<void> prepare(const std::string& scheduler, AttemptName name, const wire::Order& order);
  // False: it is held no longer.
  bool carry_out(LocalAttempt& attempt, const wire::Order& order);
  void remove_old_logs();

  io::Disk& disk_;
  Clock& clock_;
  const Options options_;
  const std::unique_ptr<io::File> lock_;
  std::unique_ptr<io::File> lease_file_;
  auth::SecureRng rng_;
  LivingRanks living_;
  std::atomic<int64_t> lease_until_ns_ = 0, success_ns_ = 0, lease_ns_ = 0;
  int64_t written_ns_ = 0;  // the success that the file has
  NodePlace place_;
  KeptLogs logs_;
  std::map<AttemptName, std::unique_ptr<LocalAttempt>> held_;
  std::map<AttemptName, std::string> unprepared_;  // and why
  int64_t logs_looked_ns_ = 0;
  std::string told_;
};

}  // namespace ff::scheduler
