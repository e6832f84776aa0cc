// work_executor.cc: one unit after the other of a piece, from inputs to outputs.
#include "training/collective/work_executor.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "platform/base/check.h"

namespace ff::collective {

namespace {

using simd::DataType;
using simd::ElementKind;
using simd::ReduceOp;
using simd::WireType;

// An operation with more traffic bypasses the caches: its results would be evicted before a rank
// reads them.
constexpr uint64_t kCachedWorkBytes = 8 * kMiB;

bool is_float(DataType type) { return simd::partial_type(type) == DataType::f32; }

uint64_t units_bytes(WireType wire, uint64_t count) {
  return count / kUnitElements * simd::wire_bytes(wire, kUnitElements) +
         simd::wire_bytes(wire, count % kUnitElements);
}

// The memory of a work item, in this process.
struct ItemMemory {
  std::array<const std::byte*, kHostRanksMax> inputs = {};
  std::array<std::byte*, kHostRanksMax> outputs = {};
  size_t ins = 0, outs = 0;
  std::array<const std::byte*, kChildrenMax> partials = {};
  std::byte* send = nullptr;
  const std::byte* result = nullptr;
};

class WorkExecutor {
 public:
  WorkExecutor(const CollectiveRequest& request, const WorkItem& item, const ItemMemory& memory)
      : request_(request),
        item_(item),
        memory_(memory),
        type_(request.type),
        non_temporal_(request.count * simd::size_of(request.type) * (memory.ins + memory.outs) >
                      kCachedWorkBytes) {}

  void run() {
    const uint64_t count = item_.piece.count;
    for (first_ = 0; first_ < count; first_ += kUnitElements) {
      count_ = std::min(kUnitElements, count - first_);
      if (is_copy(request_.kind)) {
        copy();
      } else if (item_.reduces) {
        reduce_inputs();
      } else {
        store_result();
      }
    }
  }

 private:
  using Floats = std::array<float, kUnitElements>;

  uint64_t value_at() const { return first_ * simd::size_of(type_); }
  uint64_t partial_at() const { return first_ * simd::size_of(simd::partial_type(type_)); }
  // In the smaller wire format.
  uint64_t wire_at() const {
    return first_ / kUnitElements * simd::wire_bytes(item_.wire, kUnitElements);
  }

  // Reduces inputs of one element kind into outputs of another.
  void reduce(ElementKind from, ElementKind to, std::span<const void* const> inputs,
              std::span<void* const> outputs) const {
    const simd::ReduceSpec what{
        .type = type_, .op = request_.op, .from = from, .to = to, .ranks = item_.ranks};
    simd::reduce_arrays(what, {inputs, outputs, count_});
  }
  std::span<void* const> outputs(uint64_t at, std::byte* extra) {
    size_t count = 0;
    for (size_t i = 0; i < memory_.outs; i++) pointers_[count++] = memory_.outputs[i] + at;
    if (extra != nullptr) pointers_[count++] = extra + at;
    return {pointers_.data(), count};
  }

  void copy() {
    const uint64_t at = value_at();
    const std::byte* const from = (item_.reduces ? memory_.inputs[0] : memory_.result) + at;
    const uint64_t bytes = count_ * simd::size_of(type_);
    for (void* const to : outputs(at, memory_.send)) {
      if (to != from) std::memmove(to, from, bytes);
    }
  }
  // Stores final values in the outputs.
  void store(const std::byte* from) {
    const uint64_t bytes = count_ * simd::size_of(type_);
    const auto all = outputs(value_at(), nullptr);
    if (!non_temporal_) {
      for (void* const to : all) std::memcpy(to, from, bytes);
      return;
    }
    const void* const source = from;
    const simd::ReduceSpec copy{.type = DataType::u8, .non_temporal = true};
    if (!all.empty()) simd::reduce_arrays(copy, {{&source, 1}, all, bytes});
  }

