// verbs_queue_pair.cc: creation, connection, polling and destruction of a queue pair. Messages are
// in verbs_messages.cc, bulk transfers in verbs_bulk.cc.
#include "platform/net/verbs_queue_pair.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "platform/net/verbs_queue_pair_work_request.h"

namespace ff::net {

namespace {

// Timeout of an acknowledgement (4.096 us * 2^16 = 268 ms) and number of retransmissions: a silent
// peer is detected after two seconds or more.
constexpr uint8_t kAckTimeout = 16;
constexpr uint8_t kRetries = 7;
// Receives are always there (verbs_queue_pair.h): a peer without any is broken, not slow. 7 would
// mean for ever.
constexpr uint8_t kNoReceiveRetries = 6;
constexpr uint8_t kNoReceiveTimer = 12;  // 0.64 ms
constexpr uint8_t kHopLimit = 64;
constexpr uint32_t kPsnMask = 0xffffff;
constexpr uint16_t kBuffers = 2 * kReceives + kEmptyReceives;
constexpr uint16_t kSendWork = kReceives + kEmptyReceives + kWritesMax + kReadsMax;
constexpr uint16_t kReceiveWork = kReceives + kEmptyReceives;

Error verbs_error(int err, const std::string& device, const char* what) {
  return errno_error(err, fmt::format("{}: {}", device, what));
}

}  // namespace

Result<std::shared_ptr<VerbsQueuePair>> VerbsQueuePair::make(VerbsDevice& device,
                                                             std::string peer) {
  FF_TRY(device.check_alive());
  std::shared_ptr<VerbsQueuePair> queue(new VerbsQueuePair(device, std::move(peer)));
  FF_TRY(queue->create());
  FF_TRY(queue->to_init());
  for (uint16_t i = 0; i < kReceiveWork; i++) FF_TRY(queue->post_receive(i));
  return queue;
}

VerbsQueuePair::VerbsQueuePair(VerbsDevice& device, std::string peer)
    : readable(device.loop()),
      writable(device.loop()),
      device_(device),
      peer_(std::move(peer)),
      psn_(static_cast<uint32_t>(device.rng_.next()) & kPsnMask),
      buffers_(new std::byte[size_t{kBuffers} * kMessageBytes]),
      credit_return_(std::make_unique<CreditReturn>(*this)),
      slots_(kWritesMax + kReadsMax),
      writes_(device.loop(), kWritesMax),
      drained_(device.loop()),
      gate_(device.loop()) {
  for (uint16_t i = 0; i < kReceives; i++) free_sends_.push_back(i);
  for (uint16_t i = 0; i < slots_.size(); i++) free_slots_.push_back(i);
  device_.queues_.insert(this);
}

VerbsQueuePair::~VerbsQueuePair() {
  destroy_pair();
  device_.queues_.erase(this);
}

Result<void> VerbsQueuePair::create() {
  const ByteView buffers(buffers_.get(), size_t{kBuffers} * kMessageBytes);
  FF_TRY(buffers_hold_,
         device_.registrations().acquire(buffers, VerbsRegistrationCache::Use::receive));
  constexpr int kCompletions = kSendWork + kReceiveWork;
  completions_.reset(
      ::ibv_create_cq(device_.context_.get(), kCompletions, this, device_.channel_.get(), 0));
  if (completions_ == nullptr) return verbs_error(errno, device_.name(), "a completion queue");
  const int err = device_.options_.poll ? 0 : ::ibv_req_notify_cq(completions_.get(), 0);
  if (err != 0) return verbs_error(err, device_.name(), "a completion queue");
  ibv_qp_init_attr wanted = {};
  wanted.qp_context = this;
  wanted.send_cq = wanted.recv_cq = completions_.get();
  wanted.cap.max_send_wr = kSendWork;
  wanted.cap.max_recv_wr = kReceiveWork;
  wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = 1;
  pair_.reset(::ibv_create_qp(device_.domain_.get(), &wanted));
  if (pair_ == nullptr) return verbs_error(errno, device_.name(), "a queue pair");
  return {};
}

Result<void> VerbsQueuePair::to_init() {
  ibv_qp_attr wanted = {};
  wanted.qp_state = IBV_QPS_INIT;
  wanted.port_num = device_.port().number;
  wanted.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const int err = ::ibv_modify_qp(
      pair_.get(), &wanted, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (err != 0) return verbs_error(err, device_.name(), "a new queue pair");
  return {};
}

VerbsEndpoint VerbsQueuePair::endpoint() const {
  const VerbsPort& port = device_.port();
  return {
      .qpn = pair_->qp_num,
      .psn = psn_,
      .gid = port.gid,
      .lid = port.lid,
      .mtu = port.mtu,
      .receives = kReceives,
      .reads = port.reads_served,
      .message_max = kMessageBytes,
  };
}

Result<void> VerbsQueuePair::connect(const VerbsEndpoint& peer) {
  if (pair_ == nullptr) return closed_error();
  FF_TRY(to_receive(peer));
  FF_TRY(to_send(peer));
  credits_ = credits_max_ = peer.receives;
  message_max_ = std::min(peer.message_max, kMessageBytes);
  return {};
}

Result<void> VerbsQueuePair::to_receive(const VerbsEndpoint& peer) {
  const VerbsPort& port = device_.port();
  ibv_qp_attr wanted = {};
  wanted.qp_state = IBV_QPS_RTR;
  const uint16_t mtu = std::min(port.mtu, peer.mtu);
  wanted.path_mtu = static_cast<ibv_mtu>(std::countr_zero(mtu) - std::countr_zero(256u) + 1);
  wanted.dest_qp_num = peer.qpn;
  wanted.rq_psn = peer.psn;
  wanted.max_dest_rd_atomic = static_cast<uint8_t>(port.reads_served);
  wanted.min_rnr_timer = kNoReceiveTimer;
  wanted.ah_attr.port_num = port.number;
  wanted.ah_attr.sl = device_.options_.service_level;
  wanted.ah_attr.dlid = peer.lid;
  // On Ethernet always; on InfiniBand between subnets, whose number is the first half of a GID.
  const bool same_subnet = std::equal(port.gid.begin(), port.gid.begin() + 8, peer.gid.begin());
  if (port.ethernet || !same_subnet) {
    wanted.ah_attr.is_global = 1;
    std::memcpy(wanted.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
    wanted.ah_attr.grh.sgid_index = port.gid_index;
    wanted.ah_attr.grh.hop_limit = kHopLimit;
    wanted.ah_attr.grh.traffic_class = device_.options_.traffic_class;
  }
  const int err =
      ::ibv_modify_qp(pair_.get(), &wanted,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (err == 0) return {};
  return Error{
      Errc::unreachable, verbs_error(err, device_.name(), "no route to the peer").message,
      "Check that both ends are on one fabric and use GIDs of the same kind (net.rdma-gid).", err};
}

Result<void> VerbsQueuePair::to_send(const VerbsEndpoint& peer) {
  const uint16_t reads =
      std::min({device_.port().reads_asked, std::max<uint16_t>(peer.reads, 1), kReadsMax});
  reads_.emplace(device_.loop(), reads);
  ibv_qp_attr wanted = {};
  wanted.qp_state = IBV_QPS_RTS;
  wanted.timeout = kAckTimeout;
  wanted.retry_cnt = kRetries;
  wanted.rnr_retry = kNoReceiveRetries;
  wanted.sq_psn = psn_;
  wanted.max_rd_atomic = static_cast<uint8_t>(reads);
  const int err = ::ibv_modify_qp(pair_.get(), &wanted,
                                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (err != 0) return verbs_error(err, device_.name(), "a connected queue pair");
  return {};
}

void VerbsQueuePair::start(std::unique_ptr<Stream> stream) {
  set_up_ = std::move(stream);
  if (pair_ == nullptr) set_up_->close();
  writable.set();
  gate_.spawn(watch_peer());
}

// The connection of the set-up is idle; its end means that the peer is gone.
Task<void> VerbsQueuePair::watch_peer() {
  std::array<std::byte, 1> byte;
  const std::array<ByteSpan, 1> into = {byte};
  for (;;) {
    const auto got = set_up_->try_read(into);
    if (got && !*got) {
      if (!co_await set_up_->readable().wait()) co_return;
      continue;
    }
    poll();  // handles what the peer sent before
    if (pair_ == nullptr) co_return;
    if (got && **got > 0) {
      set_failed(fail(Errc::corrupt, "the peer sent data on the TCP connection after the set-up"));
    } else {
      ended_ = true;
      destroy_pair();
    }
    co_return;
  }
}

void VerbsQueuePair::poll() {
  std::array<ibv_wc, 32> done;
  std::optional<Error> broken;
  bool known = false;  // the cause is known: later completions only report that they were flushed
  while (pair_ != nullptr && !ended_) {
    const int count = ::ibv_poll_cq(completions_.get(), static_cast<int>(done.size()), done.data());
    if (count < 0) {
      broken = fail(Errc::unreachable, "{}: completions cannot be read", device_.name());
      break;
    }
    for (const ibv_wc& next : std::span(done).first(static_cast<size_t>(count))) {
      auto taken = handle_completion(next);
      if (taken || known) continue;
      known = next.status != IBV_WC_WR_FLUSH_ERR;
      if (known || !broken) broken = std::move(taken).error();
    }
    if (static_cast<size_t>(count) < done.size()) break;
  }
  if (pair_ == nullptr) return;
  if (ended_) return destroy_pair();
  if (broken) return set_failed(std::move(*broken));
  if (credits_ > 0 && !free_sends_.empty()) writable.set();
  if (closed_ && !sends_pending()) drained_.set();
}

Result<void> VerbsQueuePair::handle_completion(const ibv_wc& done) {
  if (done.status != IBV_WC_SUCCESS) return status_error(done);
  const WorkRequestId work = WorkRequestId::decode(done.wr_id);
  switch (work.kind) {
    case WorkRequestId::Kind::receive: return handle_receive(done, work.index);
    case WorkRequestId::Kind::send: free_sends_.push_back(work.index); break;
    case WorkRequestId::Kind::empty_send:
      free_empty_sends_++;
      device_.loop().wake_at_turn_end(*credit_return_);
      break;
    case WorkRequestId::Kind::bulk: complete_slot(work.index, true); break;
  }
  return {};
}

Error VerbsQueuePair::status_error(const ibv_wc& done) const {
  const WorkRequestId work = WorkRequestId::decode(done.wr_id);
  const char* what = "SEND";
  if (work.kind == WorkRequestId::Kind::receive) what = "RECV";
  if (work.kind == WorkRequestId::Kind::bulk) {
    what = slots_[work.index].verb == BulkVerb::write ? "RDMA WRITE" : "RDMA READ";
  }
  return fail(Errc::unreachable, "{} failed on {}: {}", what, device_.name(),
              ::ibv_wc_status_str(done.status));
}

void VerbsQueuePair::set_failed(Error error) {
  if (pair_ == nullptr) return;
  error_ = std::move(error);
  destroy_pair();
}

void VerbsQueuePair::destroy_pair() {
  if (pair_ == nullptr) return;
  pair_.reset();
  if (set_up_ != nullptr) set_up_->close();
  for (uint16_t slot = 0; slot < slots_.size(); slot++) complete_slot(slot, false);
  readable.set();
  writable.set();
  drained_.set();
}

bool VerbsQueuePair::sends_pending() const {
  return free_sends_.size() < kReceives || free_empty_sends_ < kEmptyReceives;
}

Task<Result<void>> VerbsQueuePair::wait_drained() { co_return co_await drained_.wait(); }

Error VerbsQueuePair::closed_error() const {
  if (error_) return Error(*error_).with_context(peer_ + ": ");
  return fail(Errc::unreachable, "{}: {}", peer_,
              ended_ ? "the peer closed the connection" : "the connection is closed");
}

}  // namespace ff::net
