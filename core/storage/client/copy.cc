// copy.cc: what goes where, and how a file gets its name.
#include "storage/client/copy.h"

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

bool ends_all(const Error& error) {
  return error.code == Errc::interrupted || error.code == Errc::deadline;
}

// "1 SIZE MTIME_NS DONE"
std::string note_words(const Node& node, uint64_t done) {
  return fmt::format("1 {} {} {}", node.size, node.mtime_ns, done);
}

// How far a part of the same source was; 0: it is of another.
uint64_t parse_note(std::string_view words, const Node& node) {
  const auto parts = split(words, ' ');
  if (parts.size() != 4) return 0;
  const auto done = parse_u64(parts[3]);
  if (!done || *done > node.size || words != note_words(node, *done)) return 0;
  return *done;
}

bool names_dir_itself(std::string_view name) { return name.empty() || name == "." || name == ".."; }

}  // namespace

std::string part_path(std::string_view path) {
  std::string name = last_name(path);
  name.resize(std::min(name.size(), meta::kNameMax - 1 - kPartSuffix.size()));
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::string_view dir = path.substr(0, path.rfind('/') + 1);
  return fmt::format("{}.{}{}", dir, name, kPartSuffix);
}

Task<Result<void>> publish(Tree& tree, std::string part, uint64_t id, std::string path) {
  auto looking = tree.look(part, false);
  FF_CO_TRY(const auto there, co_await std::move(looking));
  if (!there || there->id != id) {
    co_return fail(Errc::stale, "another copy to the same name has begun meanwhile");
  }
  auto renaming = tree.rename(std::move(part), std::move(path));
  co_return co_await std::move(renaming);
}

Copy::Copy(Tree& from, Tree& to, TransferMemory& memory, CopyOptions options, Progress& progress,
           std::function<bool(Error)> failed)
    : from_(from),
      to_(to),
      memory_(memory),
      options_(options),
      progress_(progress),
      failed_(std::move(failed)),
      queued_(memory.loop(), kQueued),
      files_(memory.loop(), kFiles),
      gate_(memory.loop()) {}

bool Copy::tell(const std::string& path, Error error) {
  if (!ends_all(error)) error = at_path(path, std::move(error));
  over_ = !failed_(std::move(error)) || over_;
  return !over_;
}

Tree::Attributes Copy::attributes_of(const Node& node) const {
  Tree::Attributes attributes;
  if (options_.preserve || options_.resume) attributes.mtime_ns = node.mtime_ns;
  if (!options_.preserve) return attributes;
  attributes.mode = node.mode;
  if (options_.owners) {
    attributes.uid = node.uid;
    attributes.gid = node.gid;
  }
  return attributes;
}

Task<Result<void>> Copy::run(std::vector<std::string> sources, std::string to) {
  cancel_ = co_await current_cancel();
  auto looking = to_.look(to, true);
  FF_CO_TRY(const auto there, co_await std::move(looking));
  const bool into = there && there->is(meta::Kind::directory);
  if (!into && (sources.size() > 1 || (there && to.ends_with('/')))) {
    co_return errno_error(there ? ENOTDIR : ENOENT, printable(to_.shown(to)));
  }
  Result<void> result;
  for (const std::string& from : sources) {
    auto copying = copy_source(from, to, into);
    auto copied = co_await std::move(copying);
    if (!copied && !tell(from_.shown(from), std::move(copied).error())) break;
  }
  co_await gate_.wait_empty();
  if (!over_) {
    auto finishing = finish_dirs();
    result = co_await std::move(finishing);
    auto settling = to_.settle();
    auto settled = co_await std::move(settling);
    if (result) result = std::move(settled);
  }
  co_return result;
}

Task<Result<void>> Copy::copy_source(std::string from, std::string to, bool into) {
  auto looking = from_.look(from, !options_.recursive || from.ends_with('/'));
  FF_CO_TRY(auto node, co_await std::move(looking));
  if (!node) co_return errno_error(ENOENT, printable(from));
  const bool dir = node->is(meta::Kind::directory);
  if (dir && !options_.recursive) {
    Error error = errno_error(EISDIR, printable(from));
    error.hint = "-r copies directories.";
    co_return error;
  }
  if (!dir && from.ends_with('/')) co_return errno_error(ENOTDIR, printable(from));
  if (!dir && !into && to.ends_with('/')) {
    co_return fail(Errc::not_found, "{} is no directory", printable(to_.shown(to)));
  }
  const std::string name = last_name(from);
  // As cp(1): `cp -r DIR/. TO` puts what is in DIR into TO.
  if (into && !names_dir_itself(name)) to = below(to, name);
  if (dir) {
    auto checking = check_not_below(*node, to);
    FF_CO_TRY(co_await std::move(checking));
  }
  auto copying = copy_entry({.from = std::move(from), .node = std::move(*node), .to = to});
  co_return co_await std::move(copying);
}

