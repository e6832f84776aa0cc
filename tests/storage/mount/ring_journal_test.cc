// What a successor finds in the journal of rings, wherever the daemon was killed.
#include "storage/mount/ring_journal.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <iostream>
#include <string>

#include "platform/base/log.h"
#include "platform/base/rng.h"
#include "platform/base/system_loop.h"
#include "storage/mount/ring_server.h"
#include "storage/usrbio/shm.h"

namespace ff::mount {
namespace {

constexpr uint64_t kNumber = 77;
constexpr uint32_t kJournalEntries = 64;

std::unique_ptr<RingJournal> open_journal(int fd) {
  auto opened = RingJournal::open(Fd(::dup(fd)));
  EXPECT_TRUE(opened.ok());
  return std::move(*opened);
}

usrbio::SubmissionEntry request_with_slot(uint32_t slot) {
  usrbio::SubmissionEntry request = {};
  request.slot = slot;
  return request;
}

// The slots of the requests that a successor repeats, if the ring says `completed`.
std::vector<uint32_t> slots_left(int fd, uint32_t completed) {
  const auto journal = open_journal(fd);
  auto progress = journal->take_left(kNumber);
  EXPECT_TRUE(progress);
  const auto left = progress->recover(completed);
  EXPECT_TRUE(left.ok());
  std::vector<uint32_t> slots;
  for (const auto& one : *left) slots.push_back(one.request.slot);
  return slots;
}

using Slots = std::vector<uint32_t>;

TEST(RingJournal, RepeatsWhatWasTakenAndNotPublished) {
  const auto journal = std::move(RingJournal::create()).value();
  const size_t room = journal->room();
  auto progress = std::move(journal->add(kNumber, kJournalEntries)).value();
  std::vector<RingProgress::Taken> taken;
  for (uint32_t slot = 0; slot < 5; slot++) {
    taken.push_back(progress.take(request_with_slot(slot)));
  }
  usrbio::Shared32 completed = 0;
  progress.complete(taken[3].record, 0);
  progress.complete(taken[1].record, 1);
  progress.publish(completed, 2);
  EXPECT_EQ(completed.load(), 2u);
  EXPECT_EQ(journal->room(), room - 3);
  progress.complete(taken[2].record, 2);  // and not published
  EXPECT_EQ(progress.next_request(), 5u);
  EXPECT_EQ(slots_left(journal->fd(), 2), (Slots{0, 2, 4}));
}

TEST(RingJournal, RefusesNumbersThatTheDaemonHasNotStoredInTheRing) {
  const auto journal = std::move(RingJournal::create()).value();
  auto progress = std::move(journal->add(kNumber, kJournalEntries)).value();
  progress.complete(progress.take(request_with_slot(0)).record, 0);
  const auto successor = open_journal(journal->fd());
  auto left = successor->take_left(kNumber);
  ASSERT_TRUE(left);
  EXPECT_FALSE(left->recover(1).ok());
  EXPECT_FALSE(left->recover(UINT32_MAX).ok());
  EXPECT_TRUE(left->recover(0).ok());
}

TEST(RingJournal, FreesWhatNobodyContinues) {
  const auto journal = std::move(RingJournal::create()).value();
  const size_t room = journal->room();
  auto progress = std::move(journal->add(kNumber, kJournalEntries)).value();
  for (uint32_t slot = 0; slot < 5; slot++) (void)progress.take(request_with_slot(slot));
  const auto successor = open_journal(journal->fd());
  EXPECT_EQ(successor->room(), room - 5);
  EXPECT_FALSE(successor->take_left(kNumber + 1));
  successor->drop_left();
  EXPECT_EQ(successor->room(), room);
  EXPECT_FALSE(successor->take_left(kNumber));
}

TEST(RingJournal, RefusesAnotherVersion) {
  const auto journal = std::move(RingJournal::create()).value();
  const uint64_t version = 2;
  ASSERT_EQ(::pwrite(journal->fd(), &version, sizeof version, 8), 8);
  const auto opened = RingJournal::open(Fd(::dup(journal->fd())));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Errc::unsupported);
  ASSERT_EQ(::ftruncate(journal->fd(), 4096), 0);
  EXPECT_FALSE(RingJournal::open(Fd(::dup(journal->fd()))).ok());
}

// A daemon that runs one instruction at a time, with a ring in shared memory.
class SteppedDaemon {
 public:
  struct SharedRing {
    usrbio::Shared32 completed;
    std::array<uint32_t, kJournalEntries> slots;  // of completions
  };
  SteppedDaemon() : journal_(std::move(RingJournal::create()).value()) {
    void* const memory = ::mmap(nullptr, sizeof(SharedRing), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ring_ = static_cast<SharedRing*>(memory);
    pid_ = ::fork();
    if (pid_ == 0) run();
    may_step_ = wait_for_stop() == SIGSTOP;
  }
  ~SteppedDaemon() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::munmap(ring_, sizeof(SharedRing));
  }
  bool may_step() const { return may_step_; }
  // False: it has done everything.
  bool step() {
    EXPECT_EQ(::ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr), 0);
    const int stopped_by = wait_for_stop();
    EXPECT_TRUE(stopped_by == SIGTRAP || stopped_by == SIGSTOP);
    return stopped_by == SIGTRAP;
  }
  int journal() const { return journal_->fd(); }
  const SharedRing& ring() const { return *ring_; }

