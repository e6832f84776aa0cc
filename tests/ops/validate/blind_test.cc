// No check may pass what it could not look at. Each is run on machines from which its input was
// taken away: all of it, and each file and folder that it reads, one at a time, gone, garbled and
// refused. Loads read no files to speak of; what they could not run is in run_test.cc, and the
// program that asks GPUs in gpu_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/validate/machine.h"
#include "ops/validate/pci.h"
#include "platform/base/point_step.h"
#include "platform/io/files.h"
#include "platform/io/test_bytes.h"

namespace ff::validate {
namespace {

std::vector<const Check*> readers() {
  std::vector<const Check*> found;
  for (const Check& check : all_checks()) {
    if (check.cost == CheckCost::reads) found.push_back(&check);
  }
  return found;
}

size_t passes(const std::vector<Finding>& findings) {
  return static_cast<size_t>(std::ranges::count(findings, Verdict::pass, &Finding::verdict));
}

// Whether the missing input shows: some finding is bad, or fewer pass.
bool shows(size_t passed, const std::vector<Finding>& now) {
  const bool told = std::ranges::any_of(
      now, [](const Finding& one) { return one.verdict > Verdict::pass && !one.hint.empty(); });
  return told || passes(now) < passed;
}

// Input that may be missing silently, by check: names of files and folders, or path suffixes. All
// other input must be missed.
struct Harmless {
  const char* check;
  std::vector<std::string_view> names;
  const char* why;
};
const std::vector<Harmless> kHarmless = {
    {"pci.*", {"vendor", "device", "numa_node"}, "names of a device"},
    {"pci.link", {"aer_dev_*"}, "another check's"},
    {"pci.aer", {"class", "*_link_speed", "*_link_width"}, "another check's"},
    {"pci.peer", {"max_link_speed", "max_link_width"}, "another check's"},
    {"pci.peer", {"*/0000:c[12]:00.0/*"}, "disks are no peers of GPUs"},
    {"network.ib", {"phys_state", "rate", "link_layer"}, "told beside the state"},
    {"network.ib", {"1"}, "a second GID, not set on these machines"},
    {"network.ethernet", {"speed", "mtu", "duplex"}, "a guest's port has none"},
    {"memory.edac",
     {"dimm_label", "dimm_ce_count", "dimm_ue_count", "mc[0-9]"},
     "which module it was"},
    {"host.memory", {"node"}, "how many NUMA nodes: host.inventory misses them"},
    {"host.throttle", {"cpuinfo", "present"}, "host.cpu misses them"},
    {"host.frequency", {"cpuinfo", "present"}, "host.cpu misses them"},
    {"host.processes", {"stat", "status"}, "a process may end at any time"},
    {"storage.disks", {"model", "serial", "wwid"}, "names of a disk"},
    {"storage.disks", {"removable"}, "then it counts as fixed"},
    // It uses the readers of other checks, and keeps the names of parts.
    {"host.inventory",
     {"numa_node", "max_link_*", "current_link_*", "aer_dev_*", "phys_state"},
     "no part"},
    {"host.inventory", {"gids", "[01]", "*err*", "link_*", "carrier_changes", "duplex"}, "no part"},
    {"host.inventory",
     {"present", "cpuinfo", "removable", "state", "nvme"},
     "other disks and cores tell"},
    {"host.inventory", {"*/block/*/device", "*/block/*/device/vendor"}, "other disks tell"},
};

bool is_harmless(std::string_view check, std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const auto fits = [&](std::string_view which) {
    return glob_match(which, which.find('/') == which.npos ? name : path);
  };
  return std::ranges::any_of(kHarmless, [&](const Harmless& one) {
    return glob_match(one.check, check) && std::ranges::any_of(one.names, fits);
  });
}

class BlindTest : public testing::TestWithParam<const char*> {
 protected:
  BlindTest() {
    machine_.adopt();
    for (const Check* const check : readers()) machine_.remember(check->name);
    for (const PciDevice& device : pci_devices(machine_.tree)) {
      if (device.kind != PciKind::other) continue;
      const std::string at = machine_.tree.follow("/sys/bus/pci/devices/" + device.address);
      others_.insert(machine_.tree.on_disk(at));
    }
  }

