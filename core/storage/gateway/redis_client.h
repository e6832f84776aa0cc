// What a gateway knows of one client: its names, its rights, and its transaction.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/auth/entity.h"
#include "storage/gateway/resp_parser.h"

namespace ff::gateway {

struct CommandRow;

struct RedisClient {
  uint64_t id = 0;
  std::string address, local_address;  // "10.0.0.1:4000"
  int64_t connected_ns = 0;            // steady time
  int64_t active_ns = 0;               // of the last command
  int fd = -1;
  int version = 2;                                  // of the protocol
  std::string name, library_name, library_version;  // as it says
  const CommandRow* last_command = nullptr;
  bool closing = false;  // QUIT: the connection ends after the replies

  bool authenticated = false;
  std::optional<auth::Entity> entity;  // empty: the gateway has no keys, or not authenticated
  bool read_only = false;              // it may change nothing

  // Between MULTI and EXEC.
  bool in_multi = false;
  bool multi_failed = false;  // a command was refused: EXEC will be, too
  std::vector<RespRequest> queued;
  size_t queued_bytes = 0;
  struct WatchedKey {
    uint64_t version = 0;  // 0: there was no such key
    std::shared_ptr<const uint64_t> changes;
    uint64_t changes_before = 0;
  };
  std::map<std::string, WatchedKey> watched;

  void end_multi() {
    in_multi = multi_failed = false;
    queued.clear();
    queued_bytes = 0;
    watched.clear();
  }
};

}  // namespace ff::gateway
