// Two hosts: network namespaces joined by a veth pair, ff on both, with the cluster key and TLS.
// Needs root; each test names its own namespaces, and takes them away.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "cli/child.h"
#include "io/system_disk.h"
#include "net/key.h"
#include "net/test_certificates.h"

namespace ff::cmd {
namespace {

int shell(const std::string& line) { return std::system((line + " 2>/dev/null").c_str()); }

class TwoHostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0 || shell("ip netns add " + one_) != 0) {
      GTEST_SKIP() << "network namespaces cannot be made here";
    }
    ASSERT_EQ(shell("ip netns add " + two_), 0);
    const std::string left = "ffa" + id_, right = "ffb" + id_;
    ASSERT_EQ(shell("ip link add " + left + " netns " + one_ + " type veth peer name " + right +
                    " netns " + two_),
              0);
    for (const auto& [host, link, ip] :
         {std::tuple(one_, left, "10.99.0.1/24"), std::tuple(two_, right, "10.99.0.2/24")}) {
      ASSERT_EQ(shell("ip -n " + host + " addr add " + ip + " dev " + link), 0);
      ASSERT_EQ(shell("ip -n " + host + " link set " + link + " up"), 0);
      ASSERT_EQ(shell("ip -n " + host + " link set lo up"), 0);
    }
    ASSERT_TRUE(net::make_key_file(disk_, key()).ok());
  }
  void TearDown() override {
    shell("ip netns del " + one_);
    shell("ip netns del " + two_);
  }
  std::string key() const { return dir_ / "cluster.key"; }
  // ff on a host.
  static test::Launch on(const std::string& host, std::vector<std::string> words) {
    test::Launch launch;
    launch.argv = {"ip", "netns", "exec", host, FF_BINARY, "bench", "net"};
    launch.argv.insert(launch.argv.end(), words.begin(), words.end());
    return launch;
  }
  static std::vector<std::string> tls(const net::TlsFiles& files) {
    return {"--tls-cert", files.cert, "--tls-key", files.key, "--tls-ca", files.ca};
  }
  std::vector<std::string> serve(std::vector<std::string> more) {
    more.insert(more.begin(), {"--listen", "10.99.0.1:0", "--key", key()});
    return more;
  }
  // The address that the server says.
  static std::string address_of(test::Child& server) {
    EXPECT_TRUE(server.wait_for_out("\n")) << server.err;
    const size_t at = server.out.find("10.99.0.1:");
    EXPECT_NE(at, std::string::npos) << server.out;
    return server.out.substr(at, server.out.find('\n', at) - at);
  }
  test::Ran call(const std::string& address, std::vector<std::string> more) {
    more.insert(more.begin(), {"--connect", address, "--duration", "50ms", "--json"});
    return test::run(on(two_, std::move(more)));
  }

  const std::string id_ = std::to_string(::getpid());
  const std::string one_ = "ff-one-" + id_;
  const std::string two_ = "ff-two-" + id_;
  io::SystemDisk disk_;
  test::TempDir dir_;
  net::TestFiles files_;
  net::TestCertificate authority_{{.name = "authority", .authority = true}};
  net::TlsFiles server_files_ =
      files_.put(authority_.issue({.name = "one", .hosts = "IP:10.99.0.1"}), authority_.pem());
  net::TlsFiles client_files_ =
      files_.put(authority_.issue({.name = "two", .hosts = "IP:10.99.0.2"}), authority_.pem());
};

TEST_F(TwoHostsTest, CallsGoOverTlsWithTheClusterKey) {
  test::Child server(on(one_, serve(tls(server_files_))));
  auto options = tls(client_files_);
  options.insert(options.end(), {"--key", key()});
  const auto ran = call(address_of(server), options);
  EXPECT_EQ(ran.exit, 0) << ran.err << ran.out;
  EXPECT_NE(ran.out.find(R"("way":"tls")"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find(R"("test":"read-crc")"), std::string::npos) << ran.out;
  server.signal(SIGTERM);
}

// Two hosts share no memory, whatever their addresses.
TEST_F(TwoHostsTest, WithoutCertificatesItIsTcp) {
  test::Child server(on(one_, serve({})));
  const auto ran = call(address_of(server), {"--key", key()});
  EXPECT_EQ(ran.exit, 0) << ran.err << ran.out;
  EXPECT_NE(ran.out.find(R"("way":"tcp")"), std::string::npos) << ran.out;
}

TEST_F(TwoHostsTest, WhoeverLacksKeyOrCertificateIsRefused) {
  test::Child server(on(one_, serve(tls(server_files_))));
  const std::string address = address_of(server);
  const auto keyless = call(address, tls(client_files_));
  EXPECT_EQ(keyless.exit, 5) << keyless.out;
  EXPECT_NE(keyless.out.find("cluster key"), std::string::npos) << keyless.out;
  const auto plain = call(address, {"--key", key()});
  EXPECT_NE(plain.exit, 0) << plain.out;
  const net::TestCertificate other({.name = "other", .authority = true});
  auto options =
      tls(files_.put(other.issue({.name = "x", .hosts = "IP:10.99.0.2"}), authority_.pem()));
  options.insert(options.end(), {"--key", key()});
  const auto stranger = call(address, options);
  EXPECT_EQ(stranger.exit, 5) << stranger.out;
  // And the server goes on.
  options = tls(client_files_);
  options.insert(options.end(), {"--key", key(), "--test", "call"});
  EXPECT_EQ(call(address, options).exit, 0);
}

TEST_F(TwoHostsTest, AServerForOtherHostsNeedsAKey) {
  const auto ran = test::run(on(one_, {"--listen", "10.99.0.1:0"}));
  EXPECT_EQ(ran.exit, 5);
  EXPECT_NE(ran.err.find("there is no key"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace ff::cmd
