// files_load.cc: dice, calls, and what is made of their answers.
#include "lab/scenario/files_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lab/scenario/files_load_writers.h"
#include "platform/base/clock.h"
#include "storage/meta/service.h"

namespace ff::scenario::files_parts {

namespace {

constexpr int64_t kFilesPauseNs = 400 * kMillisecond;
constexpr uint64_t kBytesMax = 300 * kKiB;  // five chunks
constexpr const char* kFileNames[] = {"a", "b", "c", "d"};
constexpr const char* kFiles[] = {"f0", "f1", "f2", "f3", "f4", "f5"};

using meta::Kind;
using meta::Names;
using meta::Seen;

meta::Ref ref(uint64_t inode) { return {.id = inode}; }

// Leaves again, however the task ends.
struct Counted {
  explicit Counted(int& in) : count(in) { count++; }
  ~Counted() { count--; }
  int& count;
};
struct Busy {
  Busy(std::set<std::string>& of, std::string what) : in(of), name(std::move(what)) {
    in.insert(name);
  }
  ~Busy() { in.erase(name); }
  std::set<std::string>& in;
  const std::string name;
};

}  // namespace

std::string record_bytes(uint64_t number) {
  std::string bytes;
  while (bytes.size() < kRecordBytes) append_le(bytes, number);
  bytes.resize(kRecordBytes);
  return bytes;
}

std::string content_of(const FilesTruth::Known& file) {
  SeededRng rng(file.seed);
  std::string bytes;
  while (bytes.size() < file.written) append_le(bytes, rng.next());
  bytes.resize(std::min(file.written, file.length));
  bytes.resize(file.length, '\0');
  return bytes;
}

FilesLoad::FilesLoad(rpc::ClientContext& context, const std::vector<net::Address>& servers,
                     FilesTruth& truth)
    : context_(context),
      rng_(context.rng),
      truth_(truth),
      files_(context, servers, {.arena = {}}),
      gate_(context.loop) {
  gate_.spawn(start());
}

FilesLoad::~FilesLoad() = default;

Task<void> FilesLoad::close() {
  Error over = fail(Errc::interrupted, "the load is over");
  co_await gate_.close(std::move(over));
  auto closing = files_.close();
  co_await std::move(closing);
}

Task<void> FilesLoad::start() {
  auto starting = files_.start(INT64_MAX);
  const auto started = co_await std::move(starting);
  if (!started) co_return;
  gate_.spawn(change_names());
  gate_.spawn(change_names());
  gate_.spawn(work_on_files());
  gate_.spawn(work_together());
}

Task<void> FilesLoad::change_names() {
  while (working_) {
    {
      const Counted counted(under_way_);
      auto stepping = step();
      co_await std::move(stepping);
    }
    const auto waited =
        co_await after(context_.loop, static_cast<int64_t>(rng_.below(kFilesPauseNs)));
    if (!waited) co_return;
  }
}

NameStep FilesLoad::some_step() {
  using K = NameStep::Kind;
  static constexpr K kKinds[] = {K::make_file, K::make_dir, K::link,     K::unlink, K::rmdir,
                                 K::rename,    K::rename,   K::exchange, K::lookup, K::list};
  const auto dir = [&] {
    auto at = truth_.dirs.begin();
    std::advance(at, rng_.below(truth_.dirs.size()));
    return *at;
  };
  NameStep step{.kind = kKinds[rng_.below(std::size(kKinds))],
                .dir = dir(),
                .name = kFileNames[rng_.below(std::size(kFileNames))],
                .to_dir = dir(),
                .to_name = kFileNames[rng_.below(std::size(kFileNames))],
                .no_replace = false};
  step.no_replace = step.kind == K::rename && rng_.below(4) == 0;
  if (step.kind == K::link) {
    // Of some file that was seen, if there was one.
    std::vector<uint64_t> seen;
    for (const NameStep& one : truth_.steps) {
      if (one.known() && one.sys == 0 && one.got != 0) seen.push_back(one.got);
    }
    if (seen.empty()) step.kind = K::make_file;
    if (!seen.empty()) step.inode = seen[rng_.below(seen.size())];
  }
  return step;
}

Task<Result<Seen>> FilesLoad::carry_out(const NameStep& step) {
  meta::MetaClient& names = files_.names();
  switch (step.kind) {
    case NameStep::Kind::make_file:
    case NameStep::Kind::make_dir: {
      const bool dir = step.kind == NameStep::Kind::make_dir;
      Names::Make make{.kind = dir ? Kind::directory : Kind::file, .mode = 0755};
      return names.make(caller(), ref(step.dir), step.name, std::move(make));
    }
    case NameStep::Kind::link:
      return names.link(caller(), ref(step.inode), ref(step.dir), step.name);
    case NameStep::Kind::unlink:
      return names.unlink(caller(), ref(step.dir), step.name, std::nullopt);
    case NameStep::Kind::rmdir: return names.rmdir(caller(), ref(step.dir), step.name);
    case NameStep::Kind::rename:
    case NameStep::Kind::exchange:
      return names.rename(caller(), {.from_dir = ref(step.dir),
                                     .from = step.name,
                                     .to_dir = ref(step.to_dir),
                                     .to = step.to_name,
                                     .no_replace = step.no_replace,
                                     .exchange = step.kind == NameStep::Kind::exchange});
    default: return names.lookup(caller(), ref(step.dir), step.name);
  }
}

void FilesLoad::note(NameStep step, const Result<Seen>& seen) {
  if (seen || !meta::may_pass(seen.error())) {
    step.ended_ns = truth_.now_ns();
    step.sys = seen ? 0 : seen.error().sys;
    if (seen) {
      step.got = seen->inode.id;
      step.links = seen->inode.links;
      if (seen->inode.is(Kind::directory)) truth_.dirs.insert(seen->inode.id);
    } else if (step.sys == 0) {
      truth_.broken("an operation on names fails: " + seen.error().message);
    }
  }
  truth_.changes++;
  truth_.steps.push_back(std::move(step));
}

Task<void> FilesLoad::step() {
  NameStep step = some_step();
  step.began_ns = truth_.now_ns();
  if (step.kind == NameStep::Kind::list) {
    auto listing = list(std::move(step));
    co_return co_await std::move(listing);
  }
  auto doing = carry_out(step);
  const auto done = co_await std::move(doing);
  note(std::move(step), done);
}

Task<void> FilesLoad::list(NameStep step) {
  auto listing = files_.names().list(caller(), ref(step.dir), "", 1000, rng_.below(2) == 0);
  const auto page = co_await std::move(listing);
  if (!page) {
    note(std::move(step), page.error());
    co_return;
  }
  step.ended_ns = truth_.now_ns();
  for (const auto& entry : page->entries) step.names.insert(entry.name);
  truth_.steps.push_back(std::move(step));
}

Task<void> FilesLoad::work_on_files() {
  while (working_) {
    {
      const Counted counted(under_way_);
      const std::string name = kFiles[rng_.below(std::size(kFiles))];
      const bool there = truth_.files.contains(name);
      const bool free = !truth_.busy.contains(name) && truth_.read[name] == 0;
      Task<void> next = append();
      switch (rng_.below(6)) {
        case 0:
        case 1:
          if (!there && free) next = make(name);
          if (there && !truth_.busy.contains(name)) next = read(name);
          break;
        case 2:
        case 3:
          if (there && !truth_.busy.contains(name)) next = read(name);
          break;
        case 4:
          if (there && free) next = cut(name);
          break;
        default:
          if (there && free && rng_.below(3) == 0)
            next = remove(name);
          else if (rng_.below(2) == 0)
            next = clear_log();
      }
      co_await std::move(next);
    }
    const auto waited =
        co_await after(context_.loop, static_cast<int64_t>(rng_.below(kFilesPauseNs)));
    if (!waited) co_return;
  }
}

Task<void> FilesLoad::work_together() {
  while (working_) {
    {
      const Counted counted(under_way_);
      auto writing = write_together(files_, rng_, truth_);
      co_await std::move(writing);
    }
    const auto waited =
        co_await after(context_.loop, static_cast<int64_t>(rng_.below(kFilesPauseNs)));
    if (!waited) co_return;
  }
}

// Whether it is one that troubles bring about.
bool FilesLoad::check_failure(const Error& error) {
  // EIO: a sync tells that all replicas had lost power.
  if (meta::may_pass(error) || error.sys == EIO) return true;
  truth_.broken("an operation on files fails: " + error.message);
  return false;
}

// Half of it behind, half of it at once, in pieces of any size.
Task<Result<void>> FilesLoad::write(std::string name, FilesTruth::Known& file) {
  Names::Make how{.kind = Kind::file, .mode = 0644, .exclusive = true};
  auto creating = files_.create(caller(), ref(truth_.data_dir.id), name, std::move(how));
  FF_CO_TRY(const auto open, co_await std::move(creating));
  file.inode = open->inode().id;
  const std::string bytes = content_of(file);
  Result<void> first;
  for (uint64_t at = 0; at < bytes.size() && first;) {
    const uint64_t size = std::min<uint64_t>(1 + rng_.below(100 * kKiB), bytes.size() - at);
    const ByteView piece = as_bytes(bytes).subspan(at, size);
    if (rng_.below(3) == 0) {  // what comes after it counts
      const std::string other(1 + rng_.below(size), '!');
      auto writing = open->write_behind(at, as_bytes(other));
      first = co_await std::move(writing);
    }
    const bool at_once = rng_.below(2) == 0;
    if (first && at_once) {
      auto flushing = open->flush();
      first = co_await std::move(flushing);
    }
    auto writing = at_once ? open->write(at, piece) : open->write_behind(at, piece);
    auto written = co_await std::move(writing);
    if (first) first = std::move(written);
    at += size;
  }
  // What is not synced may be lost with the power.
  if (first) {
    auto syncing = open->sync();
    first = co_await std::move(syncing);
  }
  auto closing = open->close();
  auto closed = co_await std::move(closing);
  if (first) first = std::move(closed);
  co_return first;
}

Task<void> FilesLoad::make(std::string name) {
  const Busy busy(truth_.busy, name);
  FilesTruth::Known file{.seed = rng_.next()};
  file.written = file.length = 1 + rng_.below(kBytesMax);
  auto writing = write(name, file);
  const auto written = co_await std::move(writing);
  truth_.changes++;
  if (written) {
    truth_.files[name] = file;
    co_return;
  }
  // Made, perhaps, and perhaps written: it is out of the game.
  if (written.error().sys != EEXIST) check_failure(written.error());
  auto removing = files_.names().unlink(caller(), ref(truth_.data_dir.id), name, std::nullopt);
  (void)co_await std::move(removing);
}

Task<void> FilesLoad::cut(std::string name) {
  const Busy busy(truth_.busy, name);
  FilesTruth::Known file = truth_.files.at(name);
  truth_.files.erase(name);  // until it is known
  auto opening = files_.open(caller(), ref(file.inode), meta::kMayRead | meta::kMayWrite);
  const auto open = co_await std::move(opening);
  if (!open) {
    check_failure(open.error());
    co_return;
  }
  const uint64_t length = rng_.below(kBytesMax);
  auto cutting = (*open)->truncate(length);
  auto cut = co_await std::move(cutting);
  file.written = std::min(file.written, length);
  file.length = length;
  // A server may still be at the truncation that another has finished.
  if (cut && file.written == length && rng_.below(2) == 0) {
    auto growing = grow(**open, file);
    cut = co_await std::move(growing);
  }
  auto closing = (*open)->close();
  const auto closed = co_await std::move(closing);
  truth_.changes++;
  if (!cut || !closed) {
    check_failure(cut ? closed.error() : cut.error());
    co_return;
  }
  truth_.files[name] = file;
}

// By more of its content.
Task<Result<void>> FilesLoad::grow(client::File& open, FilesTruth::Known& file) {
  const uint64_t before = file.length;
  file.written = file.length = before + 1 + rng_.below(kBytesMax);
  const std::string bytes = content_of(file).substr(before);
  auto writing = open.write(before, as_bytes(bytes));
  FF_CO_TRY(co_await std::move(writing));
  auto syncing = open.sync();
  co_return co_await std::move(syncing);
}

Task<void> FilesLoad::remove(std::string name) {
  const Busy busy(truth_.busy, name);
  truth_.files.erase(name);
  auto removing = files_.names().unlink(caller(), ref(truth_.data_dir.id), name, std::nullopt);
  const auto removed = co_await std::move(removing);
  truth_.changes++;
  if (!removed) check_failure(removed.error());
}

Task<void> FilesLoad::read(std::string name) {
  const FilesTruth::Known file = truth_.files.at(name);
  const Counted counted(truth_.read[name]);
  auto opening = files_.open(caller(), ref(file.inode), meta::kMayRead);
  const auto open = co_await std::move(opening);
  if (!open) {
    check_failure(open.error());
    co_return;
  }
  const uint64_t offset = rng_.below(file.length + 1);
  const uint64_t asked = rng_.below(kBytesMax + 1);
  std::string bytes(asked, 'x');
  auto reading = (*open)->read(offset, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
  const auto got = co_await std::move(reading);
  auto closing = (*open)->close();
  (void)co_await std::move(closing);
  truth_.reads++;
  if (!got) {
    check_failure(got.error());
    co_return;
  }
  bytes.resize(*got);
  const std::string right = content_of(file).substr(offset, bytes.size());
  const uint64_t wanted = std::min<uint64_t>(file.length - offset, asked);
  if (bytes == right && bytes.size() == wanted) co_return;
  const auto differ = std::ranges::mismatch(bytes, right).in1 - bytes.begin();
  truth_.broken(
      fmt::format("{} (inode {}, {} bytes): {} of {} bytes read at {} are not what was written, "
                  "from byte {} on",
                  name, file.inode, file.length, bytes.size(), asked, offset,
                  offset + static_cast<uint64_t>(differ)));
}

Task<void> FilesLoad::append() {
  auto opening = files_.open(caller(), ref(truth_.log.id), meta::kMayWrite);
  const auto open = co_await std::move(opening);
  if (!open) {
    check_failure(open.error());
    co_return;
  }
  const uint64_t number = truth_.next_record++;
  const std::string bytes = record_bytes(number);
  auto appending = (*open)->append(as_bytes(bytes));
  const auto added = co_await std::move(appending);
  Result<void> appended = added ? Result<void>() : added.error();
  if (appended) {
    auto syncing = (*open)->sync();
    appended = co_await std::move(syncing);
  }
  auto closing = (*open)->close();
  (void)co_await std::move(closing);
  truth_.changes++;
  if (!appended) check_failure(appended.error());
  if (appended) truth_.logged[number] = *added;
  if (!appended) truth_.perhaps_logged.insert(number);
}

// What has been logged so far is not wanted any more: what others append meanwhile is.
Task<void> FilesLoad::clear_log() {
  auto opening = files_.open(caller(), ref(truth_.log.id), meta::kMayWrite);
  const auto open = co_await std::move(opening);
  if (!open) {
    check_failure(open.error());
    co_return;
  }
  const uint64_t length = (*open)->inode().length;
  truth_.cleared_to = std::max(truth_.cleared_to, length);
  auto clearing = (*open)->clear(0, length);
  const auto cleared = co_await std::move(clearing);
  auto closing = (*open)->close();
  (void)co_await std::move(closing);
  truth_.changes++;
  if (!cleared) check_failure(cleared.error());
}

}  // namespace ff::scenario::files_parts
