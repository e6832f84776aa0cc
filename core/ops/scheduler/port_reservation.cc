// port_reservation.cc: bind(2) shows which ports are free.
#include "ops/scheduler/port_reservation.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"

namespace ff::scheduler {
namespace {

constexpr uint32_t kDefaultEphemeralFirst = 32'768;  // Linux default
constexpr int kPortTries = 1000;
constexpr uint64_t kFileBytesMax = 256;

// Binds all addresses: IPv6 with IPv4, else IPv4. No SO_REUSEADDR and no listen(2): any other bind,
// here or in another agent, fails.
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

uint32_t ephemeral_first() {
  io::SystemDisk disk;
  const auto text = io::read_file(disk, "/proc/sys/net/ipv4/ip_local_port_range", kFileBytesMax);
  return text ? parse_port_range(*text) : kDefaultEphemeralFirst;
}

}  // namespace

uint32_t parse_port_range(const std::string& text) {
  const auto first = parse_u64(std::string_view(text).substr(0, text.find_first_of("\t \n")));
  return first && *first <= UINT16_MAX ? static_cast<uint32_t>(*first) : kDefaultEphemeralFirst;
}

Result<PortReservation> PortReservation::reserve(const std::set<uint32_t>& taken, Rng& rng) {
  uint32_t end = ephemeral_first();
  // If the ephemeral range leaves no room, use all ports.
  if (end < kFirstPort + 100 * kPortBlock) end = UINT16_MAX;
  const uint32_t blocks = (end - kFirstPort) / kPortBlock;
  for (int i = 0; i < kPortTries; i++) {
    const auto block = static_cast<uint32_t>(rng.below(blocks));
    const uint32_t port = kFirstPort + block * kPortBlock;
    if (taken.contains(port)) continue;
    PortReservation reservation = restore(port);
    if (reservation.first_.get() >= 0 && reservation.second_.get() >= 0) return reservation;
  }
  return fail(Errc::busy, "no TCP port between {} and {} is free", kFirstPort, end);
}

PortReservation PortReservation::restore(uint32_t port) {
  PortReservation reservation;
  reservation.port_ = port;
  reservation.first_ = bind_all(port);
  reservation.second_ = bind_all(port + kSecondPort);
  return reservation;
}

}  // namespace ff::scheduler
