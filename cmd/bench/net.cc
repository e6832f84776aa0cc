// `ff bench net`: RPC latency and bulk throughput over each transport (TCP, RDMA, shared memory).
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cmd/bench/bench.h"
#include "cmd/cli/build_info.h"
#include "cmd/options/net_client.h"
#include "cmd/options/net_options.h"
#include "lab/bench/net_load.h"
#include "lab/bench/net_server.h"
#include "lab/bench/net_service.h"
#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"
#include "platform/rpc/http_access.h"

namespace ff::cmd {
namespace {

using bench::NetLoad;
using bench::NetResult;

constexpr int64_t kConnectNs = 15 * kSecond;
constexpr unsigned kCallsInFlightMax = 1024;

struct BenchNetOptions {
  NetOptions net;
  std::optional<std::string> listen;
  std::vector<std::string> connect;
  std::optional<std::string> http;
  std::optional<std::string> disk;
  std::vector<std::string> tests;
  std::optional<uint64_t> size;
  std::optional<unsigned> in_flight;
  int64_t duration_ns = kSecond;
  std::optional<unsigned> incast;
  unsigned max_senders = rpc::GrantScheduler::kDefaultMax;
};

// A load with its name.
struct Test {
  std::string name;
  NetLoad load;
};

std::vector<Test> tests_of(const BenchNetOptions& options) {
  const Test all[] = {
      {"call", {.kind = NetLoad::Kind::echo, .size = 4 * kKiB, .in_flight = 1}},
      {"call", {.kind = NetLoad::Kind::echo, .size = 4 * kKiB, .in_flight = 64}},
      {"read", {.kind = NetLoad::Kind::read, .size = kMiB, .in_flight = 8}},
      {"read-crc", {.kind = NetLoad::Kind::read, .size = kMiB, .in_flight = 8, .crc = true}},
      {"write", {.kind = NetLoad::Kind::write, .size = kMiB, .in_flight = 8}},
      {"disk", {.kind = NetLoad::Kind::disk, .size = 4 * kKiB, .in_flight = 64}},
      {"disk", {.kind = NetLoad::Kind::disk, .size = kMiB, .in_flight = 8}},
  };
  std::vector<Test> chosen;
  for (Test test : all) {
    const bool named = std::ranges::find(options.tests, test.name) != options.tests.end();
    if (options.tests.empty() ? test.name == "disk" && !options.disk : !named) continue;
    test.load.size = options.size.value_or(test.load.size);
    test.load.in_flight = options.in_flight.value_or(test.load.in_flight);
    test.load.duration_ns = options.duration_ns;
    const auto same = [&](const Test& other) {
      return other.name == test.name && other.load.size == test.load.size &&
             other.load.in_flight == test.load.in_flight;
    };
    if (std::ranges::none_of(chosen, same)) chosen.push_back(std::move(test));
  }
  return chosen;
}

Result<void> check_net_bench(const BenchNetOptions& options) {
  if (options.listen && (!options.connect.empty() || options.incast || !options.tests.empty())) {
    return fail(Errc::usage, "--listen only serves: give tests to the process with --connect");
  }
  if (options.incast && !options.connect.empty()) {
    return fail(Errc::usage, "--incast and --connect exclude each other");
  }
  if (options.http && !options.listen) return fail(Errc::usage, "--http requires --listen");
  if (options.connect.empty()) FF_TRY(check_server_options(options.net));
  if (options.disk && !options.connect.empty()) {
    return fail(Errc::usage, "--disk belongs to the process with --listen, which reads the disk");
  }
  const bool wants_disk = std::ranges::find(options.tests, "disk") != options.tests.end();
  if (wants_disk && !options.disk && options.connect.empty()) {
    Error error = fail(Errc::usage, "--test disk requires a file to read");
    error.hint =
        "Give a directory with --disk, or connect to a server that was started with --disk.";
    return error;
  }
  if (options.in_flight.value_or(1) == 0 || options.in_flight.value_or(1) > kCallsInFlightMax) {
    return fail(Errc::usage, "--in-flight {}: 1 to {}", *options.in_flight, kCallsInFlightMax);
  }
  if (options.size.value_or(1) == 0 || options.size.value_or(1) > bench::kBulkMax) {
    return fail(Errc::usage, "--size {}: 1 to {} bytes", *options.size, bench::kBulkMax);
  }
  if (options.incast.value_or(1) == 0 || options.incast.value_or(1) > 256) {
    return fail(Errc::usage, "--incast {}: 1 to 256 servers", *options.incast);
  }
  if (options.duration_ns <= 0) return fail(Errc::usage, "--duration must be longer than 0");
  return {};
}

// Prints results and collects them for --json.
class NetReport {
 public:
  explicit NetReport(Session& session)
      : session_(session),
        table_(session.out.table({{"WAY"},
                                  {"TEST"},
                                  {"SIZE", Align::right},
                                  {"IN FLIGHT", Align::right},
                                  {"CALLS/S", Align::right},
                                  {"RATE", Align::right},
                                  {"P50", Align::right},
                                  {"P99", Align::right}})) {}

