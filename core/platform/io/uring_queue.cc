// uring_queue.cc: one ring, one slot per operation in flight. The slot index is the user data of
// the request. A short transfer is queued again from where it stopped, so a callback runs once,
// when the operation is complete. The ring has at least `depth` entries and each queued request
// belongs to an operation in flight, so a free entry always exists. On a loop (LoopDriver) the
// kernel signals completions through an eventfd that the loop watches.
#include "platform/io/uring_queue.h"

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/fd_watch.h"
#include "platform/base/gate.h"
#include "platform/io/alignment.h"
#include "platform/io/system_file.h"

namespace ff::io {
namespace {

// Operations of at least this size are submitted at once: the disk works on the first while the
// task prepares the next.
constexpr size_t kLarge = 64 * kKiB;

// The kernel's limit for one registered buffer.
constexpr size_t kMaxRegistered = kGiB;
// When the kernel was out of memory, the driver submits the remaining requests again after this
// time.
constexpr int64_t kRetryNs = kMillisecond;

// Requests are submitted in batches of this size, not only at the end of a turn, so that the disk
// works while the turn goes on.
constexpr unsigned kBatch = 8;

// The kernel may map a new ring at the address of another thread's closed ring. ThreadSanitizer
// does not see liburing's system calls for mapping; this counter tells it their order.
std::atomic<uint64_t> ended_rings = 0;

void end_ring(io_uring& ring) {
  ended_rings.fetch_add(1, std::memory_order_release);
  io_uring_queue_exit(&ring);
}

class UringQueue;

// Drives a queue on a loop: submits requests at the end of a turn, and reaps completions when the
// eventfd of the ring becomes readable. Nobody reads the eventfd, because the watch is
// edge-triggered.
class LoopDriver final : private Runnable {
 public:
  struct EventFd {
    EventFd() : fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
    EventFd(const EventFd&) = delete;
    EventFd& operator=(const EventFd&) = delete;
    ~EventFd() {
      if (fd >= 0) ::close(fd);
    }
    const int fd;
  };

  // Null if the loop cannot watch descriptors or no descriptor is left.
  static std::unique_ptr<LoopDriver> make(Loop& loop, io_uring& ring);

  void start(UringQueue& queue);
  // Called for each queued request.
  void on_queued() { loop_.wake_at_turn_end(*this); }

 private:
  LoopDriver(Loop& loop, std::unique_ptr<EventFd> event, std::unique_ptr<FdWatch> watch);
  void on_wake() override;
  Task<void> take_completions();

  Loop& loop_;
  const std::unique_ptr<EventFd> event_;
  UringQueue* queue_ = nullptr;
  const std::unique_ptr<FdWatch> watch_;
  Timer retry_;
  Gate gate_;
};

class UringQueue final : public IoQueue {
 public:
  UringQueue(const io_uring& ring, unsigned depth, std::unique_ptr<LoopDriver> driver);
  ~UringQueue() override;

  void read(File& file, ByteSpan into, uint64_t offset, Done done) override;
  void write(File& file, ByteView from, uint64_t offset, Done done) override;
  void sync(File& file, Done done) override;
  void run() override;
  void poll() override;
  size_t in_flight() const override { return ops_.size() - free_.size(); }
  size_t depth() const override { return ops_.size(); }
  void register_buffers(std::span<const ByteSpan> spans) override;

  // For the driver. Submits queued requests; false if the kernel did not accept all of them.
  bool submit();
  size_t reap(size_t most = SIZE_MAX);

 private:
  enum class Kind : uint8_t { read, write, sync };
  struct Op {
    Kind kind = Kind::read;
    SystemFile* file = nullptr;
    std::byte* memory = nullptr;
    size_t size = 0;
    uint64_t offset = 0;
    size_t finished = 0;  // bytes
    Done done;
  };
  struct Completion {
    unsigned slot = 0;
    int result = 0;  // bytes, or a negative errno
  };

  void start(Kind kind, File& file, ByteView memory, uint64_t offset, Done done);
  void enqueue(unsigned slot);
  void enter(unsigned wait_for);
  std::optional<Completion> next_completion();
  void complete(unsigned slot, int result);
  static Result<size_t> finish_synchronously(Op& op);
  void finish(unsigned slot, Result<size_t> result);
  int registered_index(const std::byte* memory, size_t size) const;

