// `ff bench meta`: files per second that the metadata service creates, looks up and removes.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cmd/bench/bench.h"
#include "cmd/cli/cancel_on_stop.h"
#include "cmd/options/acting_user.h"
#include "cmd/options/meta_option.h"
#include "cmd/options/net_client.h"
#include "cmd/options/net_options.h"
#include "lab/bench/meta_load.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {
namespace {

constexpr unsigned kOperationsInFlightMax = 1024;
constexpr unsigned kClientsMax = 64;
constexpr unsigned kTreeDepthMax = 16;

struct BenchMetaOptions {
  std::string meta = kDefaultMeta;
  NetOptions net;
  uint64_t files = 20'000;
  unsigned depth = 0;
  unsigned width = 1;
  unsigned in_flight = 16;
  unsigned clients = 1;
};

Result<bench::MetaLoad> metadata_load(const BenchMetaOptions& options) {
  const bench::MetaLoad load{.files = options.files,
                             .depth = options.depth,
                             .width = options.width,
                             .in_flight = options.in_flight};
  if (load.files == 0) return fail(Errc::usage, "--files must be greater than 0");
  if (load.in_flight == 0 || load.in_flight > kOperationsInFlightMax) {
    return fail(Errc::usage, "--in-flight {}: 1 to {}", load.in_flight, kOperationsInFlightMax);
  }
  if (options.clients == 0 || options.clients > kClientsMax) {
    return fail(Errc::usage, "--clients {}: 1 to {}", options.clients, kClientsMax);
  }
  if (load.width == 0 || load.depth > kTreeDepthMax || bench::leaves_of(load) > bench::kLeavesMax) {
    return fail(Errc::usage, "--depth {} --width {}: at most {} levels, and {} directories",
                load.depth, load.width, kTreeDepthMax, bench::kLeavesMax);
  }
  return load;
}

Result<void> run_meta(Session& session, const BenchMetaOptions& options) {
  FF_TRY(const auto load, metadata_load(options));
  FF_TRY(const auto servers, parse_meta(options.meta));
  io::SystemDisk disk;
  FF_TRY(auto transport, transport_options(disk, options.net));
  NetClient client(session.stop, std::move(transport), "bench meta");
  std::vector<std::unique_ptr<meta::MetaClient>> clients;
  for (unsigned i = 0; i < options.clients; i++) {
    clients.push_back(std::make_unique<meta::MetaClient>(client.context, servers));
  }
  const meta::Caller caller = process_caller();
  auto ran = run_task(client.loop, bench::run_meta_load(client.loop, session.stop, clients, caller,
                                                        "ff-bench-" + client.rng.hex_id(), load));
  for (const auto& one : clients) run_task(client.loop, one->close());
  FF_TRY(const auto phases, std::move(ran));
  auto table = session.out.table({{"PHASE"},
                                  {"OPERATIONS", Align::right},
                                  {"PER SECOND", Align::right},
                                  {"P50", Align::right},
                                  {"P99", Align::right},
                                  {"CPU/OP", Align::right}});
  Json rows = Json::array();
  const auto time = [](double seconds) {
    return seconds > 0 ? format_duration(static_cast<int64_t>(seconds * 1e9)) : "-";
  };
  for (const auto& figures : phases) {
    table.row({figures.phase, fmt::to_string(figures.operations),
               fmt::format("{:.0f}", figures.per_second()), time(figures.p50_seconds),
               time(figures.p99_seconds), time(figures.cpu_seconds)});
    rows.push_back({{"phase", figures.phase},
                    {"operations", figures.operations},
                    {"seconds", figures.seconds},
                    {"per_second", figures.per_second()},
                    {"p50_seconds", figures.p50_seconds},
                    {"p99_seconds", figures.p99_seconds},
                    {"cpu_seconds_per_operation", figures.cpu_seconds}});
  }
  session.out.data({{"files", load.files},
                    {"leaves", bench::leaves_of(load)},
                    {"in_flight", load.in_flight},
                    {"clients", options.clients},
                    {"phases", std::move(rows)}});
  return {};
}

}  // namespace

void declare_bench_meta(Command& meta) {
  auto& options = meta.keep<BenchMetaOptions>();
  meta.about(
      "Creates files in a new directory of the cluster's root, looks them up, gets their "
      "attributes, lists, moves and removes them, as mdtest does, and prints the operations per "
      "second of each phase and the CPU time of the whole machine per operation. The files are "
      "empty: only the metadata service works. ff removes the "
      "directory at the end, also after an error.");
  declare_meta(meta, options.meta);
  meta.option("--files", number(options.files), "Total number of files");
  meta.option("--depth", number(options.depth),
              "Levels of directories; the files are in the last level");
  meta.option("--width", number(options.width), "Subdirectories per directory");
  meta.option("--in-flight", number(options.in_flight), "Concurrent operations of all clients");
  meta.option("--clients", number(options.clients),
              "Number of clients, each with its own connections");
  declare_net(meta, options.net);
  meta.example("ff bench meta", "20,000 files in one directory, 16 concurrent operations");
  meta.example("ff bench meta --depth 2 --width 10 --in-flight 256 --clients 4",
               "in 100 directories");
  meta.blocking();
  meta.run([&options](Session& s) { return run_meta(s, options); });
}

}  // namespace ff::cmd
