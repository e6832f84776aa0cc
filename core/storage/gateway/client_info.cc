// client_info.cc: the fields that mean something here.
#include "storage/gateway/client_info.h"

#include <fmt/format.h>

#include "platform/base/clock.h"
#include "storage/gateway/command.h"

namespace ff::gateway {

std::string client_line(const RedisClient& client, int64_t now_ns) {
  const std::string flags = client.in_multi ? "x" : "N";
  const int64_t queued = client.in_multi ? static_cast<int64_t>(client.queued.size()) : -1;
  return fmt::format(
      "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db=0 multi={} watch={} cmd={} "
      "user={} resp={} lib-name={} lib-ver={}\n",
      client.id, client.address, client.local_address, client.fd, client.name,
      (now_ns - client.connected_ns) / kSecond, (now_ns - client.active_ns) / kSecond, flags,
      queued, client.watched.size(), client.last_command ? client.last_command->name : "NULL",
      client.entity ? client.entity->full_name() : "default", client.version, client.library_name,
      client.library_version);
}

}  // namespace ff::gateway
