// Batches of delegated changes, and single calls, on a store whose reads are round trips: a batch
// of many changes takes no more of them than a batch of one, and does the same as before.
#include "storage/meta/batch_prefetch.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "storage/meta/counting_store.h"
#include "storage/meta/namespace_world.h"

namespace ff::meta {
namespace {

constexpr uint64_t kBatchLease = 5;
const Caller kBatchHolder{.lease = kBatchLease};
using Operations = std::vector<wire::BatchOperation>;

class BatchPrefetchTest : public testing::Test, protected NamespaceWorld {
 protected:
  BatchPrefetchTest()
      : NamespaceWorld({"counting", [this] { return std::make_unique<CountingStore>(reads_); }}),
        dir_(dir(kRootUser, kRoot, "dir")->id) {
    const auto state = run(names().renew_lease(
        {.client = kBatchLease, .lease = kBatchLease, .fresh = true, .ids = 1000}));
    next_ = state->first;
    EXPECT_TRUE(run(names().delegate(kBatchLease, dir_))->granted);
  }

  static wire::BatchOperation at(int64_t now_ns) {
    wire::BatchOperation operation;
    operation.set_now_ns(now_ns);
    return operation;
  }
  static void place(wire::Place& to, InodeId dir, const std::string& name) {
    to.mutable_dir()->set_inode(dir);
    to.set_name(name);
  }
  wire::BatchOperation make(InodeId dir, const std::string& name,
                            InodeType kind = InodeType::file) {
    auto operation = at(clock().wall_ns());
    auto& made = *operation.mutable_make();
    place(*made.mutable_place(), dir, name);
    made.set_kind(static_cast<uint32_t>(kind));
    made.set_mode(0644);
    made.set_inode(next_++);
    const Layout layout{.table = 1, .version = 3, .chunk_size = kMiB, .stripe = 1, .seed = 5};
    if (kind == InodeType::file) to_wire(layout, *made.mutable_layout());
    return operation;
  }
  wire::BatchOperation unlink_of(InodeId dir, const std::string& name) {
    auto operation = at(clock().wall_ns());
    place(*operation.mutable_unlink()->mutable_place(), dir, name);
    return operation;
  }
  wire::BatchOperation rmdir_of(InodeId dir, const std::string& name) {
    auto operation = at(clock().wall_ns());
    place(*operation.mutable_rmdir()->mutable_place(), dir, name);
    return operation;
  }
  wire::BatchOperation rename_of(InodeId dir, const std::string& from, const std::string& to) {
    auto operation = at(clock().wall_ns());
    place(*operation.mutable_rename()->mutable_from(), dir, from);
    place(*operation.mutable_rename()->mutable_to(), dir, to);
    return operation;
  }
  wire::BatchOperation chmod_of(InodeId id, uint32_t mode) {
    auto operation = at(clock().wall_ns());
    operation.mutable_set_attributes()->mutable_inode()->set_inode(id);
    operation.mutable_set_attributes()->set_mode(mode);
    return operation;
  }
  Result<std::vector<InodeId>> apply(const Operations& operations) {
    wire::BatchRequest batch;
    batch.set_lease(kBatchLease);
    for (const auto& operation : operations) *batch.add_operations() = operation;
    return run(names().apply_batch(request(), std::move(batch)));
  }
  // The round trips of a batch before its commit.
  int reads_of(const Operations& operations) {
    reads_ = 0;
    const auto applied = apply(operations);
    EXPECT_TRUE(applied.ok()) << applied.error().message;
    return reads_;
  }
  InodeId id_of(InodeId dir, const std::string& name) {
    const auto found = run(names().lookup(kBatchHolder, dir, name));
    return found ? found->id : 0;
  }
  // A batch with `step` of each number below `count`.
  template <class Step>
  static Operations repeated(int count, Step step) {
    Operations operations;
    for (int i = 0; i < count; i++) operations.push_back(step(i));
    return operations;
  }

