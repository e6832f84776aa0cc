// collective_request.cc: sizes of inputs and outputs, and texts for messages.
#include "training/collective/collective_request.h"

#include <fmt/format.h>

#include <array>

namespace ff::collective {

namespace {

bool reduces(Collective kind) {
  return kind == Collective::allreduce || kind == Collective::reduce ||
         kind == Collective::reduce_scatter;
}
bool has_root(Collective kind) {
  return kind == Collective::reduce || kind == Collective::broadcast;
}

}  // namespace

std::string_view collective_name(Collective kind) {
  constexpr std::array<std::string_view, 6> kNames = {"barrier",   "allreduce", "reduce",
                                                      "broadcast", "allgather", "reduce-scatter"};
  return kNames[static_cast<size_t>(kind)];
}

bool is_copy(Collective kind) {
  return kind == Collective::broadcast || kind == Collective::allgather;
}

uint64_t input_bytes(const CollectiveRequest& request, uint32_t rank, uint32_t ranks) {
  const uint64_t bytes = request.count * simd::size_of(request.type);
  switch (request.kind) {
    case Collective::barrier: return 0;
    case Collective::broadcast: return rank == request.root ? bytes : 0;
    case Collective::reduce_scatter: return bytes * ranks;
    default: return bytes;
  }
}

uint64_t output_bytes(const CollectiveRequest& request, uint32_t rank, uint32_t ranks) {
  const uint64_t bytes = request.count * simd::size_of(request.type);
  switch (request.kind) {
    case Collective::barrier: return 0;
    case Collective::reduce: return rank == request.root ? bytes : 0;
    case Collective::allgather: return bytes * ranks;
    default: return bytes;
  }
}

uint64_t traffic_bytes(const CollectiveRequest& request, uint32_t ranks) {
  uint64_t bytes = 0;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    bytes += input_bytes(request, rank, ranks) + output_bytes(request, rank, ranks);
  }
  return bytes;
}

bool is_valid(const CollectiveRequest& request) {
  return request.kind <= Collective::reduce_scatter &&
         static_cast<size_t>(request.type) < simd::kDataTypes &&
         static_cast<size_t>(request.op) < simd::kReduceOps;
}

bool agree(const CollectiveRequest& a, const CollectiveRequest& b) {
  return a.kind == b.kind && a.type == b.type && a.count == b.count &&
         (!reduces(a.kind) || a.op == b.op) && (!has_root(a.kind) || a.root == b.root);
}

std::string text_of(const CollectiveRequest& request) {
  if (request.kind == Collective::barrier) return "barrier";
  std::string text = fmt::format("{} of {} {}", collective_name(request.kind), request.count,
                                 simd::data_type_name(request.type));
  if (reduces(request.kind)) text += fmt::format(", {}", simd::reduce_op_name(request.op));
  if (has_root(request.kind)) text += fmt::format(", root {}", request.root);
  return text;
}

}  // namespace ff::collective
