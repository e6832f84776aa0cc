// verbs_device.cc: opens a device, chooses port and GID, and handles completions and async events.
#include <fcntl.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "platform/net/verbs.h"
#include "platform/net/verbs_queue_pair.h"

namespace ff::net {

namespace {

// Time limit for the acknowledgement of data of a closed connection.
constexpr int64_t kLingerNs = 5 * kSecond;

Error unsupported(std::string message) {
  Error error{Errc::unsupported, std::move(message), {}};
  error.hint =
      "Use TCP (--net tcp), or load the device's driver; rdma_rxe serves any network card.";
  return error;
}

Result<void> set_non_blocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return errno_error(errno, "a descriptor of an RDMA device");
  }
  return {};
}

// ::ffff:a.b.c.d: a RoCE v2 GID that is routable with IPv4.
bool is_ipv4(const ibv_gid& gid) {
  static constexpr std::array<uint8_t, 12> kPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kPrefix.begin(), kPrefix.end(), gid.raw);
}

bool is_link_local(const ibv_gid& gid) { return gid.raw[0] == 0xfe && gid.raw[1] == 0x80; }

}  // namespace

void VerbsDeleter::operator()(ibv_comp_channel* channel) const {
  (void)::ibv_destroy_comp_channel(channel);
}
void VerbsDeleter::operator()(ibv_context* context) const { (void)::ibv_close_device(context); }
void VerbsDeleter::operator()(ibv_cq* queue) const { (void)::ibv_destroy_cq(queue); }
void VerbsDeleter::operator()(ibv_mr* region) const { (void)::ibv_dereg_mr(region); }
void VerbsDeleter::operator()(ibv_pd* domain) const { (void)::ibv_dealloc_pd(domain); }
void VerbsDeleter::operator()(ibv_qp* pair) const { (void)::ibv_destroy_qp(pair); }

// Polls all queue pairs when the loop polls.
class VerbsDevice::LoopPoller final : public Poller {
 public:
  explicit LoopPoller(VerbsDevice& device) : device_(device) {}
  void poll() override {
    for (VerbsQueuePair* const queue : device_.queues_) queue->poll();
  }

 private:
  VerbsDevice& device_;
};

VerbsDevice::VerbsDevice(Loop& loop, VerbsOptions options)
    : loop_(loop), options_(std::move(options)), lingering_(loop), gate_(loop) {}

VerbsDevice::~VerbsDevice() = default;

Result<std::unique_ptr<VerbsDevice>> VerbsDevice::open(Loop& loop, VerbsOptions options) {
  const auto free_list = [](ibv_device** list) { ::ibv_free_device_list(list); };
  int count = 0;
  const std::unique_ptr<ibv_device*, decltype(free_list)> list(verbs_devices(count));
  if (list == nullptr || count == 0) return unsupported("this machine has no RDMA device");
  const std::string wanted = options.device;
  std::unique_ptr<VerbsDevice> device(new VerbsDevice(loop, std::move(options)));
  std::string seen;
  std::optional<Error> error;
  for (int i = 0; i < count; i++) {
    const std::string name = ::ibv_get_device_name(list.get()[i]);
    seen += (seen.empty() ? "" : ", ") + name;
    if (!wanted.empty() && name != wanted) continue;
    device->name_ = name;
    VerbsPtr<ibv_context> context(::ibv_open_device(list.get()[i]));
    const int err = errno;
    auto used = context == nullptr
                    ? Result<void>(unsupported(fmt::format("{}: {}", name, ::strerror(err))))
                    : device->use(std::move(context));
    if (used) {
      FF_TRY(device->start());
      return device;
    }
    error = std::move(used).error();
  }
  if (error) return *error;
  return unsupported(fmt::format("no RDMA device '{}' on this machine; found: {}", wanted, seen));
}

Result<void> VerbsDevice::use(VerbsPtr<ibv_context> context) {
  context_ = std::move(context);
  FF_TRY(find_port());
  return find_gid();
}

// The configured port, or the first active one.
Result<void> VerbsDevice::find_port() {
  ibv_device_attr device = {};
  if (const int err = ::ibv_query_device(context_.get(), &device); err != 0) {
    return errno_error(err, name_);
  }
  for (uint8_t number = 1; number <= device.phys_port_cnt; number++) {
    ibv_port_attr port = {};
    if (options_.port != 0 && number != options_.port) continue;
    if (::ibv_query_port(context_.get(), number, &port) != 0) continue;
    if (port.state != IBV_PORT_ACTIVE) continue;
    port_.number = number;
    port_.ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    port_.lid = port.lid;
    port_.mtu = static_cast<uint16_t>(128 << port.active_mtu);
    port_.message_max = port.max_msg_sz;
    const auto reads = [](int most) { return static_cast<uint16_t>(std::clamp(most, 1, 255)); };
    port_.reads_asked = reads(device.max_qp_init_rd_atom);
    port_.reads_served = reads(device.max_qp_rd_atom);
    return {};
  }
  return unsupported(fmt::format("{}: no port of this RDMA device is active", name_));
}

