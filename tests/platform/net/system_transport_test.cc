// Transport negotiation between two ends of a connection, and errors for incompatible peers.
// tests/rdma tests the negotiation of RDMA.
#include "platform/net/system_transport.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/net/socket_ends.h"
#include "platform/net/test_certificates.h"
#include "platform/net/tested_pair.h"

namespace ff::net {
namespace {

using MaybeConnection = std::optional<Result<std::unique_ptr<Connection>>>;

constexpr NetMode kTcp = NetMode::tcp;

class SystemTransportTest : public testing::Test {
 protected:
  static Task<void> keep_client(SystemTransport& transport, Loop& loop, Address to,
                                MaybeConnection& result) {
    result = co_await transport.connect(loop, std::move(to));
  }
  static Task<void> keep_server(Listener& listener, Loop& loop, MaybeConnection& result) {
    auto arrival = co_await listener.accept();
    FF_CHECK(arrival.ok());
    result = co_await (*arrival)->open(loop);
  }
  // Both ends of one connection, or why there is none.
  void meet(SystemTransport& client, SystemTransport& server,
            Address at = Address{"127.0.0.1", 0, ""}) {
    auto listener = server.listen(loop_, at);
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    Address to = (*listener)->address();
    if (to.host == "0.0.0.0" || to.host == "::") to.host = "127.0.0.1";
    Gate gate(loop_);
    gate.spawn(keep_server(**listener, loop_, at_server_));
    gate.spawn(keep_client(client, loop_, to, at_client_));
    run_task(loop_, gate.wait_empty());
  }
  // A client with a far end that the test plays.
  void meet_far_end(SystemTransport& client, Address at, const std::function<Task<void>()>& far) {
    Gate gate(loop_);
    gate.spawn(far());
    gate.spawn(keep_client(client, loop_, std::move(at), at_client_));
    run_task(loop_, gate.wait_empty());
  }
  bool met() { return at_client_->ok() && at_server_->ok(); }
  // What came over the connection from the client to the server.
  std::string said(const std::string& word) {
    (*at_client_)->get()->send({.kind = FrameKind::call, .call = 1}, word);
    auto frame = run_task(loop_, (*at_server_)->get()->receive());
    return frame ? frame->message : frame.error().message;
  }
  // The server's answer to a client that is not ours and says `bytes`.
  Error answer_to(std::string_view bytes, TransportOptions options = {}) {
    SystemTransport server(std::move(options));
    auto listener = server.listen(loop_, {"127.0.0.1", 0, ""});
    FF_CHECK(listener.ok());
    auto socket = run_task(loop_, connect_socket(loop_, (*listener)->address()));
    FF_CHECK(socket.ok());
    FF_CHECK(::send(socket->fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(bytes.size()));
    run_task(loop_, keep_server(**listener, loop_, at_server_));
    return at_server_->ok() ? Error() : at_server_->error();
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  MaybeConnection at_client_;
  MaybeConnection at_server_;
};

TEST_F(SystemTransportTest, OneHostTakesSharedMemory) {
  SystemTransport client({});
  SystemTransport server({});
  meet(client, server);
  ASSERT_TRUE(met()) << at_client_->error().message << at_server_->error().message;
  EXPECT_TRUE((**at_client_)->same_host());
  EXPECT_TRUE((**at_server_)->same_host());
  EXPECT_TRUE((**at_client_)->peer().starts_with("127.0.0.1:"));
  EXPECT_TRUE((**at_client_)->peer().ends_with(" (shm)"));
  EXPECT_TRUE((**at_server_)->peer().ends_with(" (shm)"));
  EXPECT_EQ(said("hello"), "hello");
}

TEST_F(SystemTransportTest, EveryAddressOfThisHostTakesSharedMemory) {
  SystemTransport client({});
  SystemTransport server({});
  meet(client, server, Address{"", 0, ""});
  ASSERT_TRUE(met());
  EXPECT_TRUE((**at_client_)->same_host());
}

TEST_F(SystemTransportTest, EitherEndMayWantTcpAlone) {
  for (const auto& [client_mode, server_mode] :
       {std::pair(kTcp, kTcp), {kTcp, NetMode::automatic}, {NetMode::automatic, kTcp}}) {
    SystemTransport client({.mode = client_mode});
    SystemTransport server({.mode = server_mode});
    meet(client, server);
    ASSERT_TRUE(met());
    EXPECT_FALSE((**at_client_)->one_sided());
    EXPECT_TRUE((**at_client_)->peer().ends_with(" (tcp)"));
    EXPECT_EQ(said("hello"), "hello");
    at_client_.reset();
    at_server_.reset();
  }
}

TEST_F(SystemTransportTest, RdmaAloneNeedsADevice) {
  const auto device = VerbsDevice::open(loop_, {});
  if (device.ok()) GTEST_SKIP() << "this machine has an RDMA device";
  SystemTransport transport({.mode = NetMode::verbs});
  EXPECT_EQ(transport.listen(loop_, {"127.0.0.1", 0, ""}).error().code, Errc::unsupported);
  SystemTransport server({});
  auto listener = server.listen(loop_, {"127.0.0.1", 0, ""});
  const auto made = run_task(loop_, transport.connect(loop_, (*listener)->address()));
  EXPECT_EQ(made.error().code, Errc::unsupported);
  EXPECT_NE(made.error().hint.find("--net tcp"), std::string::npos);
}

TEST_F(SystemTransportTest, MemoryOfTheTransportIsReachedInPlace) {
  SystemTransport client({});
  SystemTransport server({});
  auto memory = client.allocate_shared_memory(kMiB);
  ASSERT_TRUE(memory.ok());
  meet(client, server);
  ASSERT_TRUE(met());
  auto sink = (**at_client_)->expose_sink(memory->subspan(100, 5));
  ASSERT_TRUE(sink.ok());
  EXPECT_NE(sink->buffer().key, 0u);
  EXPECT_EQ(said("told"), "told");
  auto pushing = (**at_server_)->push(sink->buffer(), 0, as_bytes("hello"));
  ASSERT_TRUE(run_task(loop_, std::move(pushing)).ok());
  EXPECT_EQ(as_text(memory->subspan(100, 5)), "hello");
  sink = Connection::Exposure();
}

// A file that a program has as well, for the time between adopt_memory() and release_memory().
TEST_F(SystemTransportTest, AdoptedMemoryIsReachedInPlaceUntilItIsGivenBack) {
  SystemTransport client({});
  SystemTransport server({});
  Fd fd(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(fd.get(), kMiB), 0);
  void* const base = ::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(base, MAP_FAILED);
  const ByteSpan memory(static_cast<std::byte*>(base), kMiB);
  Fd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  meet(client, server);
  ASSERT_TRUE(met());
  std::weak_ptr<const SharedRegion> after;
  {
    const auto region = client.adopt_memory(loop_, memory, std::move(copy));
    after = region;
    auto sink = (**at_client_)->expose_sink(memory.subspan(4096, 5));
    ASSERT_TRUE(sink.ok());
    EXPECT_EQ(sink->buffer().key, region->id());
    EXPECT_EQ(said("told"), "told");
    const auto reached = (**at_server_)->mapped_memory(sink->buffer());
    ASSERT_TRUE(reached.has_value());
    EXPECT_NE(reached->data(), memory.data() + 4096);
    ASSERT_EQ(::pread(fd.get(), reached->data(), 5, 0), 5);
    auto pushing = (**at_server_)->push(sink->buffer(), 0, as_bytes("hello"));
    ASSERT_TRUE(run_task(loop_, std::move(pushing)).ok());
    EXPECT_EQ(as_text(memory.subspan(4096, 5)), "hello");
    const net::RemoteBuffer buffer = sink->buffer();
    sink = Connection::Exposure();
    client.release_memory(loop_, *region);
    EXPECT_EQ(said("forget it"), "forget it");
    EXPECT_FALSE((**at_server_)->mapped_memory(buffer).has_value());
  }
  // It is nobody's region any more, and what is exposed there goes through frames.
  auto framed = (**at_client_)->expose_sink(memory.subspan(4096, 5));
  ASSERT_TRUE(framed.ok());
  EXPECT_EQ(framed->buffer().key, 0u);
  framed = Connection::Exposure();
  at_client_.reset();
  at_server_.reset();
  EXPECT_TRUE(after.expired());
  ::munmap(base, kMiB);
}

// A port of this host that somebody forwards to another machine: both addresses are one, but the
// Unix socket is on the other side.
TEST_F(SystemTransportTest, AForwardedPortFallsBackToTcp) {
  SystemTransport client({});
  auto listener = SocketListener::listen(loop_, {"127.0.0.1", 0, ""});
  ASSERT_TRUE(listener.ok());
  std::vector<TransportKinds> offers;
  std::unique_ptr<SocketStream> last;
  // The far end as the client sees it: it knows of no Unix socket here.
  const std::function<Task<void>()> far = [&]() -> Task<void> {
    for (const TransportKind kind : {TransportKind::shm, TransportKind::stream}) {
      auto socket = co_await (*listener)->accept();
      last = stream_of(loop_, std::move(*socket));
      std::array<std::byte, kOfferBytes> bytes;
      const auto got = co_await read_all(*last, bytes);
      FF_CHECK(got.ok());
      offers.push_back(parse_offer(bytes)->kinds);
      const TransportChoice choice{kind, {}};
      const auto answer = encode_choice(choice);
      const auto wrote = co_await write_all(*last, answer);
      FF_CHECK(wrote.ok());
    }
  };
  meet_far_end(client, (*listener)->address(), far);
  ASSERT_TRUE(at_client_->ok()) << at_client_->error().message;
  EXPECT_TRUE((**at_client_)->peer().ends_with(" (tcp)"));
  ASSERT_EQ(offers.size(), 2u);
  EXPECT_TRUE(has(offers[0], TransportKind::shm));
  EXPECT_FALSE(has(offers[1], TransportKind::shm));
}

TEST_F(SystemTransportTest, StrangersAreToldApart) {
  const Error http = answer_to("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(http.code, Errc::corrupt);
  EXPECT_NE(http.message.find("it begins with 'GET '"), std::string::npos) << http.message;
  EXPECT_NE(http.message.find("127.0.0.1:"), std::string::npos) << http.message;
  const Error tls = answer_to(std::string("\x16\x03\x01\x02\x00\x01\x00\x01", 8));
  EXPECT_EQ(tls.code, Errc::corrupt);
  EXPECT_NE(tls.hint.find("net.tls-cert"), std::string::npos);
  // Transports of a later version, and nothing that this end has.
  const auto later = encode_offer({static_cast<TransportKinds>(0x8000)});
  EXPECT_EQ(answer_to(as_text(later)).code, Errc::refused);
}

TEST_F(SystemTransportTest, AServerThatIsNoneOfOursIsNamed) {
  SystemTransport client({});
  auto listener = SocketListener::listen(loop_, {"127.0.0.1", 0, ""});
  const std::function<Task<void>()> ssh = [&]() -> Task<void> {
    auto socket = co_await (*listener)->accept();
    auto stream = stream_of(loop_, std::move(*socket));
    (void)co_await write_all(*stream, as_bytes("SSH-2.0-OpenSSH_9.2p1 Debian\r\n"));
    std::array<std::byte, 100> bytes;
    (void)co_await read_all(*stream, bytes);  // until the client goes
  };
  meet_far_end(client, (*listener)->address(), ssh);
  ASSERT_FALSE(at_client_->ok());
  EXPECT_EQ(at_client_->error().code, Errc::corrupt);
  EXPECT_NE(at_client_->error().message.find("SSH-"), std::string::npos);
}

// A server that answers well but wrongly: a way of a later version, or one that nobody offered.
TEST_F(SystemTransportTest, AChoiceMustBeKnownAndOffered) {
  struct Case {
    TransportKind kind;
    std::string_view said;
  };
  for (const Case& one : {Case{static_cast<TransportKind>(0x4000), "unknown transport 16384"},
                          Case{TransportKind::verbs, "not offered"}}) {
    SystemTransport client({.mode = kTcp});
    auto listener = SocketListener::listen(loop_, {"127.0.0.1", 0, ""});
    const std::function<Task<void>()> wrong = [&]() -> Task<void> {
      auto socket = co_await (*listener)->accept();
      auto stream = stream_of(loop_, std::move(*socket));
      std::array<std::byte, kOfferBytes> offer;
      (void)co_await read_all(*stream, offer);
      const TransportChoice choice{one.kind, {}};
      const auto answer = encode_choice(choice);
      (void)co_await write_all(*stream, answer);
      std::array<std::byte, 1> more;
      (void)co_await read_all(*stream, more);  // until the client goes
    };
    meet_far_end(client, (*listener)->address(), wrong);
    ASSERT_FALSE(at_client_->ok()) << one.said;
    EXPECT_EQ(at_client_->error().code, Errc::corrupt);
    EXPECT_NE(at_client_->error().message.find(one.said), std::string::npos)
        << at_client_->error().message;
    EXPECT_NE(at_client_->error().message.find("127.0.0.1:"), std::string::npos);
    at_client_.reset();
  }
}

class SystemTransportTlsTest : public SystemTransportTest {
 protected:
  TransportOptions tls(NetMode mode) { return {.mode = mode, .tls = context_}; }

  TestFiles files_;
  TestCertificate authority_{{.name = "authority", .authority = true}};
  TestCertificate node_ = authority_.issue({.name = "node", .hosts = "IP:127.0.0.1"});
  std::shared_ptr<const TlsContext> context_ = files_.context(node_, authority_.pem());
};

TEST_F(SystemTransportTlsTest, TcpIsTlsAlone) {
  SystemTransport client(tls(NetMode::tcp));
  SystemTransport server(tls(NetMode::automatic));
  meet(client, server);
  ASSERT_TRUE(met()) << at_client_->error().message;
  EXPECT_TRUE((**at_client_)->peer().ends_with(" (tls)"));
  EXPECT_EQ(said("hello"), "hello");
}

// The name of its socket came over TLS, and nothing of it leaves the machine.
TEST_F(SystemTransportTlsTest, SharedMemoryStays) {
  SystemTransport client(tls(NetMode::automatic));
  SystemTransport server(tls(NetMode::automatic));
  meet(client, server);
  ASSERT_TRUE(met());
  EXPECT_TRUE((**at_client_)->same_host());
}

TEST_F(SystemTransportTlsTest, OneEndWithoutTlsIsNoConnection) {
  for (const bool client_has : {true, false}) {
    SystemTransport with(tls(NetMode::tcp));
    SystemTransport without({.mode = NetMode::tcp});
    meet(client_has ? with : without, client_has ? without : with);
    ASSERT_FALSE(at_client_->ok());
    ASSERT_FALSE(at_server_->ok());
    EXPECT_EQ(at_server_->error().code, Errc::corrupt) << at_server_->error().message;
    at_client_.reset();
    at_server_.reset();
  }
}

TEST_F(SystemTransportTlsTest, AnotherAuthorityIsRefused) {
  const TestCertificate other({.name = "other", .authority = true});
  const TestCertificate stranger = other.issue({.name = "stranger", .hosts = "IP:127.0.0.1"});
  SystemTransport client({.mode = NetMode::tcp, .tls = files_.context(stranger, authority_.pem())});
  SystemTransport server(tls(NetMode::tcp));
  meet(client, server);
  ASSERT_FALSE(at_client_->ok());
  ASSERT_FALSE(at_server_->ok());
  EXPECT_EQ(at_client_->error().code, Errc::refused) << at_client_->error().message;
  EXPECT_EQ(at_server_->error().code, Errc::refused) << at_server_->error().message;
}

}  // namespace
}  // namespace ff::net
