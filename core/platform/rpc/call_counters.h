// Counters of one method's calls by result: label `code` is "ok" or the name of the error. Each
// counter is looked up in the registry once; after that a call costs one addition. Owned by one
// loop.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "platform/base/metrics.h"
#include "platform/base/result.h"

namespace ff::rpc {

class CallCounters {
 public:
  // `family` and `help` are literals.
  CallCounters(Metrics& metrics, std::string_view family, std::string_view help, std::string method)
      : metrics_(metrics), family_(family), help_(help), method_(std::move(method)) {}

  const std::string& method() const { return method_; }
  void add(const Result<std::string>& result) {
    const size_t ending = result ? kOk : static_cast<size_t>(result.error().code);
    Counter*& counter = by_ending_[ending];
    if (counter == nullptr) counter = &find(result);
    counter->add();
  }

 private:
  static constexpr size_t kOk = kErrcCount;
  Counter& find(const Result<std::string>& result) {
    const std::string_view code = result ? "ok" : errc_name(result.error().code);
    return metrics_.counter(family_, help_, {{"method", method_}, {"code", std::string(code)}});
  }

  Metrics& metrics_;
  const std::string_view family_;
  const std::string_view help_;
  std::string method_;
  std::array<Counter*, kErrcCount + 1> by_ending_{};
};

}  // namespace ff::rpc
