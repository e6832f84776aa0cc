// Attackers without any key: at the Unix sockets of shared memory, on the path of a TCP connection,
// and with more connections than a daemon can hold (findings 1 to 3).
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "attack/attack_world.h"
#include "platform/base/fd.h"
#include "platform/base/text.h"

namespace ff::test {
namespace {

// A process of nobody that runs `attack` until its end of the pipe is closed; what it returns is
// its result.
class Stranger {
 public:
  explicit Stranger(const std::function<uint64_t(const std::function<bool()>& is_over)>& attack) {
    EXPECT_EQ(::pipe(stop_.data()), 0);
    EXPECT_EQ(::pipe(result_.data()), 0);
    pid_ = ::fork();
    if (pid_ != 0) {
      ::close(stop_[0]);
      ::close(result_[1]);
      return;
    }
    ::close(stop_[1]);
    const rlimit files{20'000, 20'000};
    (void)::setrlimit(RLIMIT_NOFILE, &files);
    if (::setgid(kNobodyUid) != 0 || ::setuid(kNobodyUid) != 0) ::_exit(1);
    (void)::fcntl(stop_[0], F_SETFL, O_NONBLOCK);
    const auto is_over = [this] {
      char byte;
      return ::read(stop_[0], &byte, 1) == 0;
    };
    const uint64_t result = attack(is_over);
    (void)!::write(result_[1], &result, sizeof result);
    ::_exit(0);
  }
  uint64_t finish() {
    ::close(stop_[1]);
    uint64_t result = UINT64_MAX;
    (void)!::read(result_[0], &result, sizeof result);
    ::waitpid(pid_, nullptr, 0);
    ::close(result_[0]);
    return result;
  }

 private:
  std::array<int, 2> stop_ = {}, result_ = {};
  pid_t pid_ = 0;
};

// The abstract Unix sockets of ff that everybody may see.
std::vector<std::string> unix_names() {
  std::vector<std::string> names;
  std::ifstream lines("/proc/net/unix");
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("@ff-");
    if (at != std::string::npos) names.push_back(line.substr(at + 1));
  }
  return names;
}

sockaddr_un abstract_address(const std::string& name, socklen_t& size) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof address.sun_path - 1));
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

