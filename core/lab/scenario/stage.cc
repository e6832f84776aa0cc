// stage.cc: the parts of a stage that are more than data.
#include "lab/scenario/stage.h"

#include <fmt/format.h>

#include "platform/base/clock.h"

namespace ff::scenario {

void Stage::broken(std::string what) {
  if (violation) return;
  violation =
      fail(Errc::corrupt, "at {:.6f} s: {}", static_cast<double>(world.now_ns()) / kSecond, what);
}

rpc::Identity Stage::identity(std::string name) {
  auth::Key key{};
  return {.name = std::move(name), .software = "ff story", .key = key, .nonces = &rng};
}

}  // namespace ff::scenario
