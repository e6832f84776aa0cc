// Metrics of one target, labelled by target and chain (base/metrics.h).
#pragma once

#include <fmt/format.h>

#include "platform/base/metrics.h"
#include "storage/cluster/routing.h"

namespace ff::chain {

struct TargetMetrics {
  TargetMetrics(Metrics& metrics, cluster::TargetId target, cluster::ChainId chain)
      : labels{{"target", fmt::to_string(target)}, {"chain", fmt::to_string(chain)}},
        reads(metrics.counter("ff_target_reads_total", "Chunk reads", labels)),
        read_bytes(metrics.counter("ff_target_read_bytes_total", "Bytes read", labels)),
        updates(metrics.counter("ff_target_updates_total", "Updates stored", labels)),
        update_bytes(
            metrics.counter("ff_target_update_bytes_total", "Bytes of updates stored", labels)),
        damaged(metrics.counter("ff_target_damaged_total",
                                "Reads that did not match their checksum", labels)),
        repaired(metrics.counter("ff_target_repaired_total", "Damaged chunks that were rewritten",
                                 labels)),
        differing(metrics.counter("ff_target_differing_total",
                                  "Comparisons that found chunks different from the predecessor",
                                  labels)),
        copied(metrics.counter("ff_target_copied_total", "Chunks received by copies", labels)),
        copied_bytes(
            metrics.counter("ff_target_copied_bytes_total", "Bytes received by copies", labels)),
        chunks(
            metrics.gauge("ff_target_chunks", "Chunks of the target, tombstones included", labels)),
        state(metrics.gauge("ff_target_state",
                            "1 serving, 2 the last that served, 3 syncing, 4 waiting, 5 offline",
                            labels)) {}

  const Metrics::Labels labels;
  Counter& reads;
  Counter& read_bytes;
  Counter& updates;
  Counter& update_bytes;
  Counter& damaged;
  Counter& repaired;
  Counter& differing;
  Counter& copied;
  Counter& copied_bytes;
  Gauge& chunks;
  Gauge& state;
};

}  // namespace ff::chain
