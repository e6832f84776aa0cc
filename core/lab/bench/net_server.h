// The server of `ff bench net`, in this process or in a child process.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "platform/base/clock.h"
#include "platform/base/stop_token.h"
#include "platform/net/system_transport.h"

namespace ff::bench {

struct NetServerOptions {
  net::TransportOptions transport = {};
  net::Address address{"127.0.0.1", 0, ""};
  std::string name = "bench server";
  std::string software = "ff";
  std::optional<std::string> disk_dir = {};  // directory for the file of disk reads
  std::optional<net::Address> http = {};     // /metrics and /status
};

// The server's addresses, with the ports that the kernel chose. The login link of the pages is
// logged.
struct NetServerAddress {
  net::Address address;
  uint16_t http_port = 0;
};

// Serves until stop(), which is polled several times per second, returns true; then ends all calls.
Result<void> serve_net(Clock& clock, NetServerOptions options,
                       std::function<void(const NetServerAddress&)> listening,
                       std::function<bool()> stop);

// The server in a forked child process, which ends with this object or with this process. Only for
// single-threaded processes.
class NetServerChild {
 public:
  static Result<std::unique_ptr<NetServerChild>> start(Clock& clock, NetServerOptions options);
  ~NetServerChild();
  NetServerChild(const NetServerChild&) = delete;
  NetServerChild& operator=(const NetServerChild&) = delete;

  const net::Address& address() const { return address_; }

 private:
  NetServerChild() = default;

  pid_t pid_ = -1;
  Fd lifeline_;  // the child ends when this is closed
  net::Address address_;
};

}  // namespace ff::bench
