// The pages of a daemon (--http): numbers for Prometheus, and its status for people and scripts.
//
//   /metrics              the registry as text; for everybody who can connect, so no user data
//   /status               one JSON object, or the same as a page for a browser (Accept: text/html)
//   /login?token=SECRET   a link that works once, from the daemon's log; sets the cookie that
//                         everything but /metrics asks for
//
// A daemon may have further ones (HttpPage), behind the same login; with one at "/", that is where
// the login leads.
//
// Read-only: GET and HEAD. It runs on a thread of its own, so that /metrics answers while the
// daemon's loop is busy; /status and what else is made asks the loop and gives up after two
// seconds. Everything a client can take is bounded: header bytes, connections, the time of a
// request and of a reply. Not for simulated worlds: it has real sockets and real time.
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
  std::string_view text;  // always the same; outlives the server
  // Or JSON, made in the loop for each request; `query` is what came behind the question mark.
  std::function<std::string(std::string_view query)> json = {};
};
using HttpPages = std::map<std::string, HttpPage>;  // by path

struct HttpOptions {
  net::Address address{"127.0.0.1", 0, {}};  // numeric; port 0: any free one
  std::vector<std::string> hosts;       // further names of this machine that a Host header may have
  std::string title = "ff";             // of the page
  std::function<std::string()> status;  // one JSON object; runs in the loop
  HttpPages pages = {};
  size_t connections_max = 64;  // more are closed at once
  int64_t request_ms = 10'000;  // from connection or last reply to the end of a header
  int64_t status_ms = 2'000;    // after that 503: the loop is busy or stuck
};

class HttpServer {
 public:
  // Listens, logs the login link, and logs another one each time it has been used. `loop` and
  // `metrics` outlive it.
  static Result<std::unique_ptr<HttpServer>> start(Loop& loop, const Metrics& metrics,
                                                   HttpOptions options);
  // Cuts off every connection. In the loop's thread, or while the loop still runs or has ended;
  // `status` and pages are not called afterwards.
  ~HttpServer();

  uint16_t port() const;
  // The link that works now, without the host. Any thread.
  std::string login_path();

 private:
  class Service;
  explicit HttpServer(std::unique_ptr<Service> service);

  std::unique_ptr<Service> service_;
};

}  // namespace ff::rpc
