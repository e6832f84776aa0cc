// The scheduler's page: files of core/sched/page/, which lie in the binary, and the JSON they ask
// for (overview.h). Behind the login of the daemon's pages (rpc/http.h).
#pragma once

#include "rpc/http.h"
#include "sched/service.h"

namespace ff::sched {

// `service` outlives them.
rpc::HttpPages pages(Service& service);

}  // namespace ff::sched
