// collective.cc: generates input with known elements, times the operations and verifies the output.
#include "lab/bench/collective.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "platform/simd/digest.h"
#include "training/collective/work_executor.h"

namespace ff::bench {

using collective::Collective;
using collective::Operation;
using simd::DataType;

namespace {

constexpr uint64_t kBlock = 16'384;  // elements that are made and compared at a time

// Exact in every type, and so are products of many.
constexpr std::array<float, 8> kValues = {1, 2, 1, 0.5F, 1, 2, 0.5F, 1};
constexpr std::array<int, 8> kWhole = {1, 2, 3, 1, 5, 1, 7, 1};

uint64_t mixed(uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}
size_t pick(uint32_t rank, uint64_t index) { return mixed(index * 1000 + rank) % kValues.size(); }

// Maximum relative rounding error of one value.
double last_place(DataType type) {
  switch (type) {
    case DataType::f8e5m2: return 0x1p-2;
    case DataType::f8e4m3: return 0x1p-3;
    case DataType::bf16: return 0x1p-7;
    case DataType::f16: return 0x1p-10;
    default: return 0;
  }
}

// Values with so many significant bits that rounding on the network is visible.
float fine_value(uint32_t rank, uint64_t index) {
  return static_cast<float>(mixed(index * 1000 + rank) >> 40) * 0x1p-23F - 1;
}

template <class T>
void fill_as(void* to, uint32_t rank, uint64_t first, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    const size_t which = pick(rank, first + i);
    const T value =
        std::is_integral_v<T> ? static_cast<T>(kWhole[which]) : static_cast<T>(kValues[which]);
    std::memcpy(static_cast<std::byte*>(to) + i * sizeof(T), &value, sizeof(T));
  }
}

// Generates elements [first, first + count) of a rank's input; count <= kBlock. `fine`: floats of
// up to 32 bits get fine_value().
void fill_block(DataType type, bool fine, void* to, uint32_t rank, uint64_t first, uint64_t count) {
  switch (type) {
    case DataType::f64: return fill_as<double>(to, rank, first, count);
    case DataType::i32: return fill_as<int32_t>(to, rank, first, count);
    case DataType::i64: return fill_as<int64_t>(to, rank, first, count);
    case DataType::u8: return fill_as<uint8_t>(to, rank, first, count);
    default: break;
  }
  std::array<float, kBlock> wide;
  if (fine) {
    for (uint64_t i = 0; i < count; i++) wide[i] = fine_value(rank, first + i);
  } else {
    fill_as<float>(wide.data(), rank, first, count);
  }
  const void* const from = wide.data();
  simd::reduce_arrays({.type = type, .from = simd::ElementKind::partial},
                      {{&from, 1}, {&to, 1}, count});
}

void fill(DataType type, bool fine, std::byte* to, uint32_t rank, uint64_t count) {
  for (uint64_t at = 0; at < count; at += kBlock) {
    fill_block(type, fine, to + at * simd::size_of(type), rank, at, std::min(kBlock, count - at));
  }
}

// Whether the larger array of a rank has a block for each rank.
bool has_blocks(const CollectiveLoad& load) {
  if (load.is_sendrecv) return false;
  return load.kind == Collective::allgather || load.kind == Collective::reduce_scatter ||
         collective::uses_messages(load.kind);
}

// The ratio of busbw to algbw (nccl-tests, doc/PERFORMANCE.md).
double bus_factor(const CollectiveLoad& load, uint32_t ranks) {
  const double n = ranks;
  if (has_blocks(load)) return (n - 1) / n;
  return load.kind == Collective::allreduce && !load.is_sendrecv ? 2 * (n - 1) / n : 1;
}

double quantile(std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

}  // namespace

bool works_in_place(const CollectiveLoad& load) {
  return !load.is_sendrecv && load.kind != Collective::alltoall;
}

uint64_t traffic_of(const CollectiveLoad& load, uint64_t count, uint32_t ranks) {
  const uint64_t blocks = count * simd::size_of(load.type) * ranks;
  if (load.is_sendrecv) return 2 * blocks;
  if (load.kind == Collective::alltoall) return 2 * blocks * ranks;
  return collective::traffic_bytes({.kind = load.kind, .type = load.type, .count = count}, ranks);
}

Result<CollectiveBench> CollectiveBench::make(collective::Communicator& ranks, Clock& clock,
                                              uint64_t bytes_max) {
  CollectiveBench made(ranks, clock);
  FF_TRY(made.in_, ranks.allocate(bytes_max));
  FF_TRY(made.out_, ranks.allocate(bytes_max));
  return made;
}

Result<CollectiveResult> CollectiveBench::run(const CollectiveLoad& load) {
  const uint32_t rank = ranks_.rank(), ranks = ranks_.ranks();
  const uint64_t size = simd::size_of(load.type), blocks = has_blocks(load) ? ranks : 1;
  CollectiveResult figures;
  figures.count = load.bytes / size / blocks;
  const uint64_t block = figures.count * size;
  figures.bytes = block * blocks;
  const std::vector<uint64_t> counts(ranks, figures.count);
  Operation operation{.kind = load.kind,
                      .type = load.type,
                      .op = load.op,
                      .root = load.root,
                      .count = figures.count,
                      .in = in_.data(),
                      .out = load.in_place ? in_.data() : out_.data()};
  const bool is_alltoall = load.kind == Collective::alltoall;
  if (is_alltoall) {
    operation.count = 0;
    operation.in_counts = operation.out_counts = counts;
  }
  const bool is_root = rank == load.root;
  const bool gathers = load.kind == Collective::allgather || load.kind == Collective::gather;
  const bool scatters = load.kind == Collective::reduce_scatter || load.kind == Collective::scatter;
  // Offset of the in-place block.
  const uint64_t own = collective::uses_messages(load.kind) && !is_root ? 0 : rank * block;
  if (load.in_place && gathers) operation.in = in_.data() + own;
  if (load.in_place && scatters) operation.out = in_.data() + own;
  const uint64_t given = scatters || is_alltoall ? figures.count * ranks : figures.count;
  const auto begin = [&]() -> Result<void> {
    std::memset(out_.data(), 0, figures.bytes);
    fill(load.type, has_rounding(load), static_cast<std::byte*>(const_cast<void*>(operation.in)),
         rank, given);
    return ranks_.run({.kind = Collective::barrier});
  };
  FF_TRY(begin());
  for (unsigned i = 0; i < load.warm_ups; i++) FF_TRY(execute(operation, load));
  FF_TRY(ranks_.run({.kind = Collective::barrier}));
  std::vector<double> took;
  const int64_t began_ns = clock_.steady_ns();
  for (int64_t last_ns = began_ns; took.size() < load.iterations;) {
    FF_TRY(execute(operation, load));
    const int64_t now_ns = clock_.steady_ns();
    took.push_back(static_cast<double>(now_ns - last_ns) / kSecond);
    last_ns = now_ns;
  }
  const double mean = static_cast<double>(clock_.steady_ns() - began_ns) / kSecond /
                      static_cast<double>(load.iterations);
  FF_TRY(figures.seconds, reduce_over_ranks(std::max(mean, 1e-9), simd::ReduceOp::avg));
  std::ranges::sort(took);
  figures.p50_seconds = quantile(took, 0.5);
  figures.p99_seconds = quantile(took, 0.99);
  figures.algorithm_rate = static_cast<double>(figures.bytes) / figures.seconds;
  figures.memory_rate =
      static_cast<double>(traffic_of(load, figures.count, ranks)) / figures.seconds;
  figures.bus_rate = figures.algorithm_rate * bus_factor(load, ranks);
  if (!load.check) return figures;
  FF_TRY(begin());
  FF_TRY(execute(operation, load));
  FF_TRY(verify(operation, load, figures));
  return figures;
}

Result<void> CollectiveBench::execute(const Operation& operation, const CollectiveLoad& load) {
  if (!load.is_sendrecv) return ranks_.run(operation);
  const uint32_t rank = ranks_.rank(), ranks = ranks_.ranks();
  const uint64_t bytes = operation.count * simd::size_of(operation.type);
  FF_TRY(const uint64_t receives,
         ranks_.start_receive({out_.data(), bytes}, (rank + ranks - 1) % ranks, 0));
  FF_TRY(const uint64_t sends, ranks_.start_send({in_.data(), bytes}, (rank + 1) % ranks, 0));
  FF_TRY(ranks_.wait(receives));
  return ranks_.wait(sends);
}

// Whether the data type on the network rounds the values.
bool CollectiveBench::has_rounding(const CollectiveLoad& load) const {
  const collective::CollectiveRequest request{.kind = load.kind, .type = load.type, .op = load.op};
  return ranks_.world() != nullptr && !load.is_sendrecv && !collective::uses_messages(load.kind) &&
         collective::wire_format_of(request, load.wire) != simd::WireType::none;
}

// Verifies the output on all ranks.
Result<void> CollectiveBench::verify(const Operation& operation, const CollectiveLoad& load,
                                     CollectiveResult& figures) {
  const simd::WireType wire = load.wire;
  const Checked mine = check(operation, load, has_rounding(load) ? wire : simd::WireType::none);
  const auto number = [](uint64_t count) { return static_cast<double>(count); };
  FF_TRY(const double wrong, reduce_over_ranks(number(mine.wrong), simd::ReduceOp::sum));
  FF_TRY(const double worst, reduce_over_ranks(mine.worst, simd::ReduceOp::max));
  FF_TRY(const double squares, reduce_over_ranks(mine.squares, simd::ReduceOp::sum));
  FF_TRY(const double elements, reduce_over_ranks(number(mine.elements), simd::ReduceOp::sum));
  FF_TRY(const double largest, reduce_over_ranks(mine.largest, simd::ReduceOp::max));
  figures.wrong = static_cast<uint64_t>(wrong);
  if (largest > 0) {
    figures.worst_error = worst / largest;
    figures.mean_error = std::sqrt(squares / elements) / largest;
  }
  const ByteView result(static_cast<const std::byte*>(operation.out), result_bytes(load, figures));
  figures.digest = simd::fingerprint(simd::DigestKind::xxh128, result).digest.hex();
  return {};
}

// Of this rank.
uint64_t CollectiveBench::result_bytes(const CollectiveLoad& load,
                                       const CollectiveResult& figures) const {
  if (!works_in_place(load)) return figures.bytes;
  return collective::output_bytes(
      {.kind = load.kind, .type = load.type, .root = load.root, .count = figures.count},
      ranks_.rank(), ranks_.ranks());
}

// Where element `at` of this rank's output comes from; nothing: it is a sum of all ranks.
std::optional<CollectiveBench::Source> CollectiveBench::source_of(const Operation& operation,
                                                                  const CollectiveLoad& load,
                                                                  uint64_t at) const {
  const uint32_t rank = ranks_.rank(), ranks = ranks_.ranks();
  const bool is_alltoall = operation.kind == Collective::alltoall;
  const uint64_t block = is_alltoall ? operation.in_counts[0] : operation.count;
  if (load.is_sendrecv) return Source{(rank + ranks - 1) % ranks, at, block - at};
  switch (operation.kind) {
    case Collective::broadcast: return Source{operation.root, at, block - at};
    case Collective::scatter: return Source{operation.root, rank * block + at, block - at};
    case Collective::allgather:
    case Collective::gather:
      return Source{static_cast<uint32_t>(at / block), at % block, block - at % block};
    case Collective::alltoall:
      return Source{static_cast<uint32_t>(at / block), rank * block + at % block,
                    block - at % block};
    default: return std::nullopt;
  }
}

// Compares this rank's output with the inputs of all ranks.
CollectiveBench::Checked CollectiveBench::check(const Operation& operation,
                                                const CollectiveLoad& load,
                                                simd::WireType wire) const {
  Checked checked;
  const uint32_t rank = ranks_.rank(), ranks = ranks_.ranks();
  const uint64_t size = simd::size_of(operation.type);
  CollectiveResult figures;
  const uint64_t block =
      operation.kind == Collective::alltoall ? operation.in_counts[0] : operation.count;
  figures.count = block;
  figures.bytes = block * size * (has_blocks(load) ? ranks : 1);
  const uint64_t count = result_bytes(load, figures) / size;
  std::vector<std::vector<std::byte>> inputs(ranks, std::vector<std::byte>(kBlock * size));
  std::vector<const void*> from;
  for (const auto& input : inputs) from.push_back(input.data());
  std::vector<std::byte> expected(kBlock * size);
  void* const to = expected.data();
  const bool is_fine = wire != simd::WireType::none;
  for (uint64_t at = 0, some = 0; at < count; at += some) {
    some = std::min(kBlock, count - at);
    if (const auto source = source_of(operation, load, at)) {
      some = std::min(some, source->count);
      fill_block(operation.type, is_fine, to, source->rank, source->first, some);
    } else {
      const uint64_t first = operation.kind == Collective::reduce_scatter ? at + rank * count : at;
      for (uint32_t other = 0; other < ranks; other++) {
        fill_block(operation.type, is_fine, inputs[other].data(), other, first, some);
      }
      const simd::ReduceSpec what{.type = operation.type, .op = operation.op, .ranks = ranks};
      simd::reduce_arrays(what, {from, {&to, 1}, some});
    }
    const auto* got = static_cast<const std::byte*>(operation.out) + at * size;
    if (is_fine) {
      compare(operation.type, wire, ranks, some, {got, to}, checked);
      continue;
    }
    for (uint64_t i = 0; i < some; i++) {
      checked.wrong += std::memcmp(got + i * size, expected.data() + i * size, size) != 0 ? 1 : 0;
    }
  }
  return checked;
}

// Compares rounded results as floats, relative to the largest magnitude of the block.
void CollectiveBench::compare(simd::DataType type, simd::WireType wire, uint32_t ranks,
                              uint64_t count, std::array<const void*, 2> arrays, Checked& checked) {
  std::array<std::vector<float>, 2> values{std::vector<float>(count), std::vector<float>(count)};
  for (size_t i = 0; i < arrays.size(); i++) {
    void* const into = values[i].data();
    simd::reduce_arrays({.type = type, .to = simd::ElementKind::partial},
                        {{&arrays[i], 1}, {&into, 1}, count});
  }
  double largest = 0;
  for (const float value : values[1]) largest = std::max(largest, std::abs(double{value}));
  // Each reduction step rounds by half a unit in the last place, and the broadcast once more;
  // partial sums may be as large as the sum of all magnitudes. Finally the result may be rounded to
  // a neighbouring value.
  const double place = wire == simd::WireType::bf16 ? 0x1p-8 : 0x1p-4;
  const double bound = (place * (std::bit_width(ranks) + 2) + last_place(type)) * largest;
  for (uint64_t i = 0; i < count; i++) {
    const double error = std::abs(double{values[0][i]} - double{values[1][i]});
    checked.wrong += error <= bound ? 0 : 1;
    checked.worst = std::max(checked.worst, error);
    checked.squares += error * error;
  }
  checked.largest = std::max(checked.largest, largest);
  checked.elements += count;
}

Result<double> CollectiveBench::reduce_over_ranks(double value, simd::ReduceOp op) {
  double all = 0;
  FF_TRY(ranks_.run({.type = DataType::f64, .op = op, .count = 1, .in = &value, .out = &all}));
  return all;
}

}  // namespace ff::bench
