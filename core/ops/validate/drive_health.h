// What disks tell of their own health, asked with the commands of their kind: these are no files,
// and only root may ask.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "platform/base/result.h"

namespace ff::validate {

using SmartPage = std::array<std::byte, 512>;

// The SMART / Health Information log of an NVMe controller (NVM Express Base Specification, Get Log
// Page 02h), of `path` "/dev/nvme0". Errors: refused, not_found, those of the device.
Result<SmartPage> nvme_health_log(const std::string& path);

// Of an ATA disk behind SCSI (ATA/ATAPI Command Set, SMART), of `path` "/dev/sda".
struct AtaHealth {
  bool failing = false;  // SMART RETURN STATUS: a threshold was passed
  SmartPage data = {};   // SMART READ DATA
};
// Errors: as above, and unsupported: it has no SMART, or it is switched off.
Result<AtaHealth> ata_health(const std::string& path);

}  // namespace ff::validate
