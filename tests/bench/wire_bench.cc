// Speed of floats to the wire and back on one core: bytes of floats a second. 64 KiB of floats stay
// in a second cache, 32 MiB come from memory. Every path this CPU has is measured by itself.
#include <benchmark/benchmark.h>

#include <bit>
#include <string>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/rng.h"
#include "platform/simd/reduce_paths.h"
#include "platform/simd/wire.h"

namespace ff::simd {
namespace {

struct Work {
  const ReducePath& path;
  WireType wire;
  bool is_encode;
};

void measure(benchmark::State& state, const Work& work) {
  const auto count = static_cast<size_t>(state.range(0));
  std::vector<float> floats(count);
  std::vector<std::byte> wired(wire_bytes(work.wire, count));
  SeededRng rng(1);
  for (float& one : floats) {
    // Of either sign, below 2 and any 32 powers of two beneath.
    const auto bits = static_cast<uint32_t>(rng.next());
    one = std::bit_cast<float>((bits & 0x8fffffff) | 0x30000000);
  }
  encode_with(work.path, work.wire, floats.data(), count, wired.data());
  for (auto _ : state) {
    if (work.is_encode) encode_with(work.path, work.wire, floats.data(), count, wired.data());
    if (!work.is_encode) decode_with(work.path, work.wire, wired.data(), count, floats.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(count * sizeof(float)));
}

bool add_all() {
  for (const ReducePath& path : kReducePaths) {
    if (!path.supported()) continue;
    for (const WireType wire : {WireType::bf16, WireType::fp8}) {
      for (const bool is_encode : {true, false}) {
        const std::string name = fmt::format("{}/{}/{}", is_encode ? "encode" : "decode", path.name,
                                             wire_type_name(wire));
        const Work work{path, wire, is_encode};
        auto* entry = benchmark::RegisterBenchmark(
            name.c_str(), [work](benchmark::State& state) { measure(state, work); });
        for (const uint64_t count : {16 * kKiB, 8 * kMiB}) entry->Arg(static_cast<int64_t>(count));
      }
    }
  }
  return true;
}

const bool kAdded = add_all();

}  // namespace
}  // namespace ff::simd
