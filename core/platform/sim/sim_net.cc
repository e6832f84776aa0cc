// sim_net.cc: connections and listeners, and the faults of links, processes and machines.
#include "platform/sim/sim_net.h"

#include <deque>

#include "platform/base/check.h"
#include "platform/base/wait.h"
#include "platform/io/disk.h"
#include "platform/sim/sim_bulk.h"
#include "platform/sim/sim_net_pipe.h"
#include "platform/simd/crc32c.h"

namespace ff::sim {

namespace {

// Retry interval of connect() while the link is blocked (TCP's SYN).
constexpr int64_t kConnectRetryNs = 200 * kMillisecond;

// One end of a connection.
struct End {
  std::shared_ptr<SimPipe> out;
  std::shared_ptr<SimPipe> in;
  std::string peer;
  SimSharedMemory memory;
  net::PeerProof proof = {};
};

std::unique_ptr<net::Connection> connection(Loop& loop, End end) {
  auto stream =
      std::make_unique<SimStream>(loop, std::move(end.out), std::move(end.in), std::move(end.peer));
  std::unique_ptr<net::Bulk> bulk;
  if (!end.memory.own.empty() || !end.memory.peers.empty()) {
    bulk = std::make_unique<SimBulk>(end.memory);
  }
  auto made = std::make_unique<net::Connection>(loop, std::move(stream), std::move(bulk));
  made->set_proof(std::move(end.proof));
  return made;
}

class SimIncomingConnection final : public net::IncomingConnection {
 public:
  SimIncomingConnection(End end, std::optional<uint32_t> shard)
      : peer_(end.peer), end_(std::move(end)), shard_(shard) {}
  ~SimIncomingConnection() override {
    if (end_.out == nullptr) return;
    end_.out->end();
    end_.in->drop_reader();
  }

  std::string peer() const override { return peer_; }
  std::string source() const override { return {}; }
  Task<Result<std::optional<uint32_t>>> read_shard(Loop&) override { co_return shard_; }
  Task<Result<std::unique_ptr<net::Connection>>> open(Loop& loop) override {
    co_return connection(loop, std::move(end_));
  }

 private:
  const std::string peer_;
  End end_;
  const std::optional<uint32_t> shard_;
};

}  // namespace

class SimListener final : public net::Listener {
 public:
  SimListener(Loop& loop, SimNet& net, net::Address address, bool has_key)
      : net_(net), address_(std::move(address)), has_key_(has_key), arrived_(loop) {
    net_.listeners_[address_.text()] = this;
  }
  ~SimListener() override {
    const auto found = net_.listeners_.find(address_.text());
    if (found != net_.listeners_.end() && found->second == this) net_.listeners_.erase(found);
  }

  const net::Address& address() const override { return address_; }
  bool has_key() const { return has_key_; }
  Task<Result<std::unique_ptr<net::IncomingConnection>>> accept() override {
    while (waiting_.empty()) {
      arrived_.reset();
      FF_CO_TRY(co_await arrived_.wait());
    }
    std::unique_ptr<net::IncomingConnection> arrival = std::move(waiting_.front());
    waiting_.pop_front();
    co_return arrival;
  }
  void add(std::unique_ptr<net::IncomingConnection> arrival) {
    waiting_.push_back(std::move(arrival));
    arrived_.set();
  }

 private:
  SimNet& net_;
  const net::Address address_;
  const bool has_key_;
  std::deque<std::unique_ptr<net::IncomingConnection>> waiting_;
  Event arrived_;
};

class SimTransport final : public net::Transport {
 public:
  SimTransport(SimNet& net, std::string node, std::optional<auth::Entity> self)
      : net_(net), node_(std::move(node)) {
    if (self) keyring_ = std::make_unique<auth::Keyring>(std::move(*self));
  }

  Task<Result<std::unique_ptr<net::Connection>>> connect(Loop& loop, net::Address to,
                                                         auth::Service service) override;
  Result<std::unique_ptr<net::Listener>> listen(Loop& loop, const net::Address& at) override;
  auth::Keyring* keyring() const override { return keyring_.get(); }

