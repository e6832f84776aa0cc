// An HTTP client for loops: one thread runs the requests with libcurl and reuses connections, so
// that a slow server blocks no loop. Supports only what etcd's JSON gateway needs: POST, status and
// body.
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

// PEM files for https URLs.
struct HttpTls {
  std::string ca_file;    // trusted CAs; empty: the system's
  std::string cert_file;  // client certificate and key; empty: none
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
  // Only after all post() tasks have ended.
  ~HttpThread();
  HttpThread(const HttpThread&) = delete;
  HttpThread& operator=(const HttpThread&) = delete;

  // Thread-safe. Errc::unreachable: no complete reply within `timeout_ns`; the server may execute
  // the request now or later. Cancellation ends the task at once; the request continues.
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
