// A job of two nodes on two machines, of one rank each: the collective operations of the tests with
// two guests.
#pragma once

#include <cstdint>
#include <string>

#include "platform/base/result.h"

namespace ff::collective {

struct JobNode {
  uint32_t node = 0;  // which listens; or 1
  std::string host;   // where 1 finds it
  uint16_t port = 0;
};
// Runs some operations over RDMA. Errors: what failed, or Errc::corrupt where a result is wrong.
Result<void> run_node(const JobNode& node);

}  // namespace ff::collective
