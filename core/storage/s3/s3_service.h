// The gateway for clients of S3: it checks who sends a request, carries it out on the objects, and
// reports errors as S3 does. Buckets are folders of the file system and objects are files, so that
// clients of S3 and programs on a mount see the same data (object_store.h).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "platform/base/metrics.h"
#include "platform/base/rng.h"
#include "platform/http/server.h"
#include "storage/s3/authenticator.h"
#include "storage/s3/multipart.h"
#include "storage/s3/object_store.h"
#include "storage/s3/s3_call.h"

namespace ff::s3 {

struct ServiceOptions {
  StoreOptions store;
  meta::Caller self = {};  // for whom everything happens where there are no keys
};

// Owned by one loop.
class S3Service final : public http::Handler {
 public:
  // All arguments outlive it. `keyring`: as Authenticator has it.
  S3Service(client::FileSystem& files, Rng& rng, Metrics& metrics,
            std::shared_ptr<const auth::Keyring> keyring, ServiceOptions options);

  // Before the first request.
  Task<Result<void>> open();

  Task<void> handle(http::Exchange& exchange) override;
  http::ReplyHead refusal(int status) override;
  std::string refusal_body(int status, const std::string& why) override;

 private:
  Task<Result<void>> answer(http::Exchange& exchange, const std::string& id);
  Task<Result<void>> reply_error(http::Exchange& exchange, Error error, const std::string& id);
  Task<Result<void>> run(S3Call& call);

  Loop& loop_;
  Rng& rng_;
  Metrics& metrics_;
  const meta::Caller self_;
  ObjectStore store_;
  Uploads uploads_;
  UserTable users_;
  Authenticator authenticator_;
  std::map<const OperationRow*, Counter*> counters_;
  Histogram& durations_;
};

}  // namespace ff::s3
