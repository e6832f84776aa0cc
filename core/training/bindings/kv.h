// A store of keys and values (storage/kvstore/store.h) for libff.so: reads in this process, changes
// through the gateways of the store.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/stop_token.h"
#include "platform/io/disk.h"

namespace ff::bindings {

constexpr uint64_t kNoValue = UINT64_MAX;

// Thread-safe; calls block. Arrays of one call have one element for each key.
class KvClient {
 public:
  virtual ~KvClient() = default;

  virtual Result<void> refresh() = 0;
  // The bytes of each value, as stored; kNoValue: there is no such key.
  virtual Result<void> find(std::span<const std::string_view> keys, std::span<uint64_t> sizes) = 0;
  // Reads each value that fits into its place; sizes[i] says how large it is. Errc::usage: a key
  // has no string, but a hash, stream, list or set.
  virtual Result<void> read(std::span<const std::string_view> keys,
                            std::span<const ByteSpan> places, std::span<uint64_t> sizes) = 0;
  // `ttl_ms` 0: without expiry. After an error some may have happened.
  virtual Result<void> put(std::span<const std::string_view> keys,
                           std::span<const std::string_view> values, int64_t ttl_ms) = 0;
  // How many keys existed. After a gateway has died under the call, it may be fewer.
  virtual Result<uint64_t> remove(std::span<const std::string_view> keys) = 0;
};

struct KvClientOptions {
  std::string path;        // a folder, or ff://... as of a store of checkpoints
  int64_t max_age_ns = 0;  // kvstore::StoreReader::Options
  int64_t write_ns = 0;    // how long a change waits for a gateway that carries it out
};

// cmd/library/kv_client.cc defines it, because training/ does not include storage/. Settings as of
// open_remote_store() (checkpoint.h).
Result<std::unique_ptr<KvClient>> open_kv_client(const StopToken& stop, io::Disk& local,
                                                 const KvClientOptions& options);

}  // namespace ff::bindings
