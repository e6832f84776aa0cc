// Health data of disks, read with device commands of their protocol (needs root).
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "platform/base/result.h"

namespace ff::validate {

using SmartPage = std::array<std::byte, 512>;

// The SMART / Health Information log of an NVMe controller (NVM Express Base Specification, Get Log
// Page 02h). `path`: "/dev/nvme0". Errors: refused, not_found, those of the device.
Result<SmartPage> nvme_health_log(const std::string& path);

// SMART data of an ATA disk behind SCSI (ATA/ATAPI Command Set, SMART). `path`: "/dev/sda".
struct AtaHealth {
  bool failing = false;  // SMART RETURN STATUS: a threshold was exceeded
  SmartPage data = {};   // SMART READ DATA
};
// Errors: as above, and unsupported: SMART is missing or disabled.
Result<AtaHealth> ata_health(const std::string& path);

}  // namespace ff::validate
