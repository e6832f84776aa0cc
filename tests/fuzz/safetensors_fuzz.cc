// Safetensors headers from anywhere: no crash, no hang, bounded memory; whatever is accepted obeys
// the format's rules, and writing it anew gives a header that says the same.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/check.h"
#include "platform/base/text.h"
#include "training/checkpoint/format/safetensors.h"

namespace {

using namespace ff::checkpoint;

void check_accepted(const SafetensorsHeader& header, uint64_t data_size) {
  SafetensorsHeaderWriter writer;
  if (header.has_metadata()) writer.metadata(header.metadata());
  uint64_t at = 0;
  for (size_t i = 0; i < header.count(); i++) {
    const auto tensor = header.tensor(i);
    FF_CHECK(tensor.begin == at && tensor.end >= tensor.begin);
    FF_CHECK(ff::valid_utf8(tensor.name));
    at = tensor.end;
    writer.tensor(tensor.name, tensor.dtype, tensor.shape, tensor.end - tensor.begin);
  }
  FF_CHECK(at == data_size);
  const auto text = writer.finish();
  FF_CHECK(text.ok());
  const auto again =
      SafetensorsHeader::parse(std::string_view(*text).substr(kSafetensorsLengthBytes), data_size);
  FF_CHECK(again.ok());
  FF_CHECK(again->count() == header.count() && again->metadata() == header.metadata());
  for (size_t i = 0; i < header.count(); i++) {
    FF_CHECK(again->tensor(i).name == header.tensor(i).name);
    FF_CHECK(again->tensor(i).shape == header.tensor(i).shape);
  }
}

}  // namespace

// The input is a file: length word, header, data.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const auto length = safetensors_header_length(file.substr(0, kSafetensorsLengthBytes), size);
  if (!length) return 0;
  const auto json = file.substr(kSafetensorsLengthBytes, *length);
  const uint64_t data_size = size - kSafetensorsLengthBytes - *length;
  const auto header = SafetensorsHeader::parse(json, data_size);
  const auto metadata = safetensors_metadata(json);
  if (!header) return 0;
  FF_CHECK(metadata.ok() && metadata->has_value() == header->has_metadata());
  check_accepted(*header, data_size);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const bool with_metadata : {false, true}) {
    SafetensorsHeaderWriter writer;
    if (with_metadata) writer.metadata({{"format", "pt"}, {"step\n", "\"12\""}});
    writer.tensor("layers.0.weight", "F32", {2, 3}, 24);
    writer.tensor("layers.0.bias", "BF16", {3}, 6);
    writer.tensor("scalar", "I64", {}, 8);
    writer.tensor("none", "U8", {0, 7}, 0);
    writer.tensor("strange", "F3_NEW", {5}, 2);
    writer.tensor("half bytes", "F4", {6}, 3);
    seeds.push_back(writer.finish().value() + std::string(writer.data_size(), 'x'));
  }
  seeds.push_back(SafetensorsHeaderWriter().finish().value());
  return seeds;
}
