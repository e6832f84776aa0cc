// The raw speed of block devices, as `ff bench disk` measured it here: kept in the local state, so
// that saves and loads can print their rate beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "platform/base/clock.h"
#include "platform/base/result.h"

namespace ff::cmd {

struct DeviceSpeed {
  double read = 0;  // bytes a second, direct I/O, 1 MiB, 8 in flight
  double write = 0;
  int64_t measured_ns = 0;  // Unix epoch
};

// Remembers the speed of the device that holds `path`. `warning` is set when a damaged state file
// had to be moved aside.
Result<void> remember_device_speed(Clock& clock, const std::string& path, const DeviceSpeed& speed,
                                   std::string& warning);

// What is known about the device that holds `path` (or its nearest existing parent). Nothing when
// it was never measured or the state cannot be read: speed is an ornament.
std::optional<DeviceSpeed> device_speed(Clock& clock, const std::string& path);

}  // namespace ff::cmd
