// Retried changes, as calls to a server: a slow earlier attempt must not apply what the client was
// refused since.
#include <cerrno>

#include "platform/rpc/client.h"
#include "platform/rpc/method.h"
#include "storage/client/file_system_world.h"
#include "storage/meta/service.h"

namespace ff::client {
namespace {

class AgainTest : public FileSystemWorld {
 protected:
  template <class Asked, class Reply>
  Result<Reply> call(rpc::Method<Asked, Reply> method, const Asked& request) {
    const int64_t until_ns = stage_.world.loop().now_ns() + 10 * kSecond;
    return run(rpc::call_method(server_, method, request, until_ns));
  }
  // Creates a directory in the root with this sequence number.
  int make(uint64_t sequence, bool again) {
    meta::wire::MakeRequest request;
    request.mutable_request()->set_client(kClient);
    request.mutable_request()->set_sequence(sequence);
    request.mutable_request()->set_again(again);
    request.mutable_place()->mutable_dir()->set_inode(meta::kRoot);
    request.mutable_place()->set_name("d");
    request.set_kind(static_cast<uint32_t>(meta::InodeType::directory));
    request.set_mode(0755);
    request.set_exclusive(true);
    const auto made = call(meta::kCreate, request);
    return made ? 0 : made.error().sys;
  }
  // A request about a lease: creates it, with this sequence number, or ends it.
  bool lease(uint64_t sequence, bool end) {
    meta::wire::LeaseRequest request;
    request.set_client(kClient);
    request.set_lease(kLease);
    request.set_fresh(!end);
    request.set_end(end);
    if (!end) request.mutable_request()->set_client(kClient);
    if (!end) request.mutable_request()->set_sequence(sequence);
    const auto reply = call(meta::kRenewLease, request);
    return reply && reply->live();
  }
  bool there() { return run(metadata().lookup({}, meta::root(), "d")).ok(); }

  static constexpr uint64_t kClient = 77;
  static constexpr uint64_t kLease = 99;
  rpc::GrantScheduler grants_;
  std::unique_ptr<net::Transport> transport_ = stage_.net.transport("slow");
  rpc::ClientContext context_{stage_.world.loop(), *transport_, grants_,
                              stage_.metrics,      stage_.rng,  stage_.identity("slow")};
  rpc::Client server_{context_, scenario::cluster_parts::manager_addresses().front(),
                      auth::Service{auth::Role::meta, {}}};
};

TEST_F(AgainTest, AnEarlierTryDoesNotDoWhatWasRefusedSince) {
  meta::wire::AliveRequest alive;
  alive.set_client(kClient);
  ASSERT_TRUE(io::ok(call(meta::kRenewClient, alive)));
  ASSERT_EQ(make(1, false), 0);
  EXPECT_EQ(make(1, true), 0);
  // The retry of the next request is refused while its first attempt is still on its way.
  EXPECT_EQ(make(2, true), EEXIST);
  ASSERT_TRUE(io::ok(run(metadata().rmdir({}, meta::root(), "d"))));
  EXPECT_EQ(make(2, false), EEXIST);
  EXPECT_FALSE(there());
  EXPECT_EQ(make(3, false), 0);
  EXPECT_TRUE(there());
  run(server_.close());
}

TEST_F(AgainTest, AnEarlierTryDoesNotCreateALeaseThatHasEndedSince) {
  ASSERT_EQ(make(1, false), 0);
  const auto dir = run(metadata().lookup({}, meta::root(), "d"))->inode.id;
  ASSERT_TRUE(lease(2, false));
  meta::wire::DelegateRequest asked;
  asked.set_lease(kLease);
  asked.set_dir(dir);
  const auto delegated = call(meta::kDelegate, asked);
  ASSERT_TRUE(delegated && delegated->granted());
  (void)lease(0, true);
  EXPECT_FALSE(lease(2, false));
  const int64_t before_ns = stage_.world.now_ns();
  EXPECT_TRUE(io::ok(run(metadata().create({}, {.id = dir}, "new", {.mode = 0644}))));
  EXPECT_LT(stage_.world.now_ns() - before_ns, kSecond);
  run(server_.close());
}

}  // namespace
}  // namespace ff::client
