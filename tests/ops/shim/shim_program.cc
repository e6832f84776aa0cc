// A shim of its own, and an agent that starts one and dies, for tests with real processes.
//
//   shim_program DIR           run_shim()
//   shim_program agent DIR     start_shim() of itself, and killed by its own hand
//   shim_program eat MIB       touches so much memory, and says "eaten"
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ops/shim/control.h"
#include "ops/shim/shim.h"
#include "platform/base/clock.h"
#include "platform/io/system_disk.h"

int main(int argc, char** argv) {
  using namespace ff;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "agent") {
    const auto started = shim::start_shim({argv[0]}, words[1]);
    if (!started) fmt::print(stderr, "{}\n", started.error().message);
    std::raise(started ? SIGKILL : SIGABRT);
  }
  if (words.size() == 2 && words[0] == "eat") {
    std::vector<char> memory(std::strtoul(words[1].c_str(), nullptr, 10) << 20);
    for (size_t i = 0; i < memory.size(); i += 4096) memory[i] = static_cast<char>(i >> 12 | 1);
    fmt::print("eaten {}\n", memory[4096]);
    return 0;
  }
  if (words.size() != 1) return 2;
  io::SystemDisk disk;
  SystemClock clock;
  const auto ran = shim::run_shim(disk, clock, words[0]);
  if (!ran) fmt::print(stderr, "{}\n", ran.error().message);
  return ran ? 0 : 1;
}
