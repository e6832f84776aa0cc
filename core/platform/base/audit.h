// The audit log of a daemon: who connected as which entity, who was refused, what operators
// changed. One JSON object a line, to a file or to syslog(3).
//
//   audit("key created", "admin/ann", {{"key", "storage/n4"}});
//
//   {"time":"2026-11-21T01:33:00.123Z","event":"key created","who":"admin/ann","key":"storage/n4"}
//
// Nobody can flood it: each event of each actor has a rate of its own, and all together have one.
// The next line that is written says how many were left out ("left_out").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/base/clock.h"
#include "platform/base/log.h"
#include "platform/base/result.h"

namespace ff {

// Lines that one actor may cause at once, and per second after that.
constexpr double kAuditBurst = 20, kAuditRate = 2;
// The same for all actors together.
constexpr double kAuditBurstOfAll = 2000, kAuditRateOfAll = 200;

// `to`: "syslog", or a file, which is created with mode 0600; when somebody has renamed it
// (logrotate(8)), the next line begins a new one. Call it before other threads start; without it
// there is no audit log. `clock` outlives the process's last audit(). Errors name the file.
Result<void> audit_setup(const std::string& to, Clock& clock);

// `who`: the full name of an entity, or an address. Thread-safe. A line that cannot be written is
// logged.
void audit(std::string_view event, std::string_view who, LogFields fields = {});

}  // namespace ff
