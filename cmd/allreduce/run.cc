// `ff allreduce run`: reduces the files of several ranks into one.
#include <algorithm>

#include "cmd/allreduce/allreduce.h"
#include "platform/auth/key.h"
#include "platform/base/units.h"
#include "platform/io/atomic_file.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/simd/digest.h"
#include "training/checkpoint/format/safetensors.h"
#include "training/collective/file_reduction.h"

namespace ff::cmd {

namespace {

using simd::DataType;

struct SumOptions {
  std::string in, out;
  JobOptions job;
  std::optional<std::string> type;
  std::string op = "sum";
  bool force = false;
  RankOptions ranks;
};

// "%r" is the rank, "%%" a percent sign.
Result<std::string> name_of(const std::string& pattern, uint32_t rank) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); i++) {
    if (pattern[i] != '%') {
      name += pattern[i];
      continue;
    }
    const char what = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (what != 'r' && what != '%') {
      Error error = fail(Errc::usage, "{}: unknown character after '%'", pattern);
      error.hint = "Write %r for the rank, and %% for a percent sign.";
      return error;
    }
    name += what == 'r' ? fmt::format("{}", rank) : "%";
    i++;
  }
  return name;
}
bool names_rank(const std::string& pattern) {
  const auto first = name_of(pattern, 0), second = name_of(pattern, 1);
  return first && second && *first != *second;
}

// An input file and its arrays.
struct Input {
  std::string path;
  std::string head = {};  // bytes before the data
  std::vector<collective::FileArray> arrays = {};
  std::vector<std::string> shapes = {};  // tensors: name, type, shape; raw files: empty
  uint64_t bytes = 0;                    // of data
};

ByteSpan span_of(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}

Result<Input> plain_input(const std::string& path, uint64_t size, DataType type) {
  const uint64_t element = simd::size_of(type);
  if (size % element != 0) {
    return fail(Errc::usage, "{}: {} bytes are not a whole number of elements of type {}", path,
                size, simd::data_type_name(type));
  }
  return Input{.path = path, .arrays = {{.type = type, .count = size / element}}, .bytes = size};
}

std::optional<DataType> type_of_tensor(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, DataType>, 9> kTypes = {
      {{"F32", DataType::f32},
       {"F64", DataType::f64},
       {"F16", DataType::f16},
       {"BF16", DataType::bf16},
       {"F8_E4M3", DataType::f8e4m3},
       {"F8_E5M2", DataType::f8e5m2},
       {"I32", DataType::i32},
       {"I64", DataType::i64},
       {"U8", DataType::u8}}};
  for (const auto& [name, type] : kTypes) {
    if (name == dtype) return type;
  }
  return std::nullopt;
}

Result<Input> tensor_input(io::File& file, uint64_t size) {
  std::string word(checkpoint::kSafetensorsLengthBytes, '\0');
  FF_TRY(const size_t got, file.read_at(span_of(word), 0));
  if (got < word.size()) return fail(Errc::failed, "{}: not a safetensors file", file.path());
  auto length = checkpoint::safetensors_header_length(word, size);
  if (!length) return std::move(length).error().with_context(file.path() + ": ");
  std::string header(*length, '\0');
  FF_TRY(const size_t read, file.read_at(span_of(header), word.size()));
  if (read < header.size())
    return fail(Errc::failed, "{}: the file ends within its header", file.path());
  Input input{.path = file.path(), .head = word + header};
  input.bytes = size - input.head.size();
  auto parsed = checkpoint::SafetensorsHeader::parse(header, input.bytes);
  if (!parsed) return std::move(parsed).error().with_context(file.path() + ": ");
  for (size_t i = 0; i < parsed->count(); i++) {
    const auto tensor = parsed->tensor(i);
    const auto type = type_of_tensor(tensor.dtype);
    if (!type) {
      return fail(Errc::usage, "{}: tensor {} is of type {}, which cannot be reduced", file.path(),
                  tensor.name, tensor.dtype);
    }
    input.arrays.push_back({.type = *type,
                            .offset = tensor.begin,
                            .count = (tensor.end - tensor.begin) / simd::size_of(*type)});
    input.shapes.push_back(
        fmt::format("{} {}[{}]", tensor.name, tensor.dtype, fmt::join(tensor.shape, ",")));
  }
  return input;
}

