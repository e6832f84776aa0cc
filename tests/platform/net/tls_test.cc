// Tests specific to TLS, besides the conformance suite (connection_test.cc): which peers it
// accepts, the errors for invalid files, and truncated or modified streams.
#include "platform/net/tls.h"
#include "platform/base/clock.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "platform/base/rng.h"
#include "platform/net/tls_pair.h"

namespace ff::net {
namespace {

class Tls : public testing::Test {
 protected:
  TestCertificate node(const std::string& hosts = "IP:127.0.0.1,DNS:node1.cluster") {
    return authority_.issue({.name = "node", .hosts = hosts});
  }
  std::shared_ptr<const TlsContext> context() {
    if (context_ == nullptr) context_ = files_.context(node(), ca_);
    return context_;
  }
  TlsEnds hands(const std::shared_ptr<const TlsContext>& client,
                const std::shared_ptr<const TlsContext>& server,
                const std::string& host = "127.0.0.1") {
    return shake_hands(loop_, {client, server, {.host = host, .service = {}}});
  }
  // What a server makes of a client that sends `bytes` and then ends, or reads on.
  Error refused_by_server(ByteView bytes) {
    SocketEnds sockets = connected_sockets(loop_, Address{"127.0.0.1", 0, ""});
    const auto raw = stream_of(loop_, std::move(sockets.client));
    const std::array<ByteView, 1> pieces = {bytes};
    FF_CHECK(raw->try_write(pieces).ok());
    ::shutdown(raw->fd(), SHUT_WR);
    auto accepted =
        run_task(loop_, TlsStream::accept(stream_of(loop_, std::move(sockets.server)), context()));
    FF_CHECK(!accepted.ok());
    return accepted.error();
  }
  // The next bytes of the stream, "" at its end.
  Result<std::string> read(TlsStream& stream) { return run_task(loop_, read_task(stream)); }
  static Task<Result<std::string>> read_task(TlsStream& stream) {
    std::array<std::byte, 20'000> bytes;
    const std::array<ByteSpan, 1> pieces = {ByteSpan(bytes)};
    for (;;) {
      FF_CO_TRY(const auto got, stream.try_read(pieces));
      if (got) co_return std::string(as_text(ByteView(bytes).first(*got)));
      FF_CO_TRY(co_await stream.readable().wait());
    }
  }
  static std::optional<size_t> write(TlsStream& stream, std::string_view text) {
    const std::array<ByteView, 1> pieces = {as_bytes(text)};
    auto wrote = stream.try_write(pieces);
    FF_CHECK(wrote.ok());
    return *wrote;
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  TestFiles files_;
  TestCertificate authority_{{.name = "authority", .authority = true}};
  std::string ca_ = authority_.pem();
  std::shared_ptr<const TlsContext> context_;
};

TEST_F(Tls, BothSidesTrustEachOther) {
  TlsEnds ends = hands(context(), context());
  ASSERT_TRUE(ends.client->ok()) << ends.client->error().message;
  ASSERT_TRUE(ends.server->ok()) << ends.server->error().message;
  TlsStream& client = ***ends.client;
  TlsStream& server = ***ends.server;
  EXPECT_EQ(write(client, "to the server"), 13u);
  EXPECT_EQ(write(server, "to the client"), 13u);
  EXPECT_EQ(*read(server), "to the server");
  EXPECT_EQ(*read(client), "to the client");
  EXPECT_TRUE(client.peer().ends_with(" (tls)")) << client.peer();
  EXPECT_TRUE(client.peer().starts_with(server.local())) << client.peer();
  EXPECT_FALSE(client.carries_descriptors());
}

TEST_F(Tls, AnAuthorityBetweenIsShownToo) {
  const TestCertificate between = authority_.issue({.name = "between", .authority = true});
  const TestCertificate own = between.issue({.name = "node", .hosts = "IP:127.0.0.1"});
  EXPECT_TRUE(hands(context(), files_.context(own, ca_, between.pem())).client->ok());
  EXPECT_FALSE(hands(context(), files_.context(own, ca_)).client->ok());
  // One that is not valid any more is no link of the chain.
  const TestCertificate old =
      authority_.issue({.name = "old", .authority = true, .to_seconds = -60});
  const TestCertificate late = old.issue({.name = "node", .hosts = "IP:127.0.0.1"});
  TlsEnds ends = hands(context(), files_.context(late, ca_, old.pem()));
  ASSERT_FALSE(ends.client->ok());
  EXPECT_EQ(ends.client->error().code, Errc::refused);
  EXPECT_NE(ends.client->error().message.find("certificate has expired"), std::string::npos)
      << ends.client->error().message;
  // Nor is one that may not issue any.
  const TestCertificate upstart = node().issue({.name = "node", .hosts = "IP:127.0.0.1"});
  EXPECT_FALSE(hands(context(), files_.context(upstart, ca_, node().pem())).client->ok());
}

TEST_F(Tls, AServerOfAnotherAuthorityIsRefused) {
  const TestCertificate other({.name = "authority", .authority = true});
  const auto foreign = files_.context(other.issue({.name = "node", .hosts = "IP:127.0.0.1"}), ca_);
  TlsEnds ends = hands(context(), foreign);
  ASSERT_FALSE(ends.client->ok());
  const Error& error = ends.client->error();
  EXPECT_EQ(error.code, Errc::refused);
  EXPECT_NE(error.message.find("127.0.0.1:"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("certificate is not accepted"), std::string::npos) << error.message;
  EXPECT_NE(error.hint.find("net.tls-ca"), std::string::npos);
  ASSERT_FALSE(ends.server->ok());
  EXPECT_EQ(ends.server->error().code, Errc::refused);
  EXPECT_NE(ends.server->error().message.find("peer refused"), std::string::npos)
      << ends.server->error().message;
}

TEST_F(Tls, AClientOfAnotherAuthorityIsRefused) {
  const TestCertificate other({.name = "other", .authority = true});
  const auto foreign = files_.context(other.issue({.name = "client"}), ca_);
  TlsEnds ends = hands(foreign, context());
  ASSERT_FALSE(ends.server->ok());
  EXPECT_EQ(ends.server->error().code, Errc::refused);
  EXPECT_NE(ends.server->error().message.find("certificate is not accepted"), std::string::npos);
  ASSERT_TRUE(ends.client->ok());  // and hears of it in its first read
  const auto heard = read(***ends.client);
  ASSERT_FALSE(heard.ok());
  EXPECT_EQ(heard.error().code, Errc::refused) << heard.error().message;
}

TEST_F(Tls, OnlyTheHostThatWasAskedForIsAccepted) {
  const auto accepts = [&](const std::string& certificate, const std::string& asked) {
    TlsEnds ends = hands(context(), files_.context(node(certificate), ca_), asked);
    if (ends.client->ok()) return true;
    EXPECT_EQ(ends.client->error().code, Errc::refused);
    EXPECT_NE(ends.client->error().message.find("host " + asked), std::string::npos)
        << ends.client->error().message;
    EXPECT_NE(ends.client->error().message.find("mismatch"), std::string::npos);
    return false;
  };
  EXPECT_TRUE(accepts("IP:127.0.0.1,DNS:a.example", "127.0.0.1"));
  EXPECT_TRUE(accepts("IP:127.0.0.1,DNS:a.example", "a.example"));
  EXPECT_TRUE(accepts("IP:127.0.0.1,DNS:a.example", "A.Example"));
  EXPECT_TRUE(accepts("IP:2001:db8:0:0:0:0:0:1", "2001:db8::1"));
  EXPECT_TRUE(accepts("IP:fe80:0:0:0:0:0:0:1", "fe80::1%eth0"));
  EXPECT_TRUE(accepts("DNS:*.example.org", "a.example.org"));
  EXPECT_FALSE(accepts("DNS:*.example.org", "b.a.example.org"));
  EXPECT_FALSE(accepts("IP:127.0.0.1", "127.0.0.2"));
  EXPECT_FALSE(accepts("IP:127.0.0.1,DNS:a.example", "b.example"));
  EXPECT_FALSE(accepts("DNS:127.0.0.1", "127.0.0.1"));  // a name is not an address
  EXPECT_FALSE(accepts("DNS:a*.example.org", "ab.example.org"));
  EXPECT_FALSE(accepts("", "node"));  // its common name, which does not count
  EXPECT_EQ(hands(context(), context(), "").client->error().code, Errc::usage);
}

TEST_F(Tls, WrongFilesAreNamedWithTheirCauseAndTheNextStep) {
  const TestCertificate good = node();
  const TlsFiles files = files_.put(good, ca_);
  ASSERT_TRUE(files_.load(files).ok());
  const auto refuse = [&](const TlsFiles& wrong, const std::string& named, Errc code,
                          const std::string& cause) {
    const auto made = files_.load(wrong);
    ASSERT_FALSE(made.ok()) << cause;
    const Error& error = made.error();
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_TRUE(error.message.starts_with(named + ": ")) << error.message;
    EXPECT_NE(error.message.find(cause), std::string::npos) << error.message;
    EXPECT_EQ(error.hint.empty(), code == Errc::not_found);
  };
  const auto cert = [&](const std::string& path) { return TlsFiles{path, files.key, files.ca}; };
  const auto key = [&](const std::string& path) { return TlsFiles{files.cert, path, files.ca}; };
  const auto ca = [&](const std::string& path) { return TlsFiles{files.cert, files.key, path}; };

  refuse(cert("/nowhere"), "/nowhere", Errc::not_found, "No such file");
  refuse(key("/nowhere"), "/nowhere", Errc::not_found, "No such file");
  refuse(ca("/nowhere"), "/nowhere", Errc::not_found, "No such file");
  for (const std::string content : {"", "garbage\n"}) {
    const std::string path = files_.put("garbage", content);
    refuse(cert(path), path, Errc::usage, "no certificate");
    refuse(key(path), path, Errc::usage, "no private key");
    refuse(ca(path), path, Errc::usage, "no certificate");
  }
  std::string damaged = good.pem();
  damaged.replace(200, 4, "!!!!");
  const std::string broken = files_.put("broken", damaged);
  refuse(cert(broken), broken, Errc::usage, "damaged certificate");
  refuse(ca(broken), broken, Errc::usage, "damaged certificate");
  refuse(cert(files.key), files.key, Errc::usage, "no certificate");
  refuse(key(files.cert), files.cert, Errc::usage, "no private key");

  const std::string other = files_.put("other.key", node().key_pem());
  refuse(key(other), other, Errc::usage, "not the key of the certificate " + files.cert);
  const std::string locked = files_.put("locked.key", good.key_pem("a phrase"));
  refuse(key(locked), locked, Errc::usage, "no private key that can be read");

  const TestCertificate old = authority_.issue({.hosts = "DNS:a", .to_seconds = -60});
  const TlsFiles expired = files_.put(old, ca_);
  refuse(expired, expired.cert, Errc::refused, "has expired on");
  const TestCertificate early = authority_.issue({.hosts = "DNS:a", .from_seconds = 1800});
  const TlsFiles future = files_.put(early, ca_);
  refuse(future, future.cert, Errc::refused, "is valid from");
}

TEST_F(Tls, AKeyThatOthersMayReadIsRefused) {
  const TlsFiles files = files_.put(node(), ca_);
  for (const mode_t mode : {0604, 0644, 0660, 0602, 0601}) {
    ASSERT_EQ(::chmod(files.key.c_str(), mode), 0);
    const auto made = files_.load(files);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, Errc::refused);
    EXPECT_NE(made.error().hint.find("chmod 600 " + files.key), std::string::npos);
  }
  ASSERT_EQ(::chmod(files.key.c_str(), 0400), 0);
  EXPECT_TRUE(files_.load(files).ok());
  // A group may read what is root's: that is how daemons get their keys.
  ASSERT_EQ(::chmod(files.key.c_str(), 0640), 0);
  EXPECT_EQ(files_.load(files).ok(), ::getuid() == 0);
  if (::getuid() != 0) return;
  ASSERT_EQ(::chown(files.key.c_str(), 65534, 65534), 0);
  EXPECT_EQ(files_.load(files).error().code, Errc::refused);
}

// A client of OpenSSL alone, on a non-blocking socket.
struct RawClient {
  RawClient(Socket connected, int version) : socket(std::move(connected)) {
    context = SSL_CTX_new(TLS_method());
    SSL_CTX_set_max_proto_version(context, version);
    ssl = SSL_new(context);
    SSL_set_fd(ssl, socket.fd.get());
    SSL_set_connect_state(ssl);
  }
  ~RawClient() {
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
  static Task<void> shake_hands(Loop& loop, RawClient& client) {
    for (;;) {
      const int result = SSL_do_handshake(client.ssl);
      if (result == 1) co_return;
      const int error = SSL_get_error(client.ssl, result);
      if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) co_return;
      (void)co_await sleep_for(loop, 200 * kMicrosecond);
    }
  }