  // The inputs of this host, then the partial sums of the children, in their order.
  void reduce_inputs() {
    const WireType wire = item_.wire;
    const bool same = simd::partial_type(type_) == type_;
    std::array<const void*, kHostRanksMax + kChildrenMax> sources;
    size_t count = 0;
    for (size_t i = 0; i < memory_.ins; i++) sources[count++] = memory_.inputs[i] + value_at();
    ElementKind from = ElementKind::value;
    if (!same && (item_.partial_count > 0 || wire != WireType::none)) {
      void* const into = sum_.data();
      reduce(ElementKind::value, ElementKind::partial, {sources.data(), count}, {&into, 1});
      sources[0] = into;
      count = 1;
      from = ElementKind::partial;
    }
    for (uint32_t i = 0; i < item_.partial_count; i++) {
      if (wire == WireType::none) {
        sources[count++] = memory_.partials[i] + partial_at();
        continue;
      }
      simd::decode(wire, memory_.partials[i] + wire_at(), count_, decoded_[i].data());
      sources[count++] = decoded_[i].data();
    }
    store_sum(from, {sources.data(), count});
  }
  void store_sum(ElementKind from, std::span<const void* const> sources) {
    const WireType wire = item_.wire;
    if (!item_.is_root) {
      void* const into = wire == WireType::none ? static_cast<void*>(memory_.send + partial_at())
                                                : static_cast<void*>(sum_.data());
      reduce(from, ElementKind::partial, sources, {&into, 1});
      if (wire != WireType::none) simd::encode(wire, sum_.data(), count_, memory_.send + wire_at());
      return;
    }
    if (wire == WireType::none && non_temporal_ && memory_.send != nullptr) {
      // What is sent next stays in the cache.
      std::byte* const result = memory_.send + value_at();
      void* const into = result;
      reduce(from, ElementKind::value, sources, {&into, 1});
      return store(result);
    }
    if (wire == WireType::none || !item_.broadcasts) {
      return reduce(from, ElementKind::value, sources, outputs(value_at(), memory_.send));
    }
    // Other hosts get the encoded result; decode it here too.
    void* const into = sum_.data();
    const simd::ReduceSpec whole{.type = DataType::f32,
                                 .op = request_.op,
                                 .from = ElementKind::partial,
                                 .to = ElementKind::value,
                                 .ranks = item_.ranks};
    if (from == ElementKind::value && type_ != DataType::f32) {
      reduce(from, ElementKind::partial, sources, {&into, 1});
      const void* const one = into;
      simd::reduce_arrays(whole, {{&one, 1}, {&into, 1}, count_});
    } else {
      simd::reduce_arrays(whole, {sources, {&into, 1}, count_});
    }
    simd::encode(wire, sum_.data(), count_, memory_.send + wire_at());
    decode_result(memory_.send + wire_at());
  }

  // Stores the result of the root in the outputs.
  void store_result() {
    if (item_.wire != WireType::none) return decode_result(memory_.result + wire_at());
    store(memory_.result + value_at());
  }
  void decode_result(const std::byte* encoded) {
    simd::decode(item_.wire, encoded, count_, sum_.data());
    const void* const from = sum_.data();
    const simd::ReduceSpec convert{
        .type = type_, .from = ElementKind::partial, .to = ElementKind::value};
    simd::reduce_arrays(convert, {{&from, 1}, outputs(value_at(), nullptr), count_});
  }

  const CollectiveRequest& request_;
  const WorkItem& item_;
  const ItemMemory& memory_;
  const DataType type_;
  const bool non_temporal_;
  uint64_t first_ = 0, count_ = 0;  // elements of the unit
  std::array<void*, kHostRanksMax + 1> pointers_ = {};
  // Partial sums that have a smaller wire format are floats.
  alignas(64) Floats sum_;
  alignas(64) std::array<Floats, kChildrenMax> decoded_;
};

Result<const std::byte*> resolve_leader(HostGroup& group, const SharedAddress& address,
                                        uint64_t bytes) {
  FF_TRY(const std::byte* const memory, group.resolve(0, address, bytes));
  return memory;
}

}  // namespace

simd::WireType wire_format_of(const CollectiveRequest& request, simd::WireType wanted) {
  const bool has_smaller = !is_copy(request.kind) && is_float(request.type) &&
                           (request.op == ReduceOp::sum || request.op == ReduceOp::avg);
  return has_smaller ? wanted : WireType::none;
}

uint64_t up_bytes(const CollectiveRequest& request, simd::WireType wire, uint64_t count) {
  if (wire != WireType::none) return units_bytes(wire, count);
  return count * simd::size_of(simd::partial_type(request.type));
}

uint64_t down_bytes(const CollectiveRequest& request, simd::WireType wire, uint64_t count) {
  if (wire != WireType::none) return units_bytes(wire, count);
  return count * simd::size_of(request.type);
}

Result<void> execute_work(HostGroup& group, const WorkItem& item) {
  const OperationTable& operations = group.operations();
  const uint32_t first_rank = group.self().first_rank;
  const CollectiveRequest& request = operations.request(item.number, 0);
  const uint64_t bytes = item.piece.count * simd::size_of(request.type);
  ItemMemory memory;
  for (uint32_t local = 0; local < operations.ranks(); local++) {
    const uint32_t rank = first_rank + local;
    const CollectiveRequest& own = operations.request(item.number, local);
    const Piece& piece = item.piece;
    if (item.reduces && (piece.from == kAllRanks || piece.from == rank)) {
      SharedAddress from = own.in;
      from.offset += piece.in_at;
      FF_TRY(memory.inputs[memory.ins], group.resolve(local, from, bytes));
      memory.ins++;
    }
    const bool writes = item.is_root || !item.reduces;
    if (writes && (piece.to == kAllRanks || piece.to == rank)) {
      SharedAddress to = own.out;
      to.offset += piece.out_at;
      FF_TRY(memory.outputs[memory.outs], group.resolve(local, to, bytes));
      memory.outs++;
    }
  }
  const uint64_t up = up_bytes(request, item.wire, item.piece.count);
  const uint64_t down = down_bytes(request, item.wire, item.piece.count);
  for (uint32_t i = 0; i < item.partial_count; i++) {
    FF_TRY(memory.partials[i], resolve_leader(group, item.partials[i], up));
  }
  if (item.send.region != 0) {
    FF_TRY(memory.send, group.resolve(0, item.send, item.is_root ? down : up));
  }
  if (!item.reduces) {
    FF_TRY(memory.result, resolve_leader(group, item.result, down));
  }
  WorkExecutor(request, item, memory).run();
  return {};
}

}  // namespace ff::collective
