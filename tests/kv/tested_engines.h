// A store and engines on it, for the tests that every engine must pass.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "base/rng.h"
#include "base/system_loop.h"
#include "kv/engine.h"

namespace ff::kv {

// One store. Engines made for one loop see what those of others have committed.
class TestedStore {
 public:
  virtual ~TestedStore() = default;
  virtual std::unique_ptr<Engine> engine(Loop& loop) = 0;
  // Whether loops of several threads may use it.
  virtual bool threads() const = 0;
};

struct EngineKind {
  std::string name;
  std::function<std::unique_ptr<TestedStore>()> make;
};
inline void PrintTo(const EngineKind& kind, std::ostream* out) { *out << kind.name; }

}  // namespace ff::kv
