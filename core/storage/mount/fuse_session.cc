// fuse_session.cc: reads requests, writes replies, and handles interrupts.
#include "storage/mount/fuse_session.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/log.h"
#include "storage/mount/fuse_uring_abi.h"

namespace ff::mount {

namespace {

constexpr uint64_t kSessionPage = 4 * kKiB;
// How long an interrupted request may continue before it is cancelled; it may take effect anyway.
constexpr int64_t kInterruptNs = kSecond;
constexpr uint64_t kReadahead = 4 * kMiB;
constexpr size_t kDeviceSlots = 8;  // for /dev/fuse while requests come over io_uring
// Entries of io_uring for each CPU.
constexpr size_t kEntriesMin = 4;
constexpr size_t kEntriesMax = 32;
static_assert(FuseUring::kEntryBytes == FuseSession::kSlotBytes);

// Since Linux 6.6; the installed header is older.
constexpr uint64_t kDirectIoAllowMmap = uint64_t{1} << 36;
// Since Linux 6.9.
constexpr uint64_t kHasResend = uint64_t{1} << 39;
constexpr int32_t kNotifyResend = 7;
constexpr uint64_t kHealthyRequests = 100;

// Whether the data of a READ or WRITE is small.
bool is_small(const FuseRequest& request) {
  constexpr uint64_t kSmall = 64 * kKiB;
  fuse_read_in in = {};
  if (request.header.opcode != FUSE_READ) return request.payload.size() <= kSmall;
  std::memcpy(&in, request.body.data(), std::min(request.body.size(), sizeof in));
  return in.size <= kSmall;
}

}  // namespace

FuseSession::FuseSession(SystemLoop& loop, FuseDevice& device, chain::BufferPool& memory,
                         CallerResolver& callers, Metrics& metrics, Options options)
    : loop_(loop),
      device_(device),
      memory_(memory),
      callers_(callers),
      options_(std::move(options)),
      slots_(options_.slots),
      reader_(device.fd(), slots_, memory, slots_.acquire().value()),
      reads_(metrics),
      written_bytes_(metrics.counter("ff_mount_written_bytes_total", "Bytes written")),
      failures_(metrics),
      notifier_(loop, device.fd()),
      gate_(loop),
      shared_{.snapshots = options_.snapshots,
              .slots = slots_,
              .memory = memory,
              .metrics = metrics,
              .reads = reads_,
              .owner = std::make_shared<RequestQueue>(
                  loop, [this](auto requests) { take_back(std::move(requests)); })} {
  register_handlers();
  for (Call& call : calls_) {
    if (call.handler == nullptr) continue;
    call.seconds = &metrics.histogram("ff_mount_request_seconds", "Duration of FUSE requests",
                                      {{"op", call.name}});
  }
}

FuseSession::~FuseSession() {
  workers_.clear();
  shared_.owner->close();
}

Task<void> FuseSession::close() {
  workers_.clear();
  YieldWait turn(loop_);  // what they have handed over
  (void)co_await turn;
  shared_.owner->close();
  Error reason = fail(Errc::interrupted, "the mount is shutting down");
  co_await gate_.close(std::move(reason));
}

Task<Result<void>> FuseSession::run(Operations& operations, VirtualDir* virtual_dir) {
  operations_ = &operations;
  virtual_dir_ = virtual_dir;
  (void)::sched_getaffinity(0, sizeof allowed_cpus_, &allowed_cpus_);
  FF_CO_TRY(const auto watch, options_.workers.empty() ? loop_.watch(device_.fd())
                                                       : loop_.watch_shared(device_.fd()));
  repeats_ = options_.resend;
  if (options_.resend) {
    const fuse_out_header again{
        .len = sizeof(fuse_out_header), .error = kNotifyResend, .unique = 0};
    if (::write(device_.fd(), &again, sizeof again) < 0 && errno != ENODEV) {
      log_warning("the kernel does not repeat requests that the predecessor did not answer",
                  {{"errno", errno}});
    }
  }
  for (size_t count = 1;; count++) {
    FuseRequest request;
    FF_CO_TRY(const bool more, co_await receive(*watch, request));
    if (!more) co_return Result<void>();
    shared_.owner->take_all();  // workers have read these before
    on_device_request(std::move(request));
    if (count % kRequestsAtOnce != 0) continue;
    YieldWait turn(loop_);
    FF_CO_TRY(co_await turn);
  }
}

Result<DeviceReader::State> FuseSession::read_device(FuseRequest& request) {
  const std::lock_guard lock(shared_.order);
  return reader_.read(request);
}

// Waits for a request. False: unmounted.
Task<Result<bool>> FuseSession::receive(FdWatch& watch, FuseRequest& request) {
  for (;;) {
    FF_CO_TRY(const auto got, read_device(request));
    if (got != DeviceReader::State::empty) co_return got == DeviceReader::State::request;
    follow_device();
    // The repeated requests came first.
    if (std::exchange(repeats_, false)) {
      end_repeated();
      start_workers();
    }
    watch.readable.reset();
    const auto waited = co_await watch.readable.wait();
    FF_CO_TRY(waited);
  }
}

void FuseSession::dispatch(FuseRequest request) {
  switch (request.header.opcode) {
    case FUSE_INIT: return init(request);
    case FUSE_INTERRUPT: return interrupt(request);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET: return forget(request);
    case FUSE_DESTROY: return write_reply(request, 0, {}, {});
    default: break;
  }
  const bool repeated = (request.header.unique & kUniqueResend) != 0;
  repeated_ += repeated ? 1 : 0;
  gate_.spawn(repeated ? serve_repeated(std::move(request)) : serve(std::move(request)));
}

Task<void> FuseSession::serve_repeated(FuseRequest request) {
  co_await serve(std::move(request));
  repeated_--;
  end_repeated();
}

void FuseSession::end_repeated() {
  if (!repeats_ && repeated_ == 0) operations_->end_restored_origins();
}

void FuseSession::init(FuseRequest& request) {
  fuse_init_in in = {};  // older kernels send a shorter struct
  std::memcpy(&in, request.body.data(), std::min(request.body.size(), sizeof in));
  constexpr uint64_t kWanted = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_EXPORT_SUPPORT |
                               FUSE_BIG_WRITES | FUSE_HAS_IOCTL_DIR | FUSE_DO_READDIRPLUS |
                               FUSE_READDIRPLUS_AUTO | FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS |
                               FUSE_MAX_PAGES | FUSE_CACHE_SYMLINKS | FUSE_HANDLE_KILLPRIV_V2 |
                               FUSE_INIT_EXT | kDirectIoAllowMmap;
  const uint64_t offered = in.flags | static_cast<uint64_t>(in.flags2) << 32;
  const auto prepared = prepare_uring(offered);
  const uint64_t flags = (kWanted & offered) | (prepared ? uring_abi::kOverIoUring : 0);
  fuse_init_out out = {};
  out.major = FUSE_KERNEL_VERSION;
  out.minor = std::min<uint32_t>(in.minor, FUSE_KERNEL_MINOR_VERSION);
  out.max_readahead = in.max_readahead;
  out.flags = static_cast<uint32_t>(flags);
  out.flags2 = static_cast<uint32_t>(flags >> 32);
  out.max_background = 256;
  out.congestion_threshold = 192;
  out.max_write = kWriteMax;
  out.time_gran = 1;
  out.max_pages = kWriteMax / kSessionPage;
  std::string bytes;
  append_struct(bytes, out);
  const bool fits = in.major == FUSE_KERNEL_VERSION && in.minor >= 31;  // Linux 5.4
  if (!fits)
    log_error("the FUSE version of the kernel is too old",
              {{"major", in.major}, {"minor", in.minor}});
  write_reply(request, fits ? 0 : EPROTO, fits ? bytes : std::string_view(), {});
  if (prepared) start_uring();
  if (!prepared) use_device(prepared.error());
  start_workers();
  device_.set_readahead(kReadahead);
  // The kernel loses the requests of a ring whose process has died (Linux 6.18).
  if (options_.on_init) options_.on_init((offered & kHasResend) != 0 && !prepared);
}

// Divides the slots between io_uring and /dev/fuse. An error says why there is no io_uring.
Result<void> FuseSession::prepare_uring(uint64_t offered) {
  if (!options_.io_uring) return fail(Errc::unsupported, "--no-io-uring");
  if ((offered & uring_abi::kOverIoUring) == 0) return uring_not_offered();
  FF_TRY(const size_t queues, possible_cpus());
  const size_t slots = slots_.size();
  const size_t entries = std::min((slots - std::min(slots, kDeviceSlots)) / queues, kEntriesMax);
  if (entries < kEntriesMin) {
    Error error =
        fail(Errc::unsupported, "the memory of the mount is too small for {} CPUs", queues);
    // Requests get an eighth of it.
    const uint64_t needed = (queues * kEntriesMin + kDeviceSlots) * kSlotBytes * 8;
    error.hint = fmt::format("--memory {}MiB", align_up(needed, kMiB) / kMiB);
    return error;
  }
  const size_t device_slots = slots - queues * entries;
  FF_TRY(uring_, FuseUring::create(loop_, {.fd = device_.fd(),
                                           .memory = slots_.memory_from(device_slots),
                                           .queues = queues,
                                           .entries = entries}));
  slots_.shrink(device_slots);
  log_info("requests come over io_uring", {{"queues", queues}, {"entries", entries}});
  return {};
}

void FuseSession::start_uring() {
  uring_->start([this](FuseRequest request) { on_uring_request(std::move(request)); },
                [this](Error why) { use_device(std::move(why)); });
}

void FuseSession::use_device(Error why) {
  log_info("requests come through /dev/fuse, which is slower than io_uring",
           {{"cause", why.message}, {"hint", why.hint}});
}

// Requests that wait for the kernel to drop pages must not keep it from sending the requests that
// this needs: when they have taken all entries of a CPU, they stop waiting.
void FuseSession::on_uring_request(FuseRequest request) {
  if (uring_->exhausted(*request.entry)) {
    for (Event* const done : invalidations_) done->set();
  }
  if (is_awaited(request.header)) {
    follow(uring_->cpu_of(*request.entry), uring_->awaited() == 1 && is_small(request));
  }
  dispatch(std::move(request));
}

void FuseSession::on_device_request(FuseRequest request) {
  if (is_awaited(request.header)) {
    arrived_.count++;
    arrived_.alone = awaited_ == 0 && workers_idle() && is_small(request);
    arrived_.thread = request.header.pid;
    spread(request, awaited_ + arrived_.count, arrived_.alone && arrived_.count == 1);
  }
  dispatch(std::move(request));
}

// /dev/fuse has no more requests.
void FuseSession::follow_device() {
  const Arrived arrived = std::exchange(arrived_, {});
  if (arrived.count == 0) return;
  if (arrived.count > 1 || !arrived.alone) return follow(std::nullopt, false);
  follow(follow_.must_ask(arrived.thread) ? callers_.cpu_of(arrived.thread) : follow_.last_cpu(),
         true);
}

void FuseSession::spread(const FuseRequest& request, size_t awaited, bool alone) {
  if (workers_.empty() || stopping_) return;
  if (!spread_.on_request(awaited, alone, request.is_direct_read())) return;
  for (const auto& worker : workers_) worker->receive(spread_.on());
}

void FuseSession::follow(std::optional<size_t> cpu, bool alone) {
  if (!follow_.on_request(cpu, alone)) return;
  cpu_set_t cpus = allowed_cpus_;
  if (const auto at = follow_.pinned(); at && CPU_ISSET(*at, &allowed_cpus_)) {
    CPU_ZERO(&cpus);
    CPU_SET(*at, &cpus);
  }
  (void)::sched_setaffinity(0, sizeof cpus, &cpus);  // 0: this thread
}

void FuseSession::forget(FuseRequest& request) {
  const auto forget_one = [this](uint64_t nodeid, uint64_t lookups) {
    operations_->forget(inode(nodeid), lookups);
  };
  if (request.header.opcode == FUSE_FORGET) {
    const auto in = request.read_struct<fuse_forget_in>();
    if (in) forget_one(request.header.nodeid, in->nlookup);
    return;
  }
  const auto in = request.read_struct<fuse_batch_forget_in>();
  for (uint32_t i = 0; in && i < in->count; i++) {
    const auto one = request.read_struct<fuse_forget_one>();
    if (!one) return;
    forget_one(one->nodeid, one->nlookup);
  }
}

void FuseSession::interrupt(FuseRequest& request) {
  // The interrupted request may have been read just now and not started yet.
  const auto in = request.read_struct<fuse_interrupt_in>();
  if (in) gate_.spawn(interrupt_later(in->unique));
}

// A worker that has the request may hand it over at this moment, so this tries twice.
Task<void> FuseSession::interrupt_later(uint64_t unique) {
  Error reason = errno_error(EINTR, "the program");
  reason.code = Errc::interrupted;
  for (int attempt = 0; attempt < 2; attempt++) {
    const auto waited = co_await sleep_for(loop_, kInterruptNs);
    if (!waited) co_return;
    const auto found = running_.find(unique);
    if (found != running_.end()) co_return found->second->cancellation().request(reason);
    if (workers_.empty()) co_return;
    for (const auto& worker : workers_) worker->interrupt(unique, reason);
  }
}

Task<void> FuseSession::serve(FuseRequest request) {
  const uint64_t unique = request.header.unique;
  const uint32_t opcode = request.header.opcode;
  const Call call = opcode < kCalls ? calls_[opcode] : Call{};
  if (call.handler == nullptr) co_return write_reply(request, ENOSYS, {}, {});
  const bool is_virtual = virtual_dir_ != nullptr && virtual_dir_->handles(request);
  if (virtual_dir_ != nullptr && !is_virtual && virtual_dir_->is_forbidden(request)) {
    co_return write_reply(request, EROFS, {}, {});
  }
  const int64_t began_ns = loop_.now_ns();
  CancelScope scope(loop_, co_await current_cancellation(), INT64_MAX, {});
  running_[unique] = &scope;
  reads_.under_way.add(1);
  const size_t awaited = !request.entry && is_awaited(request.header) ? 1 : 0;
  awaited_ += awaited;
  auto answering = is_virtual ? virtual_dir_->serve(request) : (this->*call.handler)(request);
  const auto reply = co_await std::move(answering).with_cancellation(scope.cancellation());
  running_.erase(unique);
  reads_.under_way.add(-1);
  awaited_ -= awaited;
  send_reply(request, reply);
  on_answered(request);
  call.seconds->observe_ns(loop_.now_ns() - began_ns);
}

// The kernel does not repeat the request any more.
void FuseSession::on_answered(const FuseRequest& request) {
  const uint64_t origin = operations_->origin_of(request.header.unique);
  if (origin == 0) return;
  uint64_t answered = ++answered_;
  for (const auto& worker : workers_) answered += worker->answered();
  if (answered >= kHealthyRequests && !std::exchange(healthy_, true) && options_.on_healthy) {
    options_.on_healthy();
  }
  operations_->files().metadata().end_origin(origin);
  if (request.header.opcode != FUSE_FSYNC && request.header.opcode != FUSE_FSYNCDIR) return;
  fuse_fsync_in in = {};
  std::memcpy(&in, request.body.data(), std::min(sizeof in, request.body.size()));
  operations_->on_sync_answered(in.fh);
}

// Also logs errors that the cluster caused.
void FuseSession::send_reply(const FuseRequest& request, const Result<FuseReply>& reply) {
  if (reply) return write_reply(request, 0, reply->bytes, reply->data);
  write_reply(request, failures_.errno_for(reply.error(), loop_.now_ns()), {}, {});
}

void FuseSession::write_reply(const FuseRequest& request, int error, std::string_view bytes,
                              ByteView data) {
  if (!request.entry) return write_device_reply(request, error, bytes, data);
  uring_->reply(*request.entry, request.header.unique, error, bytes, data);
}

void FuseSession::invalidate_attributes(meta::InodeId inode) {
  // Attributes need no page, so the kernel does not block.
  notify_inval_inode(device_.fd(), nodeid(inode), -1, 0);
}

Task<void> FuseSession::invalidate_pages(meta::InodeId inode, uint64_t offset, uint64_t size) {
  const auto done = std::make_shared<Event>(loop_);
  notifier_.invalidate_inode(nodeid(inode), static_cast<int64_t>(offset),
                             static_cast<int64_t>(size), [done] { done->set(); });
  invalidations_.insert(done.get());
  if (uring_ != nullptr && uring_->any_exhausted()) done->set();
  (void)co_await done->wait();
  invalidations_.erase(done.get());
}

void FuseSession::invalidate_pages_async(meta::InodeId inode, uint64_t offset, uint64_t size) {
  notifier_.invalidate_inode(nodeid(inode), static_cast<int64_t>(offset),
                             static_cast<int64_t>(size), [] {});
}

}  // namespace ff::mount
