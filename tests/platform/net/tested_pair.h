// Two connected ends for the conformance suite and for tests of single transports.
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
  // Memory that either end may expose to its peer.
  virtual ByteSpan memory(size_t size) = 0;
  // How much slower bulk transfers are than over local sockets: large sizes are divided by it.
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
