// Watches a directory into which programs without ff write checkpoints, and saves each finished
// one.
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
  int64_t settle_ns = 10 * kSecond;  // a file that does not change for this time is finished
  bool once = false;                 // end when all existing files are saved
  SaveOptions save;                  // step is chosen for each file
};

// Names that were renamed into the directory since the last call (they are finished at once).
using ListMovedFiles = std::function<std::vector<std::string>()>;
// Called after each save or failed save; its error ends the watch.
using OnSave =
    std::function<Result<void>(const std::string& path, const Result<SaveReport>& saved)>;

// Polls once a second until stopped (Errc::interrupted or deadline), or with `once` until every
// file is finished. A failed save is reported and tried again only when the file changes; with
// `once` the first such error is returned at the end. Files that the run already has (by name, size
// and modification time) are skipped, so that a restarted watch does not save them again.
Result<void> watch(Context& context, const std::string& store_path, const WatchOptions& options,
                   const ListMovedFiles& moved_in, const OnSave& on_save);

// The number at the end of a name's stem: "model-1000.safetensors" -> 1000.
std::optional<uint64_t> step_from_name(std::string_view name);

}  // namespace ff::checkpoint
