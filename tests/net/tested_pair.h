// The two ends of one connection that a test drives, and how each transport's tests make them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/gate.h"
#include "base/rng.h"
#include "net/connection.h"

namespace ff::net {

// Two ends of one connection on one loop, with what carries them.
class TestedPair {
 public:
  virtual ~TestedPair() = default;
  virtual Loop& loop() = 0;
  // Memory of which the peer of either end may be given slices.
  virtual ByteSpan memory(size_t size) = 0;
  // Cuts the line without a word: nothing arrives any more, nothing fails. False: cannot be done.
  virtual bool cut() { return false; }

  std::unique_ptr<Connection> client;
  std::unique_ptr<Connection> server;
};

struct PairMaker {
  std::string name;
  // Null when this machine does not offer the transport.
  std::function<std::unique_ptr<TestedPair>()> make;
};

inline void fill(ByteSpan bytes, uint64_t seed) {
  SeededRng rng(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.next());
}

inline Task<void> keep(Task<Result<void>> task, std::optional<Result<void>>& result) {
  result = co_await std::move(task);
}

}  // namespace ff::net
