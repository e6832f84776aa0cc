// file_system.cc: what all open files share, and opening them.
#include "storage/client/file_system.h"
#include "storage/cluster/service.h"

#include <cerrno>
#include <utility>

#include "platform/base/log.h"

namespace ff::client {

namespace {

constexpr int64_t kSettlePollNs = 20 * kMillisecond;
// How often writers tell how long their files are, and how long bytes wait behind.
constexpr int64_t kTellNs = 2 * kSecond;
constexpr int64_t kBehindNs = kSecond;
constexpr int64_t kSyncNs = 2 * kSecond;
// What storage has acknowledged for so long is durable, unless all replicas lost power.
constexpr int64_t kDurableNs = 10 * kSecond;
constexpr size_t kUnseenMax = 10'000;         // inodes whose errors wait for somebody to be told
constexpr int64_t kSpaceNs = 5 * kSecond;     // for so long it is believed
constexpr int64_t kAskNs = 3 * kSecond;       // of one manager
constexpr int64_t kRoutingNs = 10 * kSecond;  // a chain table that is new is heard of within this

}  // namespace

FileSystem::FileSystem(rpc::ClientContext& context, const std::vector<net::Address>& servers,
                       Options options)
    : context_(context),
      routing_(context, servers, [this] { storage_.look(); }),
      storage_(context, routing_.routing(), [this] { routing_.refresh(); }),
      names_(context, servers,
             [this](meta::InodeId inode, Error error) { report(inode, std::move(error)); }),
      managers_(context, servers),
      behind_(context.loop, options.arena, std::max<uint64_t>(options.write_behind / kMiB, 64),
              context.metrics),
      gate_(context.loop) {}

FileSystem::~FileSystem() = default;

Task<Result<void>> FileSystem::start(int64_t deadline_ns) {
  if (!std::exchange(started_, true)) {
    gate_.spawn(routing_.run());
    gate_.spawn(keep_telling());
    gate_.spawn(keep_syncing());
    gate_.spawn(keep_locks());
  }
  while (routing_.routing().version == 0) {
    const auto waited = co_await after(context_.loop, kSettlePollNs);
    FF_CO_TRY(waited);
    const auto& trouble = routing_.trouble();
    const bool final =
        trouble && (trouble->code == Errc::refused || trouble->code == Errc::not_found);
    if (final) co_return *trouble;
    if (context_.loop.now_ns() < deadline_ns) continue;
    if (trouble) co_return *trouble;
    co_return fail(Errc::deadline, "the cluster does not tell what chains there are");
  }
  co_return Result<void>();
}

std::vector<std::shared_ptr<File>> FileSystem::writers() const {
  std::vector<std::shared_ptr<File>> files;
  for (const auto& [session, file] : writers_) {
    if (auto held = file.lock()) files.push_back(std::move(held));
  }
  return files;
}

void FileSystem::add_written(meta::Inode& inode) const {
  for (auto at = writers_.lower_bound({inode.id, 0}); at != writers_.end(); ++at) {
    if (at->first.first != inode.id) break;
    const auto writer = at->second.lock();
    if (!writer || writer->inode().truncations != inode.truncations) continue;
    inode.length = std::max(inode.length, writer->inode().length);
    if (!writer->untold_ || writer->written_ns_ <= inode.mtime_ns) continue;
    inode.mtime_ns = writer->written_ns_;
    inode.ctime_ns = std::max(inode.ctime_ns, inode.mtime_ns);
  }
}

Task<Result<meta::Seen>> FileSystem::look(meta::Ref inode) {
  auto asking = names_.stat(std::move(inode), false);
  FF_CO_TRY(meta::Seen seen, co_await std::move(asking));
  add_written(seen.inode);
  co_return seen;
}

std::shared_ptr<InodeState> FileSystem::state_of(meta::InodeId inode) {
  auto& state = states_[inode];
  if (state == nullptr) state = std::make_shared<InodeState>();
  return state;
}

void FileSystem::report(meta::InodeId inode, Error error) {
  log_error("what was acknowledged is lost", {{"inode", inode}, {"cause", error.message}});
  errors_.record(error);
  state_of(inode)->errors.record(std::move(error));
}

Task<Result<void>> FileSystem::sync_names(ErrorSeq::Cursor& told) {
  auto syncing = names_.sync();
  FF_CO_TRY(co_await std::move(syncing));
  co_return errors_.tell(told);
}

// An error that nobody was told of waits for the next who opens the file and syncs it.
void FileSystem::drop_states() {
  const int64_t now_ns = context_.loop.now_ns();
  size_t waiting = 0;
  std::erase_if(states_, [&](const auto& one) {
    InodeState& state = *one.second;
    if (one.second.use_count() > 1) {
      state.left_ns.reset();
      return false;
    }
    if (!state.left_ns) state.left_ns = now_ns;
    if (state.errors.unseen() && waiting++ < kUnseenMax) return false;
    return state.unsynced.empty() || now_ns - *state.left_ns >= kDurableNs;
  });
}

Task<void> FileSystem::close() {
  const auto open = writers();
  for (const auto& file : open) {
    auto closing = file->close();
    (void)co_await std::move(closing);
  }
  auto ending = tell_ended();
  co_await std::move(ending);
  Error reason = fail(Errc::interrupted, "the client ends");
  co_await gate_.close(std::move(reason));
  auto closing_names = names_.close();
  co_await std::move(closing_names);
  auto closing_storage = storage_.close();
  co_await std::move(closing_storage);
  auto closing_managers = managers_.close();
  co_await std::move(closing_managers);
  auto closing_routing = routing_.close();
  co_await std::move(closing_routing);
}

Task<void> FileSystem::keep_telling() {
  for (;;) {
    const auto waited = co_await after(context_.loop, kTellNs / 2);
    if (!waited) co_return;
    auto ending = tell_ended();
    co_await std::move(ending);
    drop_states();
    const auto open = writers();
    for (const auto& file : open) {
      file->behind_.start_old(context_.loop.now_ns() - kBehindNs);
      if (!file->untold_ || context_.loop.now_ns() - file->seen_ns_ < kTellNs) continue;
      auto telling = file->tell(false);
      (void)co_await std::move(telling);  // the next time, or when it is closed
    }
  }
}

// What was answered is asked about while servers still know, and not kept for long.
Task<void> FileSystem::keep_syncing() {
  for (;;) {
    const auto waited = co_await after(context_.loop, kSyncNs);
    if (!waited) co_return;
    if (!names_.unsynced()) continue;
    auto syncing = names_.sync();
    (void)co_await std::move(syncing);  // the next time
  }
}

void FileSystem::end_session(meta::Names::Ended ended) {
  ended_.push_back(ended);
  if (ended_.size() == meta::kEndMax) gate_.spawn(tell_ended());
}

// Should it fail, they end when this client is found dead.
Task<void> FileSystem::tell_ended() {
  while (!ended_.empty()) {
    const size_t count = std::min(ended_.size(), meta::kEndMax);
    const auto middle = ended_.begin() + static_cast<std::ptrdiff_t>(count);
    std::vector<meta::Names::Ended> some(ended_.begin(), middle);
    ended_.erase(ended_.begin(), middle);
    auto ending = names_.end(std::move(some));
    const auto told = co_await std::move(ending);
    if (!told) co_return;
  }
}

Task<Result<FileSystem::Space>> FileSystem::space() {
  const int64_t now_ns = context_.loop.now_ns();
  if (space_ns_ && now_ns - *space_ns_ < kSpaceNs) co_return space_;
  auto asking = managers_.call(cluster::kSpace, cluster::wire::SpaceRequest(), kAskNs,
                               now_ns + meta::MetaClient::kPatienceNs, true);
  FF_CO_TRY(const auto told, co_await std::move(asking));
  space_ = {.total = told.total(), .free = told.free()};
  space_ns_ = now_ns;
  co_return space_;
}

Task<void> FileSystem::keep_locks() {
  for (;;) {
    const auto waited = co_await after(context_.loop, kTellNs / 2);
    if (!waited) co_return;
    const auto locked = locked_;
    const int64_t due_ns = context_.loop.now_ns() - meta::kLockRenewNs;
    for (const auto& [number, held] : locked) {
      const auto file = held.lock();
      if (!file || !file->lock_ || file->lock_->lost || file->lock_->asked_ns > due_ns) continue;
      auto asking = file->ask_for_lock();
      (void)co_await std::move(asking);  // the next time
    }
  }
}

std::optional<Error> FileSystem::lost_lock() {
  const int64_t least_ns = context_.loop.now_ns() - meta::kLockSureNs;
  for (const auto& [number, held] : locked_) {
    const auto file = held.lock();
    if (!file || !file->lock_ || file->lock_->asked_ns == 0) continue;
    if (file->lock_->asked_ns < least_ns) file->lock_->lost = true;
    if (!file->lock_->lost) continue;
    Error error = fail(Errc::failed, "the lock of inode {} is lost: the cluster was out of reach",
                       file->inode().id);
    error.hint = std::string("Run it again.");
    return error;
  }
  return std::nullopt;
}

// A table may be newer than the routing here.
Task<Result<std::vector<cluster::ChainId>>> FileSystem::chains_of(const meta::Layout& layout) {
  const int64_t until_ns = context_.loop.now_ns() + kRoutingNs;
  for (;;) {
    auto chains = meta::chains_of(routing_.routing(), layout);
    if (chains && chains->empty()) co_return fail(Errc::corrupt, "a chain table without chains");
    if (chains || context_.loop.now_ns() >= until_ns) co_return chains;
    routing_.refresh();
    const auto waited = co_await after(context_.loop, kSettlePollNs);
    FF_CO_TRY(waited);
  }
}

Task<Result<std::shared_ptr<File>>> FileSystem::opened(meta::Seen seen,
                                                       std::optional<meta::SessionId> session) {
  if (!seen.inode.is(meta::Kind::file)) {
    const int sys = seen.inode.is(meta::Kind::directory) ? EISDIR : EINVAL;
    co_return errno_error(sys, fmt::format("inode {}", seen.inode.id));
  }
  add_written(seen.inode);
  auto finding = chains_of(seen.inode.layout);
  FF_CO_TRY(auto chains, co_await std::move(finding));
  auto file = std::make_shared<File>(*this, std::move(seen), std::move(chains), session);
  if (session) writers_[{file->inode().id, session->number}] = file;
  co_return file;
}

std::shared_ptr<File> FileSystem::reader(const File& file) {
  return std::make_shared<File>(*this, file.seen_, file.chains_, std::nullopt);
}

Task<Result<std::shared_ptr<File>>> FileSystem::open(meta::Caller caller, meta::Ref inode,
                                                     uint32_t rights) {
  std::optional<meta::SessionId> session;
  if ((rights & meta::kMayWrite) != 0) session = names_.new_session();
  auto opening = names_.open(std::move(caller), std::move(inode), rights, session);
  FF_CO_TRY(auto seen, co_await std::move(opening));
  auto making = opened(std::move(seen), session);
  co_return co_await std::move(making);
}

Task<Result<std::shared_ptr<File>>> FileSystem::create(meta::Caller caller, meta::Ref dir,
                                                       std::string name, meta::Names::Make make) {
  make.session = names_.new_session();
  make.rights |= meta::kMayWrite;
  const auto session = make.session;
  auto making = names_.make(std::move(caller), std::move(dir), std::move(name), std::move(make));
  FF_CO_TRY(auto seen, co_await std::move(making));
  auto opening = opened(std::move(seen), session);
  co_return co_await std::move(opening);
}

}  // namespace ff::client
