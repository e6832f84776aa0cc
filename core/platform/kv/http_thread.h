// HTTP requests of loops, carried out by one thread with libcurl: connections are kept and used
// again, a slow or dead server blocks nobody. What etcd's JSON gateway needs, and no more: POST, a
// status and a body.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"

namespace ff::kv {

// Files in PEM, for https URLs.
struct HttpTls {
  std::string ca_file;    // whom to trust; empty: the system's authorities
  std::string cert_file;  // this side's certificate and key; empty: none
  std::string key_file;
};

class HttpThread {
 public:
  struct Reply {
    long status = 0;
    std::string body;  // at most kReplyMax bytes
  };
  static constexpr size_t kReplyMax = size_t{64} << 20;

  explicit HttpThread(HttpTls tls);
  // After all its post() tasks have ended.
  ~HttpThread();
  HttpThread(const HttpThread&) = delete;
  HttpThread& operator=(const HttpThread&) = delete;

  // Any loop, any thread. Errc::unreachable without a whole reply within `timeout_ns`: the request
  // may have been carried out, now or later. Cancelled, it ends at once; the request goes on.
  Task<Result<Reply>> post(Loop& loop, std::string url, std::string body, int64_t timeout_ns);

 private:
  struct Request;
  class Transfers;

  void run();

  const HttpTls tls_;
  std::mutex mutex_;
  bool closing_ = false;
  std::vector<std::shared_ptr<Request>> added_;
  std::unique_ptr<Transfers> transfers_;
  std::thread thread_;
};

}  // namespace ff::kv
