// Directory delegations on every engine: who gets one, who waits for whom, and what a batch may do,
// also one of a hostile or restarted client.
#include <cerrno>

#include "storage/meta/delegation_recalls.h"
#include "storage/meta/namespace_world.h"
#include "storage/meta/records.h"
#include "storage/meta/service.h"

namespace ff::meta {
namespace {

constexpr uint64_t kHeldLease = 77;
constexpr uint64_t kOtherLease = 88;
const Caller kHolder{.lease = kHeldLease};

class DelegationsTest : public testing::TestWithParam<kv::EngineKind>, protected NamespaceWorld {
 protected:
  DelegationsTest() : NamespaceWorld(GetParam()), dir_(dir(kRootUser, kRoot, "dir")->id) {}

  Namespace::LeaseState renew(uint64_t lease, bool fresh, uint64_t ids = 0) {
    auto state =
        run(names().renew_lease({.client = lease, .lease = lease, .fresh = fresh, .ids = ids}));
    EXPECT_TRUE(state.ok());
    return state ? *state : Namespace::LeaseState();
  }
  // A lease that holds `dir_` and has 16 inode numbers from `first_` on.
  void hold() {
    first_ = renew(kHeldLease, true, 16).first;
    auto made = run(names().delegate(kHeldLease, dir_));
    ASSERT_TRUE(made.ok() && made->granted);
  }

  wire::BatchOperation make(InodeId dir, std::string name, InodeId id,
                            InodeType kind = InodeType::file) {
    wire::BatchOperation operation;
    operation.set_now_ns(clock().wall_ns());
    auto& made = *operation.mutable_make();
    made.mutable_place()->mutable_dir()->set_inode(dir);
    made.mutable_place()->set_name(std::move(name));
    made.set_kind(static_cast<uint32_t>(kind));
    made.set_mode(0644);
    made.set_inode(id);
    if (kind == InodeType::file) {
      const Layout layout{.table = 1, .version = 3, .chunk_size = kMiB, .stripe = 1, .seed = 5};
      to_wire(layout, *made.mutable_layout());
    }
    return operation;
  }
  wire::BatchOperation unlink_of(InodeId dir, std::string name) {
    wire::BatchOperation operation;
    operation.set_now_ns(clock().wall_ns());
    operation.mutable_unlink()->mutable_place()->mutable_dir()->set_inode(dir);
    operation.mutable_unlink()->mutable_place()->set_name(std::move(name));
    return operation;
  }
  static wire::BatchOperation give_back(InodeId dir) {
    wire::BatchOperation operation;
    operation.set_give_back(dir);
    return operation;
  }
  Result<std::vector<InodeId>> apply(std::vector<wire::BatchOperation> operations,
                                     uint64_t lease = kHeldLease) {
    return apply_as(request(), std::move(operations), lease);
  }
  Result<std::vector<InodeId>> apply_as(RequestId id, std::vector<wire::BatchOperation> operations,
                                        uint64_t lease = kHeldLease) {
    wire::BatchRequest batch;
    batch.set_lease(lease);
    for (auto& operation : operations) *batch.add_operations() = std::move(operation);
    return run(names().apply_batch(id, std::move(batch)));
  }
  bool exists(InodeId dir, std::string name) {
    return run(names().lookup(kHolder, dir, std::move(name))).ok();
  }
  bool is_held_up(const Error& error) { return delegation_conflict(error).has_value(); }