 private:
  SimNet& net_;
  const std::string node_;
  std::unique_ptr<auth::Keyring> keyring_;  // of an entity without keys
};

Task<Result<std::unique_ptr<net::Connection>>> SimTransport::connect(Loop& loop, net::Address to,
                                                                     auth::Service /*service*/) {
  const SimNet::Direction there(node_, to.host);
  const SimNet::Direction back(to.host, node_);
  const SimLink link = net_.link(there);
  FF_CO_TRY(co_await sleep_for(loop, 2 * link.delay_max_ns));
  while (net_.blocked(there) || net_.blocked(back)) {
    FF_CO_TRY(co_await sleep_for(loop, kConnectRetryNs));
  }
  const auto found = net_.listeners_.find(to.text());
  if (found == net_.listeners_.end()) {
    co_return fail(Errc::unreachable, "{}: Connection refused", to.text());
  }
  const bool has_key = keyring_ != nullptr;
  if (found->second->has_key() != has_key) {
    co_return fail(Errc::refused, "{}: one end has a key, the other has none", to.text());
  }
  const uint64_t id = net_.next_pipe_++;
  const uint64_t back_id = net_.next_pipe_++;
  auto out = std::make_shared<SimPipe>(net_, id, there);
  auto in = std::make_shared<SimPipe>(net_, back_id, back);
  out->set_reverse(in);
  in->set_reverse(out);
  net_.pipes_[id] = out;
  net_.pipes_[back_id] = in;
  const SimSharedMemory memory{.own = net_.memory(there), .peers = net_.memory(back)};
  net::PeerProof proof{.has_key = has_key, .client = {}};
  if (has_key) proof.client = keyring_->self();
  End arrives{in, out, node_, {.own = memory.peers, .peers = memory.own}, std::move(proof)};
  found->second->add(std::make_unique<SimIncomingConnection>(std::move(arrives), to.shard));
  End ours{std::move(out), std::move(in), to.text(), memory, {has_key, std::nullopt}};
  co_return connection(loop, std::move(ours));
}

Result<std::unique_ptr<net::Listener>> SimTransport::listen(Loop& loop, const net::Address& at) {
  net::Address address = at;
  address.host = node_;
  if (address.port == 0) address.port = net_.next_port_++;
  if (net_.listeners_.contains(address.text())) {
    return fail(Errc::exists, "cannot listen on {}: Address already in use", address.text());
  }
  return std::unique_ptr<net::Listener>(
      std::make_unique<SimListener>(loop, net_, address, keyring_ != nullptr));
}

SimNet::SimNet(SimWorld& world, uint64_t seed) : world_(world), rng_(seed) {}

SimNet::~SimNet() = default;

std::unique_ptr<net::Transport> SimNet::transport(std::string node,
                                                  std::optional<auth::Entity> self) {
  return std::make_unique<SimTransport>(*this, std::move(node), std::move(self));
}

std::unique_ptr<net::Transport> SimNet::transport(std::string node) {
  auth::Entity self{.role = auth::Role::admin, .name = node};
  return transport(std::move(node), std::move(self));
}

ByteSpan SimNet::share_memory(const std::string& node, const std::string& peer, size_t bytes) {
  Shared& shared = memory_[{node, peer}];
  FF_CHECK(shared.storage.empty());
  size_t room = bytes + io::kDirectAlign;
  shared.storage.resize(room);
  void* at = shared.storage.data();
  FF_CHECK(std::align(io::kDirectAlign, bytes, at, room) != nullptr);
  return shared.aligned = {static_cast<std::byte*>(at), bytes};
}

ByteSpan SimNet::memory(const Direction& direction) {
  const auto found = memory_.find(direction);
  return found == memory_.end() ? ByteSpan() : found->second.aligned;
}

const SimLink& SimNet::link(const Direction& direction) const {
  const auto found = links_.find(direction);
  return found == links_.end() ? default_link_ : found->second;
}

void SimNet::set_link(const std::string& from, const std::string& to, SimLink link) {
  links_[{from, to}] = link;
}

bool SimNet::blocked(const Direction& direction) const {
  return blocked_.contains(direction) || down_.contains(direction.first) ||
         down_.contains(direction.second);
}

void SimNet::block(const std::string& from, const std::string& to) { blocked_.emplace(from, to); }

void SimNet::unblock(const std::string& from, const std::string& to) {
  blocked_.erase({from, to});
  wake_pipes();
}

void SimNet::wake_pipes() {
  for (auto entry = pipes_.begin(); entry != pipes_.end();) {
    const auto pipe = entry->second.lock();
    entry = pipe == nullptr ? pipes_.erase(entry) : std::next(entry);
    if (pipe != nullptr) pipe->on_link_change();
  }
}

void SimNet::note(uint64_t pipe, std::string_view bytes) {
  delivered_ += bytes.size();
  for (const uint64_t word : {pipe, static_cast<uint64_t>(world_.now_ns()), uint64_t{bytes.size()},
                              uint64_t{simd::crc32c(as_bytes(bytes))}}) {
    trace_ = (trace_ ^ word) * 0x9e3779b97f4a7c15;
    trace_ ^= trace_ >> 29;
  }
}

void SimNet::break_connections(double probability) {
  for (const auto& [id, weak] : pipes_) {
    const auto pipe = weak.lock();
    // Each connection once: its pipes have consecutive numbers, the odd one first.
    if (pipe == nullptr || id % 2 == 0 || rng_.uniform01() >= probability) continue;
    const auto& [from, to] = pipe->direction();
    if (memory_.contains({from, to}) || memory_.contains({to, from})) continue;
    pipe->reset(rng_);
    const auto back = pipes_.find(id + 1);
    if (back == pipes_.end()) continue;
    if (const auto reverse = back->second.lock()) reverse->reset(rng_);
  }
}

void SimNet::stop_process(const std::string& node) {
  for (const auto& [id, weak] : pipes_) {
    const auto pipe = weak.lock();
    if (pipe == nullptr) continue;
    if (pipe->direction().first == node) pipe->reset(rng_);
    if (pipe->direction().second == node) pipe->drop_reader();
  }
}

void SimNet::stop_machine(const std::string& node) {
  stop_process(node);  // its resets arrive after the machine is back
  down_.insert(node);
}

void SimNet::start_machine(const std::string& node) {
  down_.erase(node);
  wake_pipes();
}

}  // namespace ff::sim
