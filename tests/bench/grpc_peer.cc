// What the calls of `ff bench net` are compared with: unary echo calls of gRPC C++ over loopback,
// from process to process, a fixed number in flight. Written the way gRPC is fastest on two cores:
// one channel, and one thread with one completion queue on each side. More of any of them was not
// faster, and the callback interface (--api callback) was slower. Prints one JSON object.
#include <getopt.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <latch>
#include <memory>
#include <optional>
#include <vector>

#include "bench/grpc_server.h"
#include "bench/peer.h"
#include "grpc_peer.grpc.pb.h"
#include "platform/base/bytes.h"

namespace ff::peer {
namespace {

constexpr std::string_view kUsage =
    "usage: grpc_peer [--api async|callback] [--in-flight N] [--size BYTES] [--seconds S]\n"
    "  --api API       a completion queue with one thread on each side, or callbacks\n"
    "                  (default async)\n"
    "  --in-flight N   calls at a time, on one channel (default 64, at most 4096)\n"
    "  --size BYTES    of a request and of a reply (default 4096, at most 1 MiB)\n"
    "  --seconds S     to measure, after a warm-up of 0.5 s (default 3)\n";

struct Options {
  bool callback = false;
  uint64_t in_flight = 64;
  uint64_t size = 4096;
  double seconds = 3;
};

// One of the calls in flight; when it has ended, the next one takes its place.
struct ClientSlot {
  std::optional<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<EchoReply>> reader;
  EchoReply reply;
  grpc::Status status;
  SteadyClock::time_point began;
  std::vector<float> latencies;  // seconds
  bool failed = false;
};

class Client {
 public:
  Client(const Options& options, const std::shared_ptr<grpc::Channel>& channel)
      : options_(options), stub_(Echo::NewStub(channel)), slots_(options.in_flight) {
    request_.set_data(std::string(options.size, 'x'));
  }

  // The latencies of the calls that ended within the time that counts, sorted.
  std::vector<float> run() {
    from_ = SteadyClock::now() + duration_of(kWarmUpSeconds);
    until_ = from_ + duration_of(options_.seconds);
    if (options_.callback) {
      run_callbacks();
    } else {
      run_queue();
    }
    std::vector<float> all;
    for (const ClientSlot& slot : slots_) {
      if (slot.failed) {
        throw std::runtime_error(fmt::format("a call failed or lost bytes: {} (code {})",
                                             slot.status.error_message(),
                                             static_cast<int>(slot.status.error_code())));
      }
      all.insert(all.end(), slot.latencies.begin(), slot.latencies.end());
    }
    if (all.empty()) throw std::runtime_error("no call ended in time");
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  void run_queue() {
    grpc::CompletionQueue queue;
    for (ClientSlot& slot : slots_) start_async(slot, queue);
    void* tag = nullptr;
    bool ok = false;
    for (size_t active = slots_.size(); active > 0 && queue.Next(&tag, &ok);) {
      auto& slot = *static_cast<ClientSlot*>(tag);
      if (ended(slot)) {
        start_async(slot, queue);
      } else {
        --active;
      }
    }
    drain(queue);
  }

  void start_async(ClientSlot& slot, grpc::CompletionQueue& queue) {
    slot.context.emplace();
    slot.began = SteadyClock::now();
    slot.reader = stub_->AsyncCall(&*slot.context, request_, &queue);
    slot.reader->Finish(&slot.reply, &slot.status, &slot);
  }

  void run_callbacks() {
    std::latch done(static_cast<std::ptrdiff_t>(slots_.size()));
    for (ClientSlot& slot : slots_) start_callback(slot, done);
    done.wait();
  }

  void start_callback(ClientSlot& slot, std::latch& done) {
    slot.context.emplace();
    slot.began = SteadyClock::now();
    stub_->async()->Call(&*slot.context, &request_, &slot.reply, [&](grpc::Status status) {
      slot.status = std::move(status);
      if (ended(slot)) {
        start_callback(slot, done);
      } else {
        done.count_down();
      }
    });
  }

  // Counts the call. False when no other shall follow.
  bool ended(ClientSlot& slot) {
    const auto now = SteadyClock::now();
    slot.failed = !slot.status.ok() || slot.reply.data().size() != options_.size;
    if (slot.failed || now >= until_) return false;
    if (now >= from_) {
      slot.latencies.push_back(std::chrono::duration<float>(now - slot.began).count());
    }
    return true;
  }

  const Options& options_;
  std::unique_ptr<Echo::Stub> stub_;
  EchoRequest request_;
  std::vector<ClientSlot> slots_;
  SteadyClock::time_point from_;
  SteadyClock::time_point until_;
};

// Without what is optional in a channel (census, retries and the like): calls are faster so.
std::shared_ptr<grpc::Channel> connect(int port) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MINIMAL_STACK, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  auto channel = grpc::CreateCustomChannel(fmt::format("127.0.0.1:{}", port),
                                           grpc::InsecureChannelCredentials(), arguments);
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10))) {
    throw std::runtime_error("cannot connect to the server");
  }
  return channel;
}

Options parse(int argc, char** argv) {
  static const option kLong[] = {{"api", required_argument, nullptr, 'a'},
                                 {"in-flight", required_argument, nullptr, 'n'},
                                 {"size", required_argument, nullptr, 'b'},
                                 {"seconds", required_argument, nullptr, 's'},
                                 {}};
  Options options;
  for (int c; (c = ::getopt_long(argc, argv, "", kLong, nullptr)) != -1;) {
    const std::string_view value = optarg != nullptr ? optarg : "";
    if (c == '?') throw UsageError("bad option");
    if (c == 'a' && value != "async" && value != "callback") throw UsageError("unknown --api");
    if (c == 'a') options.callback = value == "callback";
    if (c == 'n') options.in_flight = parse_number(optarg, 4096);
    if (c == 'b') options.size = parse_number(optarg, kMiB);
    if (c == 's') options.seconds = parse_seconds(optarg);
  }
  if (optind < argc) throw UsageError(fmt::format("unexpected: {}", argv[optind]));
  return options;
}

void run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  // Before gRPC starts its threads, which no child would have.
  Child child(unix_pair(),
              [&](int socket) { serve_echo(options.callback, options.in_flight, socket); });
  int port = 0;
  if (::recv(child.socket(), &port, sizeof(port), MSG_WAITALL) != sizeof(port)) {
    throw std::runtime_error("the server has not started");
  }
  const std::vector<float> latencies = Client(options, connect(port)).run();
  child.finish();
  const size_t count = latencies.size();
  fmt::print(
      "{{\"peer\":\"grpc\",\"version\":\"{}\",\"api\":\"{}\",\"size\":{},\"in_flight\":{},"
      "\"calls_per_second\":{:.0f},\"p50_seconds\":{:.9f},\"p99_seconds\":{:.9f}}}\n",
      grpc::Version(), options.callback ? "callback" : "async", options.size, options.in_flight,
      static_cast<double>(count) / options.seconds, latencies[count / 2],
      latencies[count * 99 / 100]);
}

}  // namespace
}  // namespace ff::peer

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  return ff::peer::run_main(ff::peer::kUsage, [&] { ff::peer::run(argc, argv); });
}