  Socket socket;
  SSL_CTX* context;
  SSL* ssl;
};

TEST_F(Tls, AClientWithoutACertificateOrWithOlderTlsIsRefused) {
  for (const int version : {TLS1_3_VERSION, TLS1_2_VERSION}) {
    SocketEnds sockets = connected_sockets(loop_, Address{"127.0.0.1", 0, ""});
    RawClient client(std::move(sockets.client), version);
    std::optional<TlsResult> server;
    Gate gate(loop_);
    gate.spawn(RawClient::shake_hands(loop_, client));
    gate.spawn(
        keep(TlsStream::accept(stream_of(loop_, std::move(sockets.server)), context()), server));
    run_task(loop_, gate.wait_empty());
    ASSERT_TRUE(server.has_value() && !server->ok());
    const Error& error = server->error();
    EXPECT_EQ(error.code, Errc::corrupt);
    const bool old = version == TLS1_2_VERSION;
    const std::string cause = old ? "unsupported protocol" : "did not return a certificate";
    EXPECT_NE(error.message.find(cause), std::string::npos) << error.message;
    EXPECT_NE(error.hint.find("net.tls-cert"), std::string::npos);
    EXPECT_EQ(SSL_is_init_finished(client.ssl) == 1, !old);
  }
}

TEST_F(Tls, APlainPeerIsRefused) {
  std::string frame;
  append_frame(frame, {.kind = FrameKind::hello}, "a plain hello");
  const Error error = refused_by_server(as_bytes(frame));
  EXPECT_EQ(error.code, Errc::corrupt);
  EXPECT_NE(error.message.find("no TLS 1.3"), std::string::npos) << error.message;
  EXPECT_NE(error.hint.find("net.tls-cert"), std::string::npos);
  EXPECT_EQ(refused_by_server({}).code, Errc::unreachable);

  SocketEnds sockets = connected_sockets(loop_, Address{"127.0.0.1", 0, ""});
  const auto plain = stream_of(loop_, std::move(sockets.server));
  const std::array<ByteView, 1> pieces = {as_bytes(frame)};
  ASSERT_TRUE(plain->try_write(pieces).ok());
  const auto connected =
      run_task(loop_, TlsStream::connect(stream_of(loop_, std::move(sockets.client)), context(),
                                         {.host = "127.0.0.1", .service = {}}));
  ASSERT_FALSE(connected.ok());
  EXPECT_EQ(connected.error().code, Errc::corrupt) << connected.error().message;
}

TEST_F(Tls, GarbageEndsTheHandshake) {
  SeededRng rng(1);
  for (int round = 0; round < 100; round++) {
    std::vector<std::byte> bytes(1 + rng.below(600));
    fill(bytes, rng.next());
    if (round % 2 == 0) {  // what looks like the head of a hello
      const std::array<int, 5> head = {22, 3, 1, static_cast<int>(rng.below(3)), 60};
      for (size_t i = 0; i < std::min(head.size(), bytes.size()); i++) {
        bytes[i] = static_cast<std::byte>(head[i]);
      }
    }
    const Error error = refused_by_server(bytes);
    EXPECT_TRUE(error.code == Errc::corrupt || error.code == Errc::unreachable ||
                error.code == Errc::refused)
        << error.message;
  }
}

TEST_F(Tls, ASilentPeerCanBeGivenUp) {
  SocketEnds sockets = connected_sockets(loop_, Address{"127.0.0.1", 0, ""});
  const auto accepted = run_task(
      loop_,
      with_deadline(loop_, loop_.now_ns() + 20 * kMillisecond, "the peer says nothing",
                    TlsStream::accept(stream_of(loop_, std::move(sockets.server)), context())));
  ASSERT_FALSE(accepted.ok());
  EXPECT_EQ(accepted.error().code, Errc::deadline);
}

// Ends whose sockets the test can reach below TLS.
class TlsTapped : public Tls {
 protected:
  TlsTapped() {
    SocketEnds sockets = connected_sockets(loop_, Address{"127.0.0.1", 0, ""});
    client_fd_ = sockets.client.fd.get();
    server_fd_ = sockets.server.fd.get();
    std::optional<TlsResult> client;
    std::optional<TlsResult> server;
    const auto both = context();
    Gate gate(loop_);
    gate.spawn(keep(TlsStream::connect(stream_of(loop_, std::move(sockets.client)), both,
                                       {.host = "127.0.0.1", .service = {}}),
                    client));
    gate.spawn(keep(TlsStream::accept(stream_of(loop_, std::move(sockets.server)), both), server));
    run_task(loop_, gate.wait_empty());
    client_ = std::move(**client);
    server_ = std::move(**server);
  }

