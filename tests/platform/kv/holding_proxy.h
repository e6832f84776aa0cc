// A TCP proxy that holds back data of a client and delivers it later, even after the client has
// closed its end, like a network with packet loss and retransmission; or cuts connections.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <vector>

namespace ff::kv {

class HoldingProxy {
 public:
  explicit HoldingProxy(uint16_t to) : to_(to), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = loopback(0);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 64), 0);
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~HoldingProxy() {
    closing_ = true;
    thread_.join();
    for (const Pair& pair : pairs_) close_pair(pair);
    ::close(listener_);
  }
  HoldingProxy(const HoldingProxy&) = delete;
  HoldingProxy& operator=(const HoldingProxy&) = delete;

  uint16_t port() const { return port_; }
  // Holds all data of the next connection that sends something.
  void hold_next() { armed_ = true; }
  bool holds() const { return holding_; }
  // Delivers the held data; answered() is true once the server has replied.
  void release() { releasing_ = true; }
  bool answered() const { return answered_; }
  // Closes a connection instead of passing on the next data but `count` of any client, or of the
  // server: the request does not arrive, or its answer is lost.
  void cut_request(int count) { requests_left_ = count; }
  void cut_answer(int count) { answers_left_ = count; }
  bool has_cut() const { return requests_left_ < 0 && answers_left_ < 0; }
  // Whether the cut is still to come; then it never does.
  bool called_off() { return requests_left_.exchange(-1) >= 0 || answers_left_.exchange(-1) >= 0; }

 private:
  struct Pair {
    int client = -1;
    int server = -1;
    bool held = false;
    bool client_gone = false;
    std::string kept;
  };

  static sockaddr_in loopback(uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  static void close_pair(const Pair& pair) {
    ::close(pair.client);
    ::close(pair.server);
  }
  static void send_all(int fd, const std::string& bytes) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t sent = ::send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (sent <= 0) return;
      done += static_cast<size_t>(sent);
    }
  }

  void run() {
    while (!closing_) {
      std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        fds.push_back({pair.client_gone ? -1 : pair.client, POLLIN, 0});
        fds.push_back({pair.server, POLLIN, 0});
      }
      ::poll(fds.data(), fds.size(), 5);
      size_t at = 1;
      for (auto pair = pairs_.begin(); pair != pairs_.end(); at += 2) {
        const bool goes_on = (fds[at].revents == 0 || from_client(*pair)) &&
                             (fds[at + 1].revents == 0 || from_server(*pair));
        if (goes_on) {
          deliver(*pair);
          ++pair;
        } else {
          close_pair(*pair);
          pair = pairs_.erase(pair);
        }
      }
      if (fds[0].revents != 0) add();
    }
  }
  void add() {
    Pair& pair = pairs_.emplace_back();
    pair.client = ::accept(listener_, nullptr, nullptr);
    pair.server = ::socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = loopback(to_);
    (void)::connect(pair.server, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  // Returns whether the connection continues.
  bool from_client(Pair& pair) {
    char buffer[65536];
    const ssize_t got = ::recv(pair.client, buffer, sizeof buffer, 0);
    if (got <= 0) {
      pair.client_gone = true;
      return pair.held;
    }
    if (requests_left_ >= 0 && requests_left_-- == 0) return false;
    pair.held = pair.held || armed_.exchange(false);
    if (pair.held) {
      pair.kept.append(buffer, static_cast<size_t>(got));
      holding_ = true;
    } else {
      send_all(pair.server, {buffer, static_cast<size_t>(got)});
    }
    return true;
  }
  bool from_server(Pair& pair) {
    char buffer[65536];
    const ssize_t got = ::recv(pair.server, buffer, sizeof buffer, 0);
    if (got <= 0 || (answers_left_ >= 0 && answers_left_-- == 0)) return false;
    if (pair.held) answered_ = true;
    if (!pair.client_gone) send_all(pair.client, {buffer, static_cast<size_t>(got)});
    return true;
  }
  void deliver(Pair& pair) {
    if (!pair.held || !releasing_) return;
    send_all(pair.server, pair.kept);
    pair.kept.clear();
  }

  const uint16_t to_;
  const int listener_;
  uint16_t port_ = 0;
  std::atomic<bool> closing_{false}, armed_{false}, holding_{false}, releasing_{false};
  std::atomic<bool> answered_{false};
  std::atomic<int> requests_left_{-1}, answers_left_{-1};
  std::list<Pair> pairs_;
  std::thread thread_;
};

}  // namespace ff::kv
