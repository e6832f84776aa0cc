// Hosts for tests: network namespaces on one bridge, which the test itself is on, too. Needs root;
// each Hosts has names and a subnet of its own, and takes them away at its end.
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

  // False: network namespaces cannot be made here.
  bool made() const { return made_; }
  std::string address(size_t host) const;  // an IPv4 address
  // A program there.
  Launch on(size_t host, std::vector<std::string> argv) const;
  // What `from` sends to `to` goes nowhere; the other way it still arrives.
  void cut(size_t from, size_t to) { route("add", from, to); }
  void mend(size_t from, size_t to) { route("del", from, to); }

 private:
  std::string name(size_t host) const;
  std::string link(size_t host) const;  // its end on the bridge
  void route(const std::string& change, size_t from, size_t to) const;

  const size_t count_;
  const std::string id_;
  const std::string bridge_ = "ffb" + id_;
  std::string subnet_;  // "198.18.3."
  bool made_ = false;
};

}  // namespace ff::test
