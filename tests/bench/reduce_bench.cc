// Speed of reductions on one core: elements of the output a second, and bytes of all inputs and the
// output. Four inputs; 64 KiB of floats each stay in a second cache, 32 MiB come from memory and
// the output goes past the caches. Every path this CPU has is measured by itself.
#include <benchmark/benchmark.h>

#include <array>
#include <string>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/rng.h"
#include "platform/simd/reduce.h"
#include "platform/simd/reduce_paths.h"

namespace ff::simd {
namespace {

constexpr size_t kInputs = 4;

void measure(benchmark::State& state, const ReducePath& path, DataType type) {
  const auto count = static_cast<size_t>(state.range(0));
  const size_t bytes = count * size_of(type);
  std::array<std::vector<std::byte>, kInputs> ranks;
  std::array<const void*, kInputs> inputs;
  SeededRng rng(1);
  for (size_t i = 0; i < kInputs; i++) {
    ranks[i].resize(bytes);
    // Of any exponent but the highest: no infinity, no NaN.
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
      store_le(&ranks[i][at], rng.next() & 0xbfbfbfbfbfbfbfbf);
    }
    inputs[i] = ranks[i].data();
  }
  std::vector<std::byte> to(bytes);
  void* const output = to.data();
  const ReduceSpec what{.type = type, .non_temporal = count > kMiB};
  for (auto _ : state) {
    reduce_with(path, what, {inputs, {&output, 1}, count});
    benchmark::ClobberMemory();
  }
  const auto done = static_cast<int64_t>(state.iterations());
  state.SetItemsProcessed(done * static_cast<int64_t>(count));
  state.SetBytesProcessed(done * static_cast<int64_t>((kInputs + 1) * bytes));
}

bool add_all() {
  for (const ReducePath& path : kReducePaths) {
    if (!path.supported()) continue;
    for (size_t i = 0; i < kDataTypes; i++) {
      const auto type = static_cast<DataType>(i);
      const std::string name = fmt::format("sum/{}/{}", path.name, data_type_name(type));
      auto* entry = benchmark::RegisterBenchmark(
          name.c_str(), [&path, type](benchmark::State& state) { measure(state, path, type); });
      for (const uint64_t count : {16 * kKiB, 8 * kMiB}) entry->Arg(static_cast<int64_t>(count));
    }
  }
  return true;
}

const bool kAdded = add_all();

}  // namespace
}  // namespace ff::simd
