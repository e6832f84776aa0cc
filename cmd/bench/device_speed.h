// The raw speed of block devices, measured by `ff bench disk` and stored in the local state, so
// that checkpoint saves and loads can compare their rate with it.
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

// Stores the speed of the device that holds `path`. Sets `warning` if a corrupt state file was
// renamed.
Result<void> save_device_speed(Clock& clock, const std::string& path, const DeviceSpeed& speed,
                               std::string& warning);

// The stored speed of the device that holds `path` (or its nearest existing parent); nullopt if it
// was not measured or the state is unreadable.
std::optional<DeviceSpeed> load_device_speed(Clock& clock, const std::string& path);

}  // namespace ff::cmd