  void add(const std::string& way, const Test& test, const NetResult& figures, Json more = {}) {
    table_.row({way, test.name, format_size(test.load.size), fmt::to_string(test.load.in_flight),
                fmt::format("{:.0f}", figures.calls_per_second),
                format_rate(figures.bytes_per_second), microseconds(figures.p50_seconds),
                microseconds(figures.p99_seconds)});
    Json row = {{"way", way},
                {"test", test.name},
                {"size", test.load.size},
                {"in_flight", test.load.in_flight},
                {"calls", figures.calls},
                {"seconds", figures.seconds},
                {"calls_per_second", figures.calls_per_second},
                {"bytes_per_second", figures.bytes_per_second},
                {"p50_seconds", figures.p50_seconds},
                {"p99_seconds", figures.p99_seconds}};
    row.update(more.is_null() ? Json::object() : more);
    rows_.push_back(std::move(row));
    session_.out.data({{"rows", rows_}});
  }

 private:
  static std::string microseconds(double seconds) { return fmt::format("{:.0f}us", seconds * 1e6); }

  Session& session_;
  Table table_;
  Json rows_ = Json::array();
};

// A client of some servers.
class Bench {
 public:
  Bench(Session& session, net::TransportOptions options, size_t max_senders)
      : session_(session), client_(session.stop, std::move(options), "bench client", max_senders) {}

  // The transport of the first connection: "shm".
  Result<std::string> connect(const std::vector<net::Address>& servers) {
    for (const net::Address& server : servers) {
      clients_.push_back(std::make_unique<rpc::Client>(client_.context, server,
                                                       auth::Service{auth::Role::rank, {}}));
      auto channel =
          run_task(client_.loop, clients_.back()->channel(client_.loop.now_ns() + kConnectNs));
      if (!channel) return std::move(channel).error();
      channels_.push_back(std::move(*channel));
    }
    const std::string& peer = channels_.front()->connection().peer();
    const size_t open = peer.rfind('(');
    return peer.substr(open + 1, peer.size() - open - 2);
  }
  Result<NetResult> run(const NetLoad& load) {
    if (memory_.size() < bench::memory_required(load)) {
      FF_TRY(memory_, client_.transport.allocate_shared_memory(bench::memory_required(load)));
    }
    return run_task(client_.loop,
                    bench::run_net_load(client_.loop, session_.stop, channels_, load, memory_));
  }
  ~Bench() {
    channels_.clear();
    for (const auto& client : clients_) run_task(client_.loop, client->close());
  }

