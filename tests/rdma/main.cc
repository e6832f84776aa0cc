// test_verbs: the program of a test guest. Without a word of its own it runs the tests; with one it
// is a tool of theirs: it makes the RDMA device, or is one end of two.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "rdma/job_node.h"
#include "rdma/rxe_link.h"
#include "rdma/two_ends.h"

namespace {

using ff::Result;

int report(const Result<void>& result) {
  if (result) return 0;
  fmt::print(stderr, "{}\n", result.error().message);
  return 1;
}

uint16_t port_of(const std::string& text) {
  return static_cast<uint16_t>(std::strtoul(text.c_str(), nullptr, 10));
}

// Two machines: a conversation, then a job at the next port.
Result<void> serve(uint16_t port) {
  FF_TRY(ff::net::serve_one(port));
  return ff::collective::run_node({.node = 0, .host = "0.0.0.0", .port = ++port});
}
Result<void> visit(const std::string& host, uint16_t port) {
  FF_TRY(ff::net::visit(host, port));
  return ff::collective::run_node({.node = 1, .host = host, .port = ++port});
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::string word = words.empty() ? "" : words[0];
  if (word == "link" && words.size() == 3) return report(ff::net::add_rxe_link(words[1], words[2]));
  if (word == "serve" && words.size() == 2) return report(serve(port_of(words[1])));
  if (word == "hang" && words.size() == 2) return report(ff::net::hang(port_of(words[1])));
  if (word == "visit" && words.size() == 3) {
    return report(visit(words[1], port_of(words[2])));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
