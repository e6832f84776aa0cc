// Messages between the keeper of a mount, the process that serves it, and `ff mount --replace`: one
// packet of a Unix socket each, with at most one descriptor (keeper.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "platform/base/fd.h"
#include "platform/base/result.h"

namespace ff::mount {

// Version 2: store, release. Both ends say theirs; without that it is 1.
constexpr uint64_t kKeeperChannelVersion = 2;

// Both ends ignore types that they do not know.
enum class KeeperMessageType : char {
  // From the keeper.
  hello = 'H',      // how often it has restarted the serving process
  go = 'G',         // all held descriptors were sent
  hand_over = 'O',  // answer what is under way, then exit: a successor waits
  // From both.
  mounted = 'M',  // the mount point
  hold = 'F',     // a descriptor by its name, until the mount ends
  version = 'V',  // kKeeperChannelVersion of the sender
  store = 'D',    // a descriptor by its name, until it is released
  // From the serving process.
  release = 'L',  // the name of a stored descriptor
  resends = 'S',  // the kernel can repeat requests
  healthy = 'A',  // it has answered many requests
  ready = 'R',    // a text for who started the mount
  error = 'E',    // why it does not serve
  // From a command: the descriptor of the program that shall serve. The reply is ready or error.
  replace = 'P',
};

struct KeeperMessage {
  KeeperMessageType type = KeeperMessageType::go;
  std::string text = {};
  Fd fd = {};
};

// Blocks while the socket is full. `fd` -1: none.
Result<void> send_message(int socket, KeeperMessageType type, std::string_view text = {},
                          int fd = -1);
// Nothing: the other end is closed. `wait` false: also if there is no message.
Result<std::optional<KeeperMessage>> receive_message(int socket, bool wait);

// An error as text of a message, and back.
std::string text_of(const Error& error);
Error error_of(std::string_view text);

}  // namespace ff::mount
