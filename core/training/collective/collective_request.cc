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
  return kind == Collective::reduce || kind == Collective::broadcast ||
         kind == Collective::gather || kind == Collective::scatter;
}

}  // namespace

std::string_view collective_name(Collective kind) {
  constexpr std::array<std::string_view, 9> kNames = {"barrier",   "allreduce", "reduce",
                                                      "broadcast", "allgather", "reduce-scatter",
                                                      "gather",    "scatter",   "all-to-all"};
  return kNames[static_cast<size_t>(kind)];
}

bool is_copy(Collective kind) {
  return kind == Collective::broadcast || kind == Collective::allgather;
}

bool uses_messages(Collective kind) {
  return kind == Collective::gather || kind == Collective::scatter || kind == Collective::alltoall;
}

uint64_t input_bytes(const CollectiveRequest& request, uint32_t rank, uint32_t ranks) {
  const uint64_t bytes = request.count * simd::size_of(request.type);
  switch (request.kind) {
    case Collective::barrier: return 0;
    case Collective::broadcast: return rank == request.root ? bytes : 0;
    case Collective::reduce_scatter: return bytes * ranks;
    case Collective::scatter: return rank == request.root ? bytes * ranks : 0;
    default: return bytes;
  }
}

uint64_t output_bytes(const CollectiveRequest& request, uint32_t rank, uint32_t ranks) {
  const uint64_t bytes = request.count * simd::size_of(request.type);
  switch (request.kind) {
    case Collective::barrier: return 0;
    case Collective::reduce: return rank == request.root ? bytes : 0;
    case Collective::allgather: return bytes * ranks;
    case Collective::gather: return rank == request.root ? bytes * ranks : 0;
    default: return bytes;
  }
}

Result<void> check_overlap(const CollectiveRequest& request, uint32_t rank, uint32_t ranks,
                           const void* in, const void* out) {
  const uint64_t in_bytes = input_bytes(request, rank, ranks);
  const uint64_t out_bytes = output_bytes(request, rank, ranks);
  const auto in_at = reinterpret_cast<uintptr_t>(in), out_at = reinterpret_cast<uintptr_t>(out);
  const bool disjoint = in_at + in_bytes <= out_at || out_at + out_bytes <= in_at;
  if (in_bytes == 0 || out_bytes == 0 || disjoint) return {};
  const uint64_t own = rank * request.count * simd::size_of(request.type);  // the rank's block
  uint64_t in_block = 0, out_block = 0;
  const char* in_place = "input == output";
  if (request.kind == Collective::allgather || request.kind == Collective::gather) {
    out_block = own;
    in_place = "input == output + rank * count";
  } else if (request.kind == Collective::reduce_scatter || request.kind == Collective::scatter) {
    in_block = own;
    in_place = "output == input + rank * count";
  }
  if (in_at + in_block == out_at + out_block) return {};
  Error error = fail(
      Errc::usage, "{}: the input of rank {}, {:#x} to {:#x}, overlaps its output, {:#x} to {:#x}",
      text_of(request), rank, in_at, in_at + in_bytes, out_at, out_at + out_bytes);
  error.hint = fmt::format("Give it separate memory, or work in place: {}.", in_place);
  return error;
}

uint64_t traffic_bytes(const CollectiveRequest& request, uint32_t ranks) {
  uint64_t bytes = 0;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    bytes += input_bytes(request, rank, ranks) + output_bytes(request, rank, ranks);
  }
  return bytes;
}

bool is_valid(const CollectiveRequest& request) {
  return request.kind <= Collective::alltoall &&
         static_cast<size_t>(request.type) < simd::kDataTypes &&
         static_cast<size_t>(request.op) < simd::kReduceOps;
}

bool agree(const CollectiveRequest& a, const CollectiveRequest& b) {
  return a.kind == b.kind && a.type == b.type && a.count == b.count &&
         (!reduces(a.kind) || a.op == b.op) && (!has_root(a.kind) || a.root == b.root);
}

std::string text_of(const CollectiveRequest& request) {
  if (request.kind == Collective::barrier) return "barrier";
  if (request.kind == Collective::alltoall) {
    return fmt::format("all-to-all of {}", simd::data_type_name(request.type));
  }
  std::string text = fmt::format("{} of {} {}", collective_name(request.kind), request.count,
                                 simd::data_type_name(request.type));
  if (reduces(request.kind)) text += fmt::format(", {}", simd::reduce_op_name(request.op));
  if (has_root(request.kind)) text += fmt::format(", root {}", request.root);
  return text;
}

}  // namespace ff::collective
