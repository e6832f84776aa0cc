// A checkpoint store on the simulated disk, for tests of power losses, kills, long times, and
// actions at any point of another action. One thread, deterministic by seed.
#pragma once

// Options are given by name here, the rest have their defaults.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "platform/io/files.h"
#include "platform/io/test_bytes.h"
#include "platform/sim/sim_beneath.h"
#include "platform/sim/sim_clock.h"
#include "platform/sim/sim_disk.h"
#include "training/checkpoint/fixture.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/load/verify.h"
#include "training/checkpoint/retention/forget.h"
#include "training/checkpoint/retention/prune.h"
#include "training/checkpoint/save/save.h"

namespace ff::checkpoint {

inline const std::string kStore = "/store";
constexpr int64_t kHour = 3600 * kSecond;

// The disk of one program; calls `hook` with a counter before each operation on names. Operations
// of the hook itself use the disk below and are not counted.
class HookDisk final : public io::Disk {
 public:
  explicit HookDisk(io::Disk& below) : below_(below) {}
  std::function<void(uint64_t)> hook;

  Result<std::unique_ptr<io::File>> open(const std::string& path, io::OpenOptions how) override {
    return step().open(path, how);
  }
  std::unique_ptr<io::IoQueue> make_queue(io::QueueOptions options) override {
    return below_.make_queue(options);
  }
  Result<io::FileInfo> info(const std::string& path) override { return step().info(path); }
  // Not before looking into an empty directory: 256 folders of chunks would be 256 equal points.
  Result<std::vector<io::DirEntry>> list(const std::string& dir) override {
    const auto entries = below_.list(dir);
    if (entries && entries->empty()) return entries;
    return step().list(dir);
  }
  Result<void> make_dir(const std::string& path, uint32_t mode) override {
    return step().make_dir(path, mode);
  }
  Result<void> remove(const std::string& path) override { return step().remove(path); }
  Result<void> remove_dir(const std::string& path) override { return step().remove_dir(path); }
  Result<void> rename(const std::string& from, const std::string& to) override {
    return step().rename(from, to);
  }
  Result<void> link(const std::string& from, const std::string& to) override {
    return step().link(from, to);
  }
  Result<void> make_symlink(const std::string& target, const std::string& path) override {
    return step().make_symlink(target, path);
  }
  Result<std::string> read_symlink(const std::string& path) override {
    return step().read_symlink(path);
  }
  Result<void> set_mode(const std::string& path, uint32_t mode) override {
    return step().set_mode(path, mode);
  }
  Result<void> set_mtime(const std::string& path, int64_t mtime_ns) override {
    return step().set_mtime(path, mtime_ns);
  }
  Result<void> sync_dir(const std::string& dir) override { return step().sync_dir(dir); }
  Result<io::Space> space(const std::string& path) override { return step().space(path); }
  Result<std::unique_ptr<io::Disk>> beneath(const std::string& dir) override {
    return sim::SimBeneath::open(*this, dir);
  }

 private:
  io::Disk& step() {
    if (hook) hook(steps_++);
    return below_;
  }
  io::Disk& below_;
  uint64_t steps_ = 0;
};

// Files of one checkpoint by name. Each file of a few KiB is one chunk.
using Content = std::map<std::string, std::string>;

class SimStore {
 public:
  explicit SimStore(uint64_t seed) : disk(seed, clock), rng_(seed) {
    FF_CHECK(io::make_dirs(disk, "/in").ok());
  }

  Context context(io::Disk& on) {
    return {
        .disk = on, .clock = clock, .rng = rng_, .stop = stop_, .progress = progress, .threads = 1};
  }

  Result<SaveReport> save(const Content& content, uint64_t step, SaveOptions options = {}) {
    return save_on(disk, content, step, std::move(options));
  }
  Result<SaveReport> save_on(io::Disk& on, const Content& content, uint64_t step,
                             SaveOptions options = {}) {
    SaveInputs inputs;
    for (const auto& [name, bytes] : content) {
      inputs.paths.push_back("/in/" + name);
      if (io::get(disk, inputs.paths.back()) == bytes) continue;
      FF_TRY(io::put(disk, inputs.paths.back(), bytes));
    }
    options.step = step;
    auto ctx = context(on);
    return ff::checkpoint::save(ctx, kStore, inputs, options);
  }
  Result<VerifyReport> verify_all() { return verify({.names = {}, .all = true}); }
  Result<VerifyReport> verify(const VerifyOptions& options) {
    auto ctx = context(disk);
    return ff::checkpoint::verify(ctx, kStore, options);
  }
  Result<ForgetReport> forget(const ForgetOptions& options) { return forget_on(disk, options); }
  Result<ForgetReport> forget_on(io::Disk& on, const ForgetOptions& options) {
    auto ctx = context(on);
    return ff::checkpoint::forget(ctx, kStore, options);
  }
  Result<PruneReport> prune(const PruneOptions& options) { return prune_on(disk, options); }
  Result<PruneReport> prune_on(io::Disk& on, const PruneOptions& options) {
    auto ctx = context(on);
    return ff::checkpoint::prune(ctx, kStore, options);
  }

  Store open() { return Store::open(disk, kStore).value(); }
  std::vector<uint64_t> steps(const std::string& run = "default") {
    return committed_steps(disk, open(), run).value();
  }
  bool verified(uint64_t step) {
    return step_info(disk, open(), {"default", step}).value().verified.has_value();
  }
  size_t entries(const std::string& dir) { return disk.list(kStore + "/" + dir)->size(); }
  size_t chunks() {
    size_t count = 0;
    const auto dirs = disk.list(kStore + "/chunks").value();
    for (const auto& dir : dirs) count += entries("chunks/" + dir.name);
    return count;
  }
  // The chunk files of a checkpoint, in the order of its index.
  std::vector<simd::Digest> chunks_of(uint64_t step) {
    std::vector<simd::Digest> out;
    auto reader = IndexReader::open(disk, open().index_path({"default", step})).value();
    for (auto record = reader.next().value(); record; record = reader.next().value()) {
      if (const auto* file = std::get_if<FileRecord>(&*record)) {
        for (const auto& extent : file->extents) out.push_back(extent.chunk.value());
      }
    }
    return out;
  }

  // The invariants in any case: every checkpoint verifies, and every mark is right.
  testing::AssertionResult sound() {
    const auto report = verify_all();
    if (!report) return testing::AssertionFailure() << report.error().message;
    for (const auto& damage : report->damage) {
      return testing::AssertionFailure()
             << damage.where << ": " << damage.reason << "; " << damage.holds;
    }
    return testing::AssertionSuccess();
  }

  sim::SimClock clock;
  sim::SimDisk disk;
  Progress progress;

 private:
  SeededRng rng_;
  StopToken stop_{clock};
};

}  // namespace ff::checkpoint
