// Health of disks: the NVMe health log, SMART of ATA disks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/validate/check.h"
#include "ops/validate/drive_health.h"
#include "ops/validate/system_tree.h"

namespace ff::validate {

constexpr const char* kSaveAndReplaceDisk = "Save its data elsewhere and replace the disk.";

// The health log of an NVMe controller (NVM Express Base Specification, figure "SMART / Health
// Information").
struct NvmeHealth {
  uint8_t warnings = 0;  // bits: spare, temperature, reliability, read-only, volatile memory backup
  double celsius = 0;
  int spare_percent = 0, spare_least_percent = 0;
  int used_percent = 0;     // of its endurance; may exceed 100
  double media_errors = 0;  // uncorrected
  double power_on_hours = 0;
};
NvmeHealth parse_nvme_health(const SmartPage& page);
// A finding about its health and wear.
Finding nvme_finding(const std::string& disk, const NvmeHealth& health);

// SMART attributes of an ATA disk that predict failure (agreed by Backblaze and others).
struct AtaFacts {
  bool failing = false;
  std::optional<uint64_t> reallocated = {};    // 5
  std::optional<uint64_t> pending = {};        // 197
  std::optional<uint64_t> uncorrectable = {};  // 198
};
AtaFacts parse_ata_health(const AtaHealth& health);
Finding ata_finding(const std::string& disk, const AtaFacts& facts);

// Disks that support the query: "nvme0" and "sda".
std::vector<std::string> smart_disks(const SystemTree& tree);

void check_storage_health(const CheckContext& context);

}  // namespace ff::validate
