// compute_kernels.cc: the kernels. The golden values come from programs that share no code with
// them (tests/ops/validate/goldens.py computes them again).
#include "ops/validate/compute_kernels.h"

#include <openssl/evp.h>

#include <array>
#include <cstring>
#include <vector>

#include "platform/base/check.h"
#include "platform/simd/crc32c.h"
#include "platform/simd/gemm.h"

namespace ff::validate {

namespace {

constexpr size_t kSide = 384;              // of a matrix
constexpr size_t kKernelBytes = 1 * kMiB;  // copied and digested
constexpr size_t kPoints = 4096;           // of a transform
constexpr uint32_t kPrime = 998'244'353;   // 119 * 2^23 + 1, of which 3 is a primitive root
constexpr size_t kMixes = 200'000;

uint32_t power(uint64_t base, uint32_t exponent) {
  uint64_t result = 1;
  for (; exponent > 0; exponent >>= 1, base = base * base % kPrime) {
    if ((exponent & 1) != 0) result = result * base % kPrime;
  }
  return static_cast<uint32_t>(result);
}

}  // namespace

struct KernelMemory::Parts {
  std::vector<float> a, b, c;
  std::vector<std::byte> bytes, copy;
  std::vector<uint32_t> points, work, roots;
  simd::Gemm gemm{{.m = kSide, .n = kSide, .k = kSide}};
};

KernelMemory::KernelMemory() : parts_(std::make_unique<Parts>()) {
  Parts& own = *parts_;
  own.a.resize(kSide * kSide);
  own.b.resize(kSide * kSide);
  own.c.resize(kSide * kSide);
  // Small enough that the sum of kSide products stays below 2^24.
  for (size_t i = 0; i < own.a.size(); i++) {
    own.a[i] = static_cast<float>(static_cast<int>(i * 7 % 29) - 14);
    own.b[i] = static_cast<float>(static_cast<int>(i * 11 % 31) - 15);
  }
  own.bytes.resize(kKernelBytes);
  own.copy.resize(kKernelBytes);
  uint32_t state = 1;
  for (std::byte& one : own.bytes) {
    state = state * 1'664'525 + 1'013'904'223;  // Numerical Recipes
    one = static_cast<std::byte>(state >> 24);
  }
  own.points.resize(kPoints);
  own.work.resize(kPoints);
  own.roots.resize(kPoints);
  for (size_t i = 0; i < kPoints; i++)
    own.points[i] = static_cast<uint32_t>(i * i + 12'345) % kPrime;
  const uint64_t root = power(3, (kPrime - 1) / kPoints);
  own.roots[0] = 1;
  for (size_t i = 1; i < kPoints; i++) {
    own.roots[i] = static_cast<uint32_t>(own.roots[i - 1] * root % kPrime);
  }
}

KernelMemory::~KernelMemory() = default;

namespace {

using Parts = KernelMemory::Parts;

template <class T>
uint32_t crc_of(const std::vector<T>& made) {
  return simd::crc32c({reinterpret_cast<const std::byte*>(made.data()), made.size() * sizeof(T)});
}

uint32_t run_gemm(KernelMemory& memory) {
  Parts& own = memory.parts();
  own.gemm.run(own.a.data(), own.b.data(), own.c.data());
  return crc_of(own.c);
}

// A Cooley-Tukey transform over the integers modulo a prime.
uint32_t run_transform(KernelMemory& memory) {
  Parts& own = memory.parts();
  constexpr unsigned kBits = 12;
  static_assert(size_t{1} << kBits == kPoints);
  for (size_t i = 0; i < kPoints; i++) {
    size_t mirrored = 0;
    for (unsigned bit = 0; bit < kBits; bit++) mirrored |= (i >> bit & 1) << (kBits - 1 - bit);
    own.work[mirrored] = own.points[i];
  }
  for (size_t half = 1; half < kPoints; half *= 2) {
    const size_t step = kPoints / (2 * half);
    for (size_t from = 0; from < kPoints; from += 2 * half) {
      for (size_t i = 0; i < half; i++) {
        const uint32_t even = own.work[from + i];
        const auto odd = static_cast<uint32_t>(uint64_t{own.work[from + half + i]} *
                                               own.roots[i * step] % kPrime);
        own.work[from + i] = (even + odd) % kPrime;
        own.work[from + half + i] = (even + kPrime - odd) % kPrime;
      }
    }
  }
  return crc_of(own.work);
}

// A chain of dependent multiplications, divisions, shifts and branches.
uint32_t run_integer(KernelMemory&) {
  uint64_t x = 88'172'645'463'325'252ULL, sum = 0;
  for (size_t i = 0; i < kMixes; i++) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    sum += (x & 1) != 0 ? x / (i + 3) : x * 2'862'933'555'777'941'757ULL;
    sum = sum << 11 | sum >> 53;
  }
  std::array<std::byte, sizeof sum> bytes;
  std::memcpy(bytes.data(), &sum, sizeof sum);
  return simd::crc32c(bytes);
}

uint32_t run_sha(KernelMemory& memory) {
  std::array<std::byte, 32> digest;
  unsigned size = 0;
  const Parts& own = memory.parts();
  FF_CHECK(::EVP_Digest(own.bytes.data(), own.bytes.size(),
                        reinterpret_cast<unsigned char*>(digest.data()), &size, ::EVP_sha256(),
                        nullptr) == 1);
  return simd::crc32c(digest);
}

uint32_t run_crc(KernelMemory& memory) { return simd::crc32c(memory.parts().bytes); }

uint32_t run_copy(KernelMemory& memory) {
  Parts& own = memory.parts();
  std::memcpy(own.copy.data(), own.bytes.data(), kKernelBytes);
  asm volatile("" : : "r"(own.copy.data()) : "memory");
  return simd::crc32c(own.copy);
}

constexpr double kFlop = 2.0 * kSide * kSide * kSide;
constexpr std::array kKernels = {
    ComputeKernel{"gemm", "vector multiply-add", kFlop, "FLOP", 0x2cd9b68d, run_gemm},
    ComputeKernel{"transform", "integer arithmetic in caches", kPoints * 12.0, "OP", 0x5db3474a,
                  run_transform},
    ComputeKernel{"integer", "dependent integer arithmetic", 1.0 * kMixes, "OP", 0xfa9aaef9,
                  run_integer},
    ComputeKernel{"sha256", "digests", 1.0 * kKernelBytes, "B", 0x4bd0bbd5, run_sha},
    ComputeKernel{"crc32c", "carry-less products", 1.0 * kKernelBytes, "B", 0x1f763ffa, run_crc},
    ComputeKernel{"memcpy", "loads and stores", 1.0 * kKernelBytes, "B", 0x1f763ffa, run_copy},
};

}  // namespace

std::span<const ComputeKernel> compute_kernels() { return kKernels; }

}  // namespace ff::validate
