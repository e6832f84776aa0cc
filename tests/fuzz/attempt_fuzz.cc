// What an agent reads of its own folders, which may have been written by another version or lost
// power half-way: no crash; what is read can be written and is read as the same again.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/scheduler/attempt_record.h"
#include "platform/base/check.h"

using namespace ff;
using namespace ff::scheduler;

std::vector<std::string> fuzz_seeds() {
  AttemptRecord record{.scheduler = "0123", .task = 12, .attempt = 1, .node_rank = 2};
  record.processes = 8;
  record.port = 29'500;
  record.boot = "b";
  const std::string as_agent = to_json(record);
  record.uid = 1000;
  record.user = shim::RankUser{1000, 1000, {44}};
  return {as_agent, to_json(record), "12.1", "18446744073709551615.4294967295"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const auto record = parse_attempt(input)) {
    FF_CHECK(record->processes > 0);
    const std::string text = to_json(*record);
    const auto again = parse_attempt(text);
    FF_CHECK(again.ok() && to_json(*again) == text);
    FF_CHECK(parse_attempt_name(record->name()).has_value());
  }
  if (const auto name = parse_attempt_name(input)) FF_CHECK(text_of(*name) == input);
  return 0;
}
