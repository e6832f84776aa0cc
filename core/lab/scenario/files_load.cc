// files_load.cc: the random operations, and the checks of their results.
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

using meta::InodeType;
using meta::InodeView;
using meta::Namespace;

meta::InodeRef ref(uint64_t inode) { return {.id = inode}; }

// Decrements the counter however the task ends.
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

std::string content_of(const FilesOracle::KnownFile& file) {
  SeededRng rng(file.seed);
  std::string bytes;
  while (bytes.size() < file.written) append_le(bytes, rng.next());
  bytes.resize(std::min(file.written, file.length));
  bytes.resize(file.length, '\0');
  return bytes;
}

FilesLoad::FilesLoad(rpc::ClientContext& context, const std::vector<net::Address>& servers,
                     FilesOracle& oracle)
    : context_(context),
      rng_(context.rng),
      oracle_(oracle),
      files_(context, servers, {.arena = {}}),
      gate_(context.loop) {
  gate_.spawn(start());
}

FilesLoad::~FilesLoad() = default;

Task<void> FilesLoad::close() {
  Error over = fail(Errc::interrupted, "the load is over");
  co_await gate_.close(std::move(over));
  co_await files_.close();
}

Task<void> FilesLoad::start() {
  const auto started = co_await files_.start(INT64_MAX);
  if (!started) co_return;
  gate_.spawn(change_names());
  gate_.spawn(change_names());
  gate_.spawn(work_on_files());
  gate_.spawn(work_together());
}

Task<void> FilesLoad::change_names() {
  while (working_) {
    {
      const Counted counted(in_flight_);
      co_await step();
    }
    const auto waited =
        co_await sleep_for(context_.loop, static_cast<int64_t>(rng_.below(kFilesPauseNs)));
    if (!waited) co_return;
  }
}

NameStep FilesLoad::random_step() {
  using K = NameStep::Kind;
  static constexpr K kKinds[] = {K::make_file, K::make_dir, K::link,     K::unlink, K::rmdir,
                                 K::rename,    K::rename,   K::exchange, K::lookup, K::list};
  const auto dir = [&] {
    auto at = oracle_.dirs.begin();
    std::advance(at, rng_.below(oracle_.dirs.size()));
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
    // Link to a file that was observed, if there is one.
    std::vector<uint64_t> seen;
    for (const NameStep& one : oracle_.steps) {
      if (one.known() && one.sys == 0 && one.got != 0) seen.push_back(one.got);
    }
    if (seen.empty()) step.kind = K::make_file;
    if (!seen.empty()) step.inode = seen[rng_.below(seen.size())];
  }
  return step;
}

