// successor_links.cc: accepting successors, and frames of theirs.
#include "training/collective/successor_links.h"

#include "training/collective/peer_handshake.h"

namespace ff::collective {

namespace {

constexpr int64_t kGreetingNs = 10 * kSecond;
constexpr int64_t kAcceptRetryNs = kSecond;
constexpr size_t kHandshakesMax = 256;  // at once; kernels queue some more

}  // namespace

SuccessorLinks::SuccessorLinks(Loop& loop, std::unique_ptr<net::Listener> listener,
                               const World& world, uint32_t self, Handler handler)
    : loop_(loop),
      listener_(std::move(listener)),
      world_(world),
      self_(self),
      handler_(std::move(handler)),
      gate_(loop) {
  if (listener_ != nullptr) gate_.spawn(accept());
}

Task<void> SuccessorLinks::accept() {
  for (;;) {
    auto incoming = co_await listener_->accept();
    if (!incoming) {  // out of descriptors, or closed
      if (!co_await sleep_for(loop_, kAcceptRetryNs)) co_return;
      continue;
    }
    if (gate_.running() > kHandshakesMax + links_.size()) continue;
    gate_.spawn(serve(std::move(*incoming)));
  }
}

Task<void> SuccessorLinks::serve(std::unique_ptr<net::IncomingConnection> incoming) {
  const int64_t until_ns = loop_.now_ns() + kGreetingNs;
  auto opened =
      co_await with_deadline(loop_, until_ns, "a successor's handshake", incoming->open(loop_));
  if (!opened) co_return;
  net::Connection& connection = **opened;
  const auto hello =
      co_await with_deadline(loop_, until_ns, "a successor's handshake", greet(connection));
  if (!hello) {
    send_refusal(connection, hello.error());
    (void)co_await with_deadline(loop_, until_ns, "a refusal", connection.wait_flushed());
    co_return;
  }
  net::Connection*& link = links_[hello->node];
  if (link != nullptr) {
    link->close(fail(Errc::stale, "another successor has come"));
    handler_.lost(hello->node);
  }
  link = &connection;
  send_step(connection, HandshakeStep::successor, {});
  const auto ended = co_await receive(hello->node, connection);
  connection.close(ended.error());
  const auto found = links_.find(hello->node);
  if (found == links_.end() || found->second != &connection) co_return;
  if (gate_.cancellation().requested()) co_return;
  links_.erase(found);
  handler_.lost(hello->node);
}

Task<Result<SuccessorHello>> SuccessorLinks::greet(net::Connection& connection) {
  FF_CO_TRY(const std::string message, co_await receive_step(connection, HandshakeStep::successor));
  FF_CO_TRY(const SuccessorHello hello, parse_hello(as_bytes(message)));
  if (hello.world != world_.mark()) {
    co_return fail(Errc::stale, "this process is a leader of another communicator");
  }
  const bool is_right = hello.node < world_.nodes.size() && hello.node != self_ &&
                        hello.rank < world_.ranks() && world_.node_of(hello.rank) == hello.node;
  if (!is_right)
    co_return fail(Errc::usage, "rank {} of node {} is no successor", hello.rank, hello.node);
  if (refuses_) co_return fail(Errc::stale, "the other hosts go on without this one");
  co_return hello;
}

// Until the connection ends.
Task<Result<void>> SuccessorLinks::receive(uint32_t node, net::Connection& connection) {
  for (;;) {
    FF_CO_TRY(const net::Frame frame, co_await connection.receive());
    if (frame.head.kind != net::FrameKind::call ||
        frame.head.method != static_cast<uint32_t>(SuccessorMethod::report)) {
      co_return fail(Errc::corrupt, "a successor sent a frame that is no report");
    }
    FF_CO_TRY(const SuccessorReport report, parse_report(as_bytes(frame.message)));
    handler_.report(node, report);
  }
}

void SuccessorLinks::send(uint32_t node, SuccessorMethod method, std::string_view message) {
  const auto found = links_.find(node);
  if (found == links_.end()) return;
  found->second->send({.kind = net::FrameKind::call, .method = static_cast<uint32_t>(method)},
                      message);
}

void SuccessorLinks::refuse_all() {
  refuses_ = true;
  for (auto& [node, link] : links_) {
    link->close(fail(Errc::stale, "the other hosts go on without this one"));
  }
}

Task<void> SuccessorLinks::close() {
  co_await gate_.close(fail(Errc::interrupted, "the communicator is closed"));
}

}  // namespace ff::collective
