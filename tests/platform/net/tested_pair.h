// Two connected ends for tests: what the conformance suite asks of a transport, and what tests of
// one transport use as well.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/rng.h"
#include "platform/net/connection.h"

namespace ff::net {

// Two ends of one connection on one loop, with what carries them.
class TestedPair {
 public:
  virtual ~TestedPair() = default;
  virtual Loop& loop() = 0;
  // Memory of which the peer of either end may be given slices.
  virtual ByteSpan memory(size_t size) = 0;
  // How many times slower bulk is than over this machine's sockets: big sizes are divided by it.
  virtual size_t scale() { return 1; }

  std::unique_ptr<Connection> client;
  std::unique_ptr<Connection> server;
};

struct PairMaker {
  std::string name;
  // Null when this machine does not offer the transport.
  std::function<std::unique_ptr<TestedPair>()> make;
};

// For googletest's messages.
inline void PrintTo(const PairMaker& maker, std::ostream* out) { *out << maker.name; }

inline void fill(ByteSpan bytes, uint64_t seed) {
  SeededRng rng(seed);
  while (!bytes.empty()) {
    const uint64_t word = rng.next();
    const size_t part = std::min(bytes.size(), sizeof word);
    std::memcpy(bytes.data(), &word, part);
    bytes = bytes.subspan(part);
  }
}

inline Task<void> keep(Task<Result<void>> task, std::optional<Result<void>>& result) {
  result = co_await std::move(task);
}

}  // namespace ff::net
