// The means of the tests beside (hosts.h): ip(8), typed by a program; and that cuts are one way.
#include "e2e/hosts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace ff::test {

namespace {

bool shell(const std::string& line) { return std::system((line + " 2>/dev/null").c_str()) == 0; }

}  // namespace

Hosts::Hosts(size_t count) : count_(count), id_(std::to_string(::getpid())) {
  // A subnet by process, so that tests may run side by side, of those for tests (RFC 2544).
  const int pid = ::getpid();
  subnet_ = "198." + std::to_string(18 + pid / 256 % 2) + "." + std::to_string(pid % 256) + ".";
  if (::geteuid() != 0 || !shell("ip link add " + bridge_ + " type bridge")) return;
  available_ = shell("ip addr add " + subnet_ + "254/24 dev " + bridge_ + " && ip link set " +
                     bridge_ + " up");
  for (size_t host = 0; available_ && host < count; host++) {
    const std::string in = "ip -n " + name(host) + " ";
    available_ =
        shell("ip netns add " + name(host)) &&
        shell("ip link add " + link(host) + " type veth peer name eth0 netns " + name(host)) &&
        shell("ip link set " + link(host) + " master " + bridge_ + " up") &&
        shell(in + "addr add " + address(host) + "/24 dev eth0") &&
        shell(in + "link set eth0 up") && shell(in + "link set lo up");
  }
}

Hosts::~Hosts() {
  // The links first: they outlive their namespace by some time, and so would their names.
  for (size_t host = 0; host < count_; host++) {
    shell("ip link del " + link(host));
    shell("ip netns del " + name(host));
  }
  shell("ip link del " + bridge_);
}

std::string Hosts::name(size_t host) const { return "ff" + id_ + "-" + std::to_string(host); }

std::string Hosts::link(size_t host) const { return "ffv" + id_ + "-" + std::to_string(host); }

std::string Hosts::address(size_t host) const { return subnet_ + std::to_string(host + 1); }

Launch Hosts::on(size_t host, std::vector<std::string> argv) const {
  Launch launch;
  launch.argv = {"ip", "netns", "exec", name(host)};
  launch.argv.insert(launch.argv.end(), argv.begin(), argv.end());
  return launch;
}

void Hosts::route(const std::string& change, size_t from, size_t to) const {
  EXPECT_TRUE(shell("ip -n " + name(from) + " route " + change + " blackhole " + address(to)))
      << "the link from host " << from << " to host " << to;
}

namespace {

TEST(Hosts, CutsAreOneWay) {
  Hosts hosts(2);
  if (!hosts.available()) GTEST_SKIP() << "network namespaces cannot be made here";
  TempDir dir;
  write_file(dir / "key", fmt::format("{:a>64}\n", ""));
  ::chmod((dir / "key").c_str(), 0600);
  Child server(hosts.on(0, {FF_BINARY, "bench", "net", "--listen", hosts.address(0) + ":4400",
                            "--key", dir / "key"}));
  ASSERT_TRUE(server.wait_for_out("listening")) << server.err;
  const auto reaches = [&] {
    return run(hosts.on(
                   1, {FF_BINARY, "bench", "net", "--connect", hosts.address(0) + ":4400", "--key",
                       dir / "key", "--test", "call", "--duration", "10ms", "--timeout", "2s"}))
               .exit == 0;
  };
  EXPECT_TRUE(reaches());
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
    hosts.cut(static_cast<size_t>(from), static_cast<size_t>(to));
    EXPECT_FALSE(reaches()) << from;
    hosts.heal(static_cast<size_t>(from), static_cast<size_t>(to));
    EXPECT_TRUE(reaches()) << from;
  }
}

}  // namespace
}  // namespace ff::test
