// Index lines from anywhere: no crash, no hang, bounded memory; what is accepted has safe names
// and sums that add up. Lines are given to the parser without their seal, or few would get so far.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/check.h"
#include "training/checkpoint/format/chunk_file.h"
#include "training/checkpoint/format/index.h"
#include "training/checkpoint/format/sealed_line.h"

namespace {

using namespace ff::checkpoint;

uint64_t sum_of(const std::vector<ChunkExtent>& extents) {
  uint64_t sum = 0;
  for (const auto& extent : extents) {
    FF_CHECK(extent.length > 0);
    if (extent.chunk) FF_CHECK(extent.offset + extent.length <= kChunkBytes);
    sum += extent.length;
  }
  return sum;
}

void check_accepted(const Record& record) {
  ContentDigest digest(ff::simd::DigestKind::xxh128);
  if (const auto* file = std::get_if<FileRecord>(&record)) {
    FF_CHECK(safe_name(file->name));
    FF_CHECK(file->mode <= 07777);
    FF_CHECK(file->kind == EntryKind::safetensors ? sum_of(file->extents) <= file->size
                                                  : sum_of(file->extents) == file->size);
    digest.add(*file);
  } else if (const auto* tensor = std::get_if<TensorRecord>(&record)) {
    FF_CHECK(sum_of(tensor->extents) == tensor->size);
    FF_CHECK(tensor->global_shape.empty() ||
             tensor->global_shape.size() == tensor->slice_start.size());
    digest.add(*tensor);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const auto line = text.substr(at, end - at);
    (void)line_is_sealed(line);
    (void)line_name(line);
    (void)sealed_text(line, "digest");
    (void)sealed_number(line, "ff_store");
    for (const auto kind : {ff::simd::DigestKind::xxh128, ff::simd::DigestKind::sha256}) {
      const auto record = parse_record(line, kind);
      if (record) check_accepted(*record);
    }
    at = end + 1;
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const std::string chunk(32, 'a');
  const std::string sha(64, 'b');
  const std::vector<std::string> lines = {
      R"({"ff_checkpoint":1,"run":"default","step":3,"world":2,"attempt":"x-1","rank":1,)"
      R"("digest":"xxh128","created":"2026-01-02T03:04:05Z","created_ns":1767323045000000000,)"
      R"("ff":"0.1.0","host":"node","user":"me","uid":1000)",
      R"({"file":"dir/m.safetensors","rank":1,"kind":"safetensors","size":5000,"mode":420,)"
      R"("mtime_ns":-7,"extents":[[")" +
          chunk + R"(",0,512,"01234567"]])",
      R"({"file":"link","rank":0,"kind":"symlink","size":0,"mode":511,"mtime_ns":0,)"
      R"("target":"../x","extents":[])",
      R"({"file":"raw","rank":0,"kind":"opaque","size":4194404,"mode":420,"mtime_ns":0,)"
      R"("extents":[[4194304],[")" +
          sha + R"(",7,100,"89abcdef"]])",
      R"({"tensor":"layers.0.w","dtype":"BF16","shape":[2,3],"offset":0,"size":12,)"
      R"("global_shape":[4,3],"slice_start":[2,0],"slice_of":"layers","object":1,"extents":[[")" +
          chunk + R"(",512,12,"0000ffff"]])",
      R"({"end":true,"files":1,"tensors":1,"size":5000,"content":")" + chunk + R"(","index":")" +
          chunk + '"'};
  std::string whole;
  std::vector<std::string> seeds;
  for (const auto& line : lines) {
    seeds.push_back(ff::checkpoint::seal_line(line));
    whole += seeds.back();
  }
  seeds.push_back(whole);
  return seeds;
}
