// Hosts for tests: network namespaces on one bridge, to which the test is connected too. Needs
// root; each Hosts has its own names and subnet, and removes them at the end.
#pragma once

#include <string>
#include <vector>

#include "e2e/child.h"

namespace ff::test {

class Hosts {
 public:
  explicit Hosts(size_t count);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  // False if network namespaces cannot be created.
  bool available() const { return available_; }
  std::string address(size_t host) const;  // an IPv4 address
  // The command that runs `argv` on `host`.
  Launch on(size_t host, std::vector<std::string> argv) const;
  // Drops packets from `from` to `to`; the other direction still works.
  void cut(size_t from, size_t to) { route("add", from, to); }
  void heal(size_t from, size_t to) { route("del", from, to); }

 private:
  std::string name(size_t host) const;
  std::string link(size_t host) const;  // its end on the bridge
  void route(const std::string& change, size_t from, size_t to) const;

  const size_t count_;
  const std::string id_;
  const std::string bridge_ = "ffb" + id_;
  std::string subnet_;  // "198.18.3."
  bool available_ = false;
};

}  // namespace ff::test