Task<Result<InodeView>> FilesLoad::execute(const NameStep& step) {
  meta::MetaClient& names = files_.metadata();
  switch (step.kind) {
    case NameStep::Kind::make_file:
    case NameStep::Kind::make_dir: {
      const bool dir = step.kind == NameStep::Kind::make_dir;
      Namespace::CreateOptions make{.kind = dir ? InodeType::directory : InodeType::file,
                                    .mode = 0755};
      return names.create(caller(), ref(step.dir), step.name, std::move(make));
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

void FilesLoad::record(NameStep step, const Result<InodeView>& seen) {
  if (seen || !meta::is_retryable(seen.error())) {
    step.ended_ns = oracle_.now_ns();
    step.sys = seen ? 0 : seen.error().sys;
    if (seen) {
      step.got = seen->inode.id;
      step.links = seen->inode.links;
      if (seen->inode.is(InodeType::directory)) oracle_.dirs.insert(seen->inode.id);
    } else if (step.sys == 0) {
      oracle_.report_violation("an operation on names fails: " + seen.error().message);
    }
  }
  oracle_.changes++;
  oracle_.steps.push_back(std::move(step));
}

Task<void> FilesLoad::step() {
  NameStep step = random_step();
  step.began_ns = oracle_.now_ns();
  if (step.kind == NameStep::Kind::list) {
    co_return co_await list(std::move(step));
  }
  const auto done = co_await execute(step);
  record(std::move(step), done);
}

Task<void> FilesLoad::list(NameStep step) {
  const auto page =
      co_await files_.metadata().list(caller(), ref(step.dir), "", 1000, rng_.below(2) == 0);
  if (!page) {
    record(std::move(step), page.error());
    co_return;
  }
  step.ended_ns = oracle_.now_ns();
  for (const auto& entry : page->entries) step.names.insert(entry.name);
  oracle_.steps.push_back(std::move(step));
}

Task<void> FilesLoad::work_on_files() {
  while (working_) {
    {
      const Counted counted(in_flight_);
      const std::string name = kFiles[rng_.below(std::size(kFiles))];
      const bool there = oracle_.files.contains(name);
      const bool free = !oracle_.busy.contains(name) && oracle_.read[name] == 0;
      Task<void> next = append();
      switch (rng_.below(6)) {
        case 0:
        case 1:
          if (!there && free) next = make(name);
          if (there && !oracle_.busy.contains(name)) next = read(name);
          break;
        case 2:
        case 3:
          if (there && !oracle_.busy.contains(name)) next = read(name);
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
        co_await sleep_for(context_.loop, static_cast<int64_t>(rng_.below(kFilesPauseNs)));
    if (!waited) co_return;
  }
}

Task<void> FilesLoad::work_together() {
  while (working_) {
    {
      const Counted counted(in_flight_);
      co_await write_together(files_, rng_, oracle_);
    }
    const auto waited =
        co_await sleep_for(context_.loop, static_cast<int64_t>(rng_.below(kFilesPauseNs)));
    if (!waited) co_return;
  }
}

// Whether the injected faults explain the error.
bool FilesLoad::check_failure(const Error& error) {
  // EIO: a sync reports that all replicas have lost power.
  if (meta::is_retryable(error) || error.sys == EIO) return true;
  oracle_.report_violation("an operation on files fails: " + error.message);
  return false;
}

// Writes pieces of random size, half of them write-behind, half synchronously.
Task<Result<void>> FilesLoad::write(std::string name, FilesOracle::KnownFile& file) {
  Namespace::CreateOptions how{.kind = InodeType::file, .mode = 0644, .exclusive = true};
  FF_CO_TRY(const auto open,
            co_await files_.create(caller(), ref(oracle_.data_dir.id), name, std::move(how)));
  file.inode = open->inode().id;
  const std::string bytes = content_of(file);
  Result<void> first;
  for (uint64_t at = 0; at < bytes.size() && first;) {
    const uint64_t size = std::min<uint64_t>(1 + rng_.below(100 * kKiB), bytes.size() - at);
    const ByteView piece = as_bytes(bytes).subspan(at, size);
    if (rng_.below(3) == 0) {  // overwritten by the next piece
      const std::string other(1 + rng_.below(size), '!');
      first = co_await open->write_behind(at, as_bytes(other));
    }
    const bool at_once = rng_.below(2) == 0;
    if (first && at_once) {
      first = co_await open->flush();
    }
    auto writing = at_once ? open->write(at, piece) : open->write_behind(at, piece);
    auto written = co_await std::move(writing);
    if (first) first = std::move(written);
    at += size;
  }
  // A power loss may lose unsynced data.
  if (first) {
    first = co_await open->sync();
  }
  auto closed = co_await open->close();
  if (first) first = std::move(closed);
  co_return first;
}

Task<void> FilesLoad::make(std::string name) {
  const Busy busy(oracle_.busy, name);
  FilesOracle::KnownFile file{.seed = rng_.next()};
  file.written = file.length = 1 + rng_.below(kBytesMax);
  const auto written = co_await write(name, file);
  oracle_.changes++;
  if (written) {
    oracle_.files[name] = file;
    co_return;
  }
  // The result is unknown: remove the file.
  if (written.error().sys != EEXIST) check_failure(written.error());
  (void)co_await files_.metadata().unlink(caller(), ref(oracle_.data_dir.id), name, std::nullopt);
}

Task<void> FilesLoad::cut(std::string name) {
  const Busy busy(oracle_.busy, name);
  FilesOracle::KnownFile file = oracle_.files.at(name);
  oracle_.files.erase(name);  // until the result is known
  const auto open =
      co_await files_.open(caller(), ref(file.inode), meta::kMayRead | meta::kMayWrite);
  if (!open) {
    check_failure(open.error());
    co_return;
  }
  const uint64_t length = rng_.below(kBytesMax);
  auto cut = co_await (*open)->truncate(length);
  file.written = std::min(file.written, length);
  file.length = length;
  // A server may still be at the truncation that another has finished.
  if (cut && file.written == length && rng_.below(2) == 0) {
    cut = co_await grow(**open, file);
  }
  const auto closed = co_await (*open)->close();
  oracle_.changes++;
  if (!cut || !closed) {
    check_failure(cut ? closed.error() : cut.error());
    co_return;
  }
  oracle_.files[name] = file;
}

// Appends more of the file's content.
Task<Result<void>> FilesLoad::grow(client::File& open, FilesOracle::KnownFile& file) {
  const uint64_t before = file.length;
  file.written = file.length = before + 1 + rng_.below(kBytesMax);
  const std::string bytes = content_of(file).substr(before);
  FF_CO_TRY(co_await open.write(before, as_bytes(bytes)));
  co_return co_await open.sync();
}

Task<void> FilesLoad::remove(std::string name) {
  const Busy busy(oracle_.busy, name);
  oracle_.files.erase(name);
  const auto removed =
      co_await files_.metadata().unlink(caller(), ref(oracle_.data_dir.id), name, std::nullopt);
  oracle_.changes++;
  if (!removed) check_failure(removed.error());
}

Task<void> FilesLoad::read(std::string name) {
  const FilesOracle::KnownFile file = oracle_.files.at(name);
  const Counted counted(oracle_.read[name]);
  const auto open = co_await files_.open(caller(), ref(file.inode), meta::kMayRead);
  if (!open) {
    check_failure(open.error());
    co_return;
  }
  const uint64_t offset = rng_.below(file.length + 1);
  const uint64_t asked = rng_.below(kBytesMax + 1);
  std::string bytes(asked, 'x');
  auto reading = (*open)->read(offset, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
  const auto got = co_await std::move(reading);
  (void)co_await (*open)->close();
  oracle_.reads++;
  if (!got) {
    check_failure(got.error());
    co_return;
  }
  bytes.resize(*got);
  const std::string right = content_of(file).substr(offset, bytes.size());
  const uint64_t wanted = std::min<uint64_t>(file.length - offset, asked);
  if (bytes == right && bytes.size() == wanted) co_return;
  const auto differ = std::ranges::mismatch(bytes, right).in1 - bytes.begin();
  oracle_.report_violation(
      fmt::format("{} (inode {}, {} bytes): {} of {} bytes read at {} are not what was written, "
                  "from byte {} on",
                  name, file.inode, file.length, bytes.size(), asked, offset,
                  offset + static_cast<uint64_t>(differ)));
}

Task<void> FilesLoad::append() {
  const auto open = co_await files_.open(caller(), ref(oracle_.log.id), meta::kMayWrite);
  if (!open) {
    check_failure(open.error());
    co_return;
  }
  const uint64_t number = oracle_.next_record++;
  const std::string bytes = record_bytes(number);
  const auto added = co_await (*open)->append(as_bytes(bytes));
  Result<void> appended = added ? Result<void>() : added.error();
  if (appended) {
    appended = co_await (*open)->sync();
  }
  (void)co_await (*open)->close();
  oracle_.changes++;
  if (!appended) check_failure(appended.error());
  if (appended) oracle_.logged[number] = *added;
  if (!appended) oracle_.perhaps_logged.insert(number);
}

// Punches a hole over the existing records; records that are appended meanwhile must survive.
Task<void> FilesLoad::clear_log() {
  const auto open = co_await files_.open(caller(), ref(oracle_.log.id), meta::kMayWrite);
  if (!open) {
    check_failure(open.error());
    co_return;
  }
  const uint64_t length = (*open)->inode().length;
  oracle_.cleared_to = std::max(oracle_.cleared_to, length);
  const auto cleared = co_await (*open)->punch_hole(0, length);
  (void)co_await (*open)->close();
  oracle_.changes++;
  if (!cleared) check_failure(cleared.error());
}

}  // namespace ff::scenario::files_parts
