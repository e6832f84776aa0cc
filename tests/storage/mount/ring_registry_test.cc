// How a successor continues the memory and the rings of programs that its predecessor has served,
// from the descriptors that the keeper of the mount has.
#include "storage/mount/ring_registry.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <utility>

#include "storage/client/file_system_world.h"
#include "storage/usrbio/shm.h"

namespace ff::mount {
namespace {

constexpr uint32_t kRegistryEntries = 16;
constexpr uint64_t kRegistryData = 1 * kMiB;
constexpr uint64_t kDir = 5;

struct MemoryStore final : DescriptorStore {
  Result<void> store(const std::string& name, int fd) override {
    stored[name] = Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    return {};
  }
  void release(const std::string& name) override { stored.erase(name); }
  std::map<std::string, Fd> take_stored(std::string_view prefix) override {
    std::map<std::string, Fd> taken;
    for (const auto& [name, fd] : stored) {
      if (name.starts_with(prefix)) taken[name] = Fd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    }
    return taken;
  }
  size_t count(std::string_view prefix) { return take_stored(prefix).size(); }
  // If the process were killed now: the journal as it is.
  std::unique_ptr<MemoryStore> of_the_dead() {
    auto copy = std::make_unique<MemoryStore>();
    copy->stored = take_stored("");
    std::string bytes(kMiB, '\0');
    Fd& journal = copy->stored["usrbio-journal"];
    const ssize_t size = ::pread(journal.get(), bytes.data(), bytes.size(), 0);
    journal = Fd(::memfd_create("journal", MFD_CLOEXEC));
    EXPECT_EQ(::pwrite(journal.get(), bytes.data(), static_cast<size_t>(size), 0), size);
    return copy;
  }
  std::map<std::string, Fd> stored;
};

struct NoKernel final : KernelCache {
  void invalidate_attributes(meta::InodeId) override {}
  Task<void> invalidate_pages(meta::InodeId, uint64_t, uint64_t) override { co_return; }
  void invalidate_pages_async(meta::InodeId, uint64_t, uint64_t) override {}
};

// A program with memory and a ring for reads, both without names, and one open file.
class RingRegistryTest : public client::FileSystemWorld {
 protected:
  void SetUp() override {
    FileSystemWorld::SetUp();
    auto root = run(metadata().stat(meta::root(), false));
    ASSERT_TRUE(io::ok(root));
    operations_ = std::make_unique<Operations>(files_, pool_, kernel_, *root);
    auto created = run(operations_->create({}, meta::kRoot, "file", 0644, O_RDWR | O_DIRECT));
    ASSERT_TRUE(io::ok(created));
    inode_ = created->inode.id;
    Operations::Write all{.offset = 0, .from = as_bytes(text_), .flags = O_RDWR | O_DIRECT};
    ASSERT_TRUE(io::ok(run(operations_->write(created->opened.handle, std::move(all)))));
    ASSERT_EQ(usrbio::create_shm(kRegistryData, -1, data_), 0);
    ASSERT_EQ(usrbio::create_shm(usrbio::ring_bytes(kRegistryEntries), -1, shm_), 0);
    ring_ = usrbio::Ring(shm_.base, kRegistryEntries);
    ring_.head().magic = usrbio::kRingMagic;
    ring_.head().version = usrbio::kRingVersion;
    ring_.head().entries = kRegistryEntries;
    start(std::make_unique<MemoryStore>());
    rings_->dir_opened(kDir, static_cast<uint32_t>(::getpid()), 0);
    ASSERT_TRUE(io::ok(rings_->add(data_name_, data_.path, owner_)));
    ASSERT_TRUE(io::ok(rings_->add(ring_name_, shm_.path, owner_)));
    ::unlink(data_.path.c_str());
    ::unlink(shm_.path.c_str());
  }
  void TearDown() override {
    run(rings_->close());
    usrbio::unmap(data_);
    usrbio::unmap(shm_);
  }
  void start(std::unique_ptr<MemoryStore> store) {
    rings_.reset();
    store_ = std::move(store);
    const auto adopt = [this](const ClientMemoryFile& file) -> Result<ClientMemory> {
      FF_TRY(auto memory, map_client_memory(file));
      memory.used_before = [this] { return used_before_; };
      return memory;
    };
    rings_ = std::make_unique<RingRegistry>(stage_.world.loop(), *operations_, pool_, adopt,
                                            store_.get());
    const auto started = rings_->start();
    EXPECT_EQ(started.error().code, Errc::unsupported);  // a simulated loop watches no socket
  }
  void kill_and_continue() {
    start(store_->of_the_dead());
    rings_->restore();
  }
  void submit(uint64_t offset, uint32_t slot) {
    usrbio::SubmissionEntry& request = ring_.submission(submitted_++);
    request = {};
    std::memcpy(request.memory, id_.data(), id_.size());
    request.file = inode_;
    request.at = slot * 4096;
    request.offset = offset;
    request.length = 4096;
    request.slot = slot;
    ring_.head().submitted.store(submitted_);
  }
  void expect_read(uint64_t offset, uint32_t slot) {
    ASSERT_TRUE(eventually([&] { return ring_.head().completed.load() == submitted_; }));
    EXPECT_EQ(ring_.completion(submitted_ - 1).slot, slot);
    EXPECT_EQ(ring_.completion(submitted_ - 1).result, 4096);
    const std::string_view bytes(static_cast<const char*>(data_.base) + slot * 4096, 4096);
    EXPECT_TRUE(bytes == text_.substr(offset, 4096));
  }

