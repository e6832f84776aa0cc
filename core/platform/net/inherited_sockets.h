// Listening sockets that systemd passes to a daemon when a client connects (socket activation,
// sd_listen_fds(3)): the descriptors from 3 on, as many as LISTEN_FDS says, with the names of
// LISTEN_FDNAMES, for the process LISTEN_PID.
#pragma once

#include <string>
#include <vector>

#include "platform/base/fd.h"
#include "platform/base/result.h"
#include "platform/net/address.h"

namespace ff::net {

struct InheritedSocket {
  std::string name;  // FileDescriptorName= of the socket unit; empty: none was given
  Fd fd;             // listens; non-blocking, close-on-exec
  Address address;
};

// Takes the sockets, and removes the variables, which are for this process only. Empty: there are
// none, or they are for another process. Call it before other threads run. Errc::usage: the
// variables do not say what systemd would say, or a descriptor is no stream socket that listens.
Result<std::vector<InheritedSocket>> take_inherited_sockets();

}  // namespace ff::net
