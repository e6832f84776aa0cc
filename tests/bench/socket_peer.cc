// What the bulk transfers of `ff bench net` are compared with: a plain blocking copy loop over a
// socket between two processes, and plain memcpy, which shared memory can at best reach. A short
// warm-up, then whole blocks are counted where they arrive. Prints one JSON object.
#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "bench/peer.h"
#include "platform/base/bytes.h"
#include "platform/simd/crc32c.h"

namespace ff::peer {
namespace {

constexpr size_t kRing = 8;  // blocks that are used in turn, as a benchmark with 8 in flight does
constexpr size_t kPage = 4096;

constexpr std::string_view kUsage =
    "usage: socket_peer [--unix | --memcpy] [--crc] [--size BYTES] [--seconds S]\n"
    "  (default)       blocks over a TCP connection of loopback, from process to process\n"
    "  --unix          blocks over a Unix socket pair\n"
    "  --memcpy        blocks from one of 8 buffers to one of 8 others, no sockets\n"
    "  --crc           the receiver also computes and compares the CRC32C of each block\n"
    "  --size BYTES    of a block (default 1048576, at most 256 MiB)\n"
    "  --seconds S     to measure, after a warm-up of 0.5 s (default 3)\n";

struct Options {
  std::string mode = "tcp";
  bool crc = false;
  uint64_t size = kMiB;
  double seconds = 3;
};

// A ring of blocks, each on pages of its own, all touched.
class Ring {
 public:
  Ring(size_t blocks, size_t size, int fill)
      : size_(size), stride_((size + kPage - 1) / kPage * kPage), blocks_(blocks) {
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, stride_ * blocks)));
    if (!memory_) throw std::bad_alloc();
    std::memset(memory_.get(), fill, stride_ * blocks);
  }

  ByteSpan operator[](size_t i) { return {memory_.get() + i % blocks_ * stride_, size_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  size_t size_;
  size_t stride_;
  size_t blocks_;
  std::unique_ptr<std::byte, Free> memory_;
};

// Bytes without a short period, so that a lost or moved piece shows.
void fill(ByteSpan block) {
  for (size_t i = 0; i < block.size(); ++i) block[i] = std::byte(i * 2654435761U >> 24);
}

void compare(uint32_t crc, uint32_t expected) {
  if (crc != expected) throw std::runtime_error("a block arrived with other bytes");
}

struct Measured {
  double seconds;
  double bytes_per_second;
};

// Runs `step(i)`, which moves `bytes`, for the warm-up and then for the time that counts.
template <class Step>
Measured measure(const Options& options, uint64_t bytes, Step step) {
  const auto run = [&](double seconds, size_t& steps) {
    const auto start = SteadyClock::now();
    const auto length = duration_of(seconds);
    auto elapsed = SteadyClock::duration::zero();
    while (elapsed < length) {
      step(steps++);
      elapsed = SteadyClock::now() - start;
    }
    return std::chrono::duration<double>(elapsed).count();
  };
  size_t warm_up = 0;
  run(kWarmUpSeconds, warm_up);
  size_t steps = 0;
  const double seconds = run(options.seconds, steps);
  return {seconds, static_cast<double>(steps) * static_cast<double>(bytes) / seconds};
}

SocketPair tcp_pair() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(listener >= 0, "socket");
  sockaddr_in address{};  // port 0: the kernel chooses
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  check(::bind(listener, name, length) == 0, "bind");
  check(::listen(listener, 1) == 0, "listen");
  check(::getsockname(listener, name, &length) == 0, "getsockname");
  SocketPair pair{.ours = -1, .childs = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  check(pair.childs >= 0, "socket");
  check(::connect(pair.childs, name, length) == 0, "connect");
  pair.ours = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  check(pair.ours >= 0, "accept");
  ::close(listener);
  const int on = 1;
  for (const int fd : {pair.ours, pair.childs}) {
    check(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
  }
  return pair;
}

// The child: sends the blocks of a ring until the other side has closed. One block alone would stay
// in the processor's cache, as what a server sends does not.
void send_blocks(int fd, size_t size) {
  Ring ring(kRing, size, 1);
  for (size_t i = 0; i < kRing; ++i) fill(ring[i]);
  for (size_t i = 0, sent = 0;;) {
    const ssize_t n = ::send(fd, ring[i].data() + sent, size - sent, MSG_NOSIGNAL);
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return;
    check(n >= 0, "send");
    sent += static_cast<size_t>(n);
    if (sent < size) continue;
    sent = 0;
    ++i;
  }
}

// MSG_WAITALL wakes this side less often, which is faster over TCP; a signal may still cut it
// short.
void receive_block(int fd, ByteSpan block) {
  while (!block.empty()) {
    const ssize_t n = ::recv(fd, block.data(), block.size(), MSG_WAITALL);
    check(n >= 0, "recv");
    if (n == 0) throw std::runtime_error("the sender has gone");
    block = block.subspan(static_cast<size_t>(n));
  }
}

Measured run_sockets(const Options& options) {
  const SocketPair pair = options.mode == "unix" ? unix_pair() : tcp_pair();
  Child child(pair, [&](int fd) { send_blocks(fd, options.size); });
  Ring ring(kRing, options.size, 0);
  fill(ring[0]);
  const uint32_t expected = simd::crc32c(ring[0]);
  std::ranges::fill(ring[0], std::byte{0});
  const Measured measured = measure(options, options.size, [&](size_t i) {
    receive_block(child.socket(), ring[i]);
    if (options.crc) compare(simd::crc32c(ring[i]), expected);
  });
  compare(simd::crc32c(ring[0]), expected);
  child.finish();
  return measured;
}

Measured run_memcpy(const Options& options) {
  Ring from(kRing, options.size, 1);
  Ring to(kRing, options.size, 0);
  for (size_t i = 0; i < kRing; ++i) fill(from[i]);
  const uint32_t expected = simd::crc32c(from[0]);
  const Measured measured = measure(options, options.size, [&](size_t i) {
    std::memcpy(to[i].data(), from[i].data(), options.size);
    asm volatile("" ::: "memory");  // every copy is made, though the next one overwrites it
    if (options.crc) compare(simd::crc32c(to[i]), expected);
  });
  for (size_t i = 0; i < kRing; ++i) compare(simd::crc32c(to[i]), expected);
  return measured;
}

Options parse(int argc, char** argv) {
  static const option kLong[] = {
      {"unix", no_argument, nullptr, 'u'},          {"memcpy", no_argument, nullptr, 'm'},
      {"crc", no_argument, nullptr, 'c'},           {"size", required_argument, nullptr, 'b'},
      {"seconds", required_argument, nullptr, 's'}, {}};
  Options options;
  for (int c; (c = ::getopt_long(argc, argv, "", kLong, nullptr)) != -1;) {
    if ((c == 'u' || c == 'm') && options.mode != "tcp") throw UsageError("one mode, not two");
    if (c == '?') throw UsageError("bad option");
    if (c == 'u') options.mode = "unix";
    if (c == 'm') options.mode = "memcpy";
    if (c == 'c') options.crc = true;
    if (c == 'b') options.size = parse_number(optarg, 256 * kMiB);
    if (c == 's') options.seconds = parse_seconds(optarg);
  }
  if (optind < argc) throw UsageError(fmt::format("unexpected: {}", argv[optind]));
  return options;
}

void run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const Measured measured = options.mode == "memcpy" ? run_memcpy(options) : run_sockets(options);
  fmt::print(
      "{{\"peer\":\"socket\",\"mode\":\"{}\",\"size\":{},\"crc\":{},\"seconds\":{:.3f},"
      "\"bytes_per_second\":{:.0f}}}\n",
      options.mode, options.size, options.crc, measured.seconds, measured.bytes_per_second);
}

}  // namespace
}  // namespace ff::peer

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  return ff::peer::run_main(ff::peer::kUsage, [&] { ff::peer::run(argc, argv); });
}