Result<Input> open_input(io::Disk& disk, const std::string& path, const SumOptions& options) {
  FF_TRY(const auto file, disk.open(path, {.access = io::AccessMode::read}));
  FF_TRY(const auto info, file->info());
  if (info.kind != io::FileKind::regular) return fail(Errc::usage, "{}: not a file", path);
  if (!path.ends_with(".safetensors")) {
    const auto type = simd::data_type_of(options.type.value_or("float"));
    return plain_input(path, info.size, *type);
  }
  if (options.type) {
    return fail(Errc::usage, "--datatype: {} contains its types", path);
  }
  return tensor_input(*file, info.size);
}

Result<void> same(const Input& first, const Input& other) {
  const auto differs = std::ranges::mismatch(first.shapes, other.shapes);
  if (differs.in1 != first.shapes.end() || differs.in2 != other.shapes.end()) {
    const auto text = [](const auto& at, const auto& in) {
      return at == in.end() ? std::string("no further tensor") : *at;
    };
    return fail(Errc::usage, "{} has {} where {} has {}", first.path,
                text(differs.in1, first.shapes), other.path, text(differs.in2, other.shapes));
  }
  if (first.bytes == other.bytes) return {};
  return fail(Errc::usage, "{} has {} bytes of data, {} has {}", first.path, first.bytes,
              other.path, other.bytes);
}

// The number of files, broadcast by rank 0.
Result<uint32_t> count_files(io::Disk& disk, const SumOptions& options) {
  uint32_t count = 0;
  for (; count < collective::kHostRanksMax; count++) {
    FF_TRY(const std::string path, name_of(options.in, count));
    FF_TRY(const bool there, io::exists(disk, path));
    if (!there) break;
  }
  FF_TRY(const std::string first, name_of(options.in, 0));
  if (count == 0) return fail(Errc::not_found, "{}: no such file", first);
  return count;
}

Result<void> check_pattern(const SumOptions& options) {
  if (names_rank(options.in)) return {};
  FF_TRY(const std::string one, name_of(options.in, 0));
  Error error =
      fail(Errc::usage, "--in {}: all ranks would use the same file, {}", options.in, one);
  error.hint = "Write %r for the number of the rank: --in 'grad.%r.bin'";
  return error;
}

