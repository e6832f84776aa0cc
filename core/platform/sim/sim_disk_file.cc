// sim_disk_file.cc: file operations and queues of the simulated disk (sim_disk_file.h).
#include "platform/sim/sim_disk_file.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/clock.h"
#include "platform/io/alignment.h"
#include "platform/sim/sim_world.h"

namespace ff::sim {

using io::AccessMode;

namespace {

// Range of operation times on a loop, as of an NVMe drive. One in kSlowOnce operations is much
// slower, to expose code that waits for it.
constexpr int64_t kFastNs = 20 * kMicrosecond;
constexpr int64_t kUsualNs = 200 * kMicrosecond;
constexpr int64_t kSlowNs = 20 * kMillisecond;
constexpr uint64_t kSlowOnce = 64;

uint64_t blocks_of(uint64_t bytes) { return bytes / kPage + (bytes % kPage != 0); }

}  // namespace

SimFile::SimFile(SimDisk& disk, std::shared_ptr<SimInode> node, std::string path,
                 const io::OpenOptions& options)
    : File(std::move(path)),
      disk_(disk),
      node_(std::move(node)),
      access_(options.access),
      direct_(options.direct),
      handle_epoch_(disk.handle_epoch_) {
  ++node_->opens;
}

SimFile::~SimFile() {
  if (handle_epoch_ != disk_.handle_epoch_) return;
  if (node_->locked == this) node_->locked = nullptr;
  --node_->opens;
  disk_.release_if_gone(*node_);
}

bool SimFile::alive() const { return handle_epoch_ == disk_.handle_epoch_ && !disk_.crashed_; }

Result<void> SimFile::inject_fault(SimOp kind, bool mutates, bool allowed, int err) const {
  if (handle_epoch_ != disk_.handle_epoch_) return crash_error(path());
  if (!allowed) return errno_error(err, path());
  return disk_.inject_fault(kind, mutates, path());
}

Result<size_t> SimFile::read_at(ByteSpan into, uint64_t offset) {
  io::check_direct(*this, into, offset);
  FF_TRY(inject_fault(SimOp::read, false, access_ != AccessMode::write, EBADF));
  return node_->content.read(into, offset);
}

Result<bool> SimFile::read_cached(ByteSpan into, uint64_t offset) {
  FF_TRY(inject_fault(SimOp::read, false, access_ != AccessMode::write, EBADF));
  // Randomly not cached, as under memory pressure.
  if (disk_.rng_.below(4) == 0) return false;
  return node_->content.read(into, offset) == into.size();
}

size_t SimFile::store(ByteView from, uint64_t offset) {
  size_t done = 0;
  while (done < from.size()) {
    const uint64_t at = offset + done;
    const uint64_t page = at / kPage;
    const size_t piece = std::min<uint64_t>(from.size() - done, kPage - at % kPage);
    if (!node_->content.stored(page) && !node_->reserved.contains(page)) {
      if (!disk_.take_blocks(1)) break;
      ++node_->blocks;
    }
    node_->content.write(from.subspan(done, piece), at);
    done += piece;
  }
  if (done > 0) node_->mtime_ns = disk_.clock_.wall_ns();
  return done;
}

Result<void> SimFile::write_at(ByteView from, uint64_t offset) {
  io::check_direct(*this, from, offset);
  if (offset > INT64_MAX || from.size() > INT64_MAX - offset) return errno_error(EFBIG, path());
  auto admitted = inject_fault(SimOp::write, true, access_ != AccessMode::read, EBADF);
  if (!admitted) {
    if (alive() && access_ != AccessMode::read && !disk_.read_only_) {
      store(from.first(disk_.rng_.below(from.size() + 1)), offset);
    }
    return admitted;
  }
  if (store(from, offset) < from.size()) return errno_error(ENOSPC, path());
  return {};
}

Result<void> SimFile::sync() {
  auto admitted = inject_fault(SimOp::sync, true, true, 0);
  if (!admitted) {
    if (alive()) node_->content.fail_sync();
    return admitted;
  }
  node_->content.sync();
  return {};
}

Result<void> SimFile::truncate(uint64_t size) {
  FF_TRY(inject_fault(SimOp::write, true, access_ != AccessMode::read, EINVAL));
  if (size > INT64_MAX) return errno_error(EFBIG, path());
  shrink(size);
  return {};
}

void SimFile::shrink(uint64_t size) {
  node_->content.truncate(size);
  node_->reserved.erase(blocks_of(size), UINT64_MAX);
  release_pages();
}

// Frees blocks that are no longer allocated.
void SimFile::release_pages() {
  const uint64_t blocks = node_->content.allocated_pages(node_->reserved);
  disk_.used_ -= node_->blocks - blocks;
  node_->blocks = blocks;
  node_->mtime_ns = disk_.clock_.wall_ns();
}

Result<void> SimFile::reserve(uint64_t offset, uint64_t length) {
  FF_TRY(inject_fault(SimOp::write, true, access_ != AccessMode::read, EBADF));
  if (length == 0) return {};
  PageSet reserved = node_->reserved;
  reserved.add(offset / kPage, blocks_of(offset + length));
  const uint64_t blocks = node_->content.allocated_pages(reserved);
  if (!disk_.take_blocks(blocks - node_->blocks)) return errno_error(ENOSPC, path());
  node_->reserved = std::move(reserved);
  node_->blocks = blocks;
  return {};
}

Result<void> SimFile::punch_hole(uint64_t offset, uint64_t length) {
  FF_TRY(inject_fault(SimOp::write, true, access_ != AccessMode::read, EBADF));
  node_->content.punch(offset, offset + length);
  node_->reserved.erase(blocks_of(offset), (offset + length) / kPage);
  release_pages();
  return {};
}

Result<io::DataRange> SimFile::next_data(uint64_t offset) {
  FF_TRY(inject_fault(SimOp::read, false, true, 0));
  return node_->content.next_data(offset);
}

Result<io::FileInfo> SimFile::info() {
  FF_TRY(inject_fault(SimOp::read, false, true, 0));
  return SimDisk::info_of(*node_);
}

Result<bool> SimFile::try_lock() {
  FF_TRY(inject_fault(SimOp::read, false, true, 0));
  if (node_->locked != nullptr && node_->locked != this) return false;
  node_->locked = this;
  return true;
}

SimQueue::SimQueue(SimDisk& disk, const io::QueueOptions& options)
    : disk_(disk), depth_(options.depth), loop_(options.loop) {
  FF_CHECK(depth_ > 0);
  disk_.queues_.push_back(this);
}

SimQueue::~SimQueue() {
  for (const auto& flight : pending_) flight->op.done = nullptr;
  finish_some(pending_.size());
  std::erase(disk_.queues_, this);
}

void SimQueue::start(io::File& file, Op op) {
  FF_CHECK(in_flight() < depth_);
  op.file = dynamic_cast<SimFile*>(&file);
  FF_CHECK(op.file != nullptr);
  InflightOp& flight = *pending_.emplace_back(std::make_unique<InflightOp>(*this, std::move(op)));
  if (loop_ == nullptr) return;
  auto* const process = dynamic_cast<SimLoop*>(loop_);
  Loop& truth = process == nullptr ? *loop_ : process->world().loop();
  flight.timer.emplace(truth).set(truth.now_ns() + delay_ns(), flight);
}

void SimQueue::InflightOp::on_wake() {
  if (result) return queue.finish(*this);
  result = perform(op);
  queue.loop_->wake(*this);
}

int64_t SimQueue::delay_ns() {
  if (disk_.slowest_ns_ > 0) {
    return static_cast<int64_t>(disk_.rng_.below(static_cast<uint64_t>(disk_.slowest_ns_)));
  }
  const int64_t most = disk_.rng_.below(kSlowOnce) == 0 ? kSlowNs : kUsualNs;
  return kFastNs + static_cast<int64_t>(disk_.rng_.below(static_cast<uint64_t>(most - kFastNs)));
}

void SimQueue::read(io::File& file, ByteSpan into, uint64_t offset, Done done) {
  io::check_direct(file, into, offset);
  start(file, {.kind = SimOp::read, .into = into, .offset = offset, .done = std::move(done)});
}

void SimQueue::write(io::File& file, ByteView from, uint64_t offset, Done done) {
  io::check_direct(file, from, offset);
  start(file, {.kind = SimOp::write, .from = from, .offset = offset, .done = std::move(done)});
}

void SimQueue::sync(io::File& file, Done done) {
  start(file, {.kind = SimOp::sync, .done = std::move(done)});
}

void SimQueue::run() {
  if (!pending_.empty()) finish_some(1 + disk_.rng_.below(pending_.size()));
}

void SimQueue::poll() { finish_some(disk_.rng_.below(pending_.size() + 1)); }

// Completes `count` of the operations in flight, in random order. Operations that callbacks start
// are completed by this or the next call.
void SimQueue::finish_some(size_t count) {
  for (; count > 0 && !pending_.empty(); --count) {
    finish(*pending_[disk_.rng_.below(pending_.size())]);
  }
}

void SimQueue::finish(InflightOp& flight) {
  const auto at =
      std::ranges::find_if(pending_, [&](const auto& pending) { return pending.get() == &flight; });
  const std::unique_ptr<InflightOp> taken = std::move(*at);
  pending_.erase(at);
  if (!taken->result) taken->result = perform(taken->op);
  if (taken->op.done) taken->op.done(std::move(*taken->result));
}

Result<size_t> SimQueue::perform(const Op& op) {
  switch (op.kind) {
    case SimOp::read: return op.file->read_at(op.into, op.offset);
    case SimOp::write: {
      FF_TRY(op.file->write_at(op.from, op.offset));
      return op.from.size();
    }
    default: {
      FF_TRY(op.file->sync());
      return size_t{0};
    }
  }
}

void SimQueue::apply_in_flight() {
  for (const auto& flight : pending_) {
    const Op& op = flight->op;
    if (flight->result) continue;
    if (op.kind != SimOp::write || !op.file->alive() || op.file->access_ == AccessMode::read)
      continue;
    if (disk_.rng_.below(2) == 0) op.file->store(op.from, op.offset);
  }
}

void SimQueue::register_buffers(std::span<const ByteSpan>) {
  FF_CHECK(!registered_);
  registered_ = true;
}

}  // namespace ff::sim
