// Runs one operation on all ranks of a job and compares it with one reduction of all inputs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/rng.h"
#include "training/collective/communicator.h"

namespace ff::collective {

using simd::DataType;
using simd::ReduceOp;
using Bytes = std::vector<std::byte>;

inline Bytes random_bytes(uint64_t seed, uint64_t size) {
  SeededRng rng(seed);
  Bytes bytes(align_up(size, 8));
  for (uint64_t at = 0; at < bytes.size(); at += 8) store_le(&bytes[at], rng.next());
  bytes.resize(size);
  return bytes;
}

// Operations that move data.
constexpr std::array kKinds = {Collective::allreduce, Collective::reduce, Collective::broadcast,
                               Collective::allgather, Collective::reduce_scatter};

// Any bits, or numbers so small that sums of floats are exact in any order.
enum class Values { any, small };

inline Bytes small_values(uint64_t seed, const CollectiveRequest& request, uint64_t size) {
  SeededRng rng(seed);
  const uint64_t count = size / simd::size_of(request.type);
  const uint64_t smallest = request.op == ReduceOp::prod ? 1 : 0;
  const uint64_t above = request.op == ReduceOp::prod ? 2 : 4;
  Bytes bytes(size);
  std::vector<float> numbers(count);
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t value = smallest + rng.next() % above;
    std::byte* const at = &bytes[i * simd::size_of(request.type)];
    numbers[i] = static_cast<float>(value);
    if (request.type == DataType::f64) {
      const auto number = static_cast<double>(value);
      std::memcpy(at, &number, sizeof number);
    } else {
      std::memcpy(at, &value, simd::size_of(request.type));
    }
  }
  if (simd::partial_type(request.type) == DataType::f32 && count > 0) {
    const void* const from = numbers.data();
    void* const to = bytes.data();
    simd::reduce_arrays({.type = request.type, .from = simd::ElementKind::partial},
                        {{&from, 1}, {&to, 1}, count});
  }
  return bytes;
}

// The input of a rank in the test number `test`.
inline Bytes input_of(const CollectiveRequest& request, uint32_t rank, uint32_t ranks,
                      uint64_t test, Values values) {
  const uint64_t seed = test * 100 + rank, size = input_bytes(request, rank, ranks);
  return values == Values::any ? random_bytes(seed, size) : small_values(seed, request, size);
}

// The output by one call over all inputs.
inline Bytes expected_of(const CollectiveRequest& request, uint32_t rank, uint32_t ranks,
                         uint64_t test, Values values) {
  std::vector<Bytes> inputs;
  for (uint32_t other = 0; other < ranks; other++) {
    inputs.push_back(input_of(request, other, ranks, test, values));
  }
  Bytes out(output_bytes(request, rank, ranks));
  const uint64_t block = request.count * simd::size_of(request.type);
  switch (request.kind) {
    case Collective::barrier: break;
    case Collective::broadcast: out = inputs[request.root]; break;
    case Collective::scatter:
      if (block > 0) std::memcpy(out.data(), &inputs[request.root][rank * block], block);
      break;
    case Collective::gather:
      if (rank != request.root) break;
      [[fallthrough]];
    case Collective::allgather:
      for (uint32_t other = 0; other < ranks; other++) {
        std::copy(inputs[other].begin(), inputs[other].end(),
                  out.begin() + static_cast<ptrdiff_t>(other * block));
      }
      break;
    default: {
      const uint64_t at = request.kind == Collective::reduce_scatter ? rank * block : 0;
      std::vector<const void*> from;
      for (const Bytes& one : inputs) from.push_back(one.data() + at);
      void* const to = out.data();
      const simd::ReduceSpec what{.type = request.type, .op = request.op, .ranks = ranks};
      if (!out.empty()) simd::reduce_arrays(what, {from, {&to, 1}, request.count});
    }
  }
  return out;
}

enum class Memory { shared, own, in_place };

