// A holder of a token whose calls never end, and others meanwhile (finding 4).
#include <gtest/gtest.h>

#include <optional>

#include "attack/attack_world.h"
#include "platform/auth/keyring.h"
#include "platform/base/metrics.h"
#include "platform/base/system_loop.h"
#include "platform/io/system_disk.h"
#include "platform/net/system_transport.h"
#include "platform/rpc/client.h"
#include "platform/rpc/error_wire.h"
#include "platform/rpc/handshake.h"
#include "storage/chain/chain.pb.h"
#include "storage/chain/service.h"
#include "storage/client/file_system.h"
#include "storage/cluster/routing_cache.h"
#include "storage/cluster/tickets.h"

namespace ff::test {
namespace {

constexpr int64_t kPatienceNs = 30 * kSecond;
constexpr uint64_t kWrite = 64 * kMiB;

// A client of its own making, with a token that is valid.
class HangingClient {
 public:
  HangingClient(const std::string& token, const std::string& manager) : manager_(manager) {
    io::SystemDisk disk;
    auto keyring = auth::read_keyring(disk, token, {});
    FF_CHECK(keyring.ok());
    transport_.emplace(net::TransportOptions{.mode = net::NetMode::tcp, .keyring = *keyring});
    context_.emplace(rpc::ClientContext{
        loop_, *transport_, grants_, metrics_, rng_, {.name = "eve", .software = "eve"}});
    files_.emplace(*context_, std::vector{net::parse_address(manager).value()},
                   client::FileSystem::Options{});
  }
  ~HangingClient() {
    if (file_ != nullptr) file_.reset();
    run_task(loop_, files_->close());
    for (auto& one : connections_) one->close(fail(Errc::interrupted, "the end"));
    connections_.clear();
    run_task(loop_, transport_->drain(loop_));
  }

  // Opens calls at the nodes that write 64 MiB, and answers none of their pulls.
  Result<void> hang(const std::string& path, size_t calls) {
    return run_task(loop_, hang_task(path, calls));
  }

 private:
  Task<Result<void>> hang_task(std::string path, size_t calls) {
    FF_CO_TRY(co_await files_->start(loop_.now_ns() + kPatienceNs));
    auto& names = files_->metadata();
    const meta::Caller caller;
    meta::InodeRef root = meta::root();
    FF_CO_TRY(auto walked, co_await names.walk(caller, std::move(root), path, true));
    if (!walked.found) co_return fail(Errc::not_found, "{}", path);
    meta::InodeRef inode = walked.found->ref();
    FF_CO_TRY(file_, co_await files_->open(caller, std::move(inode), meta::kMayWrite));
    FF_CO_TRY(const auto chains, co_await files_->chains_of(file_->inode().layout));
    FF_CO_TRY(const cluster::Routing routing, co_await fetch_routing());
    for (size_t i = 0; i < calls; i++) {
      const cluster::Chain* const chain = routing.chain(chains[i % chains.size()]);
      FF_CO_TRY(co_await send_write(routing, *chain, i));
    }
    co_return Result<void>();
  }

  Task<Result<cluster::Routing>> fetch_routing() {
    cluster::Routing routing;
    cluster::ManagerClient managers(*context_, {net::parse_address(manager_).value()});
    const int64_t now_s = loop_.clock().wall_ns() / kSecond;
    Result<bool> complete = false;
    while (complete && !*complete) {
      complete = co_await cluster::fetch_routing_page(managers, routing, transport_->keyring(),
                                                      now_s, kSecond, loop_.now_ns() + kPatienceNs);
    }
    co_await managers.close();
    if (!complete) co_return std::move(complete).error();
    co_return routing;
  }

  Task<Result<void>> send_write(const cluster::Routing& routing, const cluster::Chain& chain,
                                uint64_t index) {
    const cluster::Target& head = chain.targets.front();
    const cluster::NodeInfo* const node = routing.node(head.node);
    FF_CO_TRY(net::Address address, net::parse_address(node->addresses.front()));
    auth::Service service = cluster::service_of(*node);
    FF_CO_TRY(auto connection,
              co_await transport_->connect(loop_, std::move(address), std::move(service)));
    rpc::Identity self = context_->self;
    FF_CO_TRY(co_await rpc::client_handshake(*connection, std::move(self)));
    chain::wire::WriteRequest request;
    request.mutable_place()->set_chain(chain.id);
    request.mutable_place()->set_chain_version(chain.version);
    request.mutable_place()->set_target(head.id);
    request.mutable_chunk()->set_inode(file_->inode().id);
    request.mutable_chunk()->set_index(index);
    request.mutable_writer()->set_client(rng_.next());
    request.set_change(static_cast<uint32_t>(chunk::UpdateType::write));
    request.set_chunk_size(chunk::kChunkMax);
    request.mutable_data()->set_token(1);
    request.mutable_data()->set_size(kWrite);
    request.set_capability(file_->view().capability);
    const net::FrameHeader call{
        .kind = net::FrameKind::call, .call = 1, .method = chain::kWrite.number};
    connection->send(call, request.SerializeAsString());
    FF_CO_TRY(co_await connection->wait_flushed());
    connections_.push_back(std::move(connection));
    co_return Result<void>();
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  std::string manager_;
  rpc::GrantScheduler grants_;
  Metrics metrics_;
  SeededRng rng_{system_seed()};
  std::optional<net::SystemTransport> transport_;
  std::optional<rpc::ClientContext> context_;
  std::optional<client::FileSystem> files_;
  std::shared_ptr<client::File> file_;
  std::vector<std::unique_ptr<net::Connection>> connections_;
};

TEST(HangingAttack, CallsThatNeverEndHoldAShareAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root reads the files of other users";
  AttackWorld world("tcp");
  world.good({"fs", "mkdir", "/open"});
  world.good({"fs", "chmod", "777", "/open"});
  const std::string eve = world.add_user("eve", 1001), ann = world.add_user("ann", 1002);
  write_file(world.file("small"), "x");
  ASSERT_EQ(world.with_token(eve, {"fs", "cp", world.file("small"), "ff:///open/eve"}).exit, 0);
  HangingClient hanging(eve, world.address());
  const auto hung = hanging.hang("/open/eve", 24);
  ASSERT_TRUE(hung.ok()) << hung.error().message;
  // The nodes hold 256 MiB each for data in flight; the calls ask for 768 MiB of each.
  AttackWorld::until("the status names the client", [&] {
    return world.admin({"status"}).out.find("holds back user/eve") != std::string::npos;
  });
  const std::string words(20'000'000, 'w');
  write_file(world.file("large"), words);
  for (int i = 0; i < 5; i++) {
    const auto wrote = world.with_token(
        ann, {"fs", "cp", world.file("large"), "ff:///open/ann", "--timeout", "20s"});
    EXPECT_EQ(wrote.exit, 0) << wrote.err;
    const auto got = world.with_token(ann, {"fs", "cat", "/open/ann", "--timeout", "20s"});
    EXPECT_TRUE(got.out == words) << got.err;
    EXPECT_EQ(world.root({"fs", "cp", world.file("large"), "ff:///open/root"}).exit, 0);
  }
}

}  // namespace
}  // namespace ff::test
