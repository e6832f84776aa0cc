// Removing a folder that is a user's, who may rename and link in it all the while: no step follows
// a link, and none goes by a path that somebody else can turn elsewhere.
#pragma once

#include <string>

#include "platform/base/result.h"

namespace ff::scheduler {

constexpr int kTreeDeep = 64;  // folders in one another; no task needs more there

// `path` and all below it; one that is not there is success. Its parent is this process's alone.
Result<void> remove_foreign_tree(const std::string& path);

}  // namespace ff::scheduler
