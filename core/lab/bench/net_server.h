// A server for `ff bench net`, in this process or in a child of it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "platform/base/clock.h"
#include "platform/base/stop.h"
#include "platform/net/system_transport.h"

namespace ff::bench {

struct NetServerOptions {
  net::TransportOptions transport = {};
  net::Address address{"127.0.0.1", 0, ""};
  std::string name = "bench server";
  std::string software = "ff";
  std::optional<std::string> disk_dir = {};  // where the file for disk reads is made
  std::optional<net::Address> http = {};     // /metrics and /status
};

// Where it can be reached, with the ports that were chosen. The login link of the pages is logged.
struct NetServerAt {
  net::Address address;
  uint16_t http_port = 0;
};

// Serves until stop() says so, which is asked some times a second, and ends the calls under way.
Result<void> serve_net(Clock& clock, NetServerOptions options,
                       std::function<void(const NetServerAt&)> listening,
                       std::function<bool()> stop);

// The same in a forked child, which ends with this object or with this process. Only in a process
// with one thread.
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
  Fd life_;  // the child ends when this is closed
  net::Address address_;
};

}  // namespace ff::bench
