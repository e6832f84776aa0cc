// A node with eight GPUs for tests: PCI devices of a tree, and the fake libraries of the driver.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/validate/gpu.h"
#include "platform/base/rng.h"
#include "platform/base/text.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"

namespace ff::validate {

inline constexpr const char* kA100 = " NVIDIA A100-SXM4-80GB";
inline constexpr std::array kBuses = {"1b", "36", "51", "6c", "87", "a2", "bd", "d8"};

inline std::string address(size_t gpu) { return fmt::format("0000:{}:00.0", kBuses[gpu]); }
inline std::string part(size_t gpu) { return address(gpu) + kA100; }

// Environment variables of this process and its children, restored at the end.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* was = std::getenv(name)) was_ = was;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { was_ ? ::setenv(name_, was_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> was_;
};

// A node with PCI devices from a recorded tree and the fake NVML.
class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    for (size_t i = 0; i < kBuses.size(); i++) add_device(address(i), "0x030200", "0x10de");
    add_device("0000:01:00.0", "0x020000", "0x15b3");  // a network card
    add_device("0000:02:00.0", "0x030000", "0x1a03");  // the graphics of a server's board
  }

  void add_device(const std::string& at, const char* kind, const char* vendor) {
    const std::string folder = dir_ / ("tree/sys/bus/pci/devices/" + at);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/class") << kind << "\n";
    std::ofstream(folder + "/vendor") << vendor << "\n";
    std::ofstream(folder + "/device") << "0x20b2\n";
  }

  CheckContext context() {
    return {.tree = tree_,
            .clock = clock_,
            .rng = rng_,
            .inventory = inventory_,
            .log_file = no_file_,
            .scratch = scratch_,
            .before =
                [this](const std::string& name, const std::string& of) {
                  const auto found = before_.find({name, of});
                  return found == before_.end() ? std::nullopt : std::optional(found->second);
                },
            .report = [this](Finding finding) { findings_.push_back(std::move(finding)); }};
  }

  Result<ProgramOutput> ask(const std::string& scenario, int64_t within_ns = 10 * kSecond,
                            const char* library = FF_FAKE_NVML_NEW) {
    const Variable path("LD_LIBRARY_PATH", library);
    const Variable which("FF_FAKE_NVML", scenario);
    return query_nvml(context(), within_ns);
  }

  void judge(const Result<ProgramOutput>& said) {
    report_gpus(context(), nvidia_gpus(tree_), said);
  }
  void judge_text(std::string output) { judge(ProgramOutput{.output = std::move(output)}); }

  // The only finding of this name and part.
  Finding found(const std::string& name, const std::string& of = "") {
    Finding one{.name = "none"};
    size_t count = 0;
    for (const Finding& finding : findings_) {
      if (finding.name != name || finding.part != of) continue;
      one = finding;
      count++;
    }
    EXPECT_EQ(count, 1u) << name << " of '" << of << "'";
    return one;
  }
  Verdict verdict(const std::string& name, const std::string& of = "") {
    return found(name, of).verdict;
  }

  // The bad findings, as "NAME of PART", in the order of the report.
  std::vector<std::string> not_passed() const {
    std::vector<std::string> all;
    for (const Finding& finding : findings_) {
      if (finding.verdict != Verdict::pass) all.push_back(finding.name + " of " + finding.part);
    }
    return all;
  }
  using Names = std::vector<std::string>;

  io::TempDir dir_;
  io::SystemDisk disk_;
  SystemTree tree_{disk_, dir_ / "tree"};
  SystemClock clock_;
  SeededRng rng_{1};
  std::optional<Inventory> inventory_;
  std::string no_file_, scratch_ = dir_.path();
  std::map<std::pair<std::string, std::string>, double> before_;
  std::vector<Finding> findings_;
};

inline bool says(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

}  // namespace ff::validate
