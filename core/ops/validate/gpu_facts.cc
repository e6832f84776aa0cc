// gpu_facts.cc: parses untrusted lines of JSON.
#include "ops/validate/gpu_facts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "platform/base/text.h"

namespace ff::validate {

namespace {

using Json = nlohmann::json;

constexpr uint64_t kGpusMax = 1024;

bool is_set(const Json& from, const char* name) { return line_number(from, name).value_or(0) != 0; }

NvmlError error_of(const Json& line) {
  return {.call = line_text(line, "call"),
          .code = line_number(line, "code").value_or(0),
          .text = line_text(line, "text")};
}

std::optional<MemoryRepairs> repairs_of(const Json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_object()) return std::nullopt;
  return MemoryRepairs{.corrected = line_number(*found, "corrected"),
                       .uncorrected = line_number(*found, "uncorrected"),
                       .pending = is_set(*found, "pending"),
                       .failed = is_set(*found, "failed")};
}

std::vector<NvLink> links_of(const Json& line) {
  std::vector<NvLink> links;
  const auto found = line.find("links");
  if (found == line.end() || !found->is_array()) return links;
  for (const Json& one : *found) {
    if (!one.is_object()) continue;
    NvLink link{.number = line_number(one, "link").value_or(0), .active = is_set(one, "active")};
    for (const char* const counter : {"replay", "recovery", "crc_flit", "crc_data"}) {
      const NvmlValue count = line_number(one, counter);
      if (count) link.errors = link.errors.value_or(0) + *count;
    }
    links.push_back(link);
  }
  return links;
}

void read_facts(const Json& line, GpuFacts& gpu) {
  gpu.complete = true;
  gpu.celsius = line_number(line, "celsius");
  gpu.slowdown_celsius = line_number(line, "slowdown_celsius");
  gpu.milliwatts = line_number(line, "milliwatts");
  gpu.limit_milliwatts = line_number(line, "limit_milliwatts");
  gpu.sm_mhz = line_number(line, "sm_mhz");
  gpu.sm_max_mhz = line_number(line, "sm_max_mhz");
  gpu.slowed_by = line_number(line, "slowed_by");
  gpu.persistence = line_number(line, "persistence");
  gpu.ecc = line_number(line, "ecc");
  gpu.corrected = line_number(line, "corrected");
  gpu.uncorrected = line_number(line, "uncorrected");
  gpu.corrected_ever = line_number(line, "corrected_ever");
  gpu.uncorrected_ever = line_number(line, "uncorrected_ever");
  gpu.rows = repairs_of(line, "rows");
  gpu.pages = repairs_of(line, "pages");
  gpu.links = links_of(line);
  const auto processes = line.find("processes");
  if (processes != line.end() && processes->is_array()) gpu.processes = processes->size();
  gpu.recovery = line_number(line, "recovery");
}

// A line about one GPU.
void read_of_gpu(const Json& line, const std::string& event, uint64_t index, NvmlReport& told) {
  auto gpu = std::ranges::find(told.gpus, index, &GpuFacts::index);
  if (gpu == told.gpus.end()) {
    if (index >= kGpusMax) return;
    gpu = told.gpus.insert(gpu, {.index = index});
  }
  if (event == "at") {
    gpu->address = kernel_address(line_text(line, "pci"));
    gpu->name = line_text(line, "name");
  } else if (event == "gpu") {
    read_facts(line, *gpu);
  } else if (event == "error") {
    gpu->errors.push_back(error_of(line));
  }
}

}  // namespace

NvmlValue line_number(const Json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

std::string line_text(const Json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_string()) return "";
  return printable(found->get_ref<const std::string&>());
}

std::string kernel_address(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
  }
  constexpr size_t kDigits = 4;
  const size_t digits = std::min(text.find(':'), text.size());
  const size_t zeros = std::min(text.find_first_not_of('0'), digits);
  return digits > kDigits ? text.substr(std::min(zeros, digits - kDigits)) : text;
}

NvmlReport parse_nvml(std::string_view output) {
  NvmlReport told;
  for (const std::string_view text : split(output, '\n')) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) continue;
    const std::string event = line_text(line, "event");
    if (const NvmlValue index = line_number(line, "gpu")) {
      read_of_gpu(line, event, *index, told);
    } else if (event == "driver") {
      told.driver = line_text(line, "driver");
      told.nvml = line_text(line, "nvml");
      told.count = line_number(line, "count");
    } else if (event == "error") {
      told.error = error_of(line);
    } else if (event == "end") {
      told.ended = true;
    }
  }
  return told;
}

}  // namespace ff::validate
