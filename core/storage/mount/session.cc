// session.cc: requests in, answers out, and those that programs do not wait for any more.
#include "storage/mount/session.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/log.h"

namespace ff::mount {

namespace {

constexpr uint64_t kSessionPage = 4 * kKiB;
// A program that is interrupted waits for so long for what it has asked; what it asked may be done
// all the same after that.
constexpr int64_t kInterruptNs = kSecond;
constexpr int64_t kComplainNs = kSecond;
constexpr uint64_t kReadahead = 4 * kMiB;
constexpr size_t kAtOnce = 32;           // requests read before others have their turn
constexpr size_t kSpareSlots = 4;        // kept for requests that do not keep their slot
constexpr uint64_t kCopied = 64 * kKiB;  // shorter payloads are copied out of their slot

// Of Linux 6.6; this header is older.
constexpr uint64_t kDirectIoAllowMmap = uint64_t{1} << 36;

// Before the bytes of a WRITE.
constexpr size_t kHead = sizeof(fuse_in_header) + sizeof(fuse_write_in);

// Gives a slot back.
struct SlotHold {
  std::function<void()> give;
  ~SlotHold() { give(); }
};

}  // namespace

Session::Session(Loop& loop, Device& device, chain::Memory& memory, Callers& callers,
                 Metrics& metrics, Options options)
    : loop_(loop),
      device_(device),
      memory_(memory),
      callers_(callers),
      options_(std::move(options)),
      slots_(options_.slots),
      slot_freed_(loop),
      under_way_(metrics.gauge("ff_mount_requests_under_way", "Requests that wait for an answer")),
      read_bytes_(metrics.counter("ff_mount_read_bytes_total", "Bytes the kernel was given")),
      written_bytes_(metrics.counter("ff_mount_written_bytes_total", "Bytes the kernel gave")),
      failed_(metrics.counter("ff_mount_failed_total",
                              "Requests answered with EIO or ETIMEDOUT: the cluster's fault")),
      notifier_(loop, device.fd()),
      gate_(loop) {
  for (size_t i = slots_.size() / kSlotBytes; i > 0; i--) free_slots_.push_back(i - 1);
  FF_CHECK(free_slots_.size() > kSpareSlots);
  declare_calls();
  for (Call& call : calls_) {
    if (call.handler == nullptr) continue;
    call.seconds = &metrics.histogram("ff_mount_request_seconds",
                                      "How long requests of the kernel took", {{"op", call.name}});
  }
}

Session::~Session() = default;

Task<void> Session::close() {
  Error reason = fail(Errc::interrupted, "the mount goes down");
  co_await gate_.close(std::move(reason));
}

Task<Result<void>> Session::run(Operations& operations, VirtualDir* virtual_dir) {
  operations_ = &operations;
  virtual_dir_ = virtual_dir;
  FF_CO_TRY(const auto watch, loop_.watch(device_.fd()));
  for (size_t count = 1;; count++) {
    auto receiving = receive(*watch);
    FF_CO_TRY(const bool more, co_await std::move(receiving));
    if (!more) co_return Result<void>();
    if (count % kAtOnce != 0) continue;
    YieldWait turn(loop_);
    FF_CO_TRY(co_await turn);
  }
}

// One request. False: it was unmounted.
Task<Result<bool>> Session::receive(FdWatch& watch) {
  while (free_slots_.empty()) {
    slot_freed_.reset();
    const auto waited = co_await slot_freed_.wait();
    FF_CO_TRY(waited);
  }
  const size_t number = free_slots_.back();
  free_slots_.pop_back();
  auto hold = std::make_shared<SlotHold>([this, number] {
    free_slots_.push_back(number);
    slot_freed_.set();
  });
  // What a program writes begins with a page, so that it can go to disks as it is.
  std::byte* const at = slot(number).data() + kSessionPage - kHead;
  for (;;) {
    const ssize_t got = ::read(device_.fd(), at, kHead + kWriteMax);
    if (got >= 0) {
      take({at, static_cast<size_t>(got)}, std::move(hold));
      co_return true;
    }
    if (errno == EINTR || errno == ENOENT) continue;  // ENOENT: its program has gone
    if (errno == ENODEV) co_return false;
    if (errno != EAGAIN) co_return errno_error(errno, "/dev/fuse");
    watch.readable.reset();
    const auto waited = co_await watch.readable.wait();
    FF_CO_TRY(waited);
  }
}

// Of a WRITE the bytes stay in the slot while there are others; everything else leaves it.
Request Session::request_of(ByteView bytes, std::shared_ptr<const void> slot) {
  Request request;
  std::memcpy(&request.header, bytes.data(), sizeof(fuse_in_header));
  const bool is_write = request.header.opcode == FUSE_WRITE;
  const size_t head = is_write ? std::min(bytes.size(), kHead) : bytes.size();
  request.body = as_text(bytes.first(head).subspan(sizeof(fuse_in_header)));
  request.payload = bytes.subspan(head);
  if (request.payload.empty()) return request;
  if (request.payload.size() > kCopied && free_slots_.size() >= kSpareSlots) {
    request.keeper = std::move(slot);
    return request;
  }
  auto kept = std::make_shared<chain::Memory::Bytes>(memory_.take(request.payload.size()));
  std::ranges::copy(request.payload, kept->span().begin());
  request.payload = kept->span().first(request.payload.size());
  request.keeper = std::move(kept);
  return request;
}

void Session::take(ByteView bytes, std::shared_ptr<const void> slot) {
  if (bytes.size() < sizeof(fuse_in_header)) return;
  Request request = request_of(bytes, std::move(slot));
  switch (request.header.opcode) {
    case FUSE_INIT: return init(request);
    case FUSE_INTERRUPT: return interrupt(request);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET: return forget(request);
    case FUSE_DESTROY: return write(request.header.unique, 0, {}, {});
    default: gate_.spawn(serve(std::move(request)));
  }
}

void Session::init(Request& request) {
  fuse_init_in in = {};  // older kernels say less
  std::memcpy(&in, request.body.data(), std::min(request.body.size(), sizeof in));
  constexpr uint64_t kWanted = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_EXPORT_SUPPORT |
                               FUSE_BIG_WRITES | FUSE_HAS_IOCTL_DIR | FUSE_DO_READDIRPLUS |
                               FUSE_READDIRPLUS_AUTO | FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS |
                               FUSE_MAX_PAGES | FUSE_CACHE_SYMLINKS | FUSE_HANDLE_KILLPRIV_V2 |
                               FUSE_INIT_EXT | kDirectIoAllowMmap;
  const uint64_t flags = kWanted & (in.flags | static_cast<uint64_t>(in.flags2) << 32);
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
  if (!fits) log_error("the kernel's FUSE is too old", {{"major", in.major}, {"minor", in.minor}});
  write(request.header.unique, fits ? 0 : EPROTO, fits ? bytes : std::string_view(), {});
  device_.set_readahead(kReadahead);
}

void Session::forget(Request& request) {
  const auto forget_one = [this](uint64_t node, uint64_t lookups) {
    operations_->forget(inode(node), lookups);
  };
  if (request.header.opcode == FUSE_FORGET) {
    const auto in = request.take<fuse_forget_in>();
    if (in) forget_one(request.header.nodeid, in->nlookup);
    return;
  }
  const auto in = request.take<fuse_batch_forget_in>();
  for (uint32_t i = 0; in && i < in->count; i++) {
    const auto one = request.take<fuse_forget_one>();
    if (!one) return;
    forget_one(one->nodeid, one->nlookup);
  }
}

void Session::interrupt(Request& request) {
  // Its request may have been read only now, too, and not have begun.
  const auto in = request.take<fuse_interrupt_in>();
  if (in) gate_.spawn(give_up_later(in->unique));
}

Task<void> Session::give_up_later(uint64_t unique) {
  const auto waited = co_await after(loop_, kInterruptNs);
  const auto found = running_.find(unique);
  if (!waited || found == running_.end()) co_return;
  Error reason = errno_error(EINTR, "the program");
  reason.code = Errc::interrupted;
  found->second->cancel().request(std::move(reason));
}

Task<void> Session::serve(Request request) {
  const uint64_t unique = request.header.unique;
  const uint32_t opcode = request.header.opcode;
  const Call call = opcode < kCalls ? calls_[opcode] : Call{};
  if (call.handler == nullptr) co_return write(unique, ENOSYS, {}, {});
  const bool is_virtual = virtual_dir_ != nullptr && virtual_dir_->takes(request);
  if (virtual_dir_ != nullptr && !is_virtual && virtual_dir_->forbids(request)) {
    co_return write(unique, EROFS, {}, {});
  }
  const int64_t began_ns = loop_.now_ns();
  CancelScope scope(loop_, co_await current_cancel(), INT64_MAX, {});
  running_[unique] = &scope;
  under_way_.add(1);
  auto answering = is_virtual ? virtual_dir_->serve(request) : (this->*call.handler)(request);
  const auto reply = co_await std::move(answering).under(scope.cancel());
  running_.erase(unique);
  under_way_.add(-1);
  answer(unique, reply);
  call.seconds->observe_ns(loop_.now_ns() - began_ns);
}

// What is nobody's fault but ours, or storage's, is in the log as well.
void Session::answer(uint64_t unique, const Result<Reply>& reply) {
  if (reply) return write(unique, 0, reply->bytes, reply->data);
  const int error = errno_of(reply.error());
  const bool grave = error == EIO || error == ETIMEDOUT;
  if (grave) failed_.add();
  if (grave && loop_.now_ns() - complained_ns_ >= kComplainNs) {
    complained_ns_ = loop_.now_ns();
    log_warning("a program was told of an error",
                {{"errno", error}, {"cause", reply.error().message}});
  }
  write(unique, error, {}, {});
}

void Session::write(uint64_t unique, int error, std::string_view bytes, ByteView data) {
  fuse_out_header header = {};
  header.len = static_cast<uint32_t>(sizeof header + bytes.size() + data.size());
  header.error = -error;
  header.unique = unique;
  iovec parts[3] = {{&header, sizeof header},
                    {const_cast<char*>(bytes.data()), bytes.size()},
                    {const_cast<std::byte*>(data.data()), data.size()}};
  // ENOENT: the program has gone; ENODEV: it was unmounted.
  (void)!::writev(device_.fd(), parts, 3);
}

void Session::forget_attributes(meta::InodeId inode) {
  // They need no page, so nobody is waited for.
  tell_forget(device_.fd(), node(inode), -1, 0);
}

Task<void> Session::forget_pages(meta::InodeId inode, uint64_t offset, uint64_t size) {
  const auto done = std::make_shared<Event>(loop_);
  notifier_.forget(node(inode), static_cast<int64_t>(offset), static_cast<int64_t>(size),
                   [done] { done->set(); });
  (void)co_await done->wait();
}

void Session::drop_pages(meta::InodeId inode, uint64_t offset, uint64_t size) {
  notifier_.forget(node(inode), static_cast<int64_t>(offset), static_cast<int64_t>(size), [] {});
}

}  // namespace ff::mount
