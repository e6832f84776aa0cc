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
    std::string dir = io::join(dest, ".ff-unfinished-" + id);
    FF_TRY(context.disk.make_dir(dir, 0700));
    return Staging(context, std::move(dest), std::move(dir), true);
  }
  FF_TRY(const bool there, io::exists(context.disk, dest));
  if (there) {
    if (entries.error().code == Errc::refused) return entries.error();
    return Error{Errc::refused, fmt::format("{}: it exists and is not a directory", dest),
                 "Name an absent or empty directory as destination."};
  }
  FF_TRY(io::make_dirs(context.disk, io::parent(dest)));
  std::string dir = fmt::format("{}.ff-unfinished-{}", dest, id);
  FF_TRY(context.disk.make_dir(dir, 0777));
  return Staging(context, std::move(dest), std::move(dir), false);
}

Staging::Staging(Staging&& other) noexcept
    : context_(std::exchange(other.context_, nullptr)),
      dest_(std::move(other.dest_)),
      dir_(std::move(other.dir_)),
      inside_(other.inside_) {}

Staging::~Staging() {
  // Best effort; the name shows that a leftover is unfinished.
  if (context_ != nullptr) (void)io::remove_tree(context_->disk, dir_);
}

Result<void> Staging::commit() {
  io::Disk& disk = context_->disk;
  FF_TRY(disk.sync_dir(dir_));
  if (!inside_) {
    FF_TRY(disk.rename(dir_, dest_));
    context_ = nullptr;
    return disk.sync_dir(io::parent(dest_));
  }
  FF_TRY(const auto entries, disk.list(dir_));
  for (const auto& entry : entries) {
    FF_TRY(disk.rename(io::join(dir_, entry.name), io::join(dest_, entry.name)));
  }
  FF_TRY(disk.remove_dir(dir_));
  context_ = nullptr;
  return disk.sync_dir(dest_);
}

}  // namespace ff::checkpoint
