// The calls of etcd's v3 API that the engine needs, through the JSON gateway of etcd 3.4 and later
// (POST /v3/kv/txn and the like; byte strings as base64, 64-bit numbers as text).
//
// Members are asked one at a time: all calls go to one until it fails, then to the next. Shared by
// the engines of all loops; any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/kv/engine.h"
#include "platform/kv/http_thread.h"

namespace ff::kv {

struct EtcdOptions {
  std::vector<std::string> endpoints;  // "http://HOST:PORT" or "https://HOST:PORT", at least one
  std::string prefix = "ff";           // before all keys: several clusters may share an etcd
  HttpTls tls;
};

// What a user names an etcd cluster with: etcd://HOST:PORT,HOST:PORT,.../PREFIX, or etcds:// for
// TLS. The port may be missing (2379), and so may the prefix. Errc::usage.
Result<EtcdOptions> parse_etcd_url(std::string_view url);

// Errors of all calls:
//   unreachable  no member answered, or one that could not serve now: done or not, or still to come
//   not_found    a revision that was compacted, a lease that has run out
//   busy         the member has not come to the revision yet: only reads with local = true
//   refused      no permission, or a member of another etcd cluster
//   disk_full    etcd's database has reached its quota
//   failed       else: etcd's own words, and nothing was done
class EtcdGateway {
 public:
  explicit EtcdGateway(EtcdOptions options);

  struct Value {
    std::string key;
    std::string value;
    int64_t revision = 0;  // of its last change (mod_revision)
  };
  struct Reads {
    std::vector<Range> ranges;  // end empty: the one key `begin`
    int64_t revision = 0;       // 0: the newest, which no member may miss (linearizable)
    bool local = false;         // what the member asked has, which may be behind
  };
  struct Snapshot {
    int64_t revision = 0;
    std::vector<std::vector<Value>> found;  // of each range, in key order
  };
  struct Compare {
    std::string key;
    int64_t revision = 0;  // 0: the key is not there
  };
  struct Commit {
    Compare fence;
    std::vector<Compare> compares;
    const Txn::Writes* writes = nullptr;
  };
  struct Outcome {
    bool committed = false;
    int64_t fence = 0;  // else: the revision of the fence's key, 0 when it is not there
  };

  // All ranges at one revision.
  Task<Result<Snapshot>> read(Loop& loop, Reads reads, int64_t deadline_ns);
  // All writes, if every compare holds; nothing otherwise.
  Task<Result<Outcome>> commit(Loop& loop, Commit commit, int64_t deadline_ns);
  // A lease that ends by itself; its number.
  Task<Result<std::string>> grant(Loop& loop, int64_t seconds, int64_t deadline_ns);
  // A key that goes with the lease; the revision of the change.
  Task<Result<int64_t>> put_leased(Loop& loop, std::string key, std::string lease,
                                   int64_t deadline_ns);

  // Where a transaction's key lies in etcd, and where the engines' own keys lie.
  std::string stored_key(std::string_view key) const { return data_prefix_ + std::string(key); }
  std::string fence_key(std::string_view name) const { return fence_prefix_ + std::string(name); }

 private:
  using Parse = std::function<Result<void>(const nlohmann::json& answer)>;

  Task<Result<void>> call(Loop& loop, std::string path, std::string body, int64_t deadline_ns,
                          Parse parse);
  Result<void> check_cluster(const std::string& id, const std::string& endpoint);
  void turn_from(size_t endpoint, const Error& why);
  void came_back(size_t endpoint);

  const EtcdOptions options_;
  const std::string data_prefix_;
  const std::string fence_prefix_;
  HttpThread http_;
  std::atomic<size_t> current_{0};  // the endpoint to ask
  std::mutex mutex_;
  std::string cluster_id_;  // etcd's, of the first answer
  bool failing_ = false;    // the last call did: told once
};

}  // namespace ff::kv