// A directory into itself would never end. Inodes of two ends have nothing to do with each other.
Task<Result<void>> Copy::check_not_below(const Node& node, std::string to) {
  if (&from_ != &to_) co_return Result<void>();
  std::string at = std::move(to);
  for (;;) {
    auto looking = to_.look(at, true);
    FF_CO_TRY(const auto there, co_await std::move(looking));
    if (there && there->id == node.id) {
      co_return fail(Errc::usage, "a directory cannot be copied into itself");
    }
    const std::string above = io::parent(at);
    if (above == at) co_return Result<void>();
    at = above;
  }
}

Task<Result<void>> Copy::copy_entry(Job job) {
  switch (job.node.kind) {
    case meta::Kind::directory: {
      auto copying = copy_dir(std::move(job));
      co_return co_await std::move(copying);
    }
    case meta::Kind::symlink: {
      auto copying = copy_link(std::move(job));
      co_return co_await std::move(copying);
    }
    case meta::Kind::file: {
      auto waiting = queued_.take(1);
      FF_CO_TRY(auto hold, co_await std::move(waiting));
      progress_.total += job.node.size;
      gate_.spawn(copy_file(std::move(job), std::move(hold)));
      co_return Result<void>();
    }
    default: co_return fail(Errc::unsupported, "no file, directory or link: left out");
  }
}

Task<Result<void>> Copy::copy_dir(Job job) {
  const uint32_t mode = job.node.mode & 0777 & ~options_.umask;
  auto making = to_.make_dir(job.to, mode | 0700);
  auto made = co_await std::move(making);
  bool own = made.ok();
  if (!made && made.error().sys == EEXIST) {
    auto looking = to_.look(job.to, true);
    FF_CO_TRY(const auto there, co_await std::move(looking));
    if (!there || !there->is(meta::Kind::directory)) co_return std::move(made).error();
  } else if (!made) {
    co_return std::move(made).error();
  }
  report_.directories++;
  Dir dir{.path = job.to, .attributes = attributes_of(job.node)};
  if (own && !dir.attributes.mode && (mode & 0700) != 0700) dir.attributes.mode = mode;
  if (!options_.preserve) dir.attributes.mtime_ns.reset();
  if (dir.attributes.any()) dirs_.push_back(std::move(dir));
  auto copying = copy_entries(job);
  co_return co_await std::move(copying);
}

Task<Result<void>> Copy::copy_entries(const Job& job) {
  std::string after;
  for (;;) {
    auto listing = from_.list(job.from, after);
    FF_CO_TRY(auto entries, co_await std::move(listing));
    if (entries.empty() || over_) co_return Result<void>();
    after = entries.back().name;
    for (Tree::Entry& entry : entries) {
      const std::string path = below(job.from, entry.name);
      if (!entry.node) {
        auto looking = from_.look(path, false);
        auto looked = co_await std::move(looking);
        if (!looked && !tell(from_.shown(path), std::move(looked).error())) {
          co_return Result<void>();
        }
        if (!looked || !*looked) continue;
        entry.node = std::move(*looked);
      }
      Job one{.from = path, .node = std::move(*entry.node), .to = below(job.to, entry.name)};
      const std::string names = both(one);
      auto copying = copy_entry(std::move(one));
      auto copied = co_await std::move(copying);
      if (!copied && !tell(names, std::move(copied).error())) co_return Result<void>();
    }
  }
}

Task<Result<void>> Copy::copy_link(Job job) {
  auto making = to_.make_link(job.node.target, job.to);
  auto made = co_await std::move(making);
  if (!made && made.error().sys == EEXIST) {
    const std::string part = part_path(job.to);
    auto removing = to_.remove(part);
    (void)co_await std::move(removing);
    auto again = to_.make_link(job.node.target, part);
    FF_CO_TRY(co_await std::move(again));
    auto renaming = to_.rename(part, job.to);
    made = co_await std::move(renaming);
    if (!made) {
      auto cleaning = clean_up(part, made.error());
      co_await std::move(cleaning);
    }
  }
  FF_CO_TRY(Result<void>(made));
  report_.links++;
  Tree::Attributes attributes = attributes_of(job.node);
  attributes.mode.reset();
  if (!options_.preserve || !attributes.any()) co_return Result<void>();
  auto setting = to_.set(job.to, attributes);
  co_return co_await std::move(setting);
}

Task<void> Copy::copy_file(Job job, [[maybe_unused]] Semaphore::Hold waiting) {
  const std::string path = both(job);
  Cancel none;
  auto taking = files_.take(1);
  auto hold = co_await std::move(taking).under(cancel_ != nullptr ? *cancel_ : none);
  if (over_) co_return;
  if (!hold) {
    tell(path, std::move(hold).error());
    co_return;
  }
  auto trying = try_file(std::move(job));
  auto done = co_await std::move(trying).under(cancel_ != nullptr ? *cancel_ : none);
  if (!done && !over_) tell(path, std::move(done).error());
}

