// job_failure.cc: messages that name the operation and the rank.
#include "training/collective/job_failure.h"

#include <fmt/format.h>

namespace ff::collective {

Error operation_error(const std::string& what, const std::string& reason) {
  Error error = fail(Errc::unreachable, "{}: {}", what, reason);
  error.hint = "Read the output of that process; then start the job again.";
  return error;
}

std::optional<Error> job_failure(HostGroup& group, const std::string& what) {
  const OperationTable& operations = group.operations();
  if (const auto error = operations.async_error()) {
    Error result = operation_error(what, error->message);
    result.code = error->code;
    if (error->code == Errc::corrupt) {
      result.hint =
          "Check the network cards, cables and memory of both hosts; then start the job again.";
    }
    return result;
  }
  const auto failed = operations.failed_rank();
  if (!failed) return std::nullopt;
  const std::string reason = fmt::format(
      "{} {}; it had started {} operations", group.name_of(failed->rank),
      failed->timed_out ? "missed the deadline" : "is gone", operations.posted(failed->rank));
  Error error = operation_error(what, reason);
  error.code = failed->timed_out ? Errc::deadline : Errc::unreachable;
  return error;
}

}  // namespace ff::collective
