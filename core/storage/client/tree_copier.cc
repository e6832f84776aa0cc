// tree_copier.cc: decides what is copied where, and renames finished files.
#include "storage/client/tree_copier.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "storage/client/url.h"
#include "storage/client/walk.h"

namespace ff::client {

namespace {

constexpr size_t kQueued = 4096;
constexpr size_t kFiles = 32;
constexpr int64_t kCopyCleanNs = 500 * kMillisecond;
constexpr std::string_view kPartSuffix = ".ff-part";

bool is_cancellation(const Error& error) {
  return error.code == Errc::interrupted || error.code == Errc::deadline;
}

// "1 SIZE MTIME_NS DONE"
std::string resume_point_text(const FileStat& stat, uint64_t done) {
  return fmt::format("1 {} {} {}", stat.size, stat.mtime_ns, done);
}

// The resume point of a part; 0: it is a part of another source.
uint64_t parse_resume_point(std::string_view words, const FileStat& stat) {
  const auto parts = split(words, ' ');
  if (parts.size() != 4) return 0;
  const auto done = parse_u64(parts[3]);
  if (!done || *done > stat.size || words != resume_point_text(stat, *done)) return 0;
  return *done;
}

bool names_dir_itself(std::string_view name) { return name.empty() || name == "." || name == ".."; }

}  // namespace

std::string part_path(std::string_view path) {
  std::string name = last_component(path);
  name.resize(std::min(name.size(), meta::kNameMax - 1 - kPartSuffix.size()));
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::string_view dir = path.substr(0, path.rfind('/') + 1);
  return fmt::format("{}.{}{}", dir, name, kPartSuffix);
}

Task<Result<void>> rename_part(FileTree& tree, std::string part, uint64_t id, std::string path) {
  FF_CO_TRY(const auto there, co_await tree.stat(part, false));
  if (!there || there->id != id) {
    co_return fail(Errc::stale, "another copy to the same name has started meanwhile");
  }
  co_return co_await tree.rename(std::move(part), std::move(path));
}

TreeCopier::TreeCopier(FileTree& from, FileTree& to, TransferMemory& memory, CopyOptions options,
                       Progress& progress, std::function<bool(Error)> failed)
    : from_(from),
      to_(to),
      memory_(memory),
      options_(options),
      progress_(progress),
      failed_(std::move(failed)),
      queued_(memory.loop(), kQueued),
      files_(memory.loop(), kFiles),
      gate_(memory.loop()) {}

bool TreeCopier::report_error(const std::string& path, Error error) {
  if (!is_cancellation(error)) error = with_path(path, std::move(error));
  stopped_ = !failed_(std::move(error)) || stopped_;
  return !stopped_;
}

FileTree::Attributes TreeCopier::attributes_of(const FileStat& stat) const {
  FileTree::Attributes attributes;
  if (options_.preserve || options_.resume) attributes.mtime_ns = stat.mtime_ns;
  if (!options_.preserve) return attributes;
  attributes.mode = stat.mode;
  if (options_.owners) {
    attributes.uid = stat.uid;
    attributes.gid = stat.gid;
  }
  return attributes;
}

Task<Result<void>> TreeCopier::run(std::vector<std::string> sources, std::string to) {
  cancel_ = co_await current_cancellation();
  FF_CO_TRY(const auto there, co_await to_.stat(to, true));
  const bool into = there && there->is(meta::InodeType::directory);
  if (!into && (sources.size() > 1 || (there && to.ends_with('/')))) {
    co_return errno_error(there ? ENOTDIR : ENOENT, printable(to_.display_path(to)));
  }
  // What is named on the command line may be reached through links; what is below it may not.
  if (into) top_ = to;
  std::string below = into ? to : io::parent(to);
  FF_CO_TRY(co_await to_.stay_below(std::move(below)));
  Result<void> result;
  for (const std::string& from : sources) {
    auto copied = co_await copy_source(from, to, into);
    if (!copied && !report_error(from_.display_path(from), std::move(copied).error())) break;
  }
  co_await gate_.wait_empty();
  if (!stopped_) {
    result = co_await finish_dirs();
    auto settled = co_await to_.sync_names();
    if (result) result = std::move(settled);
  }
  co_return result;
}

Task<Result<void>> TreeCopier::copy_source(std::string from, std::string to, bool into) {
  FF_CO_TRY(auto stat, co_await from_.stat(from, !options_.recursive || from.ends_with('/')));
  if (!stat) co_return errno_error(ENOENT, printable(from));
  const bool dir = stat->is(meta::InodeType::directory);
  if (dir && !options_.recursive) {
    Error error = errno_error(EISDIR, printable(from));
    error.hint = "Use -r to copy directories.";
    co_return error;
  }
  if (!dir && from.ends_with('/')) co_return errno_error(ENOTDIR, printable(from));
  if (!dir && !into && to.ends_with('/')) {
    co_return fail(Errc::not_found, "{} is not a directory", printable(to_.display_path(to)));
  }
  const std::string name = last_component(from);
  // As in cp(1), `cp -r DIR/. TO` copies the contents of DIR into TO.
  if (into && !names_dir_itself(name)) to = join_path(to, name);
  if (dir) {
    FF_CO_TRY(co_await check_not_below(*stat, to));
  }
  auto copying = copy_entry({.from = std::move(from), .stat = std::move(*stat), .to = to});
  co_return co_await std::move(copying);
}

// A copy into itself would never end. Inode numbers of different trees cannot be compared.
Task<Result<void>> TreeCopier::check_not_below(const FileStat& stat, std::string to) {
  if (&from_ != &to_) co_return Result<void>();
  std::string at = std::move(to);
  for (;;) {
    FF_CO_TRY(const auto there, co_await to_.stat(at, true));
    if (there && there->id == stat.id) {
      co_return fail(Errc::usage, "a directory cannot be copied into itself");
    }
    const std::string above = io::parent(at);
    if (above == at) co_return Result<void>();
    at = above;
  }
}

Task<Result<void>> TreeCopier::copy_entry(CopyItem item) {
  switch (item.stat.kind) {
    case meta::InodeType::directory: {
      co_return co_await copy_dir(std::move(item));
    }
    case meta::InodeType::symlink: {
      co_return co_await copy_link(std::move(item));
    }
    case meta::InodeType::file: {
      FF_CO_TRY(auto hold, co_await queued_.acquire(1));
      progress_.total += item.stat.size;
      gate_.spawn(copy_file(std::move(item), std::move(hold)));
      co_return Result<void>();
    }
    default:
      co_return fail(Errc::unsupported,
                     "skipped: neither a file nor a directory nor a symbolic link");
  }
}

Task<Result<void>> TreeCopier::copy_dir(CopyItem item) {
  const uint32_t mode = item.stat.mode & 0777 & ~options_.umask;
  Result<void> made;
  if (item.to != top_) made = co_await to_.make_dir(item.to, mode | 0700);
  const bool own = made.ok() && item.to != top_;
  if (!made && made.error().sys == EEXIST) {
    FF_CO_TRY(const auto there, co_await to_.stat(item.to, false));  // a link is no directory
    if (!there || !there->is(meta::InodeType::directory)) co_return std::move(made).error();
  } else if (!made) {
    co_return std::move(made).error();
  }
  report_.directories++;
  PendingDir dir{.path = item.to, .attributes = attributes_of(item.stat)};
  if (own && !dir.attributes.mode && (mode & 0700) != 0700) dir.attributes.mode = mode;
  if (!options_.preserve) dir.attributes.mtime_ns.reset();
  if (dir.attributes.any()) dirs_.push_back(std::move(dir));
  co_return co_await copy_entries(item);
}

Task<Result<void>> TreeCopier::copy_entries(const CopyItem& item) {
  std::string after;
  for (;;) {
    FF_CO_TRY(auto entries, co_await from_.list(item.from, after));
    if (entries.empty() || stopped_) co_return Result<void>();
    after = entries.back().name;
    for (FileTree::Entry& entry : entries) {
      const std::string path = join_path(item.from, entry.name);
      if (!entry.stat) {
        auto looked = co_await from_.stat(path, false);
        if (!looked && !report_error(from_.display_path(path), std::move(looked).error())) {
          co_return Result<void>();
        }
        if (!looked || !*looked) continue;
        entry.stat = std::move(*looked);
      }
      CopyItem one{
          .from = path, .stat = std::move(*entry.stat), .to = join_path(item.to, entry.name)};
      const std::string names = describe(one);
      auto copied = co_await copy_entry(std::move(one));
      if (!copied && !report_error(names, std::move(copied).error())) co_return Result<void>();
    }
  }
}

Task<Result<void>> TreeCopier::copy_link(CopyItem item) {
  auto made = co_await to_.make_symlink(item.stat.target, item.to);
  if (!made && made.error().sys == EEXIST) {
    const std::string part = part_path(item.to);
    (void)co_await to_.remove(part);
    FF_CO_TRY(co_await to_.make_symlink(item.stat.target, part));
    made = co_await to_.rename(part, item.to);
    if (!made) {
      co_await clean_up(part, made.error());
    }
  }
  FF_CO_TRY(Result<void>(made));
  report_.links++;
  FileTree::Attributes attributes = attributes_of(item.stat);
  attributes.mode.reset();
  if (!options_.preserve || !attributes.any()) co_return Result<void>();
  co_return co_await to_.set(item.to, attributes);
}

Task<void> TreeCopier::copy_file(CopyItem item, [[maybe_unused]] Semaphore::Permit waiting) {
  const std::string path = describe(item);
  CancellationToken none;
  auto hold = co_await files_.acquire(1).with_cancellation(cancel_ != nullptr ? *cancel_ : none);
  if (stopped_) co_return;
  if (!hold) {
    report_error(path, std::move(hold).error());
    co_return;
  }
  auto done = co_await copy_file_data(std::move(item))
                  .with_cancellation(cancel_ != nullptr ? *cancel_ : none);
  if (!done && !stopped_) report_error(path, std::move(done).error());
}

std::string TreeCopier::describe(const CopyItem& item) const {
  return fmt::format("{} to {}", from_.display_path(item.from), to_.display_path(item.to));
}

// The target is complete and has the time of the source.
Task<Result<bool>> TreeCopier::is_up_to_date(const CopyItem& item) {
  FF_CO_TRY(const auto there, co_await to_.stat(item.to, false));
  co_return there && there->is(meta::InodeType::file) && there->size == item.stat.size &&
      there->mtime_ns == item.stat.mtime_ns;
}

Task<Result<uint64_t>> TreeCopier::saved_resume_point(const CopyItem& item,
                                                      const std::string& part) {
  if (!options_.resume) co_return uint64_t{0};
  FF_CO_TRY(const std::string words, co_await to_.resume_point(part));
  co_return parse_resume_point(words, item.stat);
}

Task<Result<void>> TreeCopier::copy_file_data(CopyItem item) {
  if (options_.resume) {
    FF_CO_TRY(const bool there, co_await is_up_to_date(item));
    if (there) {
      report_.skipped++;
      progress_.done += item.stat.size;
      co_return Result<void>();
    }
  }
  const std::string part = part_path(item.to);
  FF_CO_TRY(const uint64_t begin, co_await saved_resume_point(item, part));
  auto filled = co_await copy_data(item, part, begin);
  Result<void> done;
  if (filled) {
    done = co_await rename_part(to_, part, *filled, item.to);
  } else {
    done = std::move(filled).error();
  }
  if (!done) {
    // If our part is gone, the existing part belongs to another copy and stays.
    const bool gone = done.error().code == Errc::stale || done.error().code == Errc::not_found;
    auto cleaning = clean_up(part, done.error());
    if (!gone) co_await std::move(cleaning).shielded();
    co_return done;
  }
  report_.files++;
  report_.bytes += item.stat.size;
  if (begin > 0) report_.resumed++;
  co_return Result<void>();
}

Task<Result<uint64_t>> TreeCopier::copy_data(const CopyItem& item, const std::string& part,
                                             uint64_t begin) {
  FF_CO_TRY(const auto source, co_await from_.open(item.from, item.stat));
  const uint32_t mode = item.stat.mode & 0777 & ~options_.umask;
  auto created = co_await to_.create(part, mode | 0600, begin > 0);
  if (!created) {
    (void)co_await source->close();
    co_return std::move(created).error();
  }
  bool has_resume_point = begin > 0;
  TransferOptions moved{.size = item.stat.size, .begin = begin, .verify = options_.verify};
  moved.on_resume_point = [&](uint64_t done) {
    has_resume_point = true;
    return to_.set_resume_point(part, resume_point_text(item.stat, done));
  };
  Result<void> result =
      co_await transfer(memory_, *source, **created, item.from, std::move(moved), progress_);
  const auto id = (*created)->id();
  if (result && !id) result = id.error();
  auto closed = co_await (*created)->close();
  if (result) result = std::move(closed);
  (void)co_await source->close();
  FF_CO_TRY(Result<void>(result));
  if (has_resume_point) {
    FF_CO_TRY(co_await to_.set_resume_point(part, ""));
  }
  FileTree::Attributes attributes = attributes_of(item.stat);
  if (!attributes.mode && (mode & 0600) != 0600) attributes.mode = mode;
  if (attributes.any()) {
    FF_CO_TRY(co_await to_.set(part, attributes));
  }
  co_return *id;
}

// Keeps a part with a resume point if the copy was interrupted.
Task<void> TreeCopier::clean_up(std::string part, Error reason) {
  const bool cut_short = is_cancellation(reason) || reason.code == Errc::unreachable;
  auto cleaning = [](FileTree& to, std::string path, bool keep) -> Task<Result<void>> {
    if (keep) {
      const auto words = co_await to.resume_point(path);
      if (!words || !words->empty()) co_return Result<void>();
    }
    (void)co_await to.set_resume_point(path, "");
    co_return co_await to.remove(path);
  }(to_, std::move(part), cut_short);
  const int64_t until_ns = memory_.loop().now_ns() + kCopyCleanNs;
  (void)co_await with_deadline(memory_.loop(), until_ns, "cleaning up", std::move(cleaning));
}

Task<Result<void>> TreeCopier::finish_dirs() {
  // Inner directories first: changing them changes the times of outer ones.
  for (size_t i = dirs_.size(); i-- > 0;) {
    auto set = co_await to_.set(dirs_[i].path, dirs_[i].attributes);
    if (!set && !report_error(to_.display_path(dirs_[i].path), std::move(set).error())) break;
  }
  co_return Result<void>();
}

}  // namespace ff::client
