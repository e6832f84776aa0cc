// The fixture of the tests of RDMA alone: a pair of connections, both received on, and memory that
// tests may take away.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rdma/verbs_pair.h"

namespace ff::net {

// Pages of their own, so that a test can unmap them or forbid writing.
class Pages {
 public:
  explicit Pages(size_t size, void* at = nullptr)
      : size_(size),
        at_(::mmap(at, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0), -1, 0)) {
    FF_CHECK(at_ != MAP_FAILED);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { ::munmap(at_, size_); }
  ByteSpan bytes() const { return {static_cast<std::byte*>(at_), size_}; }
  void forbid_writing() { FF_CHECK(::mprotect(at_, size_, PROT_READ) == 0); }

 private:
  size_t size_;
  void* at_;
};

class VerbsTest : public testing::Test {
 protected:
  void SetUp() override {
    pair_ = VerbsPair::make(false);
    if (pair_ == nullptr) GTEST_SKIP() << "this machine has no RDMA device";
    gate_.emplace(loop());
  }
  void TearDown() override { gate_.reset(); }

  Loop& loop() { return pair_->loop(); }
  Connection& client() { return *pair_->client; }
  Connection& server() { return *pair_->server; }
  VerbsRegistrationCache& registered() { return pair_->device().registrations(); }

  struct Received {
    std::vector<Frame> frames;
    std::optional<Error> error;
  };
  static Task<void> receive_all(Connection& connection, Received& received) {
    for (;;) {
      auto frame = co_await connection.receive();
      if (!frame) {
        received.error = std::move(frame).error();
        co_return;
      }
      received.frames.push_back(std::move(*frame));
    }
  }
  void receive_both() {
    gate_->spawn(receive_all(client(), at_client_));
    gate_->spawn(receive_all(server(), at_server_));
  }
  bool run_until(std::function<bool()> done) {
    return run_task(loop(), poll(loop(), loop().now_ns() + 30 * kTestSecond, std::move(done)));
  }
  static Task<bool> poll(Loop& loop, int64_t deadline_ns, std::function<bool()> done) {
    while (!done()) {
      if (loop.now_ns() > deadline_ns) co_return false;
      (void)co_await sleep_for(loop, 100'000);
    }
    co_return true;
  }
  static Task<void> pause(Loop& loop, int64_t ns) { (void)co_await sleep_for(loop, ns); }
  void run_for(int64_t ns) { run_task(loop(), pause(loop(), ns)); }
  Result<void> run(Task<Result<void>> task) { return run_task(loop(), std::move(task)); }

  std::unique_ptr<VerbsPair> pair_;
  Received at_client_;
  Received at_server_;
  std::optional<Gate> gate_;
};

}  // namespace ff::net
