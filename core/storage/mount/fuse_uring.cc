// fuse_uring.cc: the user data of a command is the number of its entry.
#include "storage/mount/fuse_uring.h"

#include <liburing.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "storage/mount/fuse_uring_abi.h"

namespace ff::mount {

namespace {

constexpr uint64_t kHeaderPage = 4 * kKiB;
constexpr uint64_t kLoopData = UINT64_MAX;  // user data of the poll on the descriptors of the loop
constexpr const char* kSwitch = "/sys/module/fuse/parameters/enable_uring";

uring_abi::Headers& headers_of(ByteSpan memory) {
  return *reinterpret_cast<uring_abi::Headers*>(memory.data());
}

}  // namespace

struct FuseUring::Ring {
  io_uring ring = {};
  std::vector<std::array<iovec, 2>> buffers = {};  // of each entry: headers, payload
  bool made = false;
  ~Ring() {
    if (made) io_uring_queue_exit(&ring);
  }
};

Error uring_not_offered() {
  if (::access(kSwitch, F_OK) != 0) {
    Error error = fail(Errc::unsupported, "this kernel has no FUSE over io_uring");
    error.hint = std::string("It needs Linux 6.14 or later.");
    return error;
  }
  Error error = fail(Errc::unsupported, "fuse.enable_uring is off");
  error.hint = fmt::format("Before the mount: echo Y > {}; at boot: fuse.enable_uring=1", kSwitch);
  return error;
}

Result<size_t> possible_cpus() {
  constexpr const char* kPossible = "/sys/devices/system/cpu/possible";
  std::ifstream in(kPossible);
  std::string line;
  std::getline(in, line);
  size_t count = 0;
  for (const std::string_view range : split(line, ',')) {  // 0-3,8
    const auto ends = split(range, '-');
    const auto first = parse_u64(ends.front());
    const auto last = parse_u64(ends.back());
    if (!first || !last || *last < *first) return fail(Errc::failed, "{}: {}", kPossible, line);
    count += *last - *first + 1;
  }
  return count;
}

FuseUring::FuseUring(SystemLoop& loop, const Options& options, std::unique_ptr<Ring> ring)
    : loop_(loop),
      fd_(options.fd),
      memory_(options.memory),
      per_queue_(options.entries),
      ring_(std::move(ring)),
      in_use_(options.queues) {}

FuseUring::~FuseUring() { loop_.set_waiter(nullptr); }

Result<std::unique_ptr<FuseUring>> FuseUring::create(SystemLoop& loop, const Options& options) {
  const size_t entries = options.queues * options.entries;
  FF_CHECK(entries > 0 && options.memory.size() >= entries * kEntryBytes);
  auto ring = std::make_unique<Ring>();
  io_uring_params params = {};
  // Each entry has at most one command under way, and the loop one poll.
  params.flags = IORING_SETUP_SQE128 | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                 IORING_SETUP_TASKRUN_FLAG;
  const int err =
      -io_uring_queue_init_params(static_cast<unsigned>(entries + 1), &ring->ring, &params);
  if (err != 0) {
    Error error = errno_error(err, "io_uring");
    if (err == EPERM || err == ENOSYS) {
      error.hint = std::string(
          "kernel.io_uring_disabled (sysctl) or the seccomp profile of a container forbids it.");
    }
    return error;
  }
  ring->made = true;
  return std::unique_ptr<FuseUring>(new FuseUring(loop, options, std::move(ring)));
}

void FuseUring::start(std::function<void(FuseRequest)> on_request,
                      std::function<void(Error)> on_failure) {
  on_request_ = std::move(on_request);
  on_failure_ = std::move(on_failure);
  const size_t entries = in_use_.size() * per_queue_;
  ring_->buffers.resize(entries);
  for (size_t entry = 0; entry < entries; entry++) {
    const ByteSpan memory = memory_of(entry);
    ring_->buffers[entry] = {
        {{memory.data(), sizeof(uring_abi::Headers)}, {memory.data() + kHeaderPage, kWriteMax}}};
    submit(entry, uring_abi::kRegister, 0);
  }
  watch_loop();
  loop_.set_waiter(this);
}

ByteSpan FuseUring::memory_of(size_t entry) const {
  return memory_.subspan(entry * kEntryBytes, kEntryBytes);
}

ByteSpan FuseUring::reply_room(size_t entry) const { return memory_of(entry).subspan(kHeaderPage); }

size_t FuseUring::in_use() const {
  size_t all = 0;
  for (const size_t queue : in_use_) all += queue;
  return all;
}

// The kernel reports each time that descriptors of the loop become ready.
void FuseUring::watch_loop() {
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_->ring);
  FF_CHECK(entry != nullptr);
  io_uring_prep_poll_multishot(entry, loop_.epoll_fd(), POLLIN);
  io_uring_sqe_set_data64(entry, kLoopData);
}

