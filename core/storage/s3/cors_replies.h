// Replies to browsers that ask for pages of other sites.
#pragma once

#include <string>

#include "platform/http/exchange.h"
#include "storage/s3/object_store.h"

namespace ff::s3 {

// The request OPTIONS that a browser sends before a page's request. Nobody signs it: it tells which
// sites may ask, and nothing else. Errors are S3's.
Task<Result<void>> answer_preflight(http::Exchange& exchange, ObjectStore& store,
                                    std::string bucket);
// Adds to the reply of a page's request what the bucket allows the page, if the request is of a
// page.
Task<void> add_cors_fields(http::Exchange& exchange, ObjectStore& store, std::string bucket);

}  // namespace ff::s3
