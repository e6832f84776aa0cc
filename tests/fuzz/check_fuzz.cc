// What a node tells of itself, broken: lines of logs, tables of the firmware, configuration spaces,
// what helpers say. Nothing of it may crash a check or put control bytes on a terminal.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/validate/gpu_facts.h"
#include "ops/validate/host.h"
#include "ops/validate/kernel_log.h"
#include "ops/validate/log_rules.h"
#include "ops/validate/pci_peer.h"
#include "ops/validate/run.h"
#include "ops/validate/system_tree.h"
#include "ops/validate/xid.h"
#include "platform/base/check.h"
#include "platform/base/text.h"

namespace {

using namespace ff;
using namespace ff::validate;

constexpr int64_t kNowNs = 1'795'435'200 * kSecond;

bool is_plain(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  return true;
}

void check_log(std::string_view input) {
  LogAnalyzer judge;
  judge.add(parse_kernel_log_line(input, kNowNs));
  if (const auto record = parse_kmsg(input)) judge.add(*record);
  for (const Finding& finding : judge.findings()) {
    FF_CHECK(!finding.name.empty() && is_plain(finding.part) && is_plain(finding.found));
  }
  if (const auto xid = parse_xid(input)) FF_CHECK(is_plain(xid->device));
}

// A finding that was read is written and read as the same.
void check_line(std::string_view input) {
  const auto finding = from_line(input);
  if (!finding) return;
  const auto again = from_line(to_line(*finding));
  FF_CHECK(again && again->name == finding->name && again->found == finding->found &&
           again->verdict == finding->verdict && again->value == finding->value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check_log(input);
  check_line(input);
  for (const unsigned number : parse_cpu_list(input)) FF_CHECK(number < 65'536);
  if (const auto dimm = parse_dimm(input)) FF_CHECK(is_plain(dimm->slot) && is_plain(dimm->bank));
  (void)parse_pci_config(input);
  for (const GpuFacts& gpu : parse_nvml(input).gpus) FF_CHECK(is_plain(gpu.name));
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::string dimm("\x11\x28\x11\x00\x0e\x00\xfe\xff\x48\x00\x40\x00\x00\x40\x09\x00\x01\x02", 18);
  dimm.resize(40, '\0');
  dimm += std::string("DIMM_A1\0P0_Node0\0\0", 18);
  std::string config(4096, '\0');
  config[6] = config[0x34] = config[0x40] = 0x10;
  config[0x34] = 0x40;
  return {"[12345.678901] NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus",
          "<4>[    1.000002] EDAC MC0: 1 CE memory read error",
          "[Sun Nov 22 11:59:58 2026] nvme nvme0: I/O 12 QID 3 timeout",
          "2026-11-23T13:30:00.250000+02:00 node7 kernel: XFS (sdb1): Metadata corruption",
          "Nov 23 11:00:00 node7 kernel: [  99.5] EXT4-fs error (device sda1)",
          "4,1234,5678901234,-;I/O error, dev sda, sector 2048\n SUBSYSTEM=block\n",
          R"({"name":"a.b","part":"p","verdict":"fail","found":"x","value":1.5,"better":1})",
          "0-3,8,10-11",
          R"({"event":"begin"})"
          "\n"
          R"({"event":"driver","driver":"550","nvml":"12","count":1})"
          "\n"
          R"({"event":"at","gpu":0,"pci":"00000000:17:00.0","name":"A100"})"
          "\n"
          R"({"event":"gpu","gpu":0,"celsius":35,"links":[{"link":0,"active":1,"replay":2}]})",
          dimm,
          config};
}
