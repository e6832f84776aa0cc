// The metadata service of a KV cache over HTTP, as SGLang's backend "hf3fs" for HiCache speaks to
// it (class Hf3fsGlobalMetadataClient): which page of the file of a rank has the cache of which
// key. The pages themselves are read and written by the clients.
//
//   POST /RANK/initialize {"num_pages": N}                          204
//   POST /RANK/exists {"keys": [KEY, ...]}                          {"exists": [BOOLEAN, ...]}
//   POST /RANK/get_page_indices {"keys": [KEY, ...]}                {"indices": [PAGE or null,
//   ...]} POST /RANK/reserve_and_allocate_page_indices
//     {"keys": [[KEY, PREFIX], ...]}                                {"indices": [[EXISTS, PAGE],
//     ...]}
//   POST /RANK/confirm_write {"written_keys_to_confirm": [[KEY, PAGE], ...],
//     "pages_to_release": [PAGE, ...]}                              204
//   POST /RANK/delete_keys {"keys": [KEY, ...]}                     204
//   POST /RANK/clear {}                                             204
//
// Each body may have a member "namespace" (a rank has a pool of pages for each); without it, "kv".
// The page -1 says that there is none; PREFIX is read and not used. Errors are {"detail": TEXT}.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/metrics.h"
#include "platform/http/server.h"
#include "storage/gateway/password_check.h"
#include "storage/kvcache/cache_request.h"
#include "storage/kvcache/pool_store.h"

namespace ff::kvcache {

struct CacheCall {
  PoolStore& pools;
  const PoolName& name;
  const CacheRequest& request;
};

struct CacheOperation {
  std::string_view name;
  bool writes;
  CacheRequest::Keys keys;
  // The body of the reply; empty: there is none (204).
  Task<Result<std::string>> (*run)(CacheCall call);
};
const std::vector<CacheOperation>& cache_operations();

// Clients prove who they are with a token as a bearer, or as the password of Basic; what they may
// do depends on the folder of the store as for clients of Redis (gateway/password_check.h).
class CacheService final : public http::Handler {
 public:
  struct Options {
    std::string scheme = "http";  // or "https": of all processes with the store
    // Whether the process at this address (kvstore::Options::address) accepts connections; null:
    // each does.
    std::function<Task<bool>(std::string address)> reachable = {};
  };
  // All arguments outlive it.
  CacheService(PoolStore& pools, Loop& loop, Metrics& metrics,
               const gateway::PasswordCheck& passwords, Options options);

  Task<void> handle(http::Exchange& exchange) override;
  http::ReplyHead refusal(int status) override;
  std::string refusal_body(int status, const std::string& why) override;

 private:
  struct Refusal {
    int status = 0;
    std::string detail = {};
    std::vector<http::Field> fields = {};
  };

  Task<Result<void>> answer(http::Exchange& exchange);
  Task<Result<void>> refuse(http::Exchange& exchange, Refusal refusal);
  // Empty: the client may do it.
  std::optional<Refusal> check_client(const http::RequestHead& head, bool writes) const;
  // Where clients are to ask instead; empty: nowhere, or here again.
  Task<std::string> other_owner(const PoolName& name);
  Task<Result<void>> refuse_error(http::Exchange& exchange, Error error, PoolName name);
  Counter& counter_of(const CacheOperation& operation);

  PoolStore& pools_;
  Loop& loop_;
  Metrics& metrics_;
  const gateway::PasswordCheck& passwords_;
  const Options options_;
  Histogram& durations_;
  std::map<const CacheOperation*, Counter*> counters_;
};

}  // namespace ff::kvcache
