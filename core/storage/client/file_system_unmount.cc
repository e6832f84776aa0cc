// file_system_unmount.cc: what is left when a mount ends: waits for it, and names what is lost.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "storage/client/file_system.h"

namespace ff::client {

namespace {

constexpr int64_t kUnmountPollNs = 100 * kMillisecond;
constexpr int64_t kNamesNs = 5 * kSecond;  // how long the search for names may take
constexpr size_t kNamedMax = 8;            // files in the error; the log has all
constexpr uint32_t kNamesAtOnce = 1000;

// Finds the paths of inodes, with one listing of each directory. What waits to be sent does not
// matter.
class PathFinder {
 public:
  explicit PathFinder(meta::MetaClient& metadata) : metadata_(metadata) {}
  Task<Result<std::string>> find(meta::InodeId dir, meta::InodeId inode);

 private:
  using Names = std::map<meta::InodeId, std::string>;
  Task<Result<void>> list(meta::InodeId dir, Names& names);

  meta::MetaClient& metadata_;
  std::map<meta::InodeId, Names> listed_;
};

Task<Result<void>> PathFinder::list(meta::InodeId dir, Names& names) {
  const meta::InodeRef ref{.id = dir};
  for (std::string after;;) {
    FF_CO_TRY(const auto page,
              co_await metadata_.MetaClient::list(meta::Caller(), ref, after, kNamesAtOnce, false));
    for (const auto& entry : page.entries) names[entry.id] = entry.name;
    if (page.end || page.entries.empty()) co_return Result<void>();
    after = page.entries.back().name;
  }
}

Task<Result<std::string>> PathFinder::find(meta::InodeId dir, meta::InodeId inode) {
  std::string path;
  while (inode != meta::kRoot) {
    const auto [listed, fresh] = listed_.try_emplace(dir);
    if (fresh) FF_CO_TRY(co_await list(dir, listed->second));
    const auto name = listed->second.find(inode);
    if (name == listed->second.end()) {
      co_return fail(Errc::not_found, "inode {} is not in directory {}", inode, dir);
    }
    path = "/" + name->second + path;
    inode = dir;
    if (inode == meta::kRoot) break;
    const meta::InodeRef ref{.id = inode};
    FF_CO_TRY(const auto view, co_await metadata_.MetaClient::stat(ref, false));
    dir = view.inode.parent;
  }
  co_return path;
}

}  // namespace

Task<std::vector<std::string>> FileSystem::unstored_names() {
  std::vector<std::string> names;
  PathFinder paths(metadata_);
  CancelScope scope(context_.loop, co_await current_cancellation(),
                    context_.loop.now_ns() + kNamesNs, "the search for names");
  for (const auto& file : deferred_.unstored()) {
    const meta::InodeId inode = file->inode().id;
    std::string name = file->name_.empty() ? fmt::format("inode {}", inode) : file->name_;
    if (file->dir_ != 0) {
      auto path = co_await paths.find(file->dir_, inode).with_cancellation(scope.cancellation());
      if (path) name = std::move(*path);
    }
    const auto cause = file->behind_.error();
    log_error("the unmount drops the bytes of a file that a program had closed",
              {{"file", name},
               {"inode", inode},
               {"bytes", file->inode().length},
               {"cause", cause ? cause->message : "storage does not answer"}});
    names.push_back(std::move(name));
  }
  co_return names;
}

Task<Result<void>> FileSystem::finish_closes() {
  const int64_t until_ns = context_.loop.now_ns() + kUnmountNs;
  CancelScope scope(context_.loop, co_await current_cancellation(), until_ns, "the unmount");
  for (bool told = false;;) {
    if (metadata_.pending_changes() > 0) {
      (void)co_await metadata_.sync().with_cancellation(scope.cancellation());
    }
    const bool left = metadata_.pending_changes() > 0 || !deferred_.idle();
    if (!left || context_.loop.now_ns() >= until_ns) break;
    if (deferred_.waiting() > 0 && !std::exchange(told, true)) {
      log_warning("the unmount waits for room in storage",
                  {{"files", deferred_.waiting()}, {"seconds", kUnmountNs / kSecond}});
    }
    FF_CO_TRY(co_await sleep_for(context_.loop, kUnmountPollNs));
  }
  const std::vector<std::string> names = co_await unstored_names();
  const size_t changes = metadata_.pending_changes();
  co_await metadata_.end_lease();
  if (!names.empty()) {
    const size_t shown = std::min(names.size(), kNamedMax);
    Error error =
        fail(full_ns_ ? Errc::disk_full : Errc::unreachable,
             "the unmount has dropped the bytes of files that programs had closed ({}): {}{}",
             names.size(),
             fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
             names.size() > shown ? ", ..." : "");
    error.hint = "The log names all of them. Copy these files again when storage has room.";
    co_return error;
  }
  if (changes == 0) co_return Result<void>();
  Error error = fail(Errc::unreachable,
                     "no metadata server has taken the last changes that this mount had answered "
                     "({}): they are lost",
                     changes);
  error.hint = "The log names their inodes. Is the cluster up?";
  co_return error;
}

}  // namespace ff::client