 private:
  Session& session_;
  NetClient client_;
  std::vector<std::unique_ptr<rpc::Client>> clients_;
  std::vector<std::shared_ptr<rpc::Channel>> channels_;
  ByteSpan memory_;
};

Result<void> run_tests(Session& session, NetReport& report, const std::vector<Test>& tests,
                       net::TransportOptions transport, const std::vector<net::Address>& servers,
                       size_t max_senders) {
  Bench client(session, std::move(transport), max_senders);
  FF_TRY(const std::string way, client.connect(servers));
  for (const Test& test : tests) {
    auto figures = client.run(test.load);
    if (!figures) return std::move(figures).error().with_context(test.name + " over " + way + ": ");
    report.add(way, test, *figures);
  }
  return {};
}

bench::NetServerOptions server_options(const BenchNetOptions& options,
                                       const net::TransportOptions& transport) {
  return {.transport = transport,
          .software = fmt::format("ff {}", kBuildInfo.version),
          .disk_dir = options.disk};
}

// Baselines of this machine without a network.
Result<void> run_yardsticks(Session& session, NetReport& report, const BenchNetOptions& options,
                            const std::vector<Test>& tests) {
  SystemLoop loop(session.stop.clock());
  io::SystemDisk disk;
  std::unique_ptr<io::File> file;
  for (const Test& test : tests) {
    if (test.load.kind == NetLoad::Kind::read && !test.load.crc) {
      report.add("memcpy", {"copy", test.load},
                 bench::run_memcpy(session.stop.clock(), test.load.size, options.duration_ns));
    }
    if (test.load.kind != NetLoad::Kind::disk) continue;
    if (file == nullptr) {
      FF_TRY(file, bench::make_bench_file(disk, *options.disk));
    }
    net::SharedRegionSet regions;
    FF_TRY(const auto region, regions.make(bench::memory_required(test.load)));
    io::AsyncQueue queue(disk, loop, test.load.in_flight);
    FF_TRY(const auto figures, run_task(loop, bench::run_raw_disk(loop, session.stop, queue, *file,
                                                                  test.load, region->memory())));
    report.add("raw", test, figures);
  }
  return {};
}

// Measures every transport of this machine with a local server process.
Result<void> run_here(Session& session, const BenchNetOptions& options,
                      const net::TransportOptions& wanted) {
  const std::vector<Test> tests = tests_of(options);
  std::vector<net::NetMode> modes = {net::NetMode::tcp, net::NetMode::automatic,
                                     net::NetMode::verbs};
  if (options.net.mode != "auto") modes = {wanted.mode};
  std::vector<std::pair<net::TransportOptions, std::unique_ptr<bench::NetServerChild>>> servers;
  for (const net::NetMode mode : modes) {
    net::TransportOptions transport = wanted;
    transport.mode = mode;
    auto child =
        bench::NetServerChild::start(session.stop.clock(), server_options(options, transport));
    // Without an RDMA device that transport is skipped.
    if (!child && mode == net::NetMode::verbs && modes.size() > 1) {
      session.out.detail("{}", child.error().message);
      continue;
    }
    if (!child) return std::move(child).error();
    servers.emplace_back(std::move(transport), std::move(*child));
  }
  NetReport report(session);
  FF_TRY(run_yardsticks(session, report, options, tests));
  for (const auto& [transport, child] : servers) {
    FF_TRY(run_tests(session, report, tests, transport, {child->address()}, options.max_senders));
  }
  return {};
}

// Incast: many servers answer one client at once, without and with request-to-send.
Result<void> run_incast(Session& session, const BenchNetOptions& options,
                        net::TransportOptions transport) {
  // Without shared memory: this measures a network link.
  if (transport.mode == net::NetMode::automatic) transport.mode = net::NetMode::tcp;
  std::vector<std::unique_ptr<bench::NetServerChild>> children;
  std::vector<net::Address> servers;
  for (unsigned i = 0; i < *options.incast; i++) {
    FF_TRY(auto child,
           bench::NetServerChild::start(session.stop.clock(), server_options(options, transport)));
    servers.push_back(child->address());
    children.push_back(std::move(child));
  }
  Test test{"incast",
            {.kind = NetLoad::Kind::read,
             .size = options.size.value_or(kMiB),
             .in_flight = options.in_flight.value_or(4 * *options.incast),
             .crc = false,
             .duration_ns = options.duration_ns}};
  NetReport report(session);
  for (const unsigned senders : {0U, options.max_senders}) {
    Bench client(session, transport, senders);
    FF_TRY(const std::string way, client.connect(servers));
    FF_TRY(const auto figures, client.run(test.load));
    test.name = senders == 0 ? "incast, all at once" : fmt::format("incast, {} senders", senders);
    report.add(way, test, figures, {{"servers", servers.size()}, {"max_senders", senders}});
  }
  return {};
}

Result<void> run_listen(Session& session, const BenchNetOptions& options,
                        const net::TransportOptions& transport) {
  bench::NetServerOptions server = server_options(options, transport);
  FF_TRY(server.address, net::parse_address(*options.listen));
  if (options.http) {
    FF_TRY(server.http, rpc::parse_http_address(*options.http));
  }
  const auto listening = [&session](const bench::NetServerAddress& at) {
    const Json data = {{"listen", at.address.text()}, {"http_port", at.http_port}};
    session.out.line("listening on {}", at.address.text());
    if (at.http_port != 0) session.out.line("pages on port {}", at.http_port);
    (void)session.out.emit(data);
  };
  return bench::serve_net(session.stop.clock(), std::move(server), listening,
                          [&session] { return !session.stop.check().ok(); });
}

Result<void> run_net(Session& session, const BenchNetOptions& options) {
  FF_TRY(check_net_bench(options));
  io::SystemDisk disk;
  NetOptions net = options.net;
  // Both ends are threads of this process.
  if (!options.listen && options.connect.empty()) net.insecure = true;
  FF_TRY(auto transport, transport_options(disk, net, auth::Role::rank));
  if (options.listen) return run_listen(session, options, transport);
  if (options.incast) return run_incast(session, options, std::move(transport));
  if (options.connect.empty()) return run_here(session, options, transport);
  std::vector<net::Address> servers;
  for (const std::string& text : options.connect) {
    FF_TRY(servers.emplace_back(), net::parse_address(text));
  }
  NetReport report(session);
  return run_tests(session, report, tests_of(options), std::move(transport), servers,
                   options.max_senders);
}

}  // namespace

void declare_bench_net(Command& net) {
  auto& options = net.keep<BenchNetOptions>();
  net.about(
      "Measures calls and bulk transfers between two processes, with the code of ff's daemons: "
      "over TCP (TLS with a key), over shared memory and, with a device, over "
      "RDMA.\n\nTo measure between machines, start a server on one with --listen, and use "
      "--connect on the other; several --connect options share the load. Tests: call (a message "
      "and its reply, with 1 and 64 in flight), read and write (bulk transfers from and to the "
      "memory of the server), read-crc (a read that the reader checks), disk (random blocks of a "
      "file, with direct I/O).");
  net.option("--listen", text(options.listen, "ADDR:PORT"),
             "Serve measurements until interrupted; port 0 selects a free port and prints it");
  net.option("--connect", text(options.connect, "ADDR:PORT"),
             "Server to measure against, started with --listen");
  net.option(
      "--http", text(options.http, "ADDR:PORT"),
      "With --listen: serve /metrics and /status here; a port without an address means loopback");
  net.option("--disk", dir(options.disk),
             "Directory in which the server creates an unnamed file of 1 GiB, for disk reads");
  net.option("--test", choice(options.tests, {"call", "read", "read-crc", "write", "disk"}),
             "Run only this test");
  net.option("--size", size(options.size), "Size of a call, at most 4MiB, in all tests");
  net.option("--in-flight", number(options.in_flight), "Concurrent calls, in all tests");
  net.option("--duration", duration(options.duration_ns), "Duration of each test");
  net.option("--incast", number(options.incast),
             "Start N servers that answer one client at once, with and without request-to-send");
  net.option("--max-senders", number(options.max_senders),
             "Number of servers that may send bulk data to this client at once; 0 means all");
  declare_net(net, options.net);
  net.example("ff bench net", "all transports between two processes of this machine");
  net.example("ff bench net --disk /data --test disk", "the cost of the network for a disk read");
  net.example("ff bench net --listen '*:4400' --key cluster.key", "on one machine");
  net.example("ff bench net --connect node7:4400 --key cluster.key", "on the other machine");
  net.example("ff bench net --incast 32", "32 servers answer one client");
  net.blocking();
  net.run([&options](Session& s) { return run_net(s, options); });
}

}  // namespace ff::cmd
