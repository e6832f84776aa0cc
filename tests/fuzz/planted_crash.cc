// A fuzz target with bugs on purpose: driver_test.cc checks that the driver finds them, saves the
// input and gives the same answer again. The bug is chosen by the environment variable PLANTED.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

std::vector<std::string> fuzz_seeds() { return {"length=12;data=hello, fuzz"}; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const char* variable = std::getenv("PLANTED");
  const std::string_view planted = variable == nullptr ? "none" : variable;
  const std::string text(data, data + size);
  if (planted == "number" && std::atoll(text.c_str() + (size < 7 ? size : 7)) > 1'000'000) {
    std::abort();  // a length field that the parser believes
  }
  if (planted == "truncated" && size > 0 && size < 8) throw std::runtime_error("short");
  if (planted == "bit" && text == "length=12;data=iello, fuzz") {
    *static_cast<volatile int*>(nullptr) = 1;
  }
  if (planted == "hang" && text.starts_with("mength")) {
    while (std::getenv("PLANTED") != nullptr) {
    }
  }
  return 0;
}