 private:
  int wait_for_stop() const {
    int status = 0;
    return ::waitpid(pid_, &status, 0) == pid_ && WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
  }
  [[noreturn]] void run() {
    const auto journal = open_journal(journal_->fd());
    auto progress = std::move(journal->add(kNumber, kJournalEntries)).value();
    std::vector<RingProgress::Taken> taken;
    const auto take = [&] {
      const auto slot = static_cast<uint32_t>(taken.size());
      taken.push_back(progress.take(request_with_slot(slot)));
    };
    uint32_t completed = 0;
    const auto complete = [&](uint32_t slot) {
      ring_->slots[completed] = slot;
      progress.complete(taken[slot].record, completed++);
    };
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
    (void)::raise(SIGSTOP);
    for (int i = 0; i < 3; i++) take();
    complete(2);
    complete(0);
    progress.publish(ring_->completed, completed);
    take();  // into a record that was used
    take();
    complete(3);
    progress.publish(ring_->completed, completed);
    complete(1);
    take();
    complete(4);
    progress.publish(ring_->completed, completed);
    (void)::raise(SIGSTOP);
    ::_exit(0);
  }

  const std::unique_ptr<RingJournal> journal_;
  SharedRing* ring_ = nullptr;
  pid_t pid_ = 0;
  bool may_step_ = false;
};

std::string bytes_of(int fd) {
  std::string bytes(kMiB, '\0');
  const ssize_t size = ::pread(fd, bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<size_t>(size));
  return bytes;
}

