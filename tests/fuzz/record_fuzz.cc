// FFRecord files from anywhere: no crash, and memory of the size of the file; an index that is
// accepted lies within the file, and encoding it anew gives the same bytes.
#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/check.h"
#include "platform/io/memory_file.h"
#include "training/record/format.h"

using namespace ff;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; i++) bytes[i] = std::byte{data[i]};
  // Right CRCs for half of the inputs, or few would get past it.
  if (size > 12 && (data[size - 1] & 1) != 0) {
    const auto samples = load_le<uint64_t>(bytes.data() + 4);
    if (samples < size && record::index_bytes(samples) <= size) {
      const size_t end = record::index_bytes(samples);
      store_le(bytes.data(), record::crc32(0, ByteView(bytes).subspan(4, end - 4)));
    }
  }
  io::MemoryFile file("fuzz.ffr", {ByteSpan(bytes)});
  const auto index = record::read_index(file);
  if (!index) return 0;
  FF_CHECK(index->offsets.size() == index->samples() + 1 && index->offsets.back() == size);
  for (uint64_t i = 0; i < index->samples(); i++) {
    FF_CHECK(index->offsets[i] <= index->offsets[i + 1]);
  }
  const std::string again = record::encode_index(*index);
  if (index->checked) FF_CHECK(again == as_text(ByteView(bytes).first(again.size())));
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const std::vector<uint64_t>& sizes :
       {std::vector<uint64_t>{}, std::vector<uint64_t>{5}, std::vector<uint64_t>{3, 0, 9, 1}}) {
    record::RecordIndex index;
    uint64_t at = record::index_bytes(sizes.size());
    for (const uint64_t bytes : sizes) {
      index.checksums.push_back(static_cast<uint32_t>(bytes));
      index.offsets.push_back(at);
      at += bytes;
    }
    index.offsets.push_back(at);
    std::string file = record::encode_index(index);
    file.resize(at, 'x');
    seeds.push_back(file);
  }
  return seeds;
}