  const std::string text_ = client::text_of(7, 1'000'000);
  const usrbio::IovId id_ = usrbio::random_id();
  const std::string data_name_ = usrbio::text_of({.id = id_});
  const std::string ring_name_ =
      usrbio::text_of({.id = usrbio::random_id(), .ring = true, .read = true});
  const RingRegistry::Owner owner_{.uid = ::getuid(), .process = static_cast<uint32_t>(::getpid())};
  chain::BufferPool pool_;
  NoKernel kernel_;
  std::unique_ptr<Operations> operations_;
  meta::InodeId inode_ = 0;
  usrbio::Shm data_, shm_;
  usrbio::Ring ring_;
  uint32_t submitted_ = 0;
  bool used_before_ = false;
  std::unique_ptr<MemoryStore> store_;
  std::unique_ptr<RingRegistry> rings_;
};

TEST_F(RingRegistryTest, ASuccessorServesRingsWithoutNames) {
  submit(5000, 1);
  rings_->on_batch_done();
  expect_read(5000, 1);
  const auto before = *rings_->find(data_name_, owner_.uid);
  const std::string wake = rings_->wake_path();
  const uint64_t wake_number = rings_->wake_number();
  for (uint32_t times = 0; times < 3; times++) {
    submit(times * 10'000, times);
    kill_and_continue();
    expect_read(times * 10'000, times);
  }
  EXPECT_EQ(rings_->wake_path(), wake);
  EXPECT_EQ(rings_->wake_number(), wake_number);
  const auto* const link = rings_->find(data_name_, owner_.uid);
  ASSERT_NE(link, nullptr);
  EXPECT_EQ(link->number, before.number);
  EXPECT_EQ(link->target, data_.path);
  EXPECT_EQ(link->owner.process, owner_.process);
  EXPECT_EQ(rings_->find(data_name_, owner_.uid + 1), nullptr);
  EXPECT_EQ(rings_->find(id_, owner_.uid + 1), nullptr);
  EXPECT_EQ(rings_->links(0).size(), 2u);
}

TEST_F(RingRegistryTest, WhatEndsIsReleased) {
  kill_and_continue();
  EXPECT_EQ(store_->count("usrbio-link"), 2u);
  ASSERT_TRUE(io::ok(rings_->remove(data_name_, owner_.uid)));
  EXPECT_EQ(store_->count("usrbio-link"), 1u);
  // The program ended while nobody served the mount.
  kill_and_continue();
  EXPECT_EQ(rings_->links(0).size(), 1u);
  rings_->dir_closed(kDir);
  EXPECT_EQ(rings_->links(0).size(), 0u);
  EXPECT_EQ(store_->count("usrbio-link"), 0u);
  EXPECT_EQ(store_->count(""), 2u);  // the journal and the wake socket
}

TEST_F(RingRegistryTest, ARingThatTheProgramHasForgedEndsAndItsMemoryStays) {
  ring_.head().completed.store(12345);
  kill_and_continue();
  EXPECT_EQ(rings_->find(ring_name_, owner_.uid), nullptr);
  EXPECT_NE(rings_->find(id_, owner_.uid), nullptr);
  EXPECT_EQ(store_->count("usrbio-link"), 1u);
}

TEST_F(RingRegistryTest, FilesThatTheProgramHasTruncatedEnd) {
  for (const auto& [name, fd] : store_->stored) {
    if (name.starts_with("usrbio-link")) {
      ASSERT_EQ(::ftruncate(fd.get(), 0), 0);
    }
  }
  kill_and_continue();
  EXPECT_EQ(rings_->links(0).size(), 0u);
  EXPECT_EQ(store_->count("usrbio-link"), 0u);
}

TEST_F(RingRegistryTest, ARingThatTheProgramShortensOrEnlargesDoesNoHarm) {
  submit(5000, 1);
  const std::string ring = std::to_string(rings_->find(ring_name_, 0)->number);
  for (const auto& [name, fd] : store_->stored) {
    if (!name.starts_with("usrbio-link " + ring)) continue;
    ASSERT_EQ(::ftruncate(fd.get(), 64 * kKiB), 0);
  }
  ring_.head().entries = 1 << 16;
  ring_.head().magic = 0;
  kill_and_continue();
  expect_read(5000, 1);
  for (const auto& [name, fd] : store_->stored) {
    if (!name.starts_with("usrbio-link " + ring)) continue;
    ASSERT_EQ(::ftruncate(fd.get(), 512), 0);
  }
  kill_and_continue();
  EXPECT_EQ(rings_->find(ring_name_, owner_.uid), nullptr);
}

TEST_F(RingRegistryTest, WithoutTheJournalRingsEndAndMemoryStays) {
  auto left = store_->of_the_dead();
  left->stored.erase("usrbio-journal");
  start(std::move(left));
  rings_->restore();
  EXPECT_EQ(rings_->find(ring_name_, owner_.uid), nullptr);
  EXPECT_NE(rings_->find(data_name_, owner_.uid), nullptr);
  EXPECT_EQ(store_->count("usrbio-journal"), 1u);
}

TEST_F(RingRegistryTest, AJournalThatIsFullOfRequestsIsWorkedOff) {
  const uint64_t ring = rings_->find(ring_name_, 0)->number;
  const auto left = store_->of_the_dead();
  auto journal =
      std::move(RingJournal::open(Fd(::dup(left->stored["usrbio-journal"].get())))).value();
  auto progress = journal->take_left(ring);
  ASSERT_TRUE(progress);
  while (journal->room() > 0) (void)progress->take({});
  ring_.head().submitted.store(RingJournal::kRequestsMax);
  start(left->of_the_dead());
  rings_->restore();
  EXPECT_TRUE(
      eventually([&] { return ring_.head().completed.load() == RingJournal::kRequestsMax; }));
  EXPECT_EQ(rings_->journal().room(), RingJournal::kRequestsMax);
}

// Else a program might get its completion before the last write to its memory.
TEST_F(RingRegistryTest, InterruptedRequestsWaitForReadsThatBeganForThePredecessor) {
  for (const bool end : {true, false}) {
    const uint32_t before = submitted_;
    submit(5000, 1);
    const auto left = store_->of_the_dead();
    auto journal =
        std::move(RingJournal::open(Fd(::dup(left->stored["usrbio-journal"].get())))).value();
    auto progress = journal->take_left(rings_->find(ring_name_, 0)->number);
    ASSERT_TRUE(progress);
    (void)progress->take(ring_.submission(before));
    used_before_ = true;
    start(left->of_the_dead());
    rings_->restore();
    pass(RingRegistry::kFormerReadsNs / 2);
    EXPECT_EQ(ring_.head().completed.load(), before);
    used_before_ = !end;
    expect_read(5000, 1);
  }
}

// The record of the first ring begins here, those of requests begin behind all such records.
constexpr uint64_t kRingRecord = 64;
constexpr uint64_t kRequestRecords = kRingRecord + 32 * RingJournal::kRingsMax;

TEST_F(RingRegistryTest, ARingWithAnImpossibleNumberOfEntriesEnds) {
  const auto good = store_->of_the_dead();
  for (const uint32_t entries : {uint32_t{0}, uint32_t{1} << 20, UINT32_MAX}) {
    auto damaged = good->of_the_dead();
    const int journal = damaged->stored["usrbio-journal"].get();
    ASSERT_EQ(::pwrite(journal, &entries, sizeof entries, kRingRecord + 8), 4);
    start(std::move(damaged));
    rings_->restore();
    EXPECT_EQ(rings_->find(ring_name_, owner_.uid), nullptr) << entries;
    EXPECT_NE(rings_->find(data_name_, owner_.uid), nullptr);
  }
}

TEST_F(RingRegistryTest, ADamagedJournalDoesNoHarm) {
  submit(5000, 1);
  const auto good = store_->of_the_dead();
  const std::string ring(static_cast<const char*>(shm_.base), shm_.size);
  const uint64_t seed = system_seed();
  std::cout << "seed " << seed << "\n";
  SeededRng rng(seed);
  for (int times = 0; times < 100; times++) {
    auto damaged = good->of_the_dead();
    const int journal = damaged->stored["usrbio-journal"].get();
    for (int i = 0; i < 4; i++) {
      const uint64_t bytes = rng.below(4) == 0 ? 0 : rng.next();
      const uint64_t at = rng.below(2) == 0 ? kRingRecord + 8 + rng.below(20)
                                            : kRequestRecords + rng.below(10 * 88);
      ASSERT_EQ(::pwrite(journal, &bytes, 4, static_cast<off_t>(at)), 4);
    }
    std::memcpy(shm_.base, ring.data(), ring.size());
    start(std::move(damaged));
    rings_->restore();
    pass(100 * kMillisecond);
    EXPECT_NE(rings_->find(data_name_, owner_.uid), nullptr);
    run(rings_->close());
  }
}

TEST_F(RingRegistryTest, WithoutAStartThereAreNoLinks) {
  rings_ = std::make_unique<RingRegistry>(
      stage_.world.loop(), *operations_, pool_,
      [](const ClientMemoryFile& file) { return map_client_memory(file); }, nullptr);
  EXPECT_EQ(rings_->add(ring_name_, shm_.path, owner_).error().sys, EOPNOTSUPP);
}

TEST_F(RingRegistryTest, ContinuesManyLinks) {
  std::vector<usrbio::Shm> more(150);
  for (usrbio::Shm& one : more) {
    ASSERT_EQ(usrbio::create_shm(4096, -1, one), 0);
    const std::string name = usrbio::text_of({.id = usrbio::random_id()});
    ASSERT_TRUE(io::ok(rings_->add(name, one.path, owner_)));
    ::unlink(one.path.c_str());
  }
  kill_and_continue();
  EXPECT_EQ(rings_->links(0).size(), more.size() + 2);
  for (usrbio::Shm& one : more) usrbio::unmap(one);
}

}  // namespace
}  // namespace ff::mount
