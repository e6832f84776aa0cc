// turn_work.cc: units of a piece, from inputs to outputs.
#include "training/collective/turn_work.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "platform/base/check.h"

namespace ff::collective {

namespace {

using simd::DataType;
using simd::ReduceOp;
using simd::Stage;
using simd::Wire;

bool is_float(DataType type) { return simd::partial_type(type) == DataType::f32; }

uint64_t units_bytes(Wire wire, uint64_t count) {
  return count / kUnit * simd::wire_bytes(wire, kUnit) + simd::wire_bytes(wire, count % kUnit);
}

// Memory of a turn, in this process.
struct Reached {
  std::array<const std::byte*, kHostRanksMax> inputs = {};
  std::array<std::byte*, kHostRanksMax> outputs = {};
  size_t ins = 0, outs = 0;
  std::array<const std::byte*, kBelowMax> partials = {};
  std::byte* send = nullptr;
  const std::byte* result = nullptr;
};

// The work on one unit after the other.
class Work {
 public:
  Work(const Request& request, const Turn& turn, const Reached& at)
      : request_(request), turn_(turn), at_(at), type_(request.type) {}

  void run() {
    const uint64_t count = turn_.piece.count;
    for (first_ = 0; first_ < count; first_ += kUnit) {
      count_ = std::min(kUnit, count - first_);
      if (only_copies(request_.kind)) {
        copy();
      } else if (turn_.sums) {
        sum();
      } else {
        receive();
      }
    }
  }

 private:
  using Floats = std::array<float, kUnit>;

  uint64_t value_at() const { return first_ * simd::size_of(type_); }
  uint64_t partial_at() const { return first_ * simd::size_of(simd::partial_type(type_)); }
  // Of the smaller form.
  uint64_t wire_at() const { return first_ / kUnit * simd::wire_bytes(turn_.wire, kUnit); }

  // From memory in a stage of the type, into memory in another one.
  void reduce(Stage from, Stage to, std::span<const void* const> inputs,
              std::span<void* const> outputs) const {
    const simd::Reduce what{
        .type = type_, .op = request_.op, .from = from, .to = to, .ranks = turn_.ranks};
    simd::reduce_arrays(what, {inputs, outputs, count_});
  }
  std::span<void* const> outputs(uint64_t at, std::byte* more) {
    size_t count = 0;
    for (size_t i = 0; i < at_.outs; i++) pointers_[count++] = at_.outputs[i] + at;
    if (more != nullptr) pointers_[count++] = more + at;
    return {pointers_.data(), count};
  }

  void copy() {
    const uint64_t at = value_at();
    const std::byte* const from = (turn_.sums ? at_.inputs[0] : at_.result) + at;
    const uint64_t bytes = count_ * simd::size_of(type_);
    for (void* const to : outputs(at, at_.send)) {
      if (to != from) std::memmove(to, from, bytes);
    }
  }

  // Inputs of this node, then what came from others, in their order.
  void sum() {
    const Wire wire = turn_.wire;
    const bool same = simd::partial_type(type_) == type_;
    std::array<const void*, kHostRanksMax + kBelowMax> sources;
    size_t count = 0;
    for (size_t i = 0; i < at_.ins; i++) sources[count++] = at_.inputs[i] + value_at();
    Stage from = Stage::value;
    if (!same && (turn_.partial_count > 0 || wire != Wire::none)) {
      void* const into = sum_.data();
      reduce(Stage::value, Stage::partial, {sources.data(), count}, {&into, 1});
      sources[0] = into;
      count = 1;
      from = Stage::partial;
    }
    for (uint32_t i = 0; i < turn_.partial_count; i++) {
      if (wire == Wire::none) {
        sources[count++] = at_.partials[i] + partial_at();
        continue;
      }
      simd::decode(wire, at_.partials[i] + wire_at(), count_, came_[i].data());
      sources[count++] = came_[i].data();
    }
    put(from, {sources.data(), count});
  }
  void put(Stage from, std::span<const void* const> sources) {
    const Wire wire = turn_.wire;
    if (!turn_.is_last) {
      void* const into = wire == Wire::none ? static_cast<void*>(at_.send + partial_at())
                                            : static_cast<void*>(sum_.data());
      reduce(from, Stage::partial, sources, {&into, 1});
      if (wire != Wire::none) simd::encode(wire, sum_.data(), count_, at_.send + wire_at());
      return;
    }
    if (wire == Wire::none || !turn_.goes_down) {
      return reduce(from, Stage::value, sources, outputs(value_at(), at_.send));
    }
    // As the others will get it.
    void* const into = sum_.data();
    const simd::Reduce whole{.type = DataType::f32,
                             .op = request_.op,
                             .from = Stage::partial,
                             .to = Stage::value,
                             .ranks = turn_.ranks};
    if (from == Stage::value && type_ != DataType::f32) {
      reduce(from, Stage::partial, sources, {&into, 1});
      const void* const one = into;
      simd::reduce_arrays(whole, {{&one, 1}, {&into, 1}, count_});
    } else {
      simd::reduce_arrays(whole, {sources, {&into, 1}, count_});
    }
    simd::encode(wire, sum_.data(), count_, at_.send + wire_at());
    spread(at_.send + wire_at());
  }

