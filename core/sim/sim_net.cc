// sim_net.cc: who is connected to whom, and what befalls links, processes and machines.
#include "sim/sim_net.h"

#include <deque>

#include "base/check.h"
#include "base/wait.h"
#include "sim/sim_pipe.h"
#include "simd/crc32c.h"

namespace ff::sim {

namespace {

// How long a connect waits before it tries again while the way is blocked (TCP's SYN).
constexpr int64_t kConnectRetryNs = 200 * kMillisecond;

std::unique_ptr<net::Connection> connection(Loop& loop, std::shared_ptr<SimPipe> out,
                                            std::shared_ptr<SimPipe> in, std::string peer) {
  auto stream = std::make_unique<SimStream>(loop, std::move(out), std::move(in), std::move(peer));
  return std::make_unique<net::Connection>(loop, std::move(stream), nullptr);
}

class SimArrival final : public net::Arrival {
 public:
  SimArrival(std::shared_ptr<SimPipe> out, std::shared_ptr<SimPipe> in)
      : peer_(in->direction().first), out_(std::move(out)), in_(std::move(in)) {}
  ~SimArrival() override {
    if (out_ == nullptr) return;
    out_->end();
    in_->drop_reader();
  }

  std::string peer() const override { return peer_; }
  Task<Result<std::unique_ptr<net::Connection>>> open(Loop& loop) override {
    co_return connection(loop, std::move(out_), std::move(in_), peer_);
  }

 private:
  const std::string peer_;
  std::shared_ptr<SimPipe> out_;
  std::shared_ptr<SimPipe> in_;
};

}  // namespace

class SimListener final : public net::Listener {
 public:
  SimListener(Loop& loop, SimNet& net, net::Address address)
      : net_(net), address_(std::move(address)), arrived_(loop) {
    net_.listeners_[address_.text()] = this;
  }
  ~SimListener() override {
    const auto found = net_.listeners_.find(address_.text());
    if (found != net_.listeners_.end() && found->second == this) net_.listeners_.erase(found);
  }

  const net::Address& address() const override { return address_; }
  Task<Result<std::unique_ptr<net::Arrival>>> accept() override {
    while (waiting_.empty()) {
      arrived_.reset();
      FF_CO_TRY(co_await arrived_.wait());
    }
    std::unique_ptr<net::Arrival> arrival = std::move(waiting_.front());
    waiting_.pop_front();
    co_return arrival;
  }
  void add(std::unique_ptr<net::Arrival> arrival) {
    waiting_.push_back(std::move(arrival));
    arrived_.set();
  }

 private:
  SimNet& net_;
  const net::Address address_;
  std::deque<std::unique_ptr<net::Arrival>> waiting_;
  Event arrived_;
};

class SimTransport final : public net::Transport {
 public:
  SimTransport(SimNet& net, std::string node) : net_(net), node_(std::move(node)) {}

  Task<Result<std::unique_ptr<net::Connection>>> connect(Loop& loop, net::Address to) override;
  Result<std::unique_ptr<net::Listener>> listen(Loop& loop, const net::Address& at) override;

 private:
  SimNet& net_;
  const std::string node_;
};

Task<Result<std::unique_ptr<net::Connection>>> SimTransport::connect(Loop& loop, net::Address to) {
  const SimNet::Direction there(node_, to.host);
  const SimNet::Direction back(to.host, node_);
  const SimLink link = net_.link(there);
  FF_CO_TRY(co_await after(loop, 2 * link.delay_max_ns));
  while (net_.blocked(there) || net_.blocked(back)) {
    FF_CO_TRY(co_await after(loop, kConnectRetryNs));
  }
  const auto found = net_.listeners_.find(to.text());
  if (found == net_.listeners_.end()) {
    co_return fail(Errc::unreachable, "{}: Connection refused", to.text());
  }
  const uint64_t id = net_.next_pipe_++;
  const uint64_t back_id = net_.next_pipe_++;
  auto out = std::make_shared<SimPipe>(net_, id, there);
  auto in = std::make_shared<SimPipe>(net_, back_id, back);
  out->set_reverse(in);
  in->set_reverse(out);
  net_.pipes_[id] = out;
  net_.pipes_[back_id] = in;
  found->second->add(std::make_unique<SimArrival>(in, out));
  co_return connection(loop, std::move(out), std::move(in), to.text());
}

Result<std::unique_ptr<net::Listener>> SimTransport::listen(Loop& loop, const net::Address& at) {
  net::Address address = at;
  address.host = node_;
  if (address.port == 0) address.port = net_.next_port_++;
  if (net_.listeners_.contains(address.text())) {
    return fail(Errc::exists, "cannot listen on {}: Address already in use", address.text());
  }
  return std::unique_ptr<net::Listener>(std::make_unique<SimListener>(loop, net_, address));
}

SimNet::SimNet(SimWorld& world, uint64_t seed) : world_(world), rng_(seed) {}

SimNet::~SimNet() = default;

std::unique_ptr<net::Transport> SimNet::transport(std::string node) {
  return std::make_unique<SimTransport>(*this, std::move(node));
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
    if (pipe != nullptr) pipe->look_again();
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
    // Each connection once: its pipes have neighbouring numbers, odd first.
    if (pipe == nullptr || id % 2 == 0 || rng_.unit() >= probability) continue;
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
  stop_process(node);  // its resets arrive once the machine is back
  down_.insert(node);
}

void SimNet::start_machine(const std::string& node) {
  down_.erase(node);
  wake_pipes();
}

}  // namespace ff::sim
