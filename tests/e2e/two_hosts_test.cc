// Two hosts with ff on both, with the cluster key and TLS.
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "e2e/child.h"
#include "e2e/hosts.h"
#include "platform/auth/key.h"
#include "platform/io/system_disk.h"
#include "platform/net/test_certificates.h"

namespace ff::cmd {
namespace {

class TwoHostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.available()) GTEST_SKIP() << "network namespaces cannot be made here";
    ASSERT_TRUE(auth::make_key_file(disk_, key()).ok());
  }
  std::string key() const { return dir_ / "cluster.key"; }
  // ff bench net on a host.
  test::Launch on(size_t host, std::vector<std::string> words) {
    words.insert(words.begin(), {FF_BINARY, "bench", "net"});
    return hosts_.on(host, std::move(words));
  }
  static std::vector<std::string> tls(const net::TlsFiles& files) {
    return {"--tls-cert", files.cert, "--tls-key", files.key, "--tls-ca", files.ca};
  }
  std::vector<std::string> serve(std::vector<std::string> more) {
    more.insert(more.begin(), {"--listen", hosts_.address(kOne) + ":0", "--key", key()});
    return more;
  }
  // The address that the server says.
  std::string address_of(test::Child& server) {
    EXPECT_TRUE(server.wait_for_out("\n")) << server.err;
    const size_t at = server.out.find(hosts_.address(kOne) + ":");
    EXPECT_NE(at, std::string::npos) << server.out;
    return server.out.substr(at, server.out.find('\n', at) - at);
  }
  test::ProcessResult call(const std::string& address, std::vector<std::string> more) {
    more.insert(more.begin(), {"--connect", address, "--duration", "50ms", "--json"});
    return test::run(on(kTwo, std::move(more)));
  }

  static constexpr size_t kOne = 0, kTwo = 1;
  test::Hosts hosts_{2};
  io::SystemDisk disk_;
  test::TempDir dir_;
  net::TestFiles files_;
  net::TestCertificate authority_{{.name = "authority", .authority = true}};
  net::TlsFiles server_files_ = files_.put(
      authority_.issue({.name = "one", .hosts = "IP:" + hosts_.address(kOne)}), authority_.pem());
  net::TlsFiles client_files_ = files_.put(
      authority_.issue({.name = "two", .hosts = "IP:" + hosts_.address(kTwo)}), authority_.pem());
};

TEST_F(TwoHostsTest, CallsGoOverTlsWithTheClusterKey) {
  test::Child server(on(kOne, serve(tls(server_files_))));
  auto options = tls(client_files_);
  options.insert(options.end(), {"--key", key()});
  const auto ran = call(address_of(server), options);
  EXPECT_EQ(ran.exit, 0) << ran.err << ran.out;
  EXPECT_NE(ran.out.find(R"("way":"tls")"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find(R"("test":"read-crc")"), std::string::npos) << ran.out;
  server.signal(SIGTERM);
}

// Two hosts share no memory, whatever their addresses.
TEST_F(TwoHostsTest, TheKeyAloneIsTls) {
  test::Child server(on(kOne, serve({})));
  const auto ran = call(address_of(server), {"--key", key()});
  EXPECT_EQ(ran.exit, 0) << ran.err << ran.out;
  EXPECT_NE(ran.out.find(R"("way":"tls")"), std::string::npos) << ran.out;
}

TEST_F(TwoHostsTest, WhoeverLacksKeyOrCertificateIsRefused) {
  test::Child server(on(kOne, serve(tls(server_files_))));
  const std::string address = address_of(server);
  const auto keyless = call(address, tls(client_files_));
  EXPECT_EQ(keyless.exit, 2) << keyless.out;
  EXPECT_NE(keyless.out.find("certificates need a key"), std::string::npos) << keyless.out;
  const auto plain = call(address, {"--key", key()});
  EXPECT_NE(plain.exit, 0) << plain.out;
  const net::TestCertificate other({.name = "other", .authority = true});
  auto options = tls(files_.put(other.issue({.name = "x", .hosts = "IP:" + hosts_.address(kTwo)}),
                                authority_.pem()));
  options.insert(options.end(), {"--key", key()});
  const auto stranger = call(address, options);
  EXPECT_EQ(stranger.exit, 5) << stranger.out;
  // And the server goes on.
  options = tls(client_files_);
  options.insert(options.end(), {"--key", key(), "--test", "call"});
  EXPECT_EQ(call(address, options).exit, 0);
}

TEST_F(TwoHostsTest, AServerForOtherHostsNeedsAKey) {
  const auto ran = test::run(on(kOne, {"--listen", hosts_.address(kOne) + ":0"}));
  EXPECT_EQ(ran.exit, 5);
  EXPECT_NE(ran.err.find("there is no key"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace ff::cmd