  // What came from the root.
  void receive() {
    if (turn_.wire != Wire::none) return spread(at_.result + wire_at());
    const std::byte* const from = at_.result + value_at();
    const uint64_t bytes = count_ * simd::size_of(type_);
    for (void* const to : outputs(value_at(), nullptr)) std::memcpy(to, from, bytes);
  }
  void spread(const std::byte* encoded) {
    simd::decode(turn_.wire, encoded, count_, sum_.data());
    const void* const from = sum_.data();
    const simd::Reduce convert{.type = type_, .from = Stage::partial, .to = Stage::value};
    simd::reduce_arrays(convert, {{&from, 1}, outputs(value_at(), nullptr), count_});
  }

  const Request& request_;
  const Turn& turn_;
  const Reached& at_;
  const DataType type_;
  uint64_t first_ = 0, count_ = 0;  // elements of the unit
  std::array<void*, kHostRanksMax + 1> pointers_ = {};
  // As wide as any partial sum in the smaller form.
  alignas(64) Floats sum_;
  alignas(64) std::array<Floats, kBelowMax> came_;
};

Result<const std::byte*> reach_first(HostGroup& group, const Place& place, uint64_t bytes) {
  FF_TRY(const std::byte* const at, group.reach(0, place, bytes));
  return at;
}

}  // namespace

simd::Wire wire_of(const Request& request, simd::Wire wanted) {
  const bool takes = !only_copies(request.kind) && is_float(request.type) &&
                     (request.op == ReduceOp::sum || request.op == ReduceOp::avg);
  return takes ? wanted : Wire::none;
}

uint64_t up_bytes(const Request& request, simd::Wire wire, uint64_t count) {
  if (wire != Wire::none) return units_bytes(wire, count);
  return count * simd::size_of(simd::partial_type(request.type));
}

uint64_t down_bytes(const Request& request, simd::Wire wire, uint64_t count) {
  if (wire != Wire::none) return units_bytes(wire, count);
  return count * simd::size_of(request.type);
}

Result<void> do_turn(HostGroup& group, const Turn& turn) {
  const Board& board = group.board();
  const uint32_t first_rank = group.self().first_rank;
  const Request& request = board.request(turn.number, 0);
  const uint64_t bytes = turn.piece.count * simd::size_of(request.type);
  Reached at;
  for (uint32_t local = 0; local < board.ranks(); local++) {
    const uint32_t rank = first_rank + local;
    const Request& asked = board.request(turn.number, local);
    const Piece& piece = turn.piece;
    if (turn.sums && (piece.from == kAllRanks || piece.from == rank)) {
      Place from = asked.in;
      from.offset += piece.in_at;
      FF_TRY(at.inputs[at.ins], group.reach(local, from, bytes));
      at.ins++;
    }
    const bool gets = turn.is_last || !turn.sums;
    if (gets && (piece.to == kAllRanks || piece.to == rank)) {
      Place to = asked.out;
      to.offset += piece.out_at;
      FF_TRY(at.outputs[at.outs], group.reach(local, to, bytes));
      at.outs++;
    }
  }
  const uint64_t up = up_bytes(request, turn.wire, turn.piece.count);
  const uint64_t down = down_bytes(request, turn.wire, turn.piece.count);
  for (uint32_t i = 0; i < turn.partial_count; i++) {
    FF_TRY(at.partials[i], reach_first(group, turn.partials[i], up));
  }
  if (turn.send.region != 0) {
    FF_TRY(at.send, group.reach(0, turn.send, turn.is_last ? down : up));
  }
  if (!turn.sums) {
    FF_TRY(at.result, reach_first(group, turn.result, down));
  }
  Work(request, turn, at).run();
  return {};
}

}  // namespace ff::collective
