// The Disk contract on the simulated disk, with a few seeds; the queues also on a simulated loop.
#include "platform/io/async_conformance.h"
#include "platform/io/disk_conformance.h"
#include "platform/sim/sim_clock.h"
#include "platform/sim/sim_disk.h"
#include "platform/sim/sim_world.h"

namespace ff::sim {
namespace {

class TestedSimDisk : public io::TestedDisk {
 public:
  explicit TestedSimDisk(uint64_t seed) : disk_(seed, clock_) {
    FF_CHECK(disk_.make_dir("/work", 0777).ok());
  }
  io::Disk& disk() override { return disk_; }
  std::string dir() override { return "/work"; }
  std::unique_ptr<io::IoQueue> make_queue(io::QueueOptions options) override {
    return disk_.make_queue(options);
  }
  bool has_cache() override { return true; }

 private:
  SimClock clock_;
  SimDisk disk_;
};

class LoopedSimDisk : public io::TestedDisk {
 public:
  explicit LoopedSimDisk(uint64_t seed) : disk_(seed, world_.clock()) {
    FF_CHECK(disk_.make_dir("/work", 0777).ok());
  }
  io::Disk& disk() override { return disk_; }
  std::string dir() override { return "/work"; }
  std::unique_ptr<io::IoQueue> make_queue(io::QueueOptions options) override {
    return disk_.make_queue(options);
  }
  Loop* loop() override { return &world_.loop(); }
  bool has_cache() override { return true; }

 private:
  SimWorld world_;
  SimDisk disk_;
};

io::DiskMaker looped(uint64_t seed) {
  return {"loop" + std::to_string(seed), [seed] { return std::make_unique<LoopedSimDisk>(seed); }};
}

io::DiskMaker maker(uint64_t seed) {
  return {"seed" + std::to_string(seed), [seed] { return std::make_unique<TestedSimDisk>(seed); }};
}

}  // namespace
}  // namespace ff::sim

namespace ff::io {

INSTANTIATE_TEST_SUITE_P(Sim, DiskConformance,
                         testing::Values(sim::maker(1), sim::maker(2), sim::maker(3),
                                         sim::looped(4), sim::looped(5)),
                         maker_name);
INSTANTIATE_TEST_SUITE_P(Sim, AsyncConformance,
                         testing::Values(sim::looped(1), sim::looped(2), sim::looped(3)),
                         maker_name);

}  // namespace ff::io
