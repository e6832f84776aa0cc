// `ff allreduce bench`: collective operations between local processes, in the table of nccl-tests
// (src/util.cu and src/common.cu there), so that scripts can parse both.
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "cmd/allreduce/allreduce.h"
#include "lab/bench/collective.h"
#include "ops/validate/load.h"
#include "platform/base/units.h"
#include "platform/net/resolve.h"

namespace ff::cmd {

namespace {

using bench::CollectiveLoad;
using bench::CollectiveResult;
using collective::Collective;
using simd::DataType;
using simd::ReduceOp;

struct CollectiveName {
  const char* name;  // program name in nccl-tests, without _perf
  Collective kind;
  bool is_sendrecv = false;
};
constexpr std::array kKinds = {CollectiveName{"all_reduce", Collective::allreduce},
                               CollectiveName{"all_gather", Collective::allgather},
                               CollectiveName{"broadcast", Collective::broadcast},
                               CollectiveName{"reduce", Collective::reduce},
                               CollectiveName{"reduce_scatter", Collective::reduce_scatter},
                               CollectiveName{"alltoall", Collective::alltoall},
                               CollectiveName{"gather", Collective::gather},
                               CollectiveName{"scatter", Collective::scatter},
                               CollectiveName{"sendrecv", Collective::broadcast, true}};

constexpr uint64_t kBytesMax = uint64_t{1} << 40;
constexpr uint64_t kMemoryBytes = 64 * kMiB;  // smaller sizes fit in the caches
constexpr uint64_t kTriadBytes = 128 * kMiB;

struct BenchOptions {
  JobOptions job;
  std::string collective = "all_reduce";
  uint64_t min_bytes = 32 * kMiB, max_bytes = 32 * kMiB, step_bytes = kMiB;
  std::optional<uint64_t> step_factor;
  unsigned iterations = 20, warm_ups = 1, check = 1;
  unsigned threads = 1, gpus = 1;  // of nccl-tests
  std::string type = "float", op = "sum";
  uint32_t root = 0;
  RankOptions ranks;
};

// The sizes of a run, in order.
std::vector<uint64_t> sizes_of(const BenchOptions& options) {
  std::vector<uint64_t> sizes;
  for (uint64_t size = options.min_bytes; size <= options.max_bytes;) {
    sizes.push_back(size);
    const uint64_t next =
        options.step_factor ? size * *options.step_factor : size + options.step_bytes;
    if (next <= size) break;  // a step of 0: one size only
    size = next;
  }
  return sizes;
}

std::vector<std::string> with_all(std::vector<std::string> names) {
  names.emplace_back("all");
  return names;
}
std::vector<std::string> all_kinds() {
  std::vector<std::string> all;
  for (const CollectiveName& kind : kKinds) all.emplace_back(kind.name);
  return all;
}

const CollectiveName& kind_of(const BenchOptions& options) {
  return *std::ranges::find(kKinds, options.collective, &CollectiveName::name);
}
bool reduces(Collective kind) {
  return !collective::is_copy(kind) && !collective::uses_messages(kind);
}
bool has_root(const CollectiveLoad& load) {
  return !load.is_sendrecv &&
         (load.kind == Collective::broadcast || load.kind == Collective::reduce ||
          load.kind == Collective::gather || load.kind == Collective::scatter);
}

// Every selected type and operation, without sizes.
std::vector<CollectiveLoad> loads_of(const BenchOptions& options) {
  std::vector<CollectiveLoad> loads;
  const auto type = simd::data_type_of(options.type);
  const auto op = simd::reduce_op_of(options.op);
  const CollectiveName& kind = kind_of(options);
  for (size_t t = 0; t < simd::kDataTypes; t++) {
    if (type && *type != static_cast<DataType>(t)) continue;
    for (size_t o = 0; o < simd::kReduceOps; o++) {
      if (reduces(kind.kind) ? op && *op != static_cast<ReduceOp>(o) : o > 0) continue;
      loads.push_back({.kind = kind.kind,
                       .is_sendrecv = kind.is_sendrecv,
                       .type = static_cast<DataType>(t),
                       .op = static_cast<ReduceOp>(o),
                       .root = options.root,
                       .warm_ups = options.warm_ups,
                       .iterations = options.iterations,
                       .check = options.check > 0,
                       .wire = *simd::wire_type_of(options.job.wire)});
    }
  }
  return loads;
}

Result<void> check_bench(const BenchOptions& options) {
  if (options.max_bytes < options.min_bytes || options.max_bytes > kBytesMax) {
    return fail(Errc::usage, "--maxbytes {}: at least --minbytes ({}), at most {}",
                format_size(options.max_bytes), format_size(options.min_bytes),
                format_size(kBytesMax));
  }
  if (options.step_factor && *options.step_factor < 2) {
    return fail(Errc::usage, "--stepfactor {}: 2 or more", *options.step_factor);
  }
  if (!options.step_factor && options.step_bytes == 0) {
    return fail(Errc::usage, "--stepbytes 0: 1 or more");
  }
  if (options.iterations == 0) return fail(Errc::usage, "--iters 0: 1 or more");
  for (const auto& [name, count] :
       {std::pair{"--nthreads", options.threads}, std::pair{"--ngpus", options.gpus}}) {
    if (count == 1) continue;
    Error error =
        fail(Errc::usage, "{} {}: each rank is a process, and its arrays are in host memory", name,
             count);
    error.hint = "Give 1, and the number of ranks of each host with --nproc.";
    return error;
  }
  return {};
}

std::string time_text(double seconds) {
  const double us = seconds * 1e6;
  if (us >= 10'000) return fmt::format("{:.0f}", us);
  if (us >= 100) return fmt::format("{:.1f}", us);
  return fmt::format("{:.2f}", us);
}

// `measured` null: the operation does not work in place.
std::string half_of_row(const CollectiveResult* measured, bool checked) {
  if (measured == nullptr) {
    return fmt::format("  {:>7}  {:>6}  {:>6}  {:>5}", "N/A", "N/A", "N/A", "N/A");
  }
  const CollectiveResult& figures = *measured;
  const std::string wrong =
      checked ? fmt::format("{:5g}", static_cast<double>(figures.wrong)) : "  N/A";
  return fmt::format("  {:>7}  {:6.2f}  {:6.2f}  {}", time_text(figures.seconds),
                     figures.algorithm_rate / 1e9, figures.bus_rate / 1e9, wrong);
}

Json figures_json(const CollectiveResult& figures, bool checked) {
  Json json = {{"seconds", figures.seconds},
               {"p50_seconds", figures.p50_seconds},
               {"p99_seconds", figures.p99_seconds},
               {"algorithm_bytes_per_second", figures.algorithm_rate},
               {"bus_bytes_per_second", figures.bus_rate}};
  if (!checked) return json;
  json["wrong"] = figures.wrong;
  json["digest"] = figures.digest;
  json["worst_error"] = figures.worst_error;
  json["mean_error"] = figures.mean_error;
  return json;
}

// Prints the table; rank 0 only.
class Report {
 public:
  Report(Output& out, const BenchOptions& options, const collective::Communicator& ranks)
      : out_(out), options_(options), is_local_(ranks.world() == nullptr) {
    const std::string step = options.step_factor ? fmt::format("{}(factor)", *options.step_factor)
                                                 : fmt::format("{}(bytes)", options.step_bytes);
    out.line("# Collective test starting: {}_perf", options.collective);
    out.line(
        "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} agg "
        "iters: "
        "1 validation: {} graph: 0",
        options.min_bytes, options.max_bytes, step, options.warm_ups, options.iterations,
        options.check);
    out.line("#");
    out.line("# Using {} processes on {}, {}", ranks.ranks(), places_of(ranks),
             simd::reduce_path());
    out.line("#");
    for (const char* const line : kHead) out.line("{}", line);
  }

  Result<void> add(const CollectiveLoad& load, uint32_t ranks, const CollectiveResult& out_of_place,
                   const std::optional<CollectiveResult>& in_place) {
    const std::string_view op = reduces(load.kind) ? simd::reduce_op_name(load.op) : "none";
    const int64_t root = has_root(load) ? int64_t{load.root} : -1;
    const std::string_view type = simd::data_type_name(load.type);
    out_.line("{:12}  {:12}  {:>8}  {:>6}  {:6}{}{}", out_of_place.bytes, out_of_place.count, type,
              op, root, half_of_row(&out_of_place, load.check),
              half_of_row(in_place ? &*in_place : nullptr, load.check));
    rows_.push_back({{"bytes", out_of_place.bytes},
                     {"count", out_of_place.count},
                     {"type", type},
                     {"redop", op},
                     {"root", root},
                     {"ranks", ranks},
                     {"out_of_place", figures_json(out_of_place, load.check)},
                     {"in_place", in_place ? figures_json(*in_place, load.check) : Json()}});
    if (out_of_place.bytes >= kMemoryBytes && out_of_place.memory_rate > memory_rate_) {
      memory_rate_ = out_of_place.memory_rate;
    }
    if (load.check && options_.job.deterministic) {
      digests_.push_back(
          fmt::format("{} {} {}: {}", out_of_place.bytes, type, op, out_of_place.digest));
    }
    for (const CollectiveResult* one : {&out_of_place, in_place ? &*in_place : nullptr}) {
      if (one == nullptr) continue;
      worst_error_ = std::max(worst_error_, one->worst_error);
      mean_error_ = std::max(mean_error_, one->mean_error);
      wrong_ += one->wrong;
      bus_rates_ += one->bus_rate;
      measured_++;
    }
    out_.data({{"rows", rows_}});
    return out_.flush();
  }

  // An error if an element was wrong. `clock` measures the memory bandwidth when nothing else runs.
  Result<void> finish(Clock& clock) {
    const double mean = bus_rates_ / static_cast<double>(std::max<uint64_t>(measured_, 1)) / 1e9;
    out_.line("# {:<20} : {} {}", "Out of bounds values", wrong_, wrong_ == 0 ? "OK" : "FAILED");
    out_.line("# {:<20} : {:g} ", "Avg bus bandwidth", mean);
    Json data = {{"rows", rows_}, {"wrong", wrong_}, {"average_bus_bytes_per_second", mean * 1e9}};
    const auto triad = memory_rate_ > 0 && is_local_
                           ? validate::triad_past_caches(clock, kTriadBytes)
                           : std::nullopt;
    if (triad) {
      const double share = memory_rate_ / *triad;
      out_.line("# {:<20} : {:.2f} of {:.2f} GB/s (triad past the caches), {:.2f}",
                "Memory traffic", memory_rate_ / 1e9, *triad / 1e9, share);
      data["memory"] = {
          {"bytes_per_second", memory_rate_}, {"triad_bytes_per_second", *triad}, {"share", share}};
    }
    for (const std::string& digest : digests_) out_.line("# {:<20} : {}", "Digest", digest);
    if (!is_local_ && options_.job.wire != "none" && options_.check > 0) {
      out_.line("# {:<20} : worst {:.2e}, root mean square {:.2e} of the largest sum", "Wire error",
                worst_error_, mean_error_);
    }
    out_.line("#");
    out_.data(std::move(data));
    if (wrong_ == 0) return {};
    Error error = fail(Errc::fault, "{} elements are wrong", wrong_);
    error.hint = "Check this machine: ff validate";
    return error;
  }

 private:
  // The same columns and spaces as nccl-tests.
  static constexpr std::array kHead = {
      "#                                                              out-of-place                "
      "       in-place          ",
      "#       size         count      type   redop    root     time   algbw   busbw  #wrong     "
      "time   algbw   busbw  #wrong ",
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             "
      "(us)  (GB/s)  (GB/s)       "};
  // "node7", or "node7, node8: auto, wire none".
  std::string places_of(const collective::Communicator& ranks) const {
    const collective::World* const world = ranks.world();
    if (world == nullptr) return net::host_name();
    std::string text;
    for (const collective::WorldNode& node : world->nodes) {
      text += (text.empty() ? "" : ", ") + node.host;
    }
    return fmt::format("{} nodes ({}), {}", world->nodes.size(), text,
                       collective::text_of(options_.job.pipeline()));
  }
  Output& out_;
  const BenchOptions& options_;
  const bool is_local_;
  Json rows_ = Json::array();
  uint64_t wrong_ = 0;
  double bus_rates_ = 0;
  double worst_error_ = 0, mean_error_ = 0;  // the largest of all rows
  std::vector<std::string> digests_;
  double memory_rate_ = 0;  // the highest of large sizes, out of place
  uint64_t measured_ = 0;
};

// The rows of the table, in order.
std::vector<CollectiveLoad> table_rows(const BenchOptions& options) {
  std::vector<CollectiveLoad> rows;
  for (CollectiveLoad load : loads_of(options)) {
    for (const uint64_t size : sizes_of(options)) {
      load.bytes = size;
      rows.push_back(load);
    }
  }
  return rows;
}

Result<void> measure_row(bench::CollectiveBench& bench, CollectiveLoad load, uint32_t ranks,
                         Report* report) {
  load.in_place = false;
  FF_TRY(const auto out_of_place, bench.run(load));
  std::optional<CollectiveResult> in_place;
  if (load.in_place = bench::works_in_place(load); load.in_place) {
    FF_TRY(in_place, bench.run(load));
  }
  return report != nullptr ? report->add(load, ranks, out_of_place, in_place) : Result<void>();
}

Result<void> check_root(const BenchOptions& options, const collective::Communicator& ranks) {
  if (options.root < ranks.ranks()) return {};
  return fail(Errc::usage, "--root {}: must be below the number of ranks ({})", options.root,
              ranks.ranks());
}

// Measures the rows from `next` on.
Result<void> measure_rows(Session& session, const BenchOptions& options,
                          collective::Communicator& ranks, const std::vector<CollectiveLoad>& rows,
                          size_t& next, Report* report) {
  FF_TRY(auto bench, bench::CollectiveBench::make(ranks, session.stop.clock(), options.max_bytes));
  for (; next < rows.size(); next++) {
    FF_TRY(measure_row(bench, rows[next], ranks.ranks(), report));
  }
  return {};
}

// A communicator of the ranks that are left, which continue with the row of rank 0.
Result<std::unique_ptr<collective::Communicator>> shrink(Session& session,
                                                         const BenchOptions& options,
                                                         collective::Communicator& ranks,
                                                         size_t& next) {
  FF_TRY(auto left, ranks.shrink(session.stop));
  FF_TRY(check_root(options, *left));
  auto row = static_cast<int64_t>(next);
  FF_TRY(left->run(
      {.kind = Collective::broadcast, .type = DataType::i64, .count = 1, .in = &row, .out = &row}));
  next = static_cast<size_t>(row);
  return left;
}

Result<void> be_bench_rank(Session& session, const BenchOptions& options,
                           collective::Communicator& joined) {
  FF_TRY(check_root(options, joined));
  std::optional<Report> report;
  if (joined.rank() == 0) {
    report.emplace(session.out, options, joined);
    FF_TRY(session.out.flush());
  }
  const std::vector<CollectiveLoad> rows = table_rows(options);
  std::unique_ptr<collective::Communicator> left;
  for (size_t next = 0;;) {
    collective::Communicator& ranks = left != nullptr ? *left : joined;
    const auto measured =
        measure_rows(session, options, ranks, rows, next, report ? &*report : nullptr);
    if (measured) break;
    const Errc code = measured.error().code;
    const bool is_lost = code == Errc::unreachable || code == Errc::deadline;
    if (!is_lost || !options.job.shrinks()) return measured;
    auto shrunk = shrink(session, options, ranks, next);
    if (!shrunk) return std::move(shrunk).error();
    left = std::move(*shrunk);
    if (report) {
      session.out.line("# {}: {} ranks go on", measured.error().message, left->ranks());
    }
  }
  return report ? report->finish(session.stop.clock()) : Result<void>();
}

Result<void> run_bench(Session& session, const BenchOptions& options) {
  const uint32_t cores = std::max(1U, std::thread::hardware_concurrency());
  FF_TRY(check_bench(options));
  return run_ranks(
      session, options.job, options.ranks, std::min(cores, collective::kHostRanksMax),
      [&](collective::Communicator& joined) { return be_bench_rank(session, options, joined); });
}

}  // namespace

void declare_allreduce_bench(Command& bench) {
  auto& options = bench.keep<BenchOptions>();
  bench.about(
      "Starts processes on this machine, each a rank with its own arrays in shared memory, and "
      "measures a collective operation between them. Options, table and terms are those of "
      "nccl-tests: size is that of the larger array of a rank, algbw is size divided by time, and "
      "busbw is the bandwidth that the links of a ring would need. For sizes of 64 MiB and more, a "
      "line below the table compares the memory traffic with the memory bandwidth of STREAM's "
      "triad. An all-to-all and sendrecv do not work in place; their columns have N/A. ff checks "
      "each "
      "result; a wrong element makes the command fail. ff accepts -t 1 and "
      "-g 1 of nccl-tests: each rank is a process, and its arrays are in host memory.");
  bench.option("--collective", choice(options.collective, all_kinds()), "Operation to measure");
  bench.option("-b,--minbytes", size(options.min_bytes), "First size");
  bench.option("-e,--maxbytes", size(options.max_bytes), "Last size");
  bench.option("-i,--stepbytes", size(options.step_bytes), "Increment between sizes");
  bench.option("-f,--stepfactor", number(options.step_factor),
               "Factor between sizes, instead of --stepbytes");
  bench.option("-n,--iters", number(options.iterations), "Number of timed iterations");
  bench.option("-w,--warmup_iters", number(options.warm_ups),
               "Number of iterations before the timed ones");
  bench.option("-c,--check", number(options.check), "Check the results; 0 disables this");
  bench.option("-d,--datatype", choice(options.type, with_all(data_type_names())), "Element type");
  bench.option("-o,--op", choice(options.op, with_all(reduce_op_names())), "Reduction operation");
  bench.option("-t,--nthreads", number(options.threads), "Threads of each process: 1").hidden();
  bench.option("-g,--ngpus", number(options.gpus), "GPUs of each thread: 1").hidden();
  bench.option("-r,--root", number(options.root, "RANK"),
               "Root rank of broadcast, reduce, gather and scatter");
  bench
      .option("--on-failure", choice(options.job.on_failure, {"stop", "shrink"}),
              "After the loss of a rank: stop, or measure with the ranks that are left. Rank 0 of "
              "the job must live: it prints. Ranks of --nproc end with the first of their host")
      .section(kCommonOptions);
  declare_job_options(bench, options.job);
  declare_rank_options(bench, options.ranks);
  bench.example("ff allreduce bench -b 8 -e 128M -f 2", "a table of sizes, with one rank per core");
  bench.example("ff allreduce bench --nproc 4 -b 186M -e 186M -d bfloat16", "one size, four ranks");
  bench.blocking();
  bench.run([&options](Session& s) { return run_bench(s, options); });
}

}  // namespace ff::cmd
