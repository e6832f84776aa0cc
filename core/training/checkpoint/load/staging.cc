// staging.cc: a staged directory, and its rename to the destination.
#include "training/checkpoint/load/staging.h"

#include <fmt/format.h>

#include <utility>

#include "platform/io/files.h"

namespace ff::checkpoint {

Result<Staging> Staging::open(Context& context, const std::string& dest_path) {
  std::string dest = dest_path;
  while (dest.size() > 1 && dest.ends_with('/')) dest.pop_back();
  const std::string id = context.rng.hex_id();
  const auto entries = context.disk.list(dest);
  if (entries) {
    if (!entries->empty()) {
      return Error{Errc::refused, fmt::format("{}: the directory is not empty", dest),
                   "Name an absent or empty directory as destination."};
    }
    FF_TRY(auto around, context.disk.beneath(dest));
    std::string dir = io::join(dest, ".ff-unfinished-" + id);
    return make(std::move(around), std::move(dest), std::move(dir), true);
  }
  FF_TRY(const bool there, io::exists(context.disk, dest));
  if (there) {
    if (entries.error().code == Errc::refused) return entries.error();
    return Error{Errc::refused, fmt::format("{}: it exists and is not a directory", dest),
                 "Name an absent or empty directory as destination."};
  }
  FF_TRY(io::make_dirs(context.disk, io::parent(dest)));
  FF_TRY(auto around, context.disk.beneath(io::parent(dest)));
  std::string dir = fmt::format("{}.ff-unfinished-{}", dest, id);
  return make(std::move(around), std::move(dest), std::move(dir), false);
}

Result<Staging> Staging::make(std::unique_ptr<io::Disk> around, std::string dest, std::string dir,
                              bool inside) {
  // Inside, its own mode does not stay, so nobody else needs access.
  FF_TRY(around->make_dir(dir, inside ? 0700 : 0777));
  Staging staging(std::move(around), std::move(dest), std::move(dir), inside);
  FF_TRY(staging.disk_, staging.around_->beneath(staging.dir_));
  return staging;
}

Staging::~Staging() {
  if (around_ == nullptr) return;
  // Best effort; the name shows that a leftover is unfinished.
  (void)io::remove_tree(*around_, dir_);
}

Result<void> Staging::commit() {
  FF_TRY(disk_->sync_dir(dir_));
  if (inside_) {
    FF_TRY(const auto entries, disk_->list(dir_));
    for (const auto& entry : entries) {
      FF_TRY(around_->rename(io::join(dir_, entry.name), io::join(dest_, entry.name)));
    }
    FF_TRY(around_->remove_dir(dir_));
  } else {
    FF_TRY(around_->rename(dir_, dest_));
  }
  const auto around = std::move(around_);  // nothing is left to remove
  return around->sync_dir(inside_ ? dest_ : io::parent(dest_));
}

}  // namespace ff::checkpoint