Result<void> VerbsDevice::find_gid() {
  int best = -1;
  int best_rank = 0;
  for (int index = 0; index < 256; index++) {
    ibv_gid_entry entry = {};
    if (options_.gid_index >= 0 && index != options_.gid_index) continue;
    const auto number = static_cast<uint32_t>(index);
    if (::ibv_query_gid_ex(context_.get(), port_.number, number, &entry, 0) != 0) continue;
    int rank = 1;
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) rank = is_link_local(entry.gid) ? 2 : 3;
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && is_ipv4(entry.gid)) rank = 4;
    if (rank <= best_rank) continue;
    best = index;
    best_rank = rank;
    std::memcpy(port_.gid.data(), entry.gid.raw, port_.gid.size());
  }
  if (best < 0 && options_.gid_index >= 0) {
    Error error =
        fail(Errc::usage, "{}: port {} has no GID {}", name_, port_.number, options_.gid_index);
    error.hint = "The table is /sys/class/infiniband/DEVICE/ports/PORT/gids.";
    return error;
  }
  if (best < 0 && port_.ethernet) {
    return unsupported(fmt::format("{}: port {} has no address (GID)", name_, port_.number));
  }
  port_.gid_index = static_cast<uint8_t>(std::max(best, 0));
  return {};
}

Result<void> VerbsDevice::start() {
  domain_.reset(::ibv_alloc_pd(context_.get()));
  if (domain_ == nullptr) return errno_error(errno, name_);
  channel_.reset(::ibv_create_comp_channel(context_.get()));
  if (channel_ == nullptr) return errno_error(errno, name_);
  registrations_ = std::make_unique<VerbsRegistrationCache>(domain_.get(), name_);
  FF_TRY(set_non_blocking(context_->async_fd));
  FF_TRY(events_, loop_.watch(context_->async_fd));
  gate_.spawn(watch_events());
  if (options_.poll) {
    loop_poller_ = std::make_unique<LoopPoller>(*this);
    loop_.add(*loop_poller_);
    return {};
  }
  FF_TRY(set_non_blocking(channel_->fd));
  FF_TRY(completions_, loop_.watch(channel_->fd));
  gate_.spawn(watch_completions());
  return {};
}

Task<void> VerbsDevice::watch_completions() {
  for (;;) {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (::ibv_get_cq_event(channel_.get(), &queue, &context) != 0) {
      completions_->readable.reset();
      if (!co_await completions_->readable.wait()) co_return;
      continue;
    }
    ::ibv_ack_cq_events(queue, 1);
    // Requests the next notification before polling, so that no completion is missed.
    (void)::ibv_req_notify_cq(queue, 0);
    static_cast<VerbsQueuePair*>(context)->poll();
  }
}

Task<void> VerbsDevice::watch_events() {
  for (;;) {
    ibv_async_event event = {};
    if (::ibv_get_async_event(context_.get(), &event) != 0) {
      if (errno != EAGAIN && errno != EINTR) co_return handle_fatal_event();
      events_->readable.reset();
      if (!co_await events_->readable.wait()) co_return;
      continue;
    }
    const auto type = event.event_type;
    const bool of_queue = type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
                          type == IBV_EVENT_QP_ACCESS_ERR;
    const bool of_port = type == IBV_EVENT_PORT_ERR;
    auto* const queue =
        of_queue ? static_cast<VerbsQueuePair*>(event.element.qp->qp_context) : nullptr;
    const int port = of_port ? event.element.port_num : 0;
    ::ibv_ack_async_event(&event);
    handle_event(static_cast<int>(type), queue, port);
  }
}

void VerbsDevice::handle_event(int type, VerbsQueuePair* queue, int port) {
  const std::string what = ::ibv_event_type_str(static_cast<ibv_event_type>(type));
  if (type == IBV_EVENT_DEVICE_FATAL) {
    handle_fatal_event();
  } else if (port == port_.number) {
    fail_all(fail(Errc::unreachable, "port {} of the RDMA device {} went down", port, name_));
  } else if (queue != nullptr) {
    queue->poll();  // a failed completion has a more specific error
    queue->set_failed(fail(Errc::unreachable, "{}: {}", name_, what));
  }
}

// The failure is permanent: the device must be opened again.
void VerbsDevice::handle_fatal_event() {
  failed_ = true;
  fail_all(fail(Errc::unreachable, "the RDMA device {} is lost", name_));
}

void VerbsDevice::fail_all(const Error& error) {
  for (VerbsQueuePair* const queue : queues_) queue->set_failed(error);
}

Result<void> VerbsDevice::check_alive() const {
  if (failed_) return fail(Errc::unreachable, "the RDMA device {} is lost", name_);
  ibv_port_attr port = {};
  const int err = ::ibv_query_port(context_.get(), port_.number, &port);
  if (err != 0) return errno_error(err, name_);
  if (port.state == IBV_PORT_ACTIVE) return {};
  return fail(Errc::unreachable, "port {} of the RDMA device {} is down", port_.number, name_);
}

namespace {

Task<void> keep_until_drained(Loop& loop, std::shared_ptr<VerbsQueuePair> queue) {
  auto drained = queue->wait_drained();
  (void)co_await with_deadline(loop, loop.now_ns() + kLingerNs, "not acknowledged",
                               std::move(drained));
  queue->destroy_pair();
}

}  // namespace

void VerbsDevice::linger(std::shared_ptr<VerbsQueuePair> queue) {
  lingering_.spawn(keep_until_drained(loop_, std::move(queue)));
}

Task<void> VerbsDevice::drain() { co_await lingering_.wait_empty(); }

}  // namespace ff::net