// Connects to every socket before its client does, and takes its name: the bytes that it was sent.
uint64_t take_sockets(const std::function<bool()>& is_over) {
  uint64_t got = 0;
  std::vector<Fd> mine;
  while (!is_over()) {
    for (const std::string& name : unix_names()) {
      socklen_t size = 0;
      const sockaddr_un address = abstract_address(name, size);
      Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      // Also a connect waits no longer: the name may be one that it has taken itself.
      const timeval patience{0, 20'000};
      (void)::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
      if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) continue;
      (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      std::array<char, 4096> bytes;
      const ssize_t read = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
      if (read > 0) got += static_cast<uint64_t>(read);
      // The name is free as soon as the server has closed its end.
      Fd takes(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (::bind(takes.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0) {
        (void)::listen(takes.get(), 1);
        mine.push_back(std::move(takes));
      }
      if (mine.size() > 100) mine.clear();
    }
    for (const Fd& listener : mine) {
      const int victim = ::accept(listener.get(), nullptr, nullptr);
      if (victim < 0) continue;
      const timeval patience{0, 20'000};
      (void)::setsockopt(victim, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      std::array<char, 4096> bytes;
      const ssize_t read = ::recv(victim, bytes.data(), bytes.size(), 0);
      if (read > 0) got += static_cast<uint64_t>(read);
      ::close(victim);
    }
  }
  return got;
}

TEST(StrangersAttack, AtTheUnixSocketsNobodyGetsAByte) {
  if (::geteuid() != 0) GTEST_SKIP() << "the attacker is another user";
  AttackWorld world("auto");
  write_file(world.file("x"), "words");
  world.good({"fs", "cp", world.file("x"), "ff:///x"});
  Stranger stranger(take_sockets);
  for (int i = 0; i < 30; i++) EXPECT_EQ(world.good({"fs", "cat", "/x"}).out, "words");
  EXPECT_EQ(stranger.finish(), 0u);
}

// A process on the path: passes everything on, and may change one byte of what it passes.
class Relay {
 public:
  // `change_at`: the offset of the byte of the server's answers that it flips; 0: none.
  Relay(const std::string& to, uint64_t change_at = 0) : to_(to), change_at_(change_at) {
    listener_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    for (std::thread& one : pumps_) one.join();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // After the clients have ended.
  std::string seen() const { return seen_; }
  size_t connections() const { return pumps_.size(); }

 private:
  void run() {
    for (;;) {
      const int client = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) return;
      pumps_.emplace_back([this, client] { pass(client); });
    }
  }
  void pass(int client) {
    const Fd from(client);
    const Fd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(to_.substr(to_.rfind(':') + 1))));
    if (::connect(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return;
    std::thread back([&] { pump(server.get(), from.get(), change_at_); });
    pump(from.get(), server.get(), 0);
    back.join();
  }
  void pump(int from, int to, uint64_t change_at) {
    uint64_t passed = 0;
    std::array<char, 16'384> bytes;
    for (;;) {
      const ssize_t got = ::recv(from, bytes.data(), bytes.size(), 0);
      if (got <= 0) break;
      const auto size = static_cast<uint64_t>(got);
      if (change_at > passed && change_at <= passed + size) bytes[change_at - passed - 1] ^= 1;
      passed += size;
      {
        const std::lock_guard lock(mutex_);
        seen_.append(bytes.data(), size);
      }
      if (::send(to, bytes.data(), size, MSG_NOSIGNAL) != got) break;
    }
    ::shutdown(to, SHUT_RDWR);
    ::shutdown(from, SHUT_RDWR);
  }

  const std::string to_;
  const uint64_t change_at_;
  Fd listener_;
  uint16_t port_ = 0;
  std::mutex mutex_;
  std::string seen_;
  std::thread thread_;
  std::vector<std::thread> pumps_;
};

size_t count_of(std::string_view what, std::string_view text) {
  size_t count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) count++;
  return count;
}

TEST(StrangersAttack, OnThePathNothingCanBeReadOrChanged) {
  AttackWorld world("tcp");
  const std::string name = "a-name-that-nobody-else-uses";
  world.good({"fs", "mkdir", "/" + name});
  const auto ask = [&](const std::string& manager) {
    return run({.argv = {FF_BINARY, "fs", "ls", "/", "--timeout", "5s"},
                .env = world.keyed({{"FF_META", manager}, {"FF_KEY", world.root_key()}})});
  };
  {
    Relay relay(world.address());
    const auto ran = ask(relay.address());
    EXPECT_EQ(ran.exit, 0) << ran.err;
    EXPECT_NE(ran.out.find(name), std::string::npos);
    EXPECT_GT(relay.seen().size(), 500u);
    EXPECT_EQ(relay.seen().find(name), std::string::npos);
    // A client connects again to the loop that the server names.
    EXPECT_EQ(count_of("admin/", relay.seen()), relay.connections()) << "the identity, once each";
  }
  // The hello of TLS, the choice of the transport, replies. (TLS ignores the version in the header
  // of the first record, RFC 8446, 5.1.)
  for (const uint64_t at : {uint64_t{60}, uint64_t{200}, uint64_t{300}, uint64_t{500}}) {
    Relay relay(world.address(), at);
    const auto ran = ask(relay.address());
    EXPECT_NE(ran.exit, 0) << at << ran.out;
  }
  // Sent to another daemon of the same cluster, where the key is none.
  const std::string other = world.storage(1).out.substr(world.storage(1).out.find("127.0.0.1:"));
  Relay astray(other.substr(0, other.find('\n')));
  const auto ran = ask(astray.address());
  EXPECT_EQ(ran.exit, 5) << ran.err;
}

uint64_t open_files(pid_t pid) {
  uint64_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    count += !entry.path().empty();
  }
  return count;
}

// Many peers that say something and then nothing.
uint64_t hold_connections(uint16_t port, const std::function<bool()>& is_over) {
  constexpr size_t kPeers = 10'000;
  std::vector<Fd> peers;
  // The beginning of a client's hello of TLS, of every other one more than any client sends.
  std::string hello("\x16\x03\x01\x0f\x00\x01\x00\x0e\xfc\x03\x03", 11);
  hello.resize(49, 'x');
  while (peers.size() < kPeers && !is_over()) {
    Fd peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (peer.get() < 0) break;
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    if (::connect(peer.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) break;
    hello[3] = peers.size() % 2 == 0 ? '\x0f' : '\x40';
    (void)::send(peer.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
    peers.push_back(std::move(peer));
  }
  SystemClock clock;
  while (!is_over()) clock.sleep_ns(kMillisecond);
  return peers.size();
}

TEST(StrangersAttack, TenThousandPeersCostNeitherMemoryNorDescriptors) {
  if (::geteuid() != 0) GTEST_SKIP() << "the attacker is another user";
  AttackWorld world("auto");
  const pid_t victim = world.meta().pid();
  ASSERT_EQ(world.root({"fs", "ls", "/"}).exit, 0);
  const uint64_t memory = status_number(victim, "VmRSS");
  const uint64_t addresses = status_number(victim, "VmSize");
  const uint64_t files = open_files(victim);
  const std::string& at = world.address();
  const auto port = static_cast<uint16_t>(std::stoi(at.substr(at.rfind(':') + 1)));
  Stranger stranger([port](const auto& is_over) { return hold_connections(port, is_over); });
  uint64_t most_memory = 0, most_addresses = 0, most_files = 0;
  for (int i = 0; i < 20; i++) {
    EXPECT_EQ(world.root({"fs", "ls", "/"}).exit, 0) << "an honest client is served meanwhile";
    most_memory = std::max(most_memory, status_number(victim, "VmRSS"));
    most_addresses = std::max(most_addresses, status_number(victim, "VmSize"));
    most_files = std::max(most_files, open_files(victim));
  }
  EXPECT_GT(stranger.finish(), 1000u);
  constexpr uint64_t kKiBPerMiB = 1024;
  EXPECT_LT(most_memory, memory + 64 * kKiBPerMiB);
  EXPECT_LT(most_addresses, addresses + 512 * kKiBPerMiB);
  // Of one user (where the kernel tells whose a socket is), or of all.
  EXPECT_LT(most_files, files + 700);
  EXPECT_LE(world.audited("refused").size(), 100u) << "it does not fill the audit log";
  EXPECT_LT(world.meta().err.size(), 200'000u) << "nor the log";
}

}  // namespace
}  // namespace ff::test
