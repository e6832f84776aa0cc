// maintenance.cc: locks and trash names of forget and prune.
#include "training/checkpoint/retention/maintenance.h"

#include <fmt/format.h>

namespace ff::checkpoint {

Result<std::unique_ptr<io::File>> lock_store(io::Disk& disk, const Store& store,
                                             std::string_view action) {
  const std::string path = fmt::format("{}/{}{}", store.tmp_dir(), action, kLockSuffix);
  FF_TRY(auto file, disk.open(path, {.access = io::AccessMode::write, .create = true}));
  FF_TRY(const bool mine, file->try_lock());
  if (mine) return file;
  return Error{Errc::refused, fmt::format("{}: another {} is running", store.path(), action),
               "Wait until it has ended, then run the command again."};
}

std::string new_trash_path(Context& context, const Store& store, std::string_view suffix) {
  return fmt::format("{}/{}{}", store.trash_dir(), context.rng.hex_id(), suffix);
}

Result<void> ignore_not_found(Result<void> result) {
  if (!result && result.error().code == Errc::not_found) return {};
  return result;
}

}  // namespace ff::checkpoint