// Where a rank's input starts in its output, or its output in its input, when both are one array:
// bytes (check_overlap()).
inline uint64_t in_place_offset(const CollectiveRequest& request, uint32_t rank) {
  const bool is_root = uses_messages(request.kind) && rank == request.root;
  const bool has_blocks =
      request.kind == Collective::allgather || request.kind == Collective::reduce_scatter;
  return has_blocks || is_root ? rank * request.count * simd::size_of(request.type) : 0;
}

// One operation on all ranks; each checks its own output.
inline void check_one(Communicator& ranks, const CollectiveRequest& request, uint64_t test,
                      Memory memory, Values values = Values::any) {
  const uint32_t rank = ranks.rank(), count = ranks.ranks();
  ASSERT_TRUE(request.kind != Collective::barrier || request.count == 0)
      << "a barrier has no output to check";
  const Bytes input = input_of(request, rank, count, test, values);
  const Bytes expected = expected_of(request, rank, count, test, values);
  const uint64_t larger = std::max(input.size(), expected.size());
  Bytes own_in = input, own_out(expected.size());
  Operation operation{.kind = request.kind,
                      .type = request.type,
                      .op = request.op,
                      .root = request.root,
                      .count = request.count,
                      .in = own_in.data(),
                      .out = own_out.data()};
  ByteSpan in, out;
  if (memory == Memory::shared) {
    in = ranks.allocate(input.size() + 8).value();
    out = ranks.allocate(expected.size() + 8).value();
    operation.in = in.data() + test % 8;  // anywhere
    operation.out = out.data() + test % 5;
    std::copy(input.begin(), input.end(), in.begin() + static_cast<ptrdiff_t>(test % 8));
  } else if (memory == Memory::in_place) {
    const auto offset = static_cast<ptrdiff_t>(in_place_offset(request, rank));
    own_in.resize(larger);
    operation.in = operation.out = own_in.data();
    if (request.kind == Collective::allgather || request.kind == Collective::gather) {
      std::copy(input.begin(), input.end(), own_in.begin() + offset);
      operation.in = own_in.data() + offset;
    } else {
      operation.out = own_in.data() + offset;
    }
  }
  const auto run = ranks.run(operation);
  ASSERT_TRUE(run.ok()) << run.error().message;
  const auto* got = static_cast<const std::byte*>(operation.out);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got))
      << text_of(request) << " on rank " << rank << " of " << count << ", test " << test;
  if (memory == Memory::shared) {
    ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
    EXPECT_TRUE(ranks.free(in.data()).ok());
    EXPECT_TRUE(ranks.free(out.data()).ok());
  }
}

// Starts operations of all kinds with `count` and more elements, then waits for them in reverse
// order.
inline void check_in_flight(Communicator& ranks, uint64_t operations, uint64_t count) {
  struct InflightOperation {
    CollectiveRequest request;
    Bytes in, out;
    uint64_t number = 0;
  };
  std::vector<InflightOperation> started(operations);
  const uint32_t rank = ranks.rank(), all = ranks.ranks();
  for (uint64_t i = 0; i < started.size(); i++) {
    InflightOperation& one = started[i];
    one.request = {.kind = kKinds[i % kKinds.size()],
                   .type = DataType::f32,
                   .root = static_cast<uint32_t>(i % all),
                   .count = count + i};
    one.in = input_of(one.request, rank, all, i, Values::small);
    one.out.resize(output_bytes(one.request, rank, all));
    const auto number = ranks.start({.kind = one.request.kind,
                                     .type = one.request.type,
                                     .root = one.request.root,
                                     .count = one.request.count,
                                     .in = one.in.data(),
                                     .out = one.out.data()});
    ASSERT_TRUE(number.ok()) << number.error().message;
    one.number = *number;
  }
  for (uint64_t i = started.size(); i-- > 0;) {
    const auto waited = ranks.wait(started[i].number);
    ASSERT_TRUE(waited.ok()) << waited.error().message;
    EXPECT_EQ(started[i].out, expected_of(started[i].request, rank, all, i, Values::small)) << i;
  }
}

}  // namespace ff::collective
