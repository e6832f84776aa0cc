// server_info.cc: what Redis has under the same names, as far as it exists here.
#include "storage/gateway/server_info.h"

#include <fmt/format.h>
#include <unistd.h>

#include "storage/gateway/gateway_connection.h"

namespace ff::gateway {

namespace {

std::string server_section(Gateway& gateway) {
  const int64_t seconds = (gateway.loop().now_ns() - gateway.started_ns()) / kSecond;
  return fmt::format(
      "redis_version:{}\r\nredis_mode:{}\r\nff_version:{}\r\nprocess_id:{}\r\n"
      "tcp_port:{}\r\nserver_time_usec:{}\r\nuptime_in_seconds:{}\r\nuptime_in_days:{}\r\n",
      kRedisVersion, server_mode(gateway), gateway.options().software, ::getpid(),
      gateway.address().port, gateway.loop().clock().wall_ns() / kMicrosecond, seconds,
      seconds / (24 * 3600));
}

std::string clients_section(Gateway& gateway) {
  return fmt::format("connected_clients:{}\r\nmaxclients:{}\r\nblocked_clients:{}\r\n",
                     gateway.connections().size(), gateway.options().connections_max,
                     gateway.waits().commands());
}

std::string store_section(Gateway& gateway) {
  kvstore::Store& store = gateway.store();
  kvstore::Counts counts;
  for (uint32_t i = 0; i < store.partitions(); i++) {
    const kvstore::Counts one = store.counts(i);
    counts.live_bytes += one.live_bytes;
    counts.file_bytes += one.file_bytes;
    counts.index_bytes += one.index_bytes;
  }
  return fmt::format(
      "partitions:{}\r\nowned_partitions:{}\r\nlive_bytes:{}\r\nfile_bytes:{}\r\n"
      "index_bytes:{}\r\nmax_bytes:{}\r\nsync:{}\r\ndamaged_records:{}\r\n",
      store.partitions(), gateway.owned_partitions(), counts.live_bytes, counts.file_bytes,
      counts.index_bytes, gateway.options().max_bytes, gateway.options().durable ? "yes" : "no",
      store.damage().size());
}

std::string stats_section(Gateway& gateway) {
  return fmt::format("total_connections_received:{}\r\ntotal_commands_processed:{}\r\n",
                     gateway.connections_accepted(), gateway.commands_run());
}

std::string replication_section(Gateway& /*gateway*/) {
  return "role:master\r\nconnected_slaves:0\r\n";
}

std::string cluster_section(Gateway& /*gateway*/) { return "cluster_enabled:1\r\n"; }

std::string keyspace_section(Gateway& gateway) {
  const uint64_t keys = gateway.keys();
  return keys == 0 ? std::string() : fmt::format("db0:keys={}\r\n", keys);
}

}  // namespace

std::string_view server_mode(const Gateway& gateway) {
  return gateway.store().is_shared() ? "cluster" : "standalone";
}

std::string info_text(Gateway& gateway, std::string_view section) {
  struct Section {
    std::string_view title, name;
    std::string (*text)(Gateway&);
  };
  static constexpr Section kSections[] = {
      {"Server", "server", server_section},
      {"Clients", "clients", clients_section},
      {"Store", "store", store_section},
      {"Stats", "stats", stats_section},
      {"Replication", "replication", replication_section},
      {"Cluster", "cluster", cluster_section},
      {"Keyspace", "keyspace", keyspace_section},
  };
  const bool all =
      section.empty() || section == "all" || section == "default" || section == "everything";
  std::string text;
  for (const Section& one : kSections) {
    if (!all && one.name != section) continue;
    if (!text.empty()) text += "\r\n";
    text += fmt::format("# {}\r\n{}", one.title, one.text(gateway));
  }
  return text;
}

}  // namespace ff::gateway
