// Speed of CRC32C, XXH3-128, SHA-256, the one-pass fingerprint and the zero test, on one core, in
// bytes per second. 16 KiB stays in the L1 cache, 4 MiB is a chunk, 64 MiB comes from memory.
// Every path this CPU has is measured by itself; `chosen` is what the program uses.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "platform/base/rng.h"
#include "platform/simd/crc32c.h"
#include "platform/simd/crc32c_paths.h"
#include "platform/simd/digest.h"
#include "platform/simd/xxh128_paths.h"

namespace ff::simd {
namespace {

std::vector<std::byte> random_bytes(size_t size) {
  SeededRng rng(1);
  std::vector<std::byte> data(size);
  for (size_t at = 0; at + 8 <= size; at += 8) store_le(&data[at], rng.next());
  return data;
}

template <class Action>
void run(benchmark::State& state, std::vector<std::byte> data, Action action) {
  for (auto _ : state) benchmark::DoNotOptimize(action(ByteView(data)));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(data.size()));
}

template <class Action>
void add(const std::string& name, Action action, bool zeros = false) {
  auto* entry = benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    const auto size = static_cast<size_t>(state.range(0));
    run(state, zeros ? std::vector<std::byte>(size) : random_bytes(size), action);
  });
  for (const uint64_t size : {4 * kKiB, 16 * kKiB, 4 * kMiB, 64 * kMiB}) {
    entry->Arg(static_cast<int64_t>(size));
  }
}

bool add_all() {
  for (const Crc32cPath& path : kCrc32cPaths) {
    if (!path.supported()) continue;
    add(std::string("crc32c/") + path.name, [&path](ByteView data) {
      return path.run(0, reinterpret_cast<const unsigned char*>(data.data()), data.size());
    });
  }
  for (const Xxh128Path& path : kXxh128Paths) {
    if (!path.supported()) continue;
    add(std::string("xxh128/") + path.name, [&path](ByteView data) {
      Digest digest;
      path.run.one_shot(data.data(), data.size(),
                        reinterpret_cast<unsigned char*>(digest.bytes.data()));
      return digest;
    });
  }
  add("crc32c/chosen", [](ByteView data) { return crc32c(data); });
  for (const DigestKind kind : {DigestKind::xxh128, DigestKind::sha256}) {
    const std::string name(digest_kind_name(kind));
    add(name + "/chosen", [kind](ByteView data) {
      Digester digester(kind);
      digester.update(data);
      return digester.finish();
    });
    add("fingerprint/" + name, [kind](ByteView data) { return fingerprint(kind, data).crc32c; });
  }
  add(
      "all_zero/zeros", [](ByteView data) { return all_zero(data); }, true);
  return true;
}

[[maybe_unused]] const bool kAdded = add_all();  // benchmark_main runs what is registered

}  // namespace
}  // namespace ff::simd
