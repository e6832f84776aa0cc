// Processes that serve KV caches from one store on a simulated disk, and clients that are texts.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/text.h"
#include "platform/http/server.h"
#include "platform/http/text_stream.h"
#include "storage/kvcache/cache_service.h"
#include "storage/kvstore/kv_world.h"

namespace ff::kvcache {

struct CacheReply {
  int status = 0;
  std::string head;
  std::string body;
};

// A process with a store that is open.
class CacheProcess {
 public:
  CacheProcess(kvstore::KvProcess& process, std::shared_ptr<const auth::Keyring> keyring)
      : loop(process.loop),
        passwords(std::move(keyring), process.loop.clock()),
        pools(*process.store, process.loop, rng_, metrics),
        service(pools, process.loop, metrics, passwords, service_options()) {}

  // Sends bytes as one client, and returns all that comes back.
  std::string talk(std::string_view text, size_t piece = SIZE_MAX) {
    http::TextStream stream(loop);
    stream.cut(piece);
    stream.feed(text);
    stream.end();
    http::RequestServer server(loop, service, {});
    run_task(loop, server.serve_stream(stream));
    return stream.sent();
  }
  CacheReply ask(std::string_view target, std::string_view body, std::string_view fields = {},
                 std::string_view method = "POST") {
    const std::string sent =
        talk(fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n{}Content-Length: {}\r\n\r\n{}",
                         method, target, fields, body.size(), body));
    const size_t end = sent.find("\r\n\r\n");
    EXPECT_NE(end, sent.npos) << sent;
    if (end == sent.npos) return {};
    return {.status = static_cast<int>(parse_u64(sent.substr(9, 3)).value_or(0)),
            .head = sent.substr(0, end + 2),
            .body = sent.substr(end + 4)};
  }

  // Of the owner to which requests are redirected.
  bool owner_reachable = true;

  Loop& loop;
  Metrics metrics;
  gateway::PasswordCheck passwords;

 private:
  CacheService::Options service_options() {
    CacheService::Options options;
    options.reachable = [this](std::string) { return ask_owner(); };
    return options;
  }
  Task<bool> ask_owner() { co_return owner_reachable; }

  SeededRng rng_{7};

 public:
  PoolStore pools;
  CacheService service;
};

struct CacheWorld {
  explicit CacheWorld(uint64_t seed = 1, std::shared_ptr<const auth::Keyring> keyring = nullptr)
      : w(seed), keyring_(std::move(keyring)) {}
  ~CacheWorld() { process.reset(); }

  kvstore::Options options() const {
    kvstore::Options options = kvstore::small_options();
    options.max_value_bytes = kMiB;
    options.segment_bytes = 256 * kKiB;
    options.durable = durable;
    return options;
  }
  // Starts the first process anew.
  void start() {
    process.reset();
    w.reopen(options());
    process = std::make_unique<CacheProcess>(*w.first, keyring_);
  }

  bool durable = false;
  kvstore::KvWorld w;
  std::unique_ptr<CacheProcess> process;

 private:
  std::shared_ptr<const auth::Keyring> keyring_;
};

}  // namespace ff::kvcache
