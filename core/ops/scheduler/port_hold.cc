// port_hold.cc: bind(2) tells what is free.
#include "ops/scheduler/port_hold.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"

namespace ff::scheduler {
namespace {

constexpr uint32_t kUsualFirst = 32'768;  // of the kernel's own, where it does not say
constexpr int kPortTries = 1000;
constexpr uint64_t kFileMost = 256;

// Of all addresses: IPv6 with IPv4, else IPv4. Not listening, and not shared: whoever else binds
// it, here or in another agent, is refused.
Fd bind_all(uint32_t port) {
  Fd six(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 all_six = {};
  all_six.sin6_family = AF_INET6;
  all_six.sin6_port = htons(static_cast<uint16_t>(port));
  if (six.get() >= 0) {
    if (::bind(six.get(), reinterpret_cast<const sockaddr*>(&all_six), sizeof all_six) == 0) {
      return six;
    }
    if (errno == EADDRINUSE) return {};
  }
  Fd four(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in all_four = {};
  all_four.sin_family = AF_INET;
  all_four.sin_port = htons(static_cast<uint16_t>(port));
  if (four.get() < 0) return {};
  if (::bind(four.get(), reinterpret_cast<const sockaddr*>(&all_four), sizeof all_four) != 0) {
    return {};
  }
  return four;
}

uint32_t first_of_kernel() {
  io::SystemDisk disk;
  const auto text = io::read_file(disk, "/proc/sys/net/ipv4/ip_local_port_range", kFileMost);
  return text ? parse_port_range(*text) : kUsualFirst;
}

}  // namespace

uint32_t parse_port_range(const std::string& text) {
  const auto first = parse_u64(std::string_view(text).substr(0, text.find_first_of("\t \n")));
  return first && *first <= UINT16_MAX ? static_cast<uint32_t>(*first) : kUsualFirst;
}

Result<PortHold> PortHold::find(const std::set<uint32_t>& taken, Rng& rng) {
  uint32_t end = first_of_kernel();
  // Where the kernel takes all of them, so do we.
  if (end < kFirstPort + 100 * kPortBlock) end = UINT16_MAX;
  const uint32_t blocks = (end - kFirstPort) / kPortBlock;
  for (int i = 0; i < kPortTries; i++) {
    const auto block = static_cast<uint32_t>(rng.below(blocks));
    const uint32_t port = kFirstPort + block * kPortBlock;
    if (taken.contains(port)) continue;
    PortHold hold = again(port);
    if (hold.first_.get() >= 0 && hold.second_.get() >= 0) return hold;
  }
  return fail(Errc::busy, "no TCP port between {} and {} is free", kFirstPort, end);
}

PortHold PortHold::again(uint32_t port) {
  PortHold hold;
  hold.port_ = port;
  hold.first_ = bind_all(port);
  hold.second_ = bind_all(port + kSecondPort);
  return hold;
}

}  // namespace ff::scheduler