  // The files that a check reads.
  std::pair<std::set<std::string>, std::set<std::string>> input(const Check& check) {
    machine_.watched.files_read.clear();
    machine_.watched.folders_read.clear();
    (void)machine_.run(check);
    return {machine_.watched.files_read, machine_.watched.folders_read};
  }

  void expect_shown(const Check& check, size_t passed, const std::string& path, const char* how) {
    // Switch ports and other devices have no findings; their configuration and counters do.
    const bool of_other = others_.contains(io::parent(path)) && !path.ends_with("/config");
    if (passed == 0 || of_other || is_harmless(check.name, path)) return;
    EXPECT_TRUE(shows(passed, machine_.run(check)))
        << check.name << " passes without " << path << ", " << how;
  }

  // The selected `paths` (base/point_step.h).
  std::vector<std::string> some(const std::set<std::string>& paths) {
    std::vector<std::string> taken;
    for (const std::string& path : paths) {
      if (turn_++ % kPointStep == 0) taken.push_back(path);
    }
    return taken;
  }

  Machine machine_{GetParam()};
  std::set<std::string> others_;
  uint64_t turn_ = 0;
};

// Input from the machine that runs the test, not the recorded one, is unknown here.
TEST_P(BlindTest, SoundMachinesPass) {
  for (const Check* const check : readers()) {
    for (const Finding& one : machine_.run(*check)) {
      if (needs_machine(check->name)) {
        EXPECT_TRUE(one.verdict == Verdict::could_not_run || one.verdict == Verdict::skipped)
            << told(one);
        continue;
      }
      EXPECT_TRUE(one.verdict == Verdict::pass || one.verdict == Verdict::skipped) << told(one);
    }
  }
}

TEST_P(BlindTest, FilesThatAreGoneAreMissed) {
  for (const Check* const check : readers()) {
    const size_t passed = passes(machine_.run(*check));
    for (const std::string& path : some(input(*check).first)) {
      const auto content = io::read_file(machine_.disk, path, kTextMax);
      ASSERT_TRUE(io::ok(content));
      ASSERT_TRUE(io::ok(machine_.disk.remove(path)));
      expect_shown(*check, passed, path, "gone");
      ASSERT_TRUE(io::ok(io::put(machine_.disk, path, *content)));
    }
  }
}

TEST_P(BlindTest, GarbledFilesAreMissed) {
  for (const Check* const check : readers()) {
    const size_t passed = passes(machine_.run(*check));
    for (const std::string& path : some(input(*check).first)) {
      const auto content = io::read_file(machine_.disk, path, kTextMax);
      ASSERT_TRUE(io::ok(content));
      for (const char* const garbage : {"", "\xff\xfe what is this\n", "nan\n"}) {
        ASSERT_TRUE(io::ok(io::put(machine_.disk, path, garbage)));
        expect_shown(*check, passed, path, "garbled");
      }
      ASSERT_TRUE(io::ok(io::put(machine_.disk, path, *content)));
    }
  }
}

// As for an unprivileged user.
TEST_P(BlindTest, RefusedFilesAndFoldersAreMissed) {
  for (const Check* const check : readers()) {
    const size_t passed = passes(machine_.run(*check));
    const auto [files, folders] = input(*check);
    for (const auto& paths : {files, folders}) {
      for (const std::string& path : some(paths)) {
        machine_.watched.refused = {path};
        expect_shown(*check, passed, path, "refused");
      }
    }
    machine_.watched.refused.clear();
  }
}

INSTANTIATE_TEST_SUITE_P(Of, BlindTest, testing::Values("pcie8", "dgx"),
                         [](const auto& of) { return std::string(of.param); });

// A machine without any input: adopted or not.
TEST(Blind, AnEmptyMachinePassesNothing) {
  Machine empty("");
  const auto try_all = [&](const char* what) {
    for (const Check* const check : readers()) {
      for (const Finding& one : empty.run(*check)) {
        EXPECT_NE(one.verdict, Verdict::pass) << what << ": " << told(one);
        EXPECT_TRUE(one.verdict == Verdict::skipped || !one.hint.empty()) << told(one);
      }
    }
  };
  try_all("never adopted");
  empty.inventory = Machine("pcie8").adopt().inventory;
  try_all("adopted with all its parts");
}

}  // namespace
}  // namespace ff::validate
