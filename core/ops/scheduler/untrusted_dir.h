// Removes a directory that a user owns and may change meanwhile (rename, symlink). No step follows
// a symlink or resolves a path that the user can redirect.
#pragma once

#include <string>

#include "platform/base/result.h"

namespace ff::scheduler {

constexpr int kUntrustedDepthMax = 64;  // nesting of directories

// Removes `path` and everything below it; success if it does not exist. Only this process may write
// to its parent.
Result<void> remove_untrusted_dir(const std::string& path);

}  // namespace ff::scheduler