std::string Copy::both(const Job& job) const {
  return fmt::format("{} to {}", from_.shown(job.from), to_.shown(job.to));
}

// Whole, and written since the source was.
Task<Result<bool>> Copy::is_there(const Job& job) {
  auto looking = to_.look(job.to, false);
  FF_CO_TRY(const auto there, co_await std::move(looking));
  co_return there && there->is(meta::Kind::file) && there->size == job.node.size &&
      there->mtime_ns == job.node.mtime_ns;
}

Task<Result<uint64_t>> Copy::noted(const Job& job, const std::string& part) {
  if (!options_.resume) co_return uint64_t{0};
  auto reading = to_.note(part);
  FF_CO_TRY(const std::string words, co_await std::move(reading));
  co_return parse_note(words, job.node);
}

Task<Result<void>> Copy::try_file(Job job) {
  if (options_.resume) {
    auto looking = is_there(job);
    FF_CO_TRY(const bool there, co_await std::move(looking));
    if (there) {
      report_.skipped++;
      progress_.done += job.node.size;
      co_return Result<void>();
    }
  }
  const std::string part = part_path(job.to);
  auto noting = noted(job, part);
  FF_CO_TRY(const uint64_t begin, co_await std::move(noting));
  auto filling = fill(job, part, begin);
  auto filled = co_await std::move(filling);
  Result<void> done;
  if (filled) {
    auto publishing = publish(to_, part, *filled, job.to);
    done = co_await std::move(publishing);
  } else {
    done = std::move(filled).error();
  }
  if (!done) {
    // Where this one's is gone, what is there is another copy's, and stays.
    const bool gone = done.error().code == Errc::stale || done.error().code == Errc::not_found;
    auto cleaning = clean_up(part, done.error());
    if (!gone) co_await std::move(cleaning).shielded();
    co_return done;
  }
  report_.files++;
  report_.bytes += job.node.size;
  if (begin > 0) report_.resumed++;
  co_return Result<void>();
}

Task<Result<uint64_t>> Copy::fill(const Job& job, const std::string& part, uint64_t begin) {
  auto opening = from_.open(job.from, job.node);
  FF_CO_TRY(const auto source, co_await std::move(opening));
  const uint32_t mode = job.node.mode & 0777 & ~options_.umask;
  auto creating = to_.create(part, mode | 0600, begin > 0);
  auto created = co_await std::move(creating);
  if (!created) {
    auto closing = source->close();
    (void)co_await std::move(closing);
    co_return std::move(created).error();
  }
  bool has_note = begin > 0;
  TransferOptions moved{.size = job.node.size, .begin = begin, .verify = options_.verify};
  moved.note = [&](uint64_t done) {
    has_note = true;
    return to_.set_note(part, note_words(job.node, done));
  };
  auto moving = transfer(memory_, *source, **created, job.from, std::move(moved), progress_);
  Result<void> result = co_await std::move(moving);
  const auto id = (*created)->id();
  if (result && !id) result = id.error();
  auto closing = (*created)->close();
  auto closed = co_await std::move(closing);
  if (result) result = std::move(closed);
  auto closing_source = source->close();
  (void)co_await std::move(closing_source);
  FF_CO_TRY(Result<void>(result));
  if (has_note) {
    auto clearing = to_.set_note(part, "");
    FF_CO_TRY(co_await std::move(clearing));
  }
  Tree::Attributes attributes = attributes_of(job.node);
  if (!attributes.mode && (mode & 0600) != 0600) attributes.mode = mode;
  if (attributes.any()) {
    auto setting = to_.set(part, attributes);
    FF_CO_TRY(co_await std::move(setting));
  }
  co_return *id;
}

// A part that can be gone on with stays, if it was cut short.
Task<void> Copy::clean_up(std::string part, Error reason) {
  const bool cut_short = ends_all(reason) || reason.code == Errc::unreachable;
  auto cleaning = [](Tree& to, std::string path, bool keep) -> Task<Result<void>> {
    if (keep) {
      auto reading = to.note(path);
      const auto words = co_await std::move(reading);
      if (!words || !words->empty()) co_return Result<void>();
    }
    auto clearing = to.set_note(path, "");
    (void)co_await std::move(clearing);
    auto removing = to.remove(path);
    co_return co_await std::move(removing);
  }(to_, std::move(part), cut_short);
  const int64_t until_ns = memory_.loop().now_ns() + kCopyCleanNs;
  auto bounded = with_deadline(memory_.loop(), until_ns, "cleaning up", std::move(cleaning));
  (void)co_await std::move(bounded);
}

Task<Result<void>> Copy::finish_dirs() {
  // Those inside first: their changes are changes of the ones around them.
  for (size_t i = dirs_.size(); i-- > 0;) {
    auto setting = to_.set(dirs_[i].path, dirs_[i].attributes);
    auto set = co_await std::move(setting);
    if (!set && !tell(to_.shown(dirs_[i].path), std::move(set).error())) break;
  }
  co_return Result<void>();
}

}  // namespace ff::client
