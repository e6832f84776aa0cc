// The HTTP server of a daemon (--http): metrics for Prometheus and a status page.
//
//   /metrics              the metrics registry as text; no login, so it contains no user data
//   /status               one JSON object, or an HTML page for browsers (Accept: text/html)
//   /login?token=SECRET   one-time link from the daemon's log; sets the session cookie that all
//                         pages except /metrics require
//
// A daemon may add pages (HttpPage) behind the same login. The login redirects to "/" if that page
// exists.
//
// Read-only: GET and HEAD. The server has a thread of its own, so /metrics works while the daemon's
// loop is busy. /status and other generated pages run in the loop, with a timeout of two seconds.
// All client resources are limited: header bytes, connections, time per request and reply. Not for
// simulations: it uses real sockets and real time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/metrics.h"
#include "platform/base/result.h"
#include "platform/net/address.h"

namespace ff::rpc {

struct HttpPage {
  std::string type;       // Content-Type
  std::string_view text;  // static content; must outlive the server
  // Or JSON generated in the loop for each request; `query`: the URL's query string.
  std::function<std::string(std::string_view query)> json = {};
};
using HttpPages = std::map<std::string, HttpPage>;  // by path

struct HttpOptions {
  net::Address address{"127.0.0.1", 0, {}};  // numeric; port 0: any free one
  std::vector<std::string> hosts;            // further host names accepted in the Host header
  std::string title = "ff";                  // title of the status page
  std::function<std::string()> status;       // one JSON object; runs in the loop
  HttpPages pages = {};
  size_t connections_max = 64;  // more are closed at once
  int64_t request_ms = 10'000;  // limit from connection or last reply to the end of a header
  int64_t status_ms = 2'000;    // limit for the loop to generate a page; then status 503
};

class HttpServer {
 public:
  // Listens and logs the login link; logs a new one each time it has been used. `loop` and
  // `metrics` must outlive the server.
  static Result<std::unique_ptr<HttpServer>> start(Loop& loop, const Metrics& metrics,
                                                   HttpOptions options);
  // Closes all connections. Call it in the loop's thread, or while the loop runs or after it ended.
  // `status` and pages are not called afterwards.
  ~HttpServer();

  uint16_t port() const;
  // Path and query of the currently valid login link. Thread-safe.
  std::string login_path();

 private:
  class Service;
  explicit HttpServer(std::unique_ptr<Service> service);

  std::unique_ptr<Service> service_;
};

}  // namespace ff::rpc
