// The calls of etcd's v3 API that EtcdEngine needs, through the JSON gateway of etcd 3.4 and later
// (such as POST /v3/kv/txn; byte strings in base64, 64-bit numbers as text).
//
// All calls go to one member until it fails, then to the next. Shared by the engines of all loops;
// thread-safe.
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
  std::string prefix = "ff";           // prefix of all keys, so that clusters can share an etcd
  HttpTls tls;
};

// Parses etcd://HOST:PORT,HOST:PORT,.../PREFIX (etcds:// for TLS). Port (2379) and prefix are
// optional. Errc::usage.
Result<EtcdOptions> parse_etcd_url(std::string_view url);

// Errors of all calls:
//   unreachable  no member answered, or it cannot serve now; the request may be executed later
//   not_found    the revision was compacted, or the lease has expired
//   busy         the member has not reached the revision yet (reads with local = true only)
//   refused      no permission, or a member of another etcd cluster
//   disk_full    etcd's database has reached its quota
//   failed       other errors of etcd; the request was not executed
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
    int64_t revision = 0;       // 0: the newest (linearizable read)
    bool local = false;         // serializable read: the member's own state, possibly stale
  };
  struct Snapshot {
    int64_t revision = 0;
    std::vector<std::vector<Value>> found;  // of each range, in key order
  };
  struct Compare {
    std::string key;
    int64_t revision = 0;  // 0: the key does not exist
  };
  struct Commit {
    Compare fence;
    std::vector<Compare> compares;
    const Txn::Writes* writes = nullptr;
  };
  struct Outcome {
    bool committed = false;
    int64_t fence = 0;  // if not committed: revision of the fence key; 0: it does not exist
  };

  // Reads all ranges at one revision.
  Task<Result<Snapshot>> read(Loop& loop, Reads reads, int64_t deadline_ns);
  // Executes all writes if every compare holds, else none.
  Task<Result<Outcome>> commit(Loop& loop, Commit commit, int64_t deadline_ns);
  // Grants a lease without keep-alive; returns its id.
  Task<Result<std::string>> grant(Loop& loop, int64_t seconds, int64_t deadline_ns);
  // Puts a key attached to the lease; returns the revision.
  Task<Result<int64_t>> put_leased(Loop& loop, std::string key, std::string lease,
                                   int64_t deadline_ns);

  // The keys in etcd for transaction keys and for the engines' fences.
  std::string stored_key(std::string_view key) const { return data_prefix_ + std::string(key); }
  std::string fence_key(std::string_view name) const { return fence_prefix_ + std::string(name); }

 private:
  using Parse = std::function<Result<void>(const nlohmann::json& answer)>;

  Task<Result<void>> call(Loop& loop, std::string path, std::string body, int64_t deadline_ns,
                          Parse parse);
  Result<void> check_cluster(const std::string& id, const std::string& endpoint);
  void switch_member(size_t endpoint, const Error& why);
  void note_success(size_t endpoint);

  const EtcdOptions options_;
  const std::string data_prefix_;
  const std::string fence_prefix_;
  HttpThread http_;
  std::atomic<size_t> current_{0};  // index of the endpoint in use
  std::mutex mutex_;
  std::string cluster_id_;  // etcd's cluster id from the first answer
  bool failing_ = false;    // the last call failed, and that was logged
};

}  // namespace ff::kv
