// The operations on names over a store of any kind, called one after the other.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/kv/tested_engines.h"
#include "storage/meta/names.h"

namespace ff::meta {

// A clock that a test sets.
class TestClock final : public Clock {
 public:
  int64_t wall_ns() override { return wall_; }
  int64_t steady_ns() override { return system_.steady_ns() + skipped_; }
  void sleep_ns(int64_t ns) override { system_.sleep_ns(ns); }
  void pass(int64_t ns) { wall_ += ns; }
  void skip(int64_t ns) { skipped_ += ns; }  // of the steady time

 private:
  int64_t skipped_ = 0;
  SystemClock system_;
  int64_t wall_ = 1'000'000 * kSecond;
};

inline const Caller kRootUser = {};
inline const Caller kAlice = {.uid = 1000, .gid = 1000, .groups = {50}};
inline const Caller kBob = {.uid = 1001, .gid = 1001, .groups = {50}};

class NamesWorld {
 public:
  explicit NamesWorld(const kv::EngineKind& kind)
      : store_(kind.make()),
        engine_(store_->engine(loop_)),
        ids_(*engine_, loop_),
        tables_(std::make_shared<Tables>(Tables{{1, 3}, {2, 1}})),
        names_(*engine_, clock_, {.ids = ids_, .rng = rng_, .tables = [this] { return tables_; }}) {
    EXPECT_TRUE(run(names_.make_root()).ok());
  }

  template <class T>
  T run(Task<T> task) {
    return run_task(loop_, std::move(task));
  }
  Names& names() { return names_; }
  kv::Engine& engine() { return *engine_; }
  Loop& loop() { return loop_; }
  TestClock& clock() { return clock_; }
  Request request() { return {.client = 7, .slot = 0, .sequence = ++sequence_}; }

  Result<Inode> make(const Caller& who, InodeId dir, std::string name, Names::Make make) {
    return run(names_.make(who, request(), dir, std::move(name), std::move(make)));
  }
  Result<Inode> file(const Caller& who, InodeId dir, std::string name, uint32_t mode = 0644) {
    return make(who, dir, std::move(name), {.mode = mode});
  }
  Result<Inode> dir(const Caller& who, InodeId dir, std::string name, uint32_t mode = 0755) {
    return make(who, dir, std::move(name), {.kind = Kind::directory, .mode = mode});
  }
  Result<Inode> unlink(const Caller& who, InodeId dir, std::string name) {
    return run(names_.unlink(who, request(), dir, std::move(name), std::nullopt));
  }
  Result<Inode> rmdir(const Caller& who, InodeId dir, std::string name) {
    return run(names_.rmdir(who, request(), dir, std::move(name)));
  }
  Result<Inode> link(const Caller& who, InodeId id, InodeId dir, std::string name) {
    return run(names_.link(who, request(), id, dir, std::move(name)));
  }
  Result<Inode> rename(const Caller& who, Names::Rename rename) {
    return run(names_.rename(who, request(), std::move(rename)));
  }
  Result<Inode> change(const Caller& who, InodeId id, Names::Attributes to) {
    return run(names_.set_attributes(who, request(), id, to));
  }
  Result<Inode> stat(InodeId id) { return run(names_.stat(id)); }
  Result<Names::Walked> walk(const Caller& who, std::string path, bool follow = true) {
    return run(names_.walk(who, kRoot, std::move(path), follow));
  }

 private:
  TestClock clock_;
  SystemLoop loop_{clock_};
  SeededRng rng_{5};
  std::unique_ptr<kv::TestedStore> store_;
  std::unique_ptr<kv::Engine> engine_;
  InodeIds ids_;
  std::shared_ptr<Tables> tables_;
  Names names_;
  uint64_t sequence_ = 0;
};

// 0: it went well.
template <class T>
int sys_of(const Result<T>& result) {
  return result ? 0 : result.error().sys;
}

}  // namespace ff::meta
