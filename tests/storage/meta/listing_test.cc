// What a page of a directory costs: with names and inodes on another machine, each read is a round
// trip, and there must be as few for a thousand names as for one.
#include <gtest/gtest.h>

#include "platform/kv/memory_engine.h"
#include "platform/kv/record_checksum.h"
#include "storage/meta/namespace_world.h"

namespace ff::meta {
namespace {

// Counts the reads that an engine on another machine would send.
class CountingEngine final : public kv::Engine {
 public:
  CountingEngine(std::unique_ptr<kv::Engine> inner, int& reads)
      : inner_(std::move(inner)), reads_(reads) {}

  Task<Result<void>> run(kv::TxnFunction function, int64_t deadline_ns) override {
    return inner_->run(std::move(function), deadline_ns);
  }
  Task<Result<void>> view(kv::TxnFunction function, int64_t deadline_ns) override {
    kv::TxnFunction counting = [this, function](kv::Txn& txn) -> Task<Result<void>> {
      CountingTxn counted(txn, reads_);
      co_return co_await function(counted);
    };
    return inner_->view(std::move(counting), deadline_ns);
  }

 private:
  class CountingTxn final : public kv::Txn {
   public:
    CountingTxn(kv::Txn& inner, int& reads) : Txn(kv::kNoLimit), inner_(inner), reads_(reads) {}

   private:
    Task<Result<std::optional<std::string>>> fetch(std::string key, bool) override {
      reads_++;
      FF_CO_TRY(auto value, co_await inner_.get(key));
      if (value) value = kv::with_checksum(key, *value);
      co_return value;
    }
    Task<Result<std::vector<std::optional<std::string>>>> fetch_all(
        std::vector<std::string> keys) override {
      reads_++;
      FF_CO_TRY(auto values, co_await inner_.get_all(keys));
      for (size_t i = 0; i < keys.size(); i++) {
        if (values[i]) values[i] = kv::with_checksum(keys[i], *values[i]);
      }
      co_return values;
    }
    Task<Result<std::vector<kv::Entry>>> fetch_range(kv::Range range, std::string guard) override {
      reads_++;
      FF_CO_TRY(auto entries, co_await inner_.range(std::move(range), std::move(guard)));
      for (kv::Entry& entry : entries) entry.value = kv::with_checksum(entry.key, entry.value);
      co_return entries;
    }

    kv::Txn& inner_;
    int& reads_;
  };

  std::unique_ptr<kv::Engine> inner_;
  int& reads_;
};

class CountingStore final : public kv::TestedStore {
 public:
  explicit CountingStore(int& reads) : reads_(reads) {}
  std::unique_ptr<kv::Engine> engine(Loop& loop) override {
    return std::make_unique<CountingEngine>(inner_.engine(loop), reads_);
  }
  bool threads() const override { return false; }

 private:
  kv::MemoryTested inner_{kv::MemoryFaults{}};
  int& reads_;
};

TEST(ListingTest, APageTakesAsFewReadsAsOneName) {
  int reads = 0;
  NamespaceWorld world({"counting", [&] { return std::make_unique<CountingStore>(reads); }});
  const auto reads_of_a_page = [&](const std::string& name, int files, int dirs) {
    const auto made = world.dir(kRootUser, kRoot, name);
    for (int i = 0; i < files; i++) {
      EXPECT_TRUE(world.file(kRootUser, made->id, fmt::format("f{}", i)).ok());
    }
    for (int i = 0; i < dirs; i++) {
      EXPECT_TRUE(world.dir(kRootUser, made->id, fmt::format("d{}", i)).ok());
    }
    reads = 0;
    const auto page = world.run(world.names().list(kRootUser, made->id, "", 1000, true));
    EXPECT_TRUE(page.ok() && page->end);
    EXPECT_EQ(page->entries.size(), static_cast<size_t>(files + dirs));
    for (const auto& entry : page->entries) {
      EXPECT_TRUE(entry.inode && entry.inode->id == entry.id && entry.inode->mtime_ns > 0);
    }
    return reads;
  };
  const int few = reads_of_a_page("few", 1, 1);
  EXPECT_EQ(reads_of_a_page("many", 300, 100), few);
  EXPECT_LE(few, 3);  // the directory, the names, the inodes
}

}  // namespace
}  // namespace ff::meta
