// file_system.cc: opens files, and runs the tasks that all files share.
#include "storage/client/file_system.h"
#include "storage/cluster/service.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "platform/base/log.h"

namespace ff::client {

namespace {

constexpr int64_t kSettlePollNs = 20 * kMillisecond;
// How often lengths are reported, and how long bytes stay in write-behind.
constexpr int64_t kLengthReportNs = 2 * kSecond;
constexpr int64_t kWritebackNs = kSecond;
constexpr int64_t kSyncNs = 2 * kSecond;
constexpr size_t kUnreportedMax = 10'000;  // inodes that wait for an fsync to report their error
constexpr int64_t kSpaceNs = 5 * kSecond;  // cache time
constexpr int64_t kSpaceWaitNs = kSecond;  // how long a delegation waits for it
constexpr uint64_t kPlenty = 256 * kMiB;
constexpr int64_t kAfterFullNs = 60 * kSecond;  // without deferred closes
constexpr int64_t kAskNs = 3 * kSecond;         // timeout per manager
constexpr int64_t kRoutingNs = 10 * kSecond;    // how long to wait for a new chain table

Error no_room(meta::InodeId inode) {
  Error error = fail(Errc::disk_full,
                     "inode {}: storage has no room for what was written to the file; the mount "
                     "keeps the bytes",
                     inode);
  error.hint = std::string("Remove files, or add disks and move targets to them.");
  error.sys = ENOSPC;
  return error;
}

Error too_many_open() {
  Error error = errno_error(ENFILE, "the recovery table of the mount is full");
  error.code = Errc::busy;
  error.hint = std::string("Close files, or give 'ff mount' more --memory.");
  return error;
}

}  // namespace

FileSystem::FileSystem(rpc::ClientContext& context, const std::vector<net::Address>& servers,
                       Options options)
    : context_(context),
      on_routing_(std::move(options.on_routing)),
      routing_(context, servers,
               [this] {
                 storage_.on_routing_change();
                 on_routing_(routing_.routing());
               }),
      storage_(context, routing_.routing(), [this] { routing_.refresh(); }),
      managers_(context, servers),
      on_lost_(std::move(options.on_lost)),
      behind_(context.loop, options.arena, std::max<uint64_t>(options.write_behind / kMiB, 64),
              context.metrics, options.recovery, options.data),
      recovery_(options.recovery),
      snapshots_(options.snapshots),
      restoring_(context.loop, 1),
      metadata_(
          context, servers,
          [this](meta::InodeId inode, Error error) { report_lost(inode, std::move(error)); },
          options.recovery, options.delegations),
      gate_(context.loop) {
  metadata_.on_bytes(
      [this] { return learn_space(); },
      [this](std::vector<meta::InodeId> inodes) { return store_files(std::move(inodes)); },
      [this] { deferred_.rescue(); });
}

FileSystem::~FileSystem() = default;

// Before servers get the lengths of these files.
Task<Result<std::vector<meta::InodeId>>> FileSystem::store_files(
    std::vector<meta::InodeId> inodes) {
  if (!left_sessions_.empty()) FF_CO_TRY(co_await restore_writers(inodes, false));
  co_return co_await deferred_.store(std::move(inodes));
}

Task<Result<void>> FileSystem::start(int64_t deadline_ns) {
  if (!std::exchange(started_, true)) {
    gate_.spawn(routing_.run());
    gate_.spawn(run_length_reports());
    gate_.spawn(run_metadata_syncs());
    gate_.spawn(run_lock_renewals());
    gate_.spawn(run_space_requests());
  }
  while (routing_.routing().version == 0) {
    const auto waited = co_await sleep_for(context_.loop, kSettlePollNs);
    FF_CO_TRY(waited);
    const auto& trouble = routing_.last_error();
    const bool final =
        trouble && (trouble->code == Errc::refused || trouble->code == Errc::not_found);
    if (final) co_return *trouble;
    if (context_.loop.now_ns() < deadline_ns) continue;
    if (trouble) co_return *trouble;
    co_return fail(Errc::deadline, "timeout while waiting for the routing of the cluster");
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

void FileSystem::apply_local_writes(meta::Inode& inode) const {
  for (auto at = writers_.lower_bound({inode.id, 0}); at != writers_.end(); ++at) {
    if (at->first.first != inode.id) break;
    const auto writer = at->second.lock();
    if (!writer || writer->inode().truncate_seq != inode.truncate_seq) continue;
    inode.length = std::max(inode.length, writer->inode().length);
    if (!writer->length_dirty_ || !writer->time_dirty_) continue;
    if (writer->written_ns_ <= inode.mtime_ns) continue;
    inode.mtime_ns = writer->written_ns_;
    inode.ctime_ns = std::max(inode.ctime_ns, inode.mtime_ns);
  }
}

Task<Result<meta::InodeView>> FileSystem::stat(meta::InodeRef inode) {
  FF_CO_TRY(meta::InodeView view, co_await metadata_.stat(std::move(inode), false));
  apply_local_writes(view.inode);
  co_return view;
}

std::shared_ptr<InodeState> FileSystem::state_of(meta::InodeId inode) {
  auto& state = states_[inode];
  if (state != nullptr) return state;
  state = std::make_shared<InodeState>();
  if (recovery_ != nullptr) {
    state->errors.watch([this, inode](const ErrorSeq& errors) { record_errors(inode, errors); });
  }
  return state;
}

void FileSystem::report_lost(meta::InodeId inode, Error error) {
  log_error("acknowledged changes are lost", {{"inode", inode}, {"cause", error.message}});
  on_lost_(inode, error);
  errors_.record(error);
  state_of(inode)->errors.record(std::move(error));
}

Task<Result<void>> FileSystem::sync_metadata(ErrorSeq::Cursor& cursor) {
  FF_CO_TRY(co_await metadata_.sync());
  co_return errors_.check_and_advance(cursor);
}

// An unreported error waits for the next opener that syncs.
void FileSystem::drop_states() {
  const int64_t now_ns = context_.loop.now_ns();
  size_t waiting = 0;
  std::erase_if(states_, [&](const auto& one) {
    InodeState& state = *one.second;
    if (one.second.use_count() > 1) {
      state.idle_since_ns.reset();
      return false;
    }
    if (!state.idle_since_ns) state.idle_since_ns = now_ns;
    if (state.errors.has_unreported() && waiting++ < kUnreportedMax) return false;
    const bool drop = state.unsynced.empty() || now_ns - *state.idle_since_ns >= kDurableNs;
    if (drop) error_records_.erase(one.first);
    return drop;
  });
}

Task<void> FileSystem::close() {
  const auto open = writers();
  for (const auto& file : open) {
    (void)co_await file->close();
  }
  Error reason = fail(Errc::interrupted, "the client is shutting down");
  co_await gate_.close(std::move(reason));
  // Others may write to these files from now on.
  const auto dropped = co_await deferred_.drop_waiting();
  for (const auto& one : dropped) ended_.push_back({.session = one});
  co_await report_ended_sessions();
  co_await metadata_.close();
  co_await deferred_.close();
  co_await storage_.close();
  co_await managers_.close();
  co_await routing_.close();
}

Task<void> FileSystem::run_length_reports() {
  for (;;) {
    const auto waited = co_await sleep_for(context_.loop, kLengthReportNs / 2);
    if (!waited) co_return;
    co_await report_ended_sessions();
    drop_states();
    const auto open = writers();
    for (const auto& file : open) {
      // Of a file that waits for room, DeferredCloses decides whether they may be written.
      if (!deferred_.waits(file->inode().id)) {
        file->behind_.start_older_than(context_.loop.now_ns() - kWritebackNs);
      }
      if (!file->length_dirty_ || context_.loop.now_ns() - file->refreshed_ns_ < kLengthReportNs)
        continue;
      (void)co_await file->flush_length(false);  // retried next time, or when it is closed
    }
  }
}

// Asks about acknowledged changes soon, while servers still know their generation.
Task<void> FileSystem::run_metadata_syncs() {
  for (;;) {
    const auto waited = co_await sleep_for(context_.loop, kSyncNs);
    if (!waited) co_return;
    if (!metadata_.unsynced()) continue;
    (void)co_await metadata_.sync();  // retried next time
  }
}

void FileSystem::end_session(meta::Namespace::EndedSession ended, RecoveryTable::Record record) {
  if (metadata_.end_session(ended)) return;
  ended_.push_back({ended, std::move(record)});
  if (ended_.size() == meta::kEndedSessionsMax) gate_.spawn(report_ended_sessions());
}

// If this fails, the sessions end when this client is considered dead.
Task<void> FileSystem::report_ended_sessions() {
  while (!ended_.empty()) {
    const size_t count = std::min(ended_.size(), meta::kEndedSessionsMax);
    const auto middle = ended_.begin() + static_cast<std::ptrdiff_t>(count);
    const std::vector<HeldSession> reported(std::make_move_iterator(ended_.begin()),
                                            std::make_move_iterator(middle));
    ended_.erase(ended_.begin(), middle);
    std::vector<meta::Namespace::EndedSession> some;
    for (const HeldSession& one : reported) some.push_back(one.session);
    const auto told = co_await metadata_.end_sessions(std::move(some));
    if (!told) co_return;
  }
}

Task<Result<FileSystem::Space>> FileSystem::space() {
  const int64_t now_ns = context_.loop.now_ns();
  if (space_ns_ && now_ns - *space_ns_ < kSpaceNs) co_return space_;
  FF_CO_TRY(const auto told,
            co_await managers_.call(cluster::kSpace, cluster::wire::SpaceRequest(), kAskNs,
                                    now_ns + meta::MetaClient::kTimeoutNs, true));
  space_ = {.total = told.total(), .free = told.free()};
  for (const auto& disk : told.nearly_full()) {
    space_.nearly_full.emplace(disk.node(), static_cast<cluster::DiskId>(disk.disk()));
  }
  space_ns_ = now_ns;
  co_return space_;
}

// A close is deferred only while the free space is known.
Task<void> FileSystem::run_space_requests() {
  for (;;) {
    const auto waited = co_await sleep_for(context_.loop, kSecond);
    if (!waited) co_return;
    if (metadata_.delegations() > 0) (void)co_await space();
  }
}

// Before the first file can be deferred.
Task<void> FileSystem::learn_space() {
  CancelScope scope(context_.loop, co_await current_cancellation(),
                    context_.loop.now_ns() + kSpaceWaitNs, "the free space");
  (void)co_await space().with_cancellation(scope.cancellation());
}

// Whether a new file on these chains can be stored for sure, as far as it is known.
bool FileSystem::has_plenty_of_space(const std::vector<cluster::ChainId>& chains) const {
  const int64_t now_ns = context_.loop.now_ns();
  const bool fresh = space_ns_ && now_ns - *space_ns_ < 3 * kSpaceNs;
  if (!fresh || space_.free <= std::max(space_.total / 10, kPlenty)) return false;
  if (full_ns_ && now_ns - *full_ns_ < kAfterFullNs) return false;
  return std::ranges::none_of(chains, [this](cluster::ChainId id) {
    const cluster::Chain* const chain = routing_.routing().chain(id);
    return chain == nullptr || std::ranges::any_of(chain->targets, [this](const auto& target) {
             return space_.nearly_full.contains({target.node, target.disk});
           });
  });
}

Task<void> FileSystem::run_lock_renewals() {
  for (;;) {
    const auto waited = co_await sleep_for(context_.loop, kLengthReportNs / 2);
    if (!waited) co_return;
    const auto locked = locked_;
    const int64_t due_ns = context_.loop.now_ns() - meta::kLockRenewNs;
    for (const auto& [number, held] : locked) {
      const auto file = held.lock();
      if (!file || !file->lock_ || file->lock_->lost || file->lock_->asked_ns > due_ns) continue;
      (void)co_await file->renew_lock();  // retried next time
    }
  }
}

std::optional<Error> FileSystem::lost_lock() {
  const int64_t least_ns = context_.loop.now_ns() - meta::kLockHolderExpiryNs;
  for (const auto& [number, held] : locked_) {
    const auto file = held.lock();
    if (!file || !file->lock_ || file->lock_->asked_ns == 0) continue;
    if (file->lock_->asked_ns < least_ns) file->lock_->lost = true;
    if (!file->lock_->lost) continue;
    Error error = fail(Errc::failed, "the lock of inode {} is lost: the cluster was unreachable",
                       file->inode().id);
    error.hint = std::string("Run it again.");
    return error;
  }
  return std::nullopt;
}

// The table may be newer than the local routing.
Task<Result<std::vector<cluster::ChainId>>> FileSystem::chains_of(const meta::Layout& layout) {
  const int64_t until_ns = context_.loop.now_ns() + kRoutingNs;
  for (;;) {
    auto chains = meta::chains_of(routing_.routing(), layout);
    if (chains && chains->empty()) co_return fail(Errc::corrupt, "the chain table is empty");
    if (chains || context_.loop.now_ns() >= until_ns) co_return chains;
    routing_.refresh();
    const auto waited = co_await sleep_for(context_.loop, kSettlePollNs);
    FF_CO_TRY(waited);
  }
}

Task<Result<std::shared_ptr<File>>> FileSystem::make_file(meta::Caller caller, meta::InodeView view,
                                                          std::optional<meta::SessionId> session,
                                                          RecoveryTable::Record record) {
  if (!view.inode.is(meta::InodeType::file)) {
    const int sys = view.inode.is(meta::InodeType::directory) ? EISDIR : EINVAL;
    co_return errno_error(sys, fmt::format("inode {}", view.inode.id));
  }
  apply_local_writes(view.inode);
  FF_CO_TRY(auto chains, co_await chains_of(view.inode.layout));
  mark_unsynced(*state_of(view.inode.id), chains);
  auto file = std::make_shared<File>(*this, std::move(caller), std::move(view), std::move(chains),
                                     session, std::move(record));
  if (session) writers_[{file->inode().id, session->number}] = file;
  co_return file;
}

std::shared_ptr<File> FileSystem::reader(const File& file) {
  return std::make_shared<File>(*this, file.caller_, file.view_, file.chains_, std::nullopt);
}

Task<Result<std::shared_ptr<File>>> FileSystem::open(meta::Caller caller, meta::InodeRef inode,
                                                     uint32_t rights) {
  if (!has_recovery_room()) co_return too_many_open();
  if (!deferred_.empty()) {
    std::vector<meta::InodeId> one(1, inode.id);
    FF_CO_TRY(const auto full, co_await deferred_.store(std::move(one)));
    if (!full.empty()) co_return no_room(inode.id);
  }
  std::optional<meta::SessionId> session;
  RecoveryTable::Record record;
  if ((rights & meta::kMayWrite) != 0) {
    session = metadata_.new_session(caller.origin);
    record = record_session(inode, *session, 0);
  }
  FF_CO_TRY(auto view, co_await metadata_.open(caller, std::move(inode), rights, session));
  co_return co_await make_file(std::move(caller), std::move(view), session, std::move(record));
}

Task<Result<std::shared_ptr<File>>> FileSystem::create(meta::Caller caller, meta::InodeRef dir,
                                                       std::string name,
                                                       meta::Namespace::CreateOptions make) {
  if (!has_recovery_room()) co_return too_many_open();
  make.session = metadata_.new_session(caller.origin);
  make.rights |= meta::kMayWrite;
  const auto session = make.session;
  const meta::InodeId parent = dir.id;
  FF_CO_TRY(auto view, co_await metadata_.create(caller, std::move(dir), name, std::move(make)));
  auto record = record_session(view.ref(), *session, parent);
  FF_CO_TRY(auto file,
            co_await make_file(std::move(caller), std::move(view), session, std::move(record)));
  file->dir_ = parent;
  file->name_ = std::move(name);
  co_return file;
}

}  // namespace ff::client