  const InodeId dir_;
  InodeId first_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Engines, DelegationsTest, testing::ValuesIn(kv::engine_kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(DelegationsTest, OthersAreHeldUpByEveryUseOfTheDirectory) {
  ASSERT_TRUE(file(kRootUser, dir_, "old").ok());
  hold();
  const auto looked = run(names().lookup(kRootUser, dir_, "old"));
  ASSERT_FALSE(looked.ok());
  const auto conflict = delegation_conflict(looked.error());
  ASSERT_TRUE(conflict.has_value());
  EXPECT_EQ(conflict->dir, dir_);
  EXPECT_EQ(conflict->lease, kHeldLease);
  EXPECT_TRUE(is_held_up(file(kRootUser, dir_, "new").error()));
  EXPECT_TRUE(is_held_up(unlink(kRootUser, dir_, "old").error()));
  EXPECT_TRUE(is_held_up(stat(dir_).error()));
  EXPECT_TRUE(is_held_up(walk(kRootUser, "/dir/old").error()));
  EXPECT_TRUE(is_held_up(walk(kRootUser, "/dir").error()));
  EXPECT_TRUE(is_held_up(rmdir(kRootUser, kRoot, "dir").error()));
  EXPECT_TRUE(is_held_up(change(kRootUser, dir_, {.mode = 0700}).error()));
  EXPECT_TRUE(is_held_up(run(names().list(kRootUser, dir_, "", 10, false)).error()));
  EXPECT_TRUE(is_held_up(run(names().open(kRootUser, dir_, kMayRead, std::nullopt)).error()));
  const Namespace::Rename out{.from_dir = dir_, .from = "old", .to_dir = kRoot, .to = "out"};
  EXPECT_TRUE(is_held_up(rename(kRootUser, out).error()));
  EXPECT_TRUE(is_held_up(run(names().delegate(kOtherLease, dir_)).error()) ||
              is_lease_lost(run(names().delegate(kOtherLease, dir_)).error()));
  // The holder is not, and others may use everything else.
  EXPECT_TRUE(run(names().lookup(kHolder, dir_, "old")).ok());
  EXPECT_TRUE(file(kRootUser, kRoot, "elsewhere").ok());
  ASSERT_TRUE(apply({give_back(dir_)}).ok());
  EXPECT_TRUE(file(kRootUser, dir_, "new").ok());
}

TEST_P(DelegationsTest, OnlyOneHolderGetsIt) {
  hold();
  renew(kOtherLease, true);
  EXPECT_TRUE(is_held_up(run(names().delegate(kOtherLease, dir_)).error()));
  ASSERT_TRUE(apply({give_back(dir_)}).ok());
  const auto made = run(names().delegate(kOtherLease, dir_));
  EXPECT_TRUE(made.ok() && made->granted);
  EXPECT_EQ(apply({make(dir_, "late", first_)}).error().code, Errc::refused);
}

// A server was slow, and the client has repeated the request at another one.
TEST_P(DelegationsTest, ACreationOfALeaseThatArrivesLateRevivesNothing) {
  const Namespace::LeaseRenewal fresh{
      .client = 1, .lease = kHeldLease, .fresh = true, .request = request()};
  for (int repeated = 0; repeated < 2; repeated++) {
    const auto created = run(names().renew_lease(fresh));
    ASSERT_TRUE(created.ok());
    EXPECT_TRUE(created->live);
  }
  const auto made = run(names().delegate(kHeldLease, dir_));
  ASSERT_TRUE(made.ok() && made->granted);
  EXPECT_TRUE(is_held_up(run(names().lookup(kRootUser, dir_, "a")).error()));
  ASSERT_TRUE(run(names().renew_lease({.client = 1, .lease = kHeldLease, .end = true})).ok());
  const auto late = run(names().renew_lease(fresh));
  ASSERT_TRUE(late.ok());
  EXPECT_FALSE(late->live);
  EXPECT_TRUE(file(kRootUser, dir_, "a").ok());
  // Also when the slot has a later request.
  EXPECT_FALSE(run(names().renew_lease(fresh)).ok());
  EXPECT_TRUE(file(kRootUser, dir_, "b").ok());
}

TEST_P(DelegationsTest, TheGrantHasAllNames) {
  ASSERT_TRUE(file(kRootUser, dir_, "a").ok());
  const auto sub = dir(kRootUser, dir_, "sub");
  renew(kHeldLease, true);
  const auto made = run(names().delegate(kHeldLease, dir_));
  ASSERT_TRUE(made.ok() && made->granted);
  ASSERT_EQ(made->entries.size(), 2u);
  EXPECT_EQ(made->entries[0].name, "a");
  EXPECT_EQ(made->entries[1].id, sub->id);
  EXPECT_EQ(made->dir.links, 3u);
  EXPECT_EQ(made->dir.delegate, kHeldLease);
}

TEST_P(DelegationsTest, ABatchIsAppliedInOrderAndOnce) {
  hold();
  const RequestId id = request();
  const std::vector<wire::BatchOperation> operations = {
      make(dir_, "sub", first_, InodeType::directory), make(first_, "file", first_ + 1),
      make(dir_, "gone", first_ + 2), unlink_of(dir_, "gone"), make(dir_, "gone", first_ + 3)};
  ASSERT_TRUE(apply_as(id, operations).ok());
  EXPECT_EQ(run(names().lookup(kHolder, dir_, "gone"))->id, first_ + 3);
  EXPECT_EQ(run(names().lookup(kHolder, first_, "file"))->id, first_ + 1);
  // The new directory is delegated, too.
  EXPECT_TRUE(is_held_up(file(kRootUser, first_, "new").error()));
  ASSERT_TRUE(apply({unlink_of(dir_, "gone")}).ok());
  // A repetition that comes late, over another connection or server.
  EXPECT_FALSE(apply_as(id, operations).ok());  // the slot has a later request
  EXPECT_FALSE(exists(dir_, "gone"));
}

TEST_P(DelegationsTest, ARepeatedBatchChangesNothing) {
  hold();
  const RequestId id = request();
  ASSERT_TRUE(apply_as(id, {make(dir_, "a", first_)}).ok());
  ASSERT_TRUE(apply_as(id, {make(dir_, "a", first_)}).ok());  // its reply was lost
  EXPECT_EQ(run(names().list(kHolder, dir_, "", 10, false))->entries.size(), 1u);
}

TEST_P(DelegationsTest, ARefusedBatchChangesNothing) {
  hold();
  ASSERT_TRUE(apply({make(dir_, "there", first_)}).ok());
  const auto refused = apply({make(dir_, "new", first_ + 1), make(dir_, "there", first_ + 2)});
  EXPECT_EQ(sys_of(refused), EEXIST);
  EXPECT_FALSE(exists(dir_, "new"));
}

TEST_P(DelegationsTest, AHostileBatchIsRefused) {
  hold();
  const InodeId other = dir(kRootUser, kRoot, "other")->id;
  // A directory that is not delegated, or does not exist.
  EXPECT_EQ(apply({make(other, "a", first_)}).error().code, Errc::refused);
  EXPECT_FALSE(apply({make(99'999, "a", first_)}).ok());
  EXPECT_EQ(apply({unlink_of(kRoot, "dir")}).error().code, Errc::refused);
  wire::BatchOperation out;
  out.mutable_rename()->mutable_from()->mutable_dir()->set_inode(dir_);
  out.mutable_rename()->mutable_from()->set_name("a");
  out.mutable_rename()->mutable_to()->mutable_dir()->set_inode(other);
  out.mutable_rename()->mutable_to()->set_name("a");
  ASSERT_TRUE(apply({make(dir_, "a", first_)}).ok());
  EXPECT_EQ(apply({out}).error().code, Errc::refused);
  // Inode numbers that are not granted, used already, or in wrong order.
  EXPECT_EQ(apply({make(dir_, "b", first_ + 16)}).error().code, Errc::refused);
  EXPECT_EQ(apply({make(dir_, "b", dir_)}).error().code, Errc::refused);
  EXPECT_EQ(apply({make(dir_, "b", first_)}).error().code, Errc::refused);
  ASSERT_TRUE(apply({make(dir_, "c", first_ + 5)}).ok());
  EXPECT_EQ(apply({make(dir_, "d", first_ + 4)}).error().code, Errc::refused);
  // A layout that the cluster does not have, a kind and an operation that nobody knows.
  auto strange = make(dir_, "e", first_ + 6);
  strange.mutable_make()->mutable_layout()->set_version(9);
  EXPECT_EQ(apply({strange}).error().code, Errc::refused);
  strange = make(dir_, "e", first_ + 6);
  strange.mutable_make()->set_kind(17);
  EXPECT_FALSE(apply({strange}).ok());
  EXPECT_FALSE(apply({wire::BatchOperation()}).ok());
  EXPECT_FALSE(exists(dir_, "e"));
  // A lease that does not exist.
  EXPECT_TRUE(is_lease_lost(apply({make(dir_, "f", first_ + 7)}, kOtherLease).error()));
}

// A batch acts with the rights of each caller.
TEST_P(DelegationsTest, ARepeatedGrantGivesTheSameNumbers) {
  hold();
  const auto grant = [&](uint64_t number) {
    auto state =
        run(names().renew_lease({.client = 1, .lease = kHeldLease, .ids = 16, .grant = number}));
    EXPECT_TRUE(state.ok() && state->live);
    return state ? state->first : 0;
  };
  const InodeId second = grant(2);
  EXPECT_NE(second, 0u);
  EXPECT_NE(second, first_);
  for (int i = 0; i < 10; i++) EXPECT_EQ(grant(2), second);
  EXPECT_EQ(grant(1), 0u);  // a request that comes late
  EXPECT_TRUE(apply({make(dir_, "a", first_)}).ok());
  EXPECT_TRUE(apply({make(dir_, "b", second)}).ok());
  EXPECT_EQ(grant(2), 0u);  // it was used
  EXPECT_NE(grant(3), 0u);
}

TEST_P(DelegationsTest, ABatchNeedsPermission) {
  hold();
  auto made = make(dir_, "a", first_);
  made.mutable_make()->mutable_who()->set_uid(kAlice.uid);
  made.mutable_make()->mutable_who()->set_gid(kAlice.gid);
  EXPECT_EQ(sys_of(apply({made})), EACCES);
}

TEST_P(DelegationsTest, ALeaseThatEndsEndsItsDelegations) {
  hold();
  const auto state = run(names().holder_state({dir_, kHeldLease}));
  ASSERT_TRUE(state.ok() && state->holds);
  renew(kHeldLease, false);
  ASSERT_TRUE(run(names().end_lease(kHeldLease, state->beat)).ok());  // it was renewed since
  EXPECT_TRUE(is_held_up(stat(dir_).error()));
  ASSERT_TRUE(run(names().end_lease(kHeldLease, state->beat + 1)).ok());
  EXPECT_TRUE(stat(dir_).ok());
  EXPECT_FALSE(renew(kHeldLease, false).live);
  EXPECT_TRUE(is_lease_lost(apply({make(dir_, "late", first_)}).error()));
  EXPECT_TRUE(is_lease_lost(run(names().delegate(kHeldLease, dir_)).error()));
}

TEST_P(DelegationsTest, TheHolderIsToldOfARecallWithItsNextCall) {
  hold();
  ASSERT_TRUE(run(names().mark_recalled({dir_, kHeldLease})).ok());
  EXPECT_EQ(renew(kHeldLease, false).recalled, std::vector<InodeId>{dir_});
  const auto told = apply({make(dir_, "a", first_)});
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(*told, std::vector<InodeId>{dir_});
  ASSERT_TRUE(apply({give_back(dir_)}).ok());
  EXPECT_TRUE(renew(kHeldLease, false).recalled.empty());
}

// The server that recalls.
class RecallsTest : public DelegationsTest {
 protected:
  Result<void> recall() { return run(recalls_.recall({dir_, kHeldLease})); }
  uint64_t recall_count() {
    return metrics_.counter("ff_meta_delegation_recalls_total", "").value();
  }
  // Calls that give up after 20 ms each. A slow store needs more than one until `done`.
  template <class Done>
  bool give_up_until(Done done) {
    for (int i = 0; i < 1000; i++) {
      auto call = recalls_.recall({dir_, kHeldLease});
      const int64_t until_ns = loop().now_ns() + 20 * kMillisecond;
      if (run(with_deadline(loop(), until_ns, "gives up", std::move(call))).ok()) return false;
      if (done()) return true;
    }
    return false;
  }
  // A holder that does as it is told.
  Task<void> follow_recall(std::vector<InodeId>& told) {
    const auto recalled = co_await recalls_.wait(kHeldLease);
    if (recalled) told = *recalled;
    wire::BatchRequest batch;
    batch.set_lease(kHeldLease);
    *batch.add_operations() = make(dir_, "late", first_);
    *batch.add_operations() = give_back(dir_);
    (void)co_await names().apply_batch(request(), std::move(batch));
    recalls_.on_progress(kHeldLease);
  }
  // Time passes while a call waits.
  Task<void> skip_lease() {
    (void)co_await sleep_for(loop(), 20 * kMillisecond);
    clock().skip(kDelegationLeaseNs);
  }
  Task<void> keep_renewing(const bool& over) {
    const Namespace::LeaseRenewal renewal{.client = kHeldLease, .lease = kHeldLease};
    while (!over) {
      (void)co_await names().renew_lease(renewal);
      (void)co_await sleep_for(loop(), 10 * kMillisecond);
      clock().skip(kSecond);
    }
  }

  Metrics metrics_;
  DelegationRecalls recalls_{names(), loop(), metrics_};
  Gate gate_{loop()};
};
INSTANTIATE_TEST_SUITE_P(Engines, RecallsTest, testing::ValuesIn(kv::engine_kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(RecallsTest, ACallWaitsUntilTheHolderHasSentItsChanges) {
  hold();
  std::vector<InodeId> told;
  gate_.spawn(follow_recall(told));
  ASSERT_TRUE(recall().ok());
  EXPECT_EQ(told, std::vector<InodeId>{dir_});
  EXPECT_TRUE(run(names().lookup(kRootUser, dir_, "late")).ok());
  EXPECT_TRUE(recalls_.contended(dir_));
  clock().skip(DelegationRecalls::kContendedNs);
  EXPECT_FALSE(recalls_.contended(dir_));
  run(gate_.wait_empty());
}

TEST_P(RecallsTest, ADeadHolderLosesItsLease) {
  hold();
  gate_.spawn(skip_lease());
  Result<void> done = recall();
  for (int i = 0; i < 3 && !done; i++) done = recall();  // as the client repeats the call
  EXPECT_TRUE(done.ok());
  EXPECT_TRUE(stat(dir_).ok());
  EXPECT_FALSE(renew(kHeldLease, false).live);
  run(gate_.wait_empty());
}

// A call gives up before the directory is given back, to another server, and much later the holder
// has the directory again.
TEST_P(RecallsTest, AHolderThatGaveItBackMeanwhileKeepsItsLease) {
  hold();
  ASSERT_TRUE(give_up_until([this] { return recall_count() == 1; }));
  ASSERT_TRUE(apply({give_back(dir_)}).ok());
  clock().skip(DelegationRecalls::kRecallNs);
  renew(kHeldLease, false);
  ASSERT_TRUE(run(names().delegate(kHeldLease, dir_))->granted);
  // Another server, too, may be the first that recalls it again.
  ASSERT_TRUE(run(names().mark_recalled({dir_, kHeldLease})).ok());
  ASSERT_TRUE(give_up_until([this] { return recall_count() == 2; }));
  const auto state = run(names().holder_state({dir_, kHeldLease}));
  EXPECT_TRUE(state.ok() && state->holds && !state->ending);
  clock().skip(DelegationRecalls::kRecallNs);  // but this recall counts from its first call on
  renew(kHeldLease, false);
  EXPECT_TRUE(give_up_until([this] {
    return run(names().holder_state({dir_, kHeldLease}))->ending;
  }));
}

TEST_P(RecallsTest, AHolderThatKeepsItLosesItsLeaseToo) {
  hold();
  bool over = false;
  gate_.spawn(keep_renewing(over));
  Result<void> done = recall();
  for (int i = 0; i < 10 && !done; i++) done = recall();
  over = true;
  EXPECT_TRUE(done.ok());
  EXPECT_TRUE(stat(dir_).ok());
  EXPECT_FALSE(renew(kHeldLease, false).live);
  run(gate_.wait_empty());
}

}  // namespace
}  // namespace ff::meta
