// Why the operations of a job cannot complete: the errors of waiting ranks.
#pragma once

#include <optional>
#include <string>

#include "platform/base/result.h"
#include "training/collective/host_group.h"

namespace ff::collective {

// "WHAT: REASON", Errc::unreachable, with a hint.
Error operation_error(const std::string& what, const std::string& reason);
// The error that the operation table holds for all ranks: of a failed rank, or of other hosts.
std::optional<Error> job_failure(HostGroup& group, const std::string& what);

}  // namespace ff::collective
