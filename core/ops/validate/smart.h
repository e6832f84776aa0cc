// What disks tell of their health: the health log of NVMe, SMART of ATA disks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/validate/check.h"
#include "ops/validate/drive_health.h"
#include "ops/validate/tree.h"

namespace ff::validate {

constexpr const char* kSaveAndReplaceDisk = "Save its data elsewhere and replace the disk.";

// Of an NVMe controller (NVM Express Base Specification, figure "SMART / Health Information").
struct NvmeHealth {
  uint8_t warnings = 0;  // bits: spare, temperature, reliability, read-only, backup of memory
  double celsius = 0;
  int spare_percent = 0, spare_least_percent = 0;
  int used_percent = 0;     // of its endurance; may be above 100
  double media_errors = 0;  // that could not be corrected
  double power_on_hours = 0;
};
NvmeHealth parse_nvme_health(const SmartPage& page);
// Whether it is well, and how worn.
Finding judge_nvme(const std::string& disk, const NvmeHealth& health);

// Attributes of an ATA disk that foretell its end (Backblaze and others agree on these).
struct AtaFacts {
  bool failing = false;
  std::optional<uint64_t> reallocated = {};    // 5
  std::optional<uint64_t> pending = {};        // 197
  std::optional<uint64_t> uncorrectable = {};  // 198
};
AtaFacts parse_ata_health(const AtaHealth& health);
Finding judge_ata(const std::string& disk, const AtaFacts& facts);

// Disks that can be asked: "nvme0" and "sda".
std::vector<std::string> smart_disks(const Tree& tree);

void check_storage_health(const Context& context);

}  // namespace ff::validate
