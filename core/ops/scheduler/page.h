// The scheduler's page: files of core/ops/scheduler/page/, which lie in the binary, and the JSON
// they ask for (overview.h). Behind the login of the daemon's pages (rpc/http.h).
#pragma once

#include "ops/scheduler/service.h"
#include "platform/rpc/http.h"

namespace ff::scheduler {

// `service` outlives them.
rpc::HttpPages pages(Service& service);

}  // namespace ff::scheduler
