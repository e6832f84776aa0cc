// Lines of a task's folder, which its user may write: no crash; a request that is taken can be
// written again and comes back as it was, and its reason has no control bytes.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/check.h"
#include "training/task/task_dir.h"

using namespace ff;

std::vector<std::string> fuzz_seeds() {
  return {"preempted 1790000000", "drained 0", "120", "4294967295", "18446744073709551615"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  const auto step = task::parse_step(line);
  const auto word = task::parse_life_state(line);
  FF_CHECK(!word || step == *word);
  const auto request = task::parse_stop(line);
  if (!request) return 0;
  FF_CHECK(!request->reason.empty() && request->reason.size() <= task::kReasonMax);
  for (const char c : request->reason) FF_CHECK(c > ' ' && c < 0x7f);
  const auto again = task::stop_line(*request);
  FF_CHECK(again.ok() && task::parse_stop(*again) == request);
  return 0;
}