Result<std::vector<Input>> inputs_of(io::Disk& disk, const SumOptions& options) {
  uint32_t count = options.job.nproc.value_or(0);
  if (!options.job.nproc) {
    FF_TRY(count, count_files(disk, options));
  }
  std::vector<Input> inputs;
  for (uint32_t rank = 0; rank < count; rank++) {
    FF_TRY(const std::string path, name_of(options.in, rank));
    FF_TRY(Input input, open_input(disk, path, options));
    if (rank > 0) {
      FF_TRY(same(inputs.front(), input));
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

// Checks against the file of rank 0; files on other hosts were not checked before.
Result<void> same_on_all(collective::Communicator& ranks, const Input& own) {
  const std::string text = fmt::format("{} {}", own.bytes, fmt::join(own.shapes, "|"));
  const auto digest = simd::fingerprint(simd::DigestKind::xxh128, as_bytes(text)).digest;
  const auto mine = load_le<int64_t>(digest.bytes.data());
  std::vector<int64_t> all(ranks.ranks());
  FF_TRY(ranks.run({.kind = collective::Collective::allgather,
                    .type = DataType::i64,
                    .count = 1,
                    .in = &mine,
                    .out = all.data()}));
  const auto differs = std::ranges::find_if(all, [&](int64_t one) { return one != all[0]; });
  if (differs == all.end()) return {};
  return fail(Errc::usage, "{} ({} of data) differs from the file of rank {}", own.path,
              format_size(own.bytes), mine == all[0] ? differs - all.begin() : 0);
}

// The report of rank 0.
struct Outcome {
  uint64_t bytes = 0;
  size_t arrays = 0;
  uint32_t ranks = 0;
  std::vector<std::string> outs = {};
};

// Runs one rank; `known`: its file, if that was opened before.
Result<void> sum_own(Session& session, const SumOptions& options, collective::Communicator& ranks,
                     const Input* known, Outcome& outcome) {
  io::SystemDisk disk;
  const uint32_t rank = ranks.rank();
  Input opened;
  if (known == nullptr) {
    FF_TRY(const std::string path, name_of(options.in, rank));
    FF_TRY(opened, open_input(disk, path, options));
    FF_TRY(same_on_all(ranks, opened));
  }
  const Input& input = known != nullptr ? *known : opened;
  const bool to_all = names_rank(options.out);
  std::string out;
  if (to_all || rank == 0) {
    FF_TRY(out, name_of(options.out, rank));
  }
  outcome = {.bytes = input.bytes, .arrays = input.arrays.size(), .ranks = ranks.ranks()};
  for (uint32_t other = 0; other < (to_all ? ranks.ranks() : 1); other++) {
    FF_TRY(std::string name, name_of(options.out, other));
    outcome.outs.push_back(std::move(name));
  }
  Progress progress;
  progress.total = input.bytes;
  const auto bar = rank == 0 ? session.out.progress("allreduce", progress, session.stop) : nullptr;
  auth::SecureRng rng;
  const collective::FileReduction reduction{.in = input.path,
                                            .data_offset = input.head.size(),
                                            .out = out,
                                            .to_all = to_all,
                                            .replace = options.force,
                                            .header = input.head,
                                            .arrays = input.arrays,
                                            .op = *simd::reduce_op_of(options.op)};
  return collective::reduce_files(ranks, disk, rng, progress, reduction);
}

void report_sum(Session& session, const SumOptions& options, const Outcome& outcome,
                int64_t began_ns) {
  const double seconds = static_cast<double>(session.stop.clock().steady_ns() - began_ns) / kSecond;
  const double rate = static_cast<double>(outcome.bytes * outcome.ranks) / seconds;
  session.out.line("{} files of {}, {}: {} ({})", outcome.ranks, format_size(outcome.bytes),
                   options.op, fmt::join(outcome.outs, " "), format_rate(rate));
  session.out.data({{"ranks", outcome.ranks},
                    {"bytes", outcome.bytes},
                    {"arrays", outcome.arrays},
                    {"op", options.op},
                    {"out", outcome.outs},
                    {"seconds", seconds}});
}

Result<void> run_files(Session& session, const SumOptions& options) {
  FF_TRY(check_pattern(options));
  const int64_t began_ns = session.stop.clock().steady_ns();
  std::vector<Input> inputs;  // single host only
  if (is_single_host(options.job)) {
    io::SystemDisk disk;
    FF_TRY(inputs, inputs_of(disk, options));
    for (uint32_t rank = 0; rank < (names_rank(options.out) ? inputs.size() : 1); rank++) {
      FF_TRY(const std::string name, name_of(options.out, rank));
      FF_TRY(io::AtomicFile::check(disk, name, options.force));
    }
  }
  return run_ranks(session, options.job, options.ranks, static_cast<uint32_t>(inputs.size()),
                   [&](collective::Communicator& ranks) -> Result<void> {
                     Outcome outcome;
                     const Input* const known = inputs.empty() ? nullptr : &inputs[ranks.rank()];
                     FF_TRY(sum_own(session, options, ranks, known, outcome));
                     if (ranks.rank() == 0) report_sum(session, options, outcome, began_ns);
                     return {};
                   });
}

}  // namespace

void declare_allreduce_run(Command& run) {
  auto& options = run.keep<SumOptions>();
  run.about(
      "Reads one file per rank, in separate processes, and writes their sum, average, product, "
      "maximum or minimum, element by element. Plain files hold elements of one type. In "
      "safetensors files ff reduces each tensor in its own type; all files must have the same "
      "tensors. Without --nproc the number of ranks on this host is the number of files. With "
      "several hosts each rank reads its file on its own host. In names %r means the number of the "
      "rank, from 0, and %% a percent sign. With %r in --out each rank writes the result under its "
      "own name. The result appears only when it is complete.");
  run.option("--in", text(options.in, "PATTERN"), "Names of the input files, such as 'grad.%r.bin'")
      .required();
  run.option("--out", text(options.out, "PATTERN"), "Name of the result").required();
  run.option("-d,--datatype", choice(options.type, data_type_names()),
             "Element type of plain files; without it float");
  run.option("-o,--op", choice(options.op, reduce_op_names()), "Reduction operation");
  run.flag("--force", options.force, "Replace the result if it exists");
  declare_job_options(run, options.job);
  declare_rank_options(run, options.ranks);
  run.example("ff allreduce run --in 'grad.%r.bin' --out sum.bin -d bfloat16 -o avg",
              "the average of grad.0.bin, grad.1.bin and so on");
  run.example("ff allreduce run --in 'model-%r.safetensors' --out mean.safetensors -o avg",
              "tensor by tensor");
  run.blocking();
  run.run([&options](Session& s) { return run_files(s, options); });
}

}  // namespace ff::cmd
