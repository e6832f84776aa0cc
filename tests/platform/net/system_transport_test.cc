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

#include "platform/auth/test_entities.h"
#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/base/text.h"
#include "platform/net/socket_ends.h"
#include "platform/net/test_certificates.h"
#include "platform/net/tested_pair.h"

namespace ff::net {
namespace {

using MaybeConnection = std::optional<Result<std::unique_ptr<Connection>>>;

constexpr NetMode kTcp = NetMode::tcp;
const auth::Service kService{auth::Role::meta, {}};

class SystemTransportTest : public testing::Test {
 protected:
  static Task<void> keep_client(SystemTransport& transport, Loop& loop, Address to,
                                MaybeConnection& result) {
    result = co_await transport.connect(loop, std::move(to), kService);
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
  const auto made = run_task(loop_, transport.connect(loop_, (*listener)->address(), kService));
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
    EXPECT_NE(reached->bytes().data(), memory.data() + 4096);
    ASSERT_EQ(::pread(fd.get(), reached->bytes().data(), 5, 0), 5);
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
      const TransportChoice choice{kind, ::geteuid(), {}};
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
  const Error tls = answer_to(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x01", 12));
  EXPECT_EQ(tls.code, Errc::refused);
  EXPECT_NE(tls.message.find("the peer has a key, and this end has none"), std::string::npos);
  EXPECT_NE(tls.hint.find("--key"), std::string::npos);
  // Transports of a later version, and nothing that this end has.
  const auto later = encode_offer({static_cast<TransportKinds>(0x8000), 0});
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
      const TransportChoice choice{one.kind, ::geteuid(), {}};
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

// With keys.
// ----------------------------------------------------------------------------

class SystemTransportKeyTest : public SystemTransportTest {
 protected:
  static auth::Key root(uint8_t byte = 1) {
    auth::Key key;
    key.fill(std::byte{byte});
    return key;
  }
  static TransportOptions manager(NetMode mode) {
    return {.mode = mode, .keyring = auth::root_keyring(root(), auth::Role::meta)};
  }
  static TransportOptions client_of(const auth::Entity& self, NetMode mode) {
    const std::string text = auth::make_key_text(root(), self);
    return {.mode = mode, .keyring = auth::parse_key_text(text).value()};
  }
  static TransportOptions mount(NetMode mode) {
    return client_of({.role = auth::Role::mount, .name = "host7", .serial = 3}, mode);
  }
  void expect_met_as(std::string_view way) {
    ASSERT_TRUE(met()) << (at_client_->ok() ? at_server_->error() : at_client_->error()).message;
    EXPECT_TRUE((**at_client_)->peer().ends_with(way)) << (**at_client_)->peer();
    EXPECT_TRUE((**at_client_)->proof().has_key);
    EXPECT_FALSE((**at_client_)->proof().client);
    EXPECT_TRUE((**at_server_)->proof().has_key);
    ASSERT_TRUE((**at_server_)->proof().client);
    EXPECT_EQ((**at_server_)->proof().client->full_name(), "mount/host7");
    EXPECT_EQ(said("hello"), "hello");
  }
};

TEST_F(SystemTransportKeyTest, TcpIsTls) {
  SystemTransport client(mount(NetMode::tcp));
  SystemTransport server(manager(NetMode::automatic));
  meet(client, server);
  expect_met_as(" (tls)");
}

// The keys are proven, and what follows is not encrypted, if both ends say so.
TEST_F(SystemTransportKeyTest, ATrustedNetworkNeedsBothEnds) {
  for (const bool client_trusts : {false, true}) {
    for (const bool server_trusts : {false, true}) {
      auto mounts = mount(NetMode::tcp), managers = manager(NetMode::tcp);
      mounts.trusted_network = client_trusts;
      managers.trusted_network = server_trusts;
      SystemTransport client(mounts);
      SystemTransport server(managers);
      meet(client, server);
      expect_met_as(client_trusts && server_trusts ? " (tcp)" : " (tls)");
      at_client_.reset();
      at_server_.reset();
    }
  }
}

TEST_F(SystemTransportKeyTest, SharedMemoryKnowsTheClientToo) {
  SystemTransport client(mount(NetMode::automatic));
  SystemTransport server(manager(NetMode::automatic));
  meet(client, server);
  expect_met_as(" (shm)");
  EXPECT_TRUE((**at_client_)->same_host());
}

TEST_F(SystemTransportKeyTest, AUnixSocketIsSharedMemory) {
  SystemTransport client(mount(NetMode::automatic));
  SystemTransport server(manager(NetMode::automatic));
  meet(client, server, Address{"", 0, "@ff-test-" + std::to_string(::getpid())});
  expect_met_as(" (shm)");
}

TEST_F(SystemTransportKeyTest, OneEndWithoutAKeyIsRefusedOnBoth) {
  for (const bool client_has : {true, false}) {
    SystemTransport client(client_has ? mount(kTcp) : TransportOptions{.mode = kTcp});
    SystemTransport server(client_has ? TransportOptions{.mode = kTcp} : manager(kTcp));
    meet(client, server);
    ASSERT_FALSE(at_client_->ok());
    ASSERT_FALSE(at_server_->ok());
    EXPECT_EQ(at_client_->error().code, Errc::refused) << at_client_->error().message;
    EXPECT_EQ(at_server_->error().code, Errc::refused) << at_server_->error().message;
    EXPECT_NE(at_client_->error().message.find("127.0.0.1:"), std::string::npos);
    at_client_.reset();
    at_server_.reset();
  }
}

TEST_F(SystemTransportKeyTest, AnotherKeyIsRefusedOnBoth) {
  SystemTransport client({.keyring = auth::root_keyring(root(2), auth::Role::mount)});
  SystemTransport server(manager(NetMode::automatic));
  meet(client, server);
  ASSERT_FALSE(at_client_->ok());
  ASSERT_FALSE(at_server_->ok());
  EXPECT_EQ(at_client_->error().code, Errc::refused) << at_client_->error().message;
  EXPECT_EQ(at_server_->error().code, Errc::refused) << at_server_->error().message;
}

// A server of another service cannot stand in, although it belongs to the cluster.
TEST_F(SystemTransportKeyTest, AStorageNodeCannotPlayAManager) {
  SystemTransport client(mount(kTcp));
  SystemTransport server(client_of({.role = auth::Role::storage, .name = "3"}, kTcp));
  meet(client, server);
  ASSERT_FALSE(at_client_->ok());
  EXPECT_EQ(at_client_->error().code, Errc::refused) << at_client_->error().message;
}

// Whoever takes the name of the one-time Unix socket gets nothing: it does not know the secret.
TEST_F(SystemTransportKeyTest, AThiefOfTheUnixSocketLearnsNothing) {
  // The server's side until its choice, by hand; then another process holds the socket.
  SystemTransport client(mount(NetMode::automatic));
  auto listener = SocketListener::listen(loop_, {"127.0.0.1", 0, ""});
  const TransportOptions options = manager(kTcp);
  const StreamCredentials credentials{options.keyring, TlsContext::make(options.keyring), nullptr};
  bool kept = false;
  const std::function<Task<void>()> far = [&]() -> Task<void> {
    auto socket = co_await (*listener)->accept();
    auto secured = co_await accept_secure_stream(stream_of(loop_, std::move(*socket)), credentials);
    FF_CHECK(secured.ok());
    std::array<std::byte, kOfferBytes> bytes;
    FF_CHECK((co_await read_all(*secured->stream, bytes)).ok());
    TransportChoice choice{TransportKind::shm, ::geteuid(), {}};
    choice.name.fill(std::byte{0x5a});
    auto thief = SocketListener::listen(loop_, {"", 0, "@ff-" + hex(choice.name)});
    FF_CHECK(thief.ok());
    FF_CHECK((co_await write_all(*secured->stream, encode_choice(choice))).ok());
    auto caught = co_await (*thief)->accept();
    FF_CHECK(caught.ok());
    auto stream = stream_of(loop_, std::move(*caught));
    auth::Key proof;
    FF_CHECK((co_await read_all(*stream, proof)).ok());
    FF_CHECK((co_await write_all(*stream, proof)).ok());  // reflects it
    std::array<std::byte, 1> more;
    kept = (co_await read_all(*stream, more)).ok();
  };
  meet_far_end(client, (*listener)->address(), far);
  ASSERT_FALSE(at_client_->ok());
  EXPECT_EQ(at_client_->error().code, Errc::refused) << at_client_->error().message;
  EXPECT_FALSE(kept);
}

class SystemTransportCertificateTest : public SystemTransportKeyTest {
 protected:
  TransportOptions with_certificate(TransportOptions options) {
    options.certificates = context_;
    return options;
  }

  TestFiles files_;
  TestCertificate authority_{{.name = "authority", .authority = true}};
  TestCertificate node_ = authority_.issue({.name = "node", .hosts = "IP:127.0.0.1"});
  std::shared_ptr<const TlsContext> context_ = files_.context(node_, authority_.pem());
};

TEST_F(SystemTransportCertificateTest, KeysAreProvenInside) {
  SystemTransport client(with_certificate(mount(kTcp)));
  SystemTransport server(with_certificate(manager(kTcp)));
  meet(client, server);
  expect_met_as(" (tls)");
}

TEST_F(SystemTransportCertificateTest, ACertificateIsNotEnough) {
  auto stranger = with_certificate({.mode = kTcp});
  stranger.keyring = auth::root_keyring(root(2), auth::Role::mount);
  SystemTransport client(stranger);
  SystemTransport server(with_certificate(manager(kTcp)));
  meet(client, server);
  ASSERT_FALSE(at_client_->ok());
  ASSERT_FALSE(at_server_->ok());
  EXPECT_EQ(at_server_->error().code, Errc::refused) << at_server_->error().message;
}

TEST_F(SystemTransportCertificateTest, BothEndsNeedOne) {
  for (const bool client_has : {true, false}) {
    SystemTransport client(client_has ? with_certificate(mount(kTcp)) : mount(kTcp));
    SystemTransport server(client_has ? manager(kTcp) : with_certificate(manager(kTcp)));
    meet(client, server);
    ASSERT_FALSE(at_client_->ok());
    ASSERT_FALSE(at_server_->ok());
    at_client_.reset();
    at_server_.reset();
  }
}

TEST_F(SystemTransportCertificateTest, AnotherAuthorityIsRefused) {
  const TestCertificate other({.name = "other", .authority = true});
  const TestCertificate stranger = other.issue({.name = "stranger", .hosts = "IP:127.0.0.1"});
  TransportOptions options = mount(kTcp);
  options.certificates = files_.context(stranger, authority_.pem());
  SystemTransport client(options);
  SystemTransport server(with_certificate(manager(kTcp)));
  meet(client, server);
  ASSERT_FALSE(at_client_->ok());
  ASSERT_FALSE(at_server_->ok());
  EXPECT_EQ(at_client_->error().code, Errc::refused) << at_client_->error().message;
  EXPECT_EQ(at_server_->error().code, Errc::refused) << at_server_->error().message;
}

}  // namespace
}  // namespace ff::net
