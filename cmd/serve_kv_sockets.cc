// serve_kv_sockets.cc: tells inherited sockets apart by their names.
#include "cmd/serve_kv_sockets.h"

#include <utility>

#include "platform/base/text.h"

namespace ff::cmd {

Result<GatewaySockets> take_gateway_sockets() {
  FF_TRY(auto all, net::take_inherited_sockets());
  GatewaySockets sockets;
  for (net::InheritedSocket& socket : all) {
    std::optional<net::InheritedSocket>* const into = socket.name == "redis" ? &sockets.redis
                                                      : socket.name == "s3"  ? &sockets.s3
                                                                             : nullptr;
    if (into == nullptr) {
      Error error = fail(Errc::usage, "the inherited socket {} has the name '{}'",
                         socket.address.text(), printable(socket.name));
      error.hint = "Write FileDescriptorName=redis or FileDescriptorName=s3 into its socket unit.";
      return error;
    }
    if (into->has_value()) {
      Error error = fail(Errc::usage, "two inherited sockets have the name {}: {} and {}",
                         socket.name, (*into)->address.text(), socket.address.text());
      error.hint = "Give the socket unit one ListenStream= only; *:PORT is every address.";
      return error;
    }
    *into = std::move(socket);
  }
  return sockets;
}

std::string sockets_about() {
  return "systemd can start a gateway when a client connects: the units ff-serve-kv.socket and "
         "ff-serve-kv-s3.socket of 'ff generate systemd' listen, and pass their sockets, whose "
         "names are redis and s3, in place of --listen and --s3-listen.";
}

}  // namespace ff::cmd
