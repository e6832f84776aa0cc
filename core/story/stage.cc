// stage.cc: the parts of a stage that are more than data.
#include "story/stage.h"

#include <fmt/format.h>

#include "base/clock.h"

namespace ff::story {

void Stage::broken(std::string what) {
  if (violation) return;
  violation =
      fail(Errc::corrupt, "at {:.6f} s: {}", static_cast<double>(world.now_ns()) / kSecond, what);
}

rpc::Identity Stage::identity(std::string name) {
  net::Key key{};
  return {.name = std::move(name), .software = "ff story", .key = key, .nonces = &rng};
}

}  // namespace ff::story
