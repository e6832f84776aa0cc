// What the threads of a mount may read of its files (client/read_snapshot.h) while programs, other
// mounts and successors of the mount change them; in a simulated cluster, on one thread.
#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/gate.h"
#include "storage/client/chain_reader.h"
#include "storage/client/survivor.h"
#include "storage/mount/two_mounts.h"

namespace ff::mount {
namespace {

using client::kChunk;
using client::Survivor;
using client::text_of;

constexpr uint64_t kLengthMax = 3 * kChunk;

// A serving process of the mount.
struct Serving {
  Serving(scenario::cluster_parts::ClusterSimulation& stage, const std::string& called,
          client::Memory records, client::Memory data, const meta::InodeView& root,
          bool delegations)
      : name(called),
        client(stage, called, std::move(records), std::move(data), delegations),
        mount(client.files, root),
        gate(stage.world.loop()) {}
  const std::string name;
  Survivor client;
  OneMount mount;
  Gate gate;  // of reads that nobody waits for
};

// A mount of one file, which is known to a model, and a thread beside it.
class SnapshotsTest : public TwoMounts {
 protected:
  void TearDown() override {
    for (const auto& one : all_) end(one->gate);
    run(reader_.close());
  }
  void start(bool delegations) {
    delegations_ = delegations;
    auto root = run(metadata().stat(meta::root(), false));
    ASSERT_TRUE(io::ok(root));
    root_ = *root;
    serve(client::Memory(client::RecoveryTable::bytes_for(0)), client::Memory(8 * kMiB));
    reader_.set_routing(files().routing());
    auto dir = run(metadata().create({}, meta::root(), "dir",
                                     {.kind = meta::InodeType::directory, .mode = 0755}));
    ASSERT_TRUE(io::ok(dir));
    dir_ = dir->inode.id;
    for (int i = 0; delegations && i < 3; i++) {
      make("first" + std::to_string(i));
      close_all();
    }
    if (delegations) {
      ASSERT_TRUE(eventually([&] { return files().delegations() == 1; }));
      pass(3 * kSecond);  // inode numbers, and how much space there is
    }
  }
  void serve(client::Memory records, client::Memory data) {
    all_.push_back(std::make_unique<Serving>(stage_, "mount" + std::to_string(all_.size()),
                                             std::move(records), std::move(data), root_,
                                             delegations_));
    ASSERT_TRUE(io::ok(run(files().start(INT64_MAX))));
  }
  void end(Gate& gate) { run(gate.close(fail(Errc::interrupted, "the end"))); }

  Serving& serving() { return *all_.back(); }
  Operations& operations() { return serving().mount.operations; }
  client::FileSystem& files() { return serving().client.files; }
  bool published() { return serving().client.snapshots.find(inode_) != nullptr; }