void FuseUring::submit(size_t entry, uint32_t command, uint64_t commit_id) {
  io_uring_sqe* const to = io_uring_get_sqe(&ring_->ring);
  FF_CHECK(to != nullptr);
  io_uring_prep_rw(IORING_OP_URING_CMD, to, fd_, nullptr, 0, 0);
  std::memset(to->cmd, 0, 80);
  to->cmd_op = command;
  if (command == uring_abi::kRegister) {
    to->addr = reinterpret_cast<uint64_t>(ring_->buffers[entry].data());
    to->len = 2;
  }
  uring_abi::Command fields = {};
  fields.commit_id = commit_id;
  fields.queue = static_cast<uint16_t>(entry / per_queue_);
  std::memcpy(to->cmd, &fields, sizeof fields);
  io_uring_sqe_set_data64(to, entry);
}

// Submits replies and sleeps until requests, events of descriptors or the time end it.
bool FuseUring::wait(int timeout_ms) {
  io_uring& ring = ring_->ring;
  if (!arrived_.empty()) timeout_ms = 0;
  if (timeout_ms == 0) {
    const bool idle = io_uring_sq_ready(&ring) == 0 && io_uring_cq_ready(&ring) == 0 &&
                      (IO_URING_READ_ONCE(*ring.sq.kflags) & IORING_SQ_TASKRUN) == 0;
    if (!idle) (void)io_uring_submit_and_get_events(&ring);
  } else {
    __kernel_timespec time = {.tv_sec = timeout_ms / 1000,
                              .tv_nsec = timeout_ms % 1000 * kMillisecond};
    io_uring_cqe* first = nullptr;
    (void)io_uring_submit_and_wait_timeout(&ring, &first, 1, timeout_ms < 0 ? nullptr : &time,
                                           nullptr);
  }
  reap();
  return std::exchange(loop_ready_, false);
}

void FuseUring::reap() {
  unsigned head = 0;
  unsigned count = 0;
  bool watch_again = false;
  io_uring_cqe* one = nullptr;
  io_uring_for_each_cqe(&ring_->ring, head, one) {
    count++;
    if (one->user_data == kLoopData) {
      loop_ready_ = true;
      watch_again |= (one->flags & IORING_CQE_F_MORE) == 0;
    } else {
      on_completion(one->user_data, one->res);
    }
  }
  io_uring_cq_advance(&ring_->ring, count);
  if (watch_again) watch_loop();
}

void FuseUring::on_completion(size_t entry, int result) {
  if (result == 0) {
    in_use_[entry / per_queue_]++;
    awaited_ += is_awaited(header_of(entry)) ? 1 : 0;
    arrived_.push_back(entry);
    loop_.wake(*this);
    return;
  }
  // The file system was unmounted.
  if (result == -ENOTCONN || result == -ECANCELED || result == -ENODEV) return;
  if (on_failure_) std::exchange(on_failure_, {})(errno_error(-result, "a queue of /dev/fuse"));
}

void FuseUring::on_wake() {
  while (!arrived_.empty()) {
    const size_t entry = arrived_.front();
    arrived_.pop_front();
    on_request_(request_of(entry));
  }
}

fuse_in_header FuseUring::header_of(size_t entry) const {
  fuse_in_header header;
  std::memcpy(&header, headers_of(memory_of(entry)).in_out, sizeof header);
  return header;
}

// Puts the arguments one behind the other, as /dev/fuse does.
FuseRequest FuseUring::request_of(size_t entry) const {
  const auto& from = headers_of(memory_of(entry));
  FuseRequest request;
  request.entry = entry;
  request.reply_room = reply_room(entry);
  request.header = header_of(entry);
  const ByteView payload =
      reply_room(entry).first(std::min<uint64_t>(from.entry.payload_size, kWriteMax));
  const uint64_t arguments = request.header.len - sizeof(fuse_in_header);
  request.body.assign(from.op_in, std::min(arguments - payload.size(), sizeof from.op_in));
  if (request.header.opcode == FUSE_WRITE) {
    request.payload = payload;
  } else {
    request.body += as_text(payload);
  }
  return request;
}

void FuseUring::reply(size_t entry, uint64_t unique, int error, std::string_view bytes,
                      ByteView data) {
  awaited_ -= is_awaited(header_of(entry)) ? 1 : 0;
  auto& to = headers_of(memory_of(entry));
  const ByteSpan room = reply_room(entry);
  if (bytes.size() + data.size() > room.size()) {
    error = EIO;
    bytes = {};
    data = {};
  }
  std::memcpy(room.data(), bytes.data(), bytes.size());
  if (!data.empty() && data.data() != room.data() + bytes.size()) {
    std::memcpy(room.data() + bytes.size(), data.data(), data.size());
  }
  fuse_out_header header = {};
  header.len = static_cast<uint32_t>(sizeof header + bytes.size() + data.size());
  header.error = -error;
  header.unique = unique;
  std::memcpy(to.in_out, &header, sizeof header);
  to.entry.payload_size = static_cast<uint32_t>(bytes.size() + data.size());
  in_use_[entry / per_queue_]--;
  submit(entry, uring_abi::kCommitAndFetch, to.entry.commit_id);
}

}  // namespace ff::mount
