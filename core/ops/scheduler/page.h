// The web page of the scheduler: the files of core/ops/scheduler/page/, which are embedded in the
// binary, and the JSON they request (overview.h). Access needs the login of the daemon's pages
// (rpc/http.h).
#pragma once

#include "ops/scheduler/service.h"
#include "platform/rpc/http.h"

namespace ff::scheduler {

// `service` must outlive the pages.
rpc::HttpPages pages(SchedulerService& service);

}  // namespace ff::scheduler