  int reads_ = 0;
  const InodeId dir_;
  InodeId next_ = 0;
};

TEST_F(BatchPrefetchTest, ManyChangesTakeAsFewRoundTripsAsOne) {
  const auto name = [](int i) { return fmt::format("f{}", i); };
  EXPECT_EQ(reads_of(repeated(30, [&](int i) { return make(dir_, name(i)); })), 1);
  EXPECT_EQ(reads_of({chmod_of(dir_, 0777)}), 2);  // and the times of a directory
  EXPECT_EQ(reads_of(repeated(30, [&](int i) { return chmod_of(id_of(dir_, name(i)), 0600); })), 1);
  const auto renames = [&](int i) { return rename_of(dir_, name(i), name(i) + "b"); };
  EXPECT_EQ(reads_of(repeated(20, renames)), 2);
  const auto replaces = [&](int i) { return rename_of(dir_, name(i) + "b", name(20 + i)); };
  EXPECT_EQ(reads_of(repeated(10, replaces)), 2);
  const auto removals = [&](int i) { return unlink_of(dir_, name(20 + i)); };
  EXPECT_EQ(reads_of(repeated(10, removals)), 2);
  EXPECT_EQ(id_of(dir_, name(20)), 0u);
  EXPECT_NE(id_of(dir_, name(10) + "b"), 0u);
}

// A tree that is removed from below, as rm -r does, in one batch: the ranges that tell whether
// directories are empty are read together, and before their names are erased.
TEST_F(BatchPrefetchTest, DirectoriesAreEmptyOnceTheirNamesAreErased) {
  Operations made, removed;
  for (int i = 0; i < 5; i++) {
    const std::string name = fmt::format("d{}", i);
    made.push_back(make(dir_, name, InodeType::directory));
    const InodeId sub = made.back().make().inode();
    for (int f = 0; f < 3; f++) {
      made.push_back(make(sub, fmt::format("f{}", f)));
      removed.push_back(unlink_of(sub, fmt::format("f{}", f)));
    }
    removed.push_back(rmdir_of(dir_, name));
  }
  EXPECT_EQ(reads_of(made), 1);
  // One name stays: the batch is refused as a whole.
  Operations too_few = removed;
  too_few.erase(too_few.begin());
  const auto refused = apply(too_few);
  EXPECT_EQ(sys_of(refused), ENOTEMPTY);
  EXPECT_NE(id_of(dir_, "d0"), 0u);
  EXPECT_LE(reads_of(removed), 4);
  // Directories that come and go in one batch.
  Operations passing;
  for (int i = 0; i < 5; i++) {
    passing.push_back(make(dir_, fmt::format("p{}", i), InodeType::directory));
    passing.push_back(rmdir_of(dir_, fmt::format("p{}", i)));
  }
  EXPECT_LE(reads_of(passing), 2);
  EXPECT_EQ(id_of(dir_, "d0"), 0u);
  EXPECT_EQ(run(names().list(kBatchHolder, dir_, "", 10, false))->entries.size(), 0u);
}

// What one operation changes, a later one of the batch sees, although it was read before.
TEST_F(BatchPrefetchTest, LaterOperationsSeeWhatEarlierOnesDid) {
  ASSERT_TRUE(apply({make(dir_, "a"), make(dir_, "b")}).ok());
  const InodeId a = id_of(dir_, "a");
  ASSERT_TRUE(apply({rename_of(dir_, "a", "b"), rename_of(dir_, "b", "c"), make(dir_, "a"),
                     chmod_of(a, 0640), unlink_of(dir_, "a")})
                  .ok());
  EXPECT_EQ(id_of(dir_, "c"), a);
  EXPECT_EQ(id_of(dir_, "a"), 0u);
  EXPECT_EQ(id_of(dir_, "b"), 0u);
  EXPECT_EQ(run(names().stat(a, kBatchHolder))->mode & 0777, 0640u);
}

TEST_F(BatchPrefetchTest, SingleCallsReadWhatTheyKnowTogether) {
  const auto reads_of_call = [&](const auto& call) {
    reads_ = 0;
    EXPECT_TRUE(call().ok());
    return reads_;
  };
  EXPECT_EQ(reads_of_call([&] { return file(kRootUser, kRoot, "a"); }), 1);
  const InodeId a = id_of(kRoot, "a");
  EXPECT_EQ(reads_of_call([&] { return run(names().lookup(kRootUser, kRoot, "a")); }), 2);
  EXPECT_EQ(reads_of_call([&] { return link(kRootUser, a, kRoot, "b"); }), 1);
  EXPECT_EQ(reads_of_call([&] { return change(kRootUser, a, {.mode = 0600}); }), 1);
  EXPECT_EQ(reads_of_call([&] { return unlink(kRootUser, kRoot, "b"); }), 2);
}

}  // namespace
}  // namespace ff::meta
