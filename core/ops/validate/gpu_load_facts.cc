// gpu_load_facts.cc: parses untrusted lines of JSON.
#include "ops/validate/gpu_load_facts.h"

#include <nlohmann/json.hpp>

#include "platform/base/text.h"

namespace ff::validate {

namespace {

uint64_t count_in(const nlohmann::json& line, const char* name) {
  return line_number(line, name).value_or(0);
}

// True: an event that loads of every kind have.
bool read_common(const nlohmann::json& line, const std::string& event, GpuLoadReport& report) {
  if (event == "begin") {
    report.step = line_text(line, "step");
  } else if (event == "device") {
    report.name = line_text(line, "name");
  } else if (event == "ecc") {
    report.ecc.push_back(
        {.corrected = count_in(line, "corrected"), .uncorrected = count_in(line, "uncorrected")});
  } else if (event == "xid") {
    if (const auto code = line_number(line, "code")) report.xids.push_back(*code);
  } else if (event == "failed") {
    report.failure = {.call = line_text(line, "call"),
                      .code = count_in(line, "code"),
                      .name = line_text(line, "name"),
                      .text = line_text(line, "text")};
  } else if (event == "hang") {
    report.hung = true;
  } else if (event == "end") {
    report.ended = true;
  } else if (event == "wrong") {
    report.wrong.push_back({.step = line_text(line, "step"),
                            .at = count_in(line, "at"),
                            .expected = line_text(line, "expected"),
                            .got = line_text(line, "got"),
                            .processor = line_number(line, "processor")});
  } else {
    return false;
  }
  return true;
}

void read_result(const nlohmann::json& line, const std::string& event, GpuLoadReport& report) {
  if (event == "memory") {
    report.memory = {.bytes = count_in(line, "bytes"),
                     .passes = count_in(line, "passes"),
                     .wrong = count_in(line, "wrong"),
                     .nanoseconds = count_in(line, "nanoseconds")};
  } else if (event == "gemm") {
    report.products.push_back({.type = line_text(line, "type"),
                               .bytes = count_in(line, "bytes"),
                               .products = count_in(line, "products"),
                               .operations = count_in(line, "operations"),
                               .nanoseconds = count_in(line, "nanoseconds"),
                               .digest = line_text(line, "digest"),
                               .host = line_text(line, "host"),
                               .golden = line_text(line, "golden"),
                               .wrong = count_in(line, "wrong")});
  } else if (event == "copy") {
    report.copies.push_back({.direction = line_text(line, "direction"),
                             .peer = kernel_address(line_text(line, "peer")),
                             .bytes = count_in(line, "bytes"),
                             .nanoseconds = count_in(line, "nanoseconds")});
  } else if (event == "link") {
    report.link = {.generation = line_number(line, "generation"),
                   .lanes = line_number(line, "lanes"),
                   .generation_max = line_number(line, "generation_max"),
                   .lanes_max = line_number(line, "lanes_max"),
                   .memory_bits = line_number(line, "memory_bits"),
                   .memory_mhz = line_number(line, "memory_mhz")};
  } else if (event == "nvlinks") {
    report.nvlink_mbps = line_number(line, "mbps");
  } else if (event == "nvlink") {
    report.nvlinks.push_back({.number = count_in(line, "link"),
                              .active = count_in(line, "active") != 0,
                              .remote = kernel_address(line_text(line, "remote")),
                              .errors = count_in(line, "errors")});
  }
}

}  // namespace

double GpuCopy::rate() const {
  return nanoseconds == 0 ? 0 : static_cast<double>(bytes) * 1e9 / static_cast<double>(nanoseconds);
}

GpuLoadReport parse_gpu_load(std::string_view output) {
  GpuLoadReport report;
  for (const std::string_view text : split(output, '\n')) {
    const auto line = nlohmann::json::parse(text, nullptr, false);
    if (!line.is_object()) continue;
    const std::string event = line_text(line, "event");
    if (!read_common(line, event, report)) read_result(line, event, report);
  }
  return report;
}

}  // namespace ff::validate
