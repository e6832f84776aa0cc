// The Disk contract on the simulated disk, with a few seeds.
#include "io/disk_conformance.h"
#include "sim/sim_clock.h"
#include "sim/sim_disk.h"

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

io::DiskMaker maker(uint64_t seed) {
  return {"seed" + std::to_string(seed), [seed] { return std::make_unique<TestedSimDisk>(seed); }};
}

}  // namespace
}  // namespace ff::sim

namespace ff::io {

INSTANTIATE_TEST_SUITE_P(Sim, DiskConformance,
                         testing::Values(sim::maker(1), sim::maker(2), sim::maker(3)), maker_name);

}  // namespace ff::io