  // The serving process dies, and another one continues the mount.
  void kill() {
    Serving& dead = serving();
    end(dead.gate);
    client::cut_off(cluster_, dead.name);
    serve(dead.client.records, dead.client.data);
    EXPECT_TRUE(io::ok(run(operations().restore())));
    operations().end_restored_origins();
  }
  // Another file, which is empty.
  void make(std::string name) {
    name_ = std::move(name);
    model_.clear();
    auto made = run(operations().create({}, dir_, name_, 0666, O_RDWR));
    ASSERT_TRUE(io::ok(made));
    inode_ = made->inode.id;
    handles_.assign(1, {made->opened.handle, O_RDWR});
  }
  void open_here(uint32_t flags) {
    auto opened = run(operations().open({}, inode_, flags));
    if (!opened && opened.error().sys == ESTALE) {  // as the kernel does it
      EXPECT_TRUE(io::ok(run(operations().lookup({}, dir_, name_))));
      opened = run(operations().open({}, inode_, flags));
    }
    ASSERT_TRUE(io::ok(opened));
    handles_.push_back({opened->handle, flags});
    if ((flags & O_TRUNC) != 0) model_.clear();
  }
  void close_here(size_t which) {
    (void)run(operations().flush(handles_[which].number));
    run(operations().release(handles_[which].number));
    handles_.erase(handles_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void close_all() {
    while (!handles_.empty()) close_here(0);
  }
  // Each may report an earlier error.
  void flush_all() {
    for (const Handle& one : handles_) (void)run(operations().flush(one.number));
  }
  Result<void> write_here(uint64_t handle, uint64_t offset, std::string_view text, uint32_t flags,
                          bool from_page_cache = false) {
    Operations::Write how{.offset = offset, .from = as_bytes(text), .flags = flags};
    how.from_page_cache = from_page_cache;
    auto written = run(operations().write(handle, std::move(how)));
    const uint64_t at = (flags & O_APPEND) != 0 ? model_.size() : offset;
    model_.resize(std::max<size_t>(model_.size(), at + text.size()));
    model_.replace(at, text.size(), text);
    return written;
  }
  void cut_storage(bool cut) {
    for (const auto& node : cluster_.nodes()) {
      if (cut) stage_.net.block(serving().name, node->name());
      if (!cut) stage_.net.unblock(serving().name, node->name());
    }
  }
  void cut_managers(bool cut) {
    for (const auto& manager : cluster_.managers()) {
      if (cut) stage_.net.block(serving().name, manager->name());
      if (!cut) stage_.net.unblock(serving().name, manager->name());
    }
  }
  void set_full(bool full) {
    for (const auto& node : cluster_.nodes()) {
      node->disk().set_fault(sim::SimOp::write, full ? 1 : 0, ENOSPC);
    }
  }

  // As a thread of the mount reads. "(owner)": it may not.
  std::string read_beside(uint64_t offset, uint64_t size) {
    auto snapshot = serving().client.snapshots.find(inode_);
    if (snapshot == nullptr) return "(owner)";
    std::string text(size, '?');
    const ByteSpan into(reinterpret_cast<std::byte*>(text.data()), text.size());
    const auto answer = run(reader_.read(std::move(snapshot), offset, into));
    if (!answer) return "(owner)";
    if (!*answer) return "(" + answer->error().message + ")";
    text.resize(**answer);
    return text;
  }
  std::string read_here(uint64_t handle, uint64_t offset, uint64_t size) {
    auto data = run(operations().read(handle, offset, size, {}));
    return data ? std::string(as_text(data->bytes)) : "(" + data.error().message + ")";
  }

  struct Handle {
    uint64_t number = 0;
    uint32_t flags = 0;
    bool reads() const { return (flags & O_ACCMODE) != O_WRONLY; }
    bool writes() const { return (flags & O_ACCMODE) != O_RDONLY; }
    bool buffers() const { return writes() && (flags & (O_APPEND | O_DIRECT)) == 0; }
  };
  std::optional<Handle> any(SeededRng& rng, bool (Handle::*fits)() const) const {
    std::vector<Handle> some;
    for (const Handle& one : handles_) {
      if ((one.*fits)()) some.push_back(one);
    }
    if (some.empty()) return std::nullopt;
    return some[rng.below(some.size())];
  }

  bool delegations_ = false;
  meta::InodeView root_;
  std::vector<std::unique_ptr<Serving>> all_;
  meta::InodeId dir_ = 0, inode_ = 0;
  std::string name_;
  std::string model_;  // content of the file
  std::vector<Handle> handles_;
  client::User worker_{stage_, "worker"};
  client::ChainReader reader_{worker_.context(), [] {}};
};

// Storage refuses acknowledged bytes: only the mount has them.
TEST_F(SnapshotsTest, BytesThatCouldNotBeStoredAreForTheOwner) {
  start(false);
  make("f");
  const uint64_t handle = handles_[0].number;
  EXPECT_TRUE(io::ok(write_here(handle, 0, "old text", O_RDWR | O_DIRECT)));
  EXPECT_EQ(read_here(handle, 0, 8), "old text");
  EXPECT_EQ(read_beside(0, 8), "old text");
  cut_storage(true);
  EXPECT_TRUE(io::ok(write_here(handle, 0, "new", O_RDWR)));
  EXPECT_FALSE(run(operations().flush(handle)).ok());
  cut_storage(false);
  EXPECT_EQ(read_here(handle, 0, 8), "new text");
  EXPECT_FALSE(published());
  EXPECT_FALSE(run(operations().sync(handle)).ok());  // stores them, and reports what was
  EXPECT_EQ(read_here(handle, 0, 8), "new text");
  EXPECT_EQ(read_beside(0, 8), "new text");
  close_all();
}

TEST_F(SnapshotsTest, BytesThatASuccessorKeepsAreForTheOwner) {
  start(false);
  make("f");
  const uint64_t handle = handles_[0].number;
  EXPECT_TRUE(io::ok(write_here(handle, 0, "old text", O_RDWR | O_DIRECT)));
  EXPECT_TRUE(io::ok(run(operations().sync(handle))));
  set_full(true);
  EXPECT_TRUE(io::ok(write_here(handle, 0, "new", O_RDWR)));
  kill();
  EXPECT_EQ(files().waiting_files(), 1u);
  EXPECT_EQ(read_here(handle, 0, 8), "new text");
  EXPECT_FALSE(published());
  set_full(false);
  EXPECT_TRUE(eventually([&] { return files().waiting_files() == 0; }));
  EXPECT_EQ(read_here(handle, 0, 8), "new text");
  EXPECT_EQ(read_beside(0, 8), "new text");
  close_all();
}

// A read has its bytes stored before its close is deferred, while servers do not answer.
TEST_F(SnapshotsTest, AFileWhoseCloseIsDeferredHasNone) {
  start(true);
  make("f");
  cut_managers(true);
  pass(10 * kMillisecond);
  const uint64_t handle = handles_[0].number;
  EXPECT_TRUE(io::ok(write_here(handle, 0, "text", O_RDWR)));
  EXPECT_TRUE(io::ok(run(operations().flush(handle))));  // of a dup(2)
  EXPECT_EQ(read_here(handle, 0, 4), "text");
  EXPECT_TRUE(published());
  const int64_t before_ns = stage_.world.now_ns();
  close_all();
  EXPECT_EQ(stage_.world.now_ns(), before_ns);  // deferred
  EXPECT_FALSE(published());
  cut_managers(false);
}

// What each acknowledged change of a random history has left is what a thread reads from then on,
// if it may read at all.
class SnapshotHistoryTest : public SnapshotsTest {
 protected:
  void change(SeededRng& rng) {
    switch (rng.below(16)) {
      case 0: return open_here(rng.below(2) == 0 ? O_RDONLY : O_RDWR);
      case 1: return open_here(O_RDWR | O_TRUNC);
      case 2: return open_here(rng.below(2) == 0 ? O_RDWR | O_APPEND : O_RDWR | O_DIRECT);
      case 3: return handles_.empty() ? void() : close_here(rng.below(handles_.size()));
      case 4:
      case 5:
      case 6:
      case 7: return write(rng);
      case 8: return cut(rng);
      case 9: return allocate(rng);
      case 10: return write_from_ring(rng);
      case 11: return change_attributes(rng);
      case 12: return sync(rng);
      case 13: return change_elsewhere(rng);
      case 14: return read(rng);
      default: return rare(rng);
    }
  }
  uint64_t offset(SeededRng& rng) {
    return rng.below(3) == 0 ? rng.below(kLengthMax) : rng.below(model_.size() + 1);
  }
  std::string text(SeededRng& rng) {
    return text_of(rng.next(), 1 + rng.below(rng.below(3) == 0 ? kChunk : 5000));
  }
  void write(SeededRng& rng) {
    const auto handle = any(rng, &Handle::writes);
    if (!handle) return;
    const uint64_t kind = rng.below(6);
    const uint32_t how = kind == 0 ? O_DIRECT : kind == 1 ? O_APPEND : 0;
    EXPECT_TRUE(
        io::ok(write_here(handle->number, offset(rng), text(rng), O_RDWR | how, kind == 2)));
  }
  void cut(SeededRng& rng) {
    const uint64_t length = offset(rng);
    const auto handle = any(rng, &Handle::writes);
    Operations::SetAttributes how{.length = length};
    if (handle && rng.below(2) == 0) how.handle = handle->number;
    meta::Caller caller;
    caller.uid = rng.below(2) == 0 ? 0 : 7;
    EXPECT_TRUE(io::ok(run(operations().setattr(std::move(caller), inode_, std::move(how)))));
    model_.resize(length);
  }
  void allocate(SeededRng& rng) {
    const auto handle = any(rng, &Handle::writes);
    if (!handle) return;
    constexpr int kModes[] = {0, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE};
    const int mode = kModes[rng.below(3)];
    const uint64_t begin = offset(rng), size = 1 + rng.below(kChunk);
    EXPECT_TRUE(io::ok(run(operations().allocate(handle->number, mode, begin, size))));
    if (mode != 0 && begin < model_.size()) {
      const size_t cleared = std::min<size_t>(size, model_.size() - begin);
      model_.replace(begin, cleared, std::string(cleared, '\0'));
    }
    if ((mode & FALLOC_FL_KEEP_SIZE) == 0) {
      model_.resize(std::max<size_t>(model_.size(), begin + size));
    }
  }
  void write_from_ring(SeededRng& rng) {
    if (!any(rng, &Handle::writes)) return;
    const uint64_t at = offset(rng);
    const std::string data = text(rng);
    EXPECT_TRUE(io::ok(run(operations().write_from_ring(0, inode_, at, as_bytes(data)))));
    model_.resize(std::max<size_t>(model_.size(), at + data.size()));
    model_.replace(at, data.size(), data);
  }
  void change_attributes(SeededRng& rng) {
    Operations::SetAttributes how;
    if (rng.below(2) == 0) how.to.mtime_ns = static_cast<int64_t>(rng.below(kSecond));
    if (!how.to.mtime_ns) how.to.mode = rng.below(2) == 0 ? 0666 : 04666;
    EXPECT_TRUE(io::ok(run(operations().setattr({}, inode_, std::move(how)))));
  }
  void sync(SeededRng& rng) {
    const auto handle = any(rng, &Handle::writes);
    if (!handle) return;
    if (rng.below(2) == 0) return flush_all();
    (void)run(operations().sync(handle->number));
  }
  void read(SeededRng& rng) {
    const auto handle = any(rng, &Handle::reads);
    if (!handle) return;
    const uint64_t at = offset(rng), size = 1 + rng.below(kChunk);
    const std::string wanted = at < model_.size() ? model_.substr(at, size) : "";
    EXPECT_TRUE(read_here(handle->number, at, size) == wanted) << "the owner reads other bytes";
  }
  // Another mount changes the file, and this one opens it after that.
  void change_elsewhere(SeededRng& rng) {
    flush_all();
    ASSERT_TRUE(io::ok(run(there_->operations.lookup({}, dir_, name_))));
    const uint32_t flags = rng.below(3) == 0 ? O_RDWR | O_TRUNC : O_RDWR;
    const auto opened = open(*there_, inode_, flags);
    ASSERT_TRUE(io::ok(opened));
    if ((flags & O_TRUNC) != 0) model_.clear();
    const uint64_t at = offset(rng);
    const std::string data = text(rng);
    EXPECT_TRUE(io::ok(TwoMounts::write(*there_, opened->handle, at, data)));
    model_.resize(std::max<size_t>(model_.size(), at + data.size()));
    model_.replace(at, data.size(), data);
    TwoMounts::close(*there_, opened->handle);
    open_here(rng.below(2) == 0 ? O_RDONLY : O_RDWR);
  }
  // The file is opened as one that may not exist; another one takes its place; storage cannot be
  // reached for a while; the process dies.
  void rare(SeededRng& rng) {
    const uint64_t kind = rng.below(4);
    if (kind == 0) {
      auto again = run(operations().create({}, dir_, name_, 0666, O_RDWR));
      ASSERT_TRUE(io::ok(again));
      ASSERT_EQ(again->inode.id, inode_);
      handles_.push_back({again->opened.handle, O_RDWR});
    } else if (kind == 1) {
      close_all();
      EXPECT_TRUE(io::ok(run(operations().unlink({}, dir_, name_))));
      make("f" + std::to_string(rng.next()));
    } else if (kind == 2) {
      const auto handle = any(rng, &Handle::buffers);
      if (!handle) return;
      flush_all();
      cut_storage(true);
      EXPECT_TRUE(io::ok(write_here(handle->number, offset(rng), text(rng), O_RDWR)));
      EXPECT_FALSE(run(operations().sync(handle->number)).ok());
      check(rng);
      cut_storage(false);
      for (const Handle& one : handles_) {
        EXPECT_TRUE(eventually([&] { return run(operations().sync(one.number)).ok(); }));
      }
    } else {
      kill();
    }
  }
  void check(SeededRng& rng) {
    const auto snapshot = serving().client.snapshots.find(inode_);
    if (snapshot == nullptr || snapshot->length == 0) return;
    const uint64_t at = rng.below(snapshot->length);
    const uint64_t size = 1 + rng.below(std::min(snapshot->length - at, 2 * kChunk));
    const std::string got = read_beside(at, size);
    if (got == "(owner)") return;
    read_++;
    ASSERT_LE(at + size, model_.size()) << "behind the end of the file";
    ASSERT_TRUE(got == model_.substr(at, size)) << "bytes that were replaced";
  }
  // Reads of programs that nobody waits for: one may end, and publish, at any moment.
  void begin_reads(SeededRng& rng) {
    for (uint64_t left = rng.below(3); left > 0; left--) {
      const auto handle = any(rng, &Handle::reads);
      if (!handle) return;
      serving().gate.spawn([](Operations& by, uint64_t from, uint64_t at) -> Task<void> {
        const ByteSpan none;
        (void)co_await by.read(from, at, 1000, none);
      }(operations(), handle->number, offset(rng)));
    }
  }

  void run_history(uint64_t seed) {
    SeededRng rng(seed);
    make("f");
    for (int step = 0; step < 300 && !HasFailure(); step++) {
      SCOPED_TRACE(testing::Message() << "step " << step);
      begin_reads(rng);
      change(rng);
      check(rng);
      while (handles_.size() > 4) close_here(rng.below(handles_.size()));
    }
    close_all();
    EXPECT_GT(read_, 50u);
  }

  size_t read_ = 0;  // by threads
};

TEST_F(SnapshotHistoryTest, ThreadsNeverReadWhatAnAcknowledgedChangeHasReplaced) {
  start(false);
  run_history(11);
}

TEST_F(SnapshotHistoryTest, NorInDelegatedDirectories) {
  start(true);
  run_history(12);
}

}  // namespace
}  // namespace ff::mount
