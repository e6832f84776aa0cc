// A store on another machine whose round trips are counted: for tests that a call takes no more of
// them than it must.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/kv/engine.h"
#include "platform/kv/record_checksum.h"
#include "platform/kv/tested_engines.h"

namespace ff::meta {

// Counts the reads that an engine on another machine would send.
class CountingEngine final : public kv::Engine {
 public:
  CountingEngine(std::unique_ptr<kv::Engine> inner, int& reads)
      : inner_(std::move(inner)), reads_(reads) {}

  Task<Result<void>> run(kv::TxnFunction function, int64_t deadline_ns) override {
    kv::TxnFunction counting = [this, function](kv::Txn& txn) -> Task<Result<void>> {
      CountingTxn counted(txn, kv::kReadsMax, reads_);
      FF_CO_TRY(co_await function(counted));
      for (const auto& [key, value] : counted.writes()) {
        value ? txn.put(key, *value) : txn.erase(key);
      }
      co_return Result<void>();
    };
    return inner_->run(std::move(counting), deadline_ns);
  }
  Task<Result<void>> view(kv::TxnFunction function, int64_t deadline_ns) override {
    kv::TxnFunction counting = [this, function](kv::Txn& txn) -> Task<Result<void>> {
      CountingTxn counted(txn, kv::kNoLimit, reads_);
      co_return co_await function(counted);
    };
    return inner_->view(std::move(counting), deadline_ns);
  }

 private:
  class CountingTxn final : public kv::Txn {
   public:
    CountingTxn(kv::Txn& inner, size_t reads_max, int& reads)
        : Txn(reads_max), inner_(inner), reads_(reads) {}

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
    Task<Result<std::vector<std::vector<kv::Entry>>>> fetch_ranges(
        std::vector<kv::GuardedRange> ranges) override {
      const int reads = reads_ + 1;
      std::vector<std::vector<kv::Entry>> found;
      for (kv::GuardedRange& one : ranges) {
        FF_CO_TRY(auto entries, co_await fetch_range(std::move(one.range), std::move(one.guard)));
        found.push_back(std::move(entries));
      }
      reads_ = reads;
      co_return found;
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

}  // namespace ff::meta