  std::unique_ptr<TlsStream> client_;
  std::unique_ptr<TlsStream> server_;
  int client_fd_;
  int server_fd_;
};

TEST_F(TlsTapped, ACloseIsToldFromACut) {
  write(*client_, "the last words");
  client_->close();
  EXPECT_EQ(*read(*server_), "the last words");
  for (int i = 0; i < 2; i++) {
    const auto end = read(*server_);
    ASSERT_TRUE(end.ok()) << end.error().message;
    EXPECT_EQ(*end, "");
  }
  EXPECT_EQ(*read(*client_), "");
  const std::array<ByteView, 1> pieces = {as_bytes("more")};
  EXPECT_EQ(client_->try_write(pieces).error().code, Errc::unreachable);
}

TEST_F(TlsTapped, ADestroyedStreamIsClosed) {
  client_.reset();
  const auto end = read(*server_);
  ASSERT_TRUE(end.ok()) << end.error().message;
  EXPECT_EQ(*end, "");
}

TEST_F(TlsTapped, ACutIsAnError) {
  write(*client_, "the last words");
  ::shutdown(client_fd_, SHUT_RDWR);
  EXPECT_EQ(*read(*server_), "the last words");
  for (int i = 0; i < 2; i++) {
    const auto end = read(*server_);
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(end.error().code, Errc::unreachable);
    EXPECT_NE(end.error().message.find("cut off"), std::string::npos) << end.error().message;
  }
}

TEST_F(TlsTapped, TamperedBytesAreAnError) {
  const std::array<unsigned char, 37> record = {0x17, 3, 3, 0, 32};  // and 32 zeros
  ASSERT_GT(::send(client_fd_, record.data(), record.size(), 0), 0);
  const auto got = read(*server_);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, Errc::corrupt);
  EXPECT_NE(got.error().message.find("bad record mac"), std::string::npos) << got.error().message;
  const std::array<ByteView, 1> pieces = {as_bytes("more")};
  EXPECT_FALSE(server_->try_write(pieces).ok());
}

TEST_F(TlsTapped, SmallPiecesShareARecord) {
  std::array<ByteView, 100> pieces;
  pieces.fill(as_bytes("ten bytes!"));
  const auto wrote = client_->try_write(pieces);
  ASSERT_TRUE(wrote.ok());
  EXPECT_EQ(**wrote, 1000u);
  std::array<char, 4096> bytes;
  ssize_t on_the_wire = 0;
  run_task(loop_, [](Loop& loop, int fd, std::array<char, 4096>& into, ssize_t& got) -> Task<void> {
    do {
      got = ::recv(fd, into.data(), into.size(), MSG_PEEK);
      if (got < 1000) (void)co_await sleep_for(loop, 100 * kMicrosecond);
    } while (got < 1000);
  }(loop_, server_fd_, bytes, on_the_wire));
  EXPECT_EQ(on_the_wire, 1000 + 22);
  EXPECT_EQ(read(*server_)->size(), 1000u);
}

// What was offered before counts, although other bytes stand there when the socket takes it.
TEST_F(TlsTapped, AWriteThatHadToWaitSendsEveryByteOnce) {
  std::string sent;
  std::string chunk(1'000, 'a');
  for (;; chunk.assign(chunk.size(), static_cast<char>('a' + sent.size() / 1000 % 26))) {
    const auto wrote = write(*client_, chunk);
    if (!wrote) break;
    sent.append(chunk, 0, *wrote);
  }
  EXPECT_FALSE(client_->writable().is_set());
  const size_t before = sent.size();
  std::string got;
  const std::string other(600'000, '#');
  run_task(loop_,
           [](TlsStream& from, TlsStream& to, std::string& in, size_t all,
              std::string_view offer) -> Task<void> {
             while (in.size() < all) {
               auto part = co_await read_task(to);
               FF_CHECK(part.ok());
               in += *part;
               if (!offer.empty()) offer.remove_prefix(write(from, offer).value_or(0));
             }
           }(*client_, *server_, got, before + other.size(), other));
  ASSERT_EQ(got.size(), before + other.size());
  EXPECT_EQ(got.substr(0, before), sent);
  // The chunk at most is as it was first offered.
  EXPECT_EQ(got.substr(before + chunk.size()), other.substr(chunk.size()));
}

TEST_F(Tls, TheStreamGoesOnThroughAChangeOfKeys) {
  const TestCertificate own = node();
  const TlsFiles files = files_.put(own, ca_);
  SocketEnds sockets = connected_sockets(loop_, Address{"127.0.0.1", 0, ""});
  RawClient client(std::move(sockets.client), TLS1_3_VERSION);
  ASSERT_EQ(SSL_use_certificate_file(client.ssl, files.cert.c_str(), SSL_FILETYPE_PEM), 1);
  ASSERT_EQ(SSL_use_PrivateKey_file(client.ssl, files.key.c_str(), SSL_FILETYPE_PEM), 1);
  std::optional<TlsResult> made;
  Gate gate(loop_);
  gate.spawn(RawClient::shake_hands(loop_, client));
  gate.spawn(keep(TlsStream::accept(stream_of(loop_, std::move(sockets.server)), context()), made));
  run_task(loop_, gate.wait_empty());
  ASSERT_TRUE(made->ok()) << made->error().message;
  TlsStream& server = ***made;
  // The server cannot write, and is asked for new keys meanwhile.
  size_t sent = 0;
  const std::string chunk(100'000, 'k');
  while (const auto wrote = write(server, chunk)) sent += *wrote;
  ASSERT_EQ(SSL_key_update(client.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
  ASSERT_EQ(SSL_write(client.ssl, "new keys", 8), 8);
  EXPECT_EQ(*read(server), "new keys");
  const size_t enough = sent + 3 * chunk.size();  // some of it under the new keys
  size_t got = 0;
  std::vector<char> into(kMiB);
  const int64_t deadline = loop_.now_ns() + 20 * kSecond;
  while (got < sent || sent < enough) {
    ASSERT_LT(loop_.now_ns(), deadline);
    const int part = SSL_read(client.ssl, into.data(), static_cast<int>(into.size()));
    got += static_cast<size_t>(std::max(part, 0));
    ASSERT_TRUE(part > 0 || SSL_get_error(client.ssl, part) == SSL_ERROR_WANT_READ);
    if (sent < enough) sent += write(server, chunk).value_or(0);
    run_task(loop_, [](Loop& loop) -> Task<void> {
      YieldWait yield(loop);
      (void)co_await yield;
    }(loop_));
  }
  EXPECT_EQ(got, sent);
}

TEST_F(Tls, TheKeyChangesAfterSoManyBytes) {
  TlsEnds ends = hands(context(), context());
  TlsStream& client = ***ends.client;
  TlsStream& server = ***ends.server;
  client.change_key_after(10'000);
  std::string sent, got;
  for (int i = 0; i < 100; i++) {
    const std::string part(3'000, static_cast<char>('a' + i % 26));
    ASSERT_EQ(write(client, part), part.size());
    sent += part;
    got += *read(server);
  }
  while (got.size() < sent.size()) got += *read(server);
  EXPECT_EQ(got, sent);
  EXPECT_EQ(client.key_changes(), 25u);  // after every fourth part
}

}  // namespace
}  // namespace ff::net
