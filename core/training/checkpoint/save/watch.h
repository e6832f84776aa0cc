// Watching a directory: programs that know nothing of ff write their checkpoints there, and each
// finished one is saved.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "training/checkpoint/save/save_request.h"

namespace ff::checkpoint {

struct WatchOptions {
  std::string dir;
  int64_t settle_ns = 10 * kSecond;  // unchanged for so long: finished
  bool once = false;                 // end when everything that was there is saved
  SaveOptions save;                  // step is chosen for each file
};

// Names that were renamed into the directory since the last call (they are finished at once).
using MovedIn = std::function<std::vector<std::string>()>;
// Told of each try to save; its error ends the watch.
using WatchTold =
    std::function<Result<void>(const std::string& path, const Result<SaveReport>& saved)>;

// Looks once a second until stopped (Errc::interrupted or deadline), or with `once` until nothing
// is unsettled. A file that cannot be saved is told and tried again only when it changes; with
// `once` the first such error is returned at the end. Files the run holds already (name, size,
// modification time) are passed over, so that a restarted watch does not save them again.
Result<void> watch(Context& context, const std::string& store_path, const WatchOptions& options,
                   const MovedIn& moved_in, const WatchTold& told);

// The number at the end of a name's stem: "model-1000.safetensors" -> 1000.
std::optional<uint64_t> step_in_name(std::string_view name);

}  // namespace ff::checkpoint