// What a successor finds if the daemon is killed now.
void expect_each_once(const std::string& bytes, const SteppedDaemon::SharedRing& ring) {
  const Fd file(::memfd_create("journal", MFD_CLOEXEC));
  ASSERT_EQ(::pwrite(file.get(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  const auto journal = open_journal(file.get());
  auto progress = journal->take_left(kNumber);
  ASSERT_TRUE(progress);
  const auto left = progress->recover(ring.completed.load());
  ASSERT_TRUE(left.ok()) << left.error().message;
  EXPECT_EQ(progress->completed(), ring.completed.load());
  EXPECT_EQ(journal->room(), RingJournal::kRequestsMax - left->size());
  std::vector<int> times(progress->next_request());
  for (const auto& one : *left) {
    ASSERT_LT(one.request.slot, times.size());
    times[one.request.slot]++;
  }
  for (uint32_t i = 0; i < ring.completed.load(); i++) {
    ASSERT_LT(ring.slots[i], times.size());
    times[ring.slots[i]]++;
  }
  EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << "completed: " << ring.completed.load();
}

TEST(RingJournal, ASuccessorRepeatsTheRightOnesWhicheverInstructionWasTheLast) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers add too many instructions";
#endif
  SteppedDaemon daemon;
  if (!daemon.may_step()) GTEST_SKIP() << "processes cannot be traced here";
  std::string before;
  uint32_t completed = 0;
  size_t steps = 0, states = 0;
  while (daemon.step() && !HasFailure()) {
    steps++;
    std::string now = bytes_of(daemon.journal());
    if (now == before && completed == daemon.ring().completed.load()) continue;
    expect_each_once(now, daemon.ring());
    before = std::move(now);
    completed = daemon.ring().completed.load();
    states++;
  }
  EXPECT_EQ(completed, 5u);
  std::cout << steps << " instructions, " << states << " states\n";
}

// No memory is registered, so each request fails at once.
struct JournalHost final : RingContext {
  explicit JournalHost(std::unique_ptr<RingJournal> of) : log(std::move(of)) {}
  SystemClock clock;
  SystemLoop system{clock};
  Gate batches{system};
  chain::BufferPool bytes;
  std::unique_ptr<RingJournal> log;
  Loop& loop() override { return system; }
  Gate& gate() override { return batches; }
  Operations& operations() override { check_failed(__FILE__, __LINE__, "a file was asked for"); }
  chain::BufferPool& memory() override { return bytes; }
  RingJournal& journal() override { return *log; }
  RegisteredMemoryRef find(const usrbio::IovId&, uint32_t) override { return nullptr; }
  void on_batch_done() override {}
};

// A program, as the library behaves, and a daemon that is killed at any instruction.
class RingProgram {
 public:
  explicit RingProgram(int32_t depth) : depth_(depth) {
    EXPECT_EQ(usrbio::create_shm(usrbio::ring_bytes(kJournalEntries), -1, shm_), 0);
    ring_ = usrbio::Ring(shm_.base, kJournalEntries);
    ring_.head().magic = usrbio::kRingMagic;
    ring_.head().version = usrbio::kRingVersion;
    ring_.head().entries = kJournalEntries;
    for (uint32_t slot = 0; slot < kJournalEntries; slot++) free_.push_back(slot);
  }
  ~RingProgram() {
    usrbio::unmap(shm_);
    ::unlink(shm_.path.c_str());
  }
  // Returns the process. It ends with 1 if it cannot continue the ring.
  pid_t start_daemon(bool first) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto opened = RingJournal::open(Fd(::dup(journal_->fd())));
    if (!opened) ::_exit(1);
    JournalHost host(std::move(*opened));
    auto file = open_client_memory(shm_.path, ::getuid());
    if (!file) ::_exit(1);
    usrbio::IovLinkName name;
    name.ring = name.read = true;
    name.depth = depth_;
    const auto server = first ? RingServer::make(host, name, ::getuid(), *file, kNumber)
                              : RingServer::restore(host, name, ::getuid(), *file, kNumber);
    if (!server) ::_exit(1);
    for (;;) {
      (*server)->take_requests();
      (*server)->prepare_to_sleep();
    }
  }
  // Submits `count` requests, as far as slots are free.
  void submit(size_t count) {
    for (; count > 0 && !free_.empty(); count--) {
      const uint32_t slot = free_.front();
      free_.erase(free_.begin());
      ring_.submission(submitted_++) = request_with_slot(slot);
      pending_[slot] = true;
    }
    ring_.head().submitted.store(submitted_);
  }
  void reap() {
    const uint32_t completed = ring_.head().completed.load(std::memory_order_acquire);
    for (; reaped_ != completed; reaped_++) {
      const usrbio::CompletionEntry outcome = ring_.completion(reaped_);
      ASSERT_LT(outcome.slot, kJournalEntries);
      ASSERT_TRUE(pending_[outcome.slot]) << "slot " << outcome.slot << " is completed twice";
      ASSERT_EQ(outcome.result, -EINVAL);
      pending_[outcome.slot] = false;
      free_.push_back(outcome.slot);
    }
  }
  bool serves() const { return ring_.head().daemon_sleeping.load() == 1; }
  size_t pending() const { return submitted_ - reaped_; }
  uint32_t submitted() const { return submitted_; }

 private:
  const int32_t depth_;
  const std::unique_ptr<RingJournal> journal_ = std::move(RingJournal::create()).value();
  usrbio::Shm shm_;
  usrbio::Ring ring_;
  std::vector<uint32_t> free_;
  std::vector<bool> pending_ = std::vector<bool>(kJournalEntries);
  uint32_t submitted_ = 0;
  uint32_t reaped_ = 0;
};

void kill_often(int32_t depth, uint32_t least, SeededRng& rng) {
  constexpr int kKills = 150;
  SystemClock clock;
  const int64_t end_ns = clock.steady_ns() + 120 * kSecond;
  RingProgram program(depth);
  pid_t daemon = program.start_daemon(true);
  while (!program.serves() && clock.steady_ns() < end_ns) {
  }
  for (int kills = 0; kills <= kKills && !testing::Test::HasFailure(); kills++) {
    // While it works, or at any moment, mostly while it starts.
    const bool works = rng.below(2) == 0;
    const uint32_t until = program.submitted() + static_cast<uint32_t>(rng.below(300));
    while (program.submitted() < until && clock.steady_ns() < end_ns &&
           (works || rng.below(2000) != 0)) {
      program.submit(least * rng.below(4));
      program.reap();
      if (testing::Test::HasFailure()) break;
    }
    if (kills == kKills) break;
    ::kill(daemon, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(daemon, &status, 0), daemon);
    ASSERT_TRUE(WIFSIGNALED(status)) << "a successor refuses the ring";
    daemon = program.start_daemon(false);
  }
  program.submit(kJournalEntries);
  while (program.pending() >= least && clock.steady_ns() < end_ns) program.reap();
  EXPECT_LT(program.pending(), least) << "of " << program.submitted();
  ::kill(daemon, SIGKILL);
  ::waitpid(daemon, nullptr, 0);
  std::cout << program.submitted() << " requests, " << kKills << " kills\n";
}

TEST(RingJournal, EachRequestCompletesOnceHoweverOftenTheDaemonIsKilled) {
  log_setup({.level = LogLevel::error});
  const uint64_t seed = system_seed();
  std::cout << "seed " << seed << "\n";
  SeededRng rng(seed);
  kill_often(0, 1, rng);
  kill_often(48, 48, rng);  // starts whole batches, takes them in two turns
}

}  // namespace
}  // namespace ff::mount
