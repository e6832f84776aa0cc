// reduce.cc: names of types and operations, and choosing the kernel of a call.
#include "platform/simd/reduce.h"

#include <array>
#include <atomic>

#include "platform/base/check.h"
#include "platform/simd/paths.h"
#include "platform/simd/reduce_paths.h"
#include "platform/simd/wire_paths.h"

namespace ff::simd {

const ReducePath kReducePaths[kReducePathCount] = {
    {"avx512",
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
     },
     kReduceAvx512, kWireAvx512},
    {"avx2", [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"); },
     kReduceAvx2, kWireAvx2},
    {"sse2", [] { return true; }, kReduceSse2, kWireSse2},
};

namespace {

struct TypeFacts {
  std::string_view name;
  size_t bytes;
  DataType partial;
};
constexpr std::array<TypeFacts, kDataTypes> kTypes = {{
    {"float", 4, DataType::f32},
    {"double", 8, DataType::f64},
    {"half", 2, DataType::f32},
    {"bfloat16", 2, DataType::f32},
    {"f8e4m3", 1, DataType::f32},
    {"f8e5m2", 1, DataType::f32},
    {"int32", 4, DataType::i32},
    {"int64", 8, DataType::i64},
    {"uint8", 1, DataType::u8},
}};
static_assert(kDataTypes == kReduceTypes);

constexpr std::array<std::string_view, kReduceOps> kOps = {"sum", "prod", "max", "min", "avg"};

std::atomic<const ReducePath*> chosen_reduce{nullptr};

const TypeFacts& facts(DataType type) { return kTypes[static_cast<size_t>(type)]; }

}  // namespace

size_t size_of(DataType type) { return facts(type).bytes; }
std::string_view data_type_name(DataType type) { return facts(type).name; }
DataType partial_type(DataType type) { return facts(type).partial; }

std::optional<DataType> data_type_of(std::string_view name) {
  for (size_t i = 0; i < kDataTypes; i++) {
    if (kTypes[i].name == name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

std::string_view reduce_op_name(ReduceOp op) { return kOps[static_cast<size_t>(op)]; }

std::optional<ReduceOp> reduce_op_of(std::string_view name) {
  for (size_t i = 0; i < kReduceOps; i++) {
    if (kOps[i] == name) return static_cast<ReduceOp>(i);
  }
  return std::nullopt;
}

const ReducePath& chosen_reduce_path() {
  const ReducePath* one = chosen_reduce.load(std::memory_order_relaxed);
  if (one == nullptr)
    chosen_reduce.store(one = &first_supported(kReducePaths), std::memory_order_relaxed);
  return *one;
}

std::string_view reduce_path() { return chosen_reduce_path().name; }

Result<void> choose_reduce_path(std::string_view name) {
  for (const ReducePath& one : kReducePaths) {
    if (one.name != name) continue;
    if (!one.supported()) return fail(Errc::unsupported, "this CPU does not support {}", name);
    chosen_reduce.store(&one);
    return {};
  }
  return fail(Errc::usage, "unknown instruction set '{}' (avx512, avx2 or sse2)", name);
}

void reduce_arrays(const ReduceSpec& what, const ReduceArrays& arrays) {
  reduce_with(chosen_reduce_path(), what, arrays);
}

void reduce_with(const ReducePath& by, const ReduceSpec& what, const ReduceArrays& arrays) {
  FF_CHECK(!arrays.inputs.empty());
  const bool is_avg = what.op == ReduceOp::avg;
  const bool ends = what.to == ElementKind::value;
  const bool begins = what.from == ElementKind::value;
  const DataType type = begins || ends ? what.type : partial_type(what.type);
  const size_t form = begins == ends ? 0 : begins ? 1 : 2;
  const size_t op = static_cast<size_t>(is_avg ? ReduceOp::sum : what.op);
  const ReduceCall call{.inputs = arrays.inputs.data(),
                        .inputs_count = arrays.inputs.size(),
                        .outputs = arrays.outputs.data(),
                        .outputs_count = arrays.outputs.size(),
                        .count = arrays.count,
                        .divisor = is_avg && ends ? what.ranks : 0,
                        .non_temporal = what.non_temporal ? 1 : 0};
  by.run.kernels[form][static_cast<size_t>(type)][op](call);
}

}  // namespace ff::simd
