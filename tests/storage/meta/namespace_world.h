// The namespace over a store of any kind, called sequentially.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/kv/tested_engines.h"
#include "storage/meta/namespace.h"

namespace ff::meta {

// A clock set by the test.
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

class NamespaceWorld {
 public:
  explicit NamespaceWorld(const kv::EngineKind& kind)
      : store_(kind.make()),
        engine_(store_->engine(loop_)),
        ids_(*engine_, loop_),
        tables_(std::make_shared<TableVersions>(TableVersions{{1, 3}, {2, 1}})),
        namespace_(*engine_, clock_,
                   {.ids = ids_, .rng = rng_, .tables = [this] { return tables_; }}) {
    EXPECT_TRUE(run(namespace_.create_root()).ok());
  }

  template <class T>
  T run(Task<T> task) {
    return run_task(loop_, std::move(task));
  }
  Namespace& names() { return namespace_; }
  kv::Engine& engine() { return *engine_; }
  Loop& loop() { return loop_; }
  TestClock& clock() { return clock_; }
  RequestId request() { return {.client = 7, .slot = 0, .sequence = ++sequence_}; }

  Result<Inode> create(const Caller& who, InodeId dir, std::string name,
                       Namespace::CreateOptions create) {
    return run(namespace_.create(who, request(), dir, std::move(name), std::move(create)));
  }
  Result<Inode> file(const Caller& who, InodeId dir, std::string name, uint32_t mode = 0644) {
    return create(who, dir, std::move(name), {.mode = mode});
  }
  Result<Inode> dir(const Caller& who, InodeId dir, std::string name, uint32_t mode = 0755) {
    return create(who, dir, std::move(name), {.kind = InodeType::directory, .mode = mode});
  }
  Result<Inode> unlink(const Caller& who, InodeId dir, std::string name) {
    return run(namespace_.unlink(who, request(), dir, std::move(name), std::nullopt));
  }
  Result<Inode> rmdir(const Caller& who, InodeId dir, std::string name) {
    return run(namespace_.rmdir(who, request(), dir, std::move(name)));
  }
  Result<Inode> link(const Caller& who, InodeId id, InodeId dir, std::string name) {
    return run(namespace_.link(who, request(), id, dir, std::move(name)));
  }
  Result<Inode> rename(const Caller& who, Namespace::Rename rename) {
    return run(namespace_.rename(who, request(), std::move(rename)));
  }
  Result<Inode> change(const Caller& who, InodeId id, Namespace::Attributes to) {
    return run(namespace_.set_attributes(who, request(), id, to));
  }
  Result<Inode> stat(InodeId id) { return run(namespace_.stat(id)); }
  Result<Namespace::WalkResult> walk(const Caller& who, std::string path, bool follow = true) {
    return run(namespace_.walk(who, kRoot, std::move(path), follow));
  }

 private:
  TestClock clock_;
  SystemLoop loop_{clock_};
  SeededRng rng_{5};
  std::unique_ptr<kv::TestedStore> store_;
  std::unique_ptr<kv::Engine> engine_;
  InodeIdAllocator ids_;
  std::shared_ptr<TableVersions> tables_;
  Namespace namespace_;
  uint64_t sequence_ = 0;
};

// The errno of an error; 0: success.
template <class T>
int sys_of(const Result<T>& result) {
  return result ? 0 : result.error().sys;
}

}  // namespace ff::meta