  io_uring ring_;
  std::vector<Op> ops_;
  std::vector<unsigned> free_;  // slots
  std::vector<iovec> registered_;
  bool registration_tried_ = false;
  uint64_t finished_ops_ = 0;
  std::unique_ptr<LoopDriver> driver_;  // null without a loop
};

LoopDriver::LoopDriver(Loop& loop, std::unique_ptr<EventFd> event, std::unique_ptr<FdWatch> watch)
    : loop_(loop), event_(std::move(event)), watch_(std::move(watch)), retry_(loop), gate_(loop) {}

std::unique_ptr<LoopDriver> LoopDriver::make(Loop& loop, io_uring& ring) {
  auto event = std::make_unique<EventFd>();
  if (event->fd < 0) return nullptr;
  auto watch = loop.watch(event->fd);
  if (!watch || io_uring_register_eventfd(&ring, event->fd) != 0) return nullptr;
  return std::unique_ptr<LoopDriver>(new LoopDriver(loop, std::move(event), std::move(*watch)));
}

void LoopDriver::start(UringQueue& queue) {
  queue_ = &queue;
  gate_.spawn(take_completions());
}

void LoopDriver::on_wake() {
  if (!queue_->submit()) retry_.set(loop_.now_ns() + kRetryNs, *this);
}

Task<void> LoopDriver::take_completions() {
  // Not in a loop condition: GCC 12 would destroy the awaitable there before the wait has ended.
  for (;;) {
    (void)co_await watch_->readable.wait();
    watch_->readable.reset();
    for (;;) {
      if (queue_->reap(kBatch) < kBatch) break;
      YieldWait yield(loop_);
      (void)co_await yield;
    }
  }
}

UringQueue::UringQueue(const io_uring& ring, unsigned depth, std::unique_ptr<LoopDriver> driver)
    : ring_(ring), ops_(depth), driver_(std::move(driver)) {
  for (unsigned slot = depth; slot > 0; --slot) free_.push_back(slot - 1);
  if (driver_) driver_->start(*this);
}

UringQueue::~UringQueue() {
  for (Op& op : ops_) op.done = nullptr;
  while (in_flight() > 0) {
    enter(1);
    reap();
  }
  driver_.reset();
  end_ring(ring_);
}

void UringQueue::read(File& file, ByteSpan into, uint64_t offset, Done done) {
  start(Kind::read, file, into, offset, std::move(done));
}

void UringQueue::write(File& file, ByteView from, uint64_t offset, Done done) {
  start(Kind::write, file, from, offset, std::move(done));
}

void UringQueue::sync(File& file, Done done) { start(Kind::sync, file, {}, 0, std::move(done)); }

void UringQueue::start(Kind kind, File& file, ByteView memory, uint64_t offset, Done done) {
  FF_CHECK(!free_.empty());
  check_direct(file, memory, offset);
  auto* system_file = dynamic_cast<SystemFile*>(&file);
  FF_CHECK(system_file != nullptr);
  const unsigned slot = free_.back();
  free_.pop_back();
  // Op keeps writable memory for reads; a write only reads it.
  ops_[slot] = {.kind = kind,
                .file = system_file,
                .memory = const_cast<std::byte*>(memory.data()),
                .size = memory.size(),
                .offset = offset,
                .finished = 0,
                .done = std::move(done)};
  enqueue(slot);
}

void UringQueue::enqueue(unsigned slot) {
  const Op& op = ops_[slot];
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  FF_CHECK(sqe != nullptr);
  std::byte* memory = op.memory + op.finished;
  const auto size = static_cast<unsigned>(std::min(op.size - op.finished, kMaxTransfer));
  const uint64_t offset = op.offset + op.finished;
  const int fd = op.file->fd();
  const int index = op.kind == Kind::sync ? -1 : registered_index(memory, size);
  switch (op.kind) {
    case Kind::read:
      if (index >= 0) {
        io_uring_prep_read_fixed(sqe, fd, memory, size, offset, index);
      } else {
        io_uring_prep_read(sqe, fd, memory, size, offset);
      }
      break;
    case Kind::write:
      if (index >= 0) {
        io_uring_prep_write_fixed(sqe, fd, memory, size, offset, index);
      } else {
        io_uring_prep_write(sqe, fd, memory, size, offset);
      }
      break;
    case Kind::sync: io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC); break;
  }
  io_uring_sqe_set_data64(sqe, slot);
  if (size >= kLarge || io_uring_sq_ready(&ring_) % kBatch == 0) return enter(0);
  if (driver_) driver_->on_queued();
}

int UringQueue::registered_index(const std::byte* memory, size_t size) const {
  for (size_t i = 0; i < registered_.size(); ++i) {
    const auto* base = static_cast<const std::byte*>(registered_[i].iov_base);
    if (memory >= base && memory + size <= base + registered_[i].iov_len) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

void UringQueue::run() {
  const uint64_t before = finished_ops_;
  while (in_flight() > 0 && finished_ops_ == before) {
    enter(1);
    if (reap() == 0) return;  // a signal
  }
}

void UringQueue::poll() {
  enter(0);
  reap();
}

bool UringQueue::submit() {
  if (io_uring_sq_ready(&ring_) > 0) enter(0);
  const bool all = io_uring_sq_ready(&ring_) == 0;
  reap(kBatch);  // reads from the page cache complete at once
  return all;
}

// Submits the queued requests and waits for `wait_for` completions.
void UringQueue::enter(unsigned wait_for) {
  const int result = io_uring_submit_and_wait(&ring_, wait_for);
  // EAGAIN, EBUSY: out of memory or completion entries; the next call submits the rest.
  FF_CHECK(result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY);
}

std::optional<UringQueue::Completion> UringQueue::next_completion() {
  io_uring_cqe* cqe = nullptr;
  if (io_uring_peek_cqe(&ring_, &cqe) != 0) return std::nullopt;
  const Completion completion{static_cast<unsigned>(io_uring_cqe_get_data64(cqe)), cqe->res};
  io_uring_cqe_seen(&ring_, cqe);
  return completion;
}

// Processes up to `most` completions; returns their number.
size_t UringQueue::reap(size_t most) {
  size_t taken = 0;
  while (taken < most) {
    const auto completion = next_completion();
    if (!completion) break;
    ++taken;
    complete(completion->slot, completion->result);
  }
  return taken;
}

void UringQueue::complete(unsigned slot, int result) {
  Op& op = ops_[slot];
  if (result == -EINTR || result == -EAGAIN) return enqueue(slot);
  if (result == -ECANCELED) return finish(slot, finish_synchronously(op));
  if (result < 0) return finish(slot, op.file->error(-result));
  if (op.kind == Kind::sync) return finish(slot, size_t{0});
  op.finished += static_cast<size_t>(result);
  if (op.finished == op.size) return finish(slot, op.finished);
  if (op.kind == Kind::write) {
    if (result == 0) return finish(slot, op.file->error(EIO));
    return enqueue(slot);
  }
  // A direct read ends unaligned only at the end of the file; continuing there would be EINVAL.
  const bool at_end = result == 0 || (op.file->direct() && op.finished % kDirectAlign != 0);
  return at_end ? finish(slot, op.finished) : enqueue(slot);
}

// Finishes an operation with blocking calls after ECANCELED. ff never cancels operations; the
// kernel does if it cannot create a worker thread for blocking work (process limit, constant
// signals), and would do it again.
Result<size_t> UringQueue::finish_synchronously(Op& op) {
  const ByteSpan rest(op.memory + op.finished, op.size - op.finished);
  const uint64_t offset = op.offset + op.finished;
  if (op.kind == Kind::read) {
    FF_TRY(const size_t got, op.file->read_at(rest, offset));
    return op.finished + got;
  }
  if (op.kind == Kind::write) {
    FF_TRY(op.file->write_at(rest, offset));
  } else {
    FF_TRY(op.file->sync());
  }
  return op.size;
}

void UringQueue::finish(unsigned slot, Result<size_t> result) {
  const Done done = std::move(ops_[slot].done);
  ops_[slot] = {};
  free_.push_back(slot);
  ++finished_ops_;
  if (done) done(std::move(result));
}

void UringQueue::register_buffers(std::span<const ByteSpan> spans) {
  FF_CHECK(!registration_tried_);
  registration_tried_ = true;
  std::vector<iovec> pieces;
  for (const ByteSpan span : spans) {
    for (size_t at = 0; at < span.size(); at += kMaxRegistered) {
      pieces.push_back({span.data() + at, std::min(span.size() - at, kMaxRegistered)});
    }
  }
  if (pieces.empty()) return;
  // If registration fails (RLIMIT_MEMLOCK, too many), operations run unregistered, a little slower.
  const auto count = static_cast<unsigned>(pieces.size());
  if (io_uring_register_buffers(&ring_, pieces.data(), count) == 0) registered_ = std::move(pieces);
}

}  // namespace

std::unique_ptr<IoQueue> make_uring_queue(QueueOptions options) {
  FF_CHECK(options.depth > 0);
  io_uring ring;
  // ENOSYS, EPERM, EACCES, EINVAL, ENOMEM, EMFILE: for any of them the caller falls back to
  // threads.
  if (io_uring_queue_init(options.depth, &ring, 0) != 0) return nullptr;
  (void)ended_rings.load(std::memory_order_acquire);
  // This feature came with the plain read and write requests (Linux 5.6).
  if ((ring.features & IORING_FEAT_RW_CUR_POS) == 0) {
    end_ring(ring);
    return nullptr;
  }
  std::unique_ptr<LoopDriver> driver;
  if (options.loop != nullptr) {
    driver = LoopDriver::make(*options.loop, ring);
    if (!driver) {
      end_ring(ring);
      return nullptr;
    }
  }
  // Concurrent syncs of many files share a journal commit, but only as many as there are kernel
  // workers; the default is four per CPU. Ignored before Linux 5.15.
  unsigned workers[2] = {options.depth, 0};
  io_uring_register_iowq_max_workers(&ring, workers);
  return std::make_unique<UringQueue>(ring, options.depth, std::move(driver));
}

}  // namespace ff::io
