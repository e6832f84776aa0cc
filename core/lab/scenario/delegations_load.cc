// delegations_load.cc: the random calls, and what their answers say of the names.
#include "lab/scenario/delegations_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/base/clock.h"
#include "storage/meta/service.h"

namespace ff::scenario::delegation_parts {

namespace {

constexpr int64_t kLongPauseNs = 300 * kMillisecond;
// How long a call without an answer may still have an effect.
constexpr int64_t kUnansweredNs = 90 * kSecond;
// Room for so few records that the table is full when servers are out of reach, and for so few
// bytes that some are stored at once because no successor would find them.
constexpr size_t kTableBytes = 96 * kKiB;
constexpr size_t kDataBytes = 2 * kMiB;
constexpr uint64_t kTravelNs = 8 * kMillisecond;
constexpr const char* kContestedNames[] = {"a", "b", "c", "d"};
constexpr uint64_t kWrittenMax = client::DeferredCloses::kFileMax + kKiB;
// A server ends a lease that was not renewed for kDelegationLeaseNs, a holder answers for
// kDelegationHolderNs; each by its own clock, and clocks drift.
constexpr int64_t kBeforeLossNs = (meta::kDelegationLeaseNs - meta::kDelegationHolderNs) * 4 / 10;
// So long must a recall last before the server refuses renewals.
constexpr int64_t kOverdueNs = 25 * kSecond;
// The processes beside: how often one makes a call, and how many may wait.
constexpr uint64_t kBesideNs = 300 * kMillisecond;
constexpr size_t kBesideMax = 64;

using meta::InodeType;
using meta::Namespace;
using History = NameHistory;

}  // namespace

std::unique_ptr<DelegationsLoad::Memory> DelegationsLoad::Memory::make() {
  auto made = std::make_unique<Memory>(
      Memory{chunk::AlignedBuffer(kTableBytes), chunk::AlignedBuffer(kDataBytes)});
  std::ranges::fill(made->records.span(), std::byte{0});
  return made;
}

DelegationsLoad::DelegationsLoad(rpc::ClientContext& context,
                                 const std::vector<net::Address>& servers, size_t program,
                                 DelegationsOracle& oracle)
    : context_(context), servers_(servers), rng_(context.rng), program_(program), oracle_(oracle) {
  memory_ = Memory::make();
  idle_ns_ = now_ns();
  start();
}

void DelegationsLoad::start() {
  auto table = client::RecoveryTable::open(memory_->records.span());
  if (!table) return oracle_.report_violation(table.error().message);
  table_ = std::move(*table);
  const ByteSpan data = memory_->data.span();
  files_ = std::make_unique<client::FileSystem>(
      context_, servers_,
      client::FileSystem::Options{
          .arena = data,
          .delegations = true,
          .recovery = table_.get(),
          .data = data,
          .on_lost = [this](meta::InodeId inode, const Error& error) { on_lost(inode, error); }});
  beside_ = 0;
  gate_ = std::make_unique<Gate>(context_.loop);
  gate_->spawn(work());
}

void DelegationsLoad::kill(bool keeper) {
  if (ended_) return;
  // What the process does from here on, its successor does not see.
  auto left = Memory::make();
  if (keeper) {
    std::memcpy(left->records.span().data(), memory_->records.span().data(), kTableBytes);
    std::memcpy(left->data.span().data(), memory_->data.span().data(), kDataBytes);
  }
  gate_.reset();
  file_.reset();
  files_.reset();
  table_.reset();
  memory_ = std::move(left);
  if (!keeper) {
    for (const Name& name : under_way_) {
      oracle_.names[name].add_uncertainty(begin_ns_, now_ns() + kUnansweredNs);
    }
    under_way_.clear();
    request_.reset();
    lose_unsynced();
    idle_ns_ = now_ns();
    kinds_.clear();
  }
  start();
}

meta::Caller DelegationsLoad::caller() const {
  meta::Caller caller;
  caller.origin = origin_;
  return caller;
}

// Continues what the predecessor left, and repeats the request that it has not answered.
Task<bool> DelegationsLoad::restore() {
  auto restored = co_await files_->restore();
  if (!restored) co_return false;
  const bool writes = request_ && request_->kind == Kind::write && request_->step != Step::create;
  for (const auto& writer : restored->writers) {
    if (writes && writer->inode().id == request_->inode && file_ == nullptr) {
      file_ = writer;
      cursor_ = file_->cursor();
    } else if (writer->session() && names().awaits(*writer->session())) {
      writer->abandon();  // a repeated creation continues its session
    } else {
      (void)co_await writer->close();
    }
  }
  table_->drop_untaken();
  if (writes && file_ == nullptr) request_.reset();  // another program has removed it
  if (request_) co_await call(*request_);
  names().end_restored_origins();
  co_return true;
}

// Only a lease that has ended, or a disk that has lost its power, may cost what was answered.
void DelegationsLoad::on_lost(meta::InodeId inode, const Error& error) {
  oracle_.losses++;
  if (error.message.find("lease") != std::string::npos) {
    check_lost_lease();
    return lose_unsynced();
  }
  const bool power_loss = error.message.find("lost power") != std::string::npos;
  const bool removed = error.code == Errc::stale || error.sys == ENOENT;
  if (power_loss || removed || meta::is_retryable(error)) return oracle_.files.lose_file(inode);
  oracle_.report_violation(fmt::format(
      "program {}: a server refused what a holder had answered: {}", program_, error.message));
}

// A lease must not end while its holder may answer, unless the holder does not give back what is
// recalled. Then it has changes that no server has applied all the time.
void DelegationsLoad::check_lost_lease() {
  const bool overdue = now_ns() - idle_ns_ >= kOverdueNs;
  if (overdue || now_ns() - answered_ns_ >= kBeforeLossNs) return;
  oracle_.report_violation(fmt::format(
      "program {}: its lease has ended, but it has answered a call under it {:.3f} s before",
      program_, static_cast<double>(now_ns() - answered_ns_) / kSecond));
}

void DelegationsLoad::lose_unsynced() {
  for (const auto& [name, since_ns] : unsynced_) {
    // A batch under way may still be applied.
    oracle_.names[name].add_uncertainty(since_ns, now_ns() + kUnansweredNs);
  }
  unsynced_.clear();
  oracle_.files.lose(program_, now_ns());
}

DelegationsLoad::Name DelegationsLoad::some_name() {
  const meta::InodeId dir = oracle_.dirs[rng_.below(oracle_.dirs.size())];
  return {dir, kContestedNames[rng_.below(std::size(kContestedNames))]};
}

void DelegationsLoad::begin(Name name) {
  if (under_way_.empty()) begin_ns_ = now_ns();
  under_way_.push_back(std::move(name));
}

void DelegationsLoad::end(const Name& name, NameHistory::Call call) {
  call.begin_ns = begin_ns_;
  call.end_ns = now_ns();
  if (call.end_ns == call.begin_ns) answered_ns_ = call.end_ns;
  oracle_.names[name].add(program_, call);
  if (call.after != History::kSame) note_change(name);
}

void DelegationsLoad::note_change(const Name& name) { unsynced_.emplace(name, begin_ns_); }

void DelegationsLoad::end_failed(const std::vector<Name>& names, const Error& error,
                                 NameHistory::Call call) {
  const bool present = error.sys == EEXIST || error.sys == EISDIR || error.sys == ENOTDIR;
  if (error.sys == ENOENT || present) {
    call.before = present ? History::kPresent : History::kAbsent;
    return end(names.front(), call);
  }
  for (const Name& name : names) {
    oracle_.names[name].add_uncertainty(begin_ns_, now_ns() + kUnansweredNs);
  }
}

Task<void> DelegationsLoad::create_dir(Name name) {
  begin(name);
  Namespace::CreateOptions make{.kind = InodeType::directory, .mode = 0755};
  auto making = names().create(caller(), {.id = name.first}, name.second, std::move(make));
  const Answer made = co_await std::move(making);
  co_await travel();
  if (!made) co_return end_failed({name}, made.error(), {.what = "create"});
  kinds_[name] = made->inode.kind;
  end(name, {.before = History::kAbsent, .after = made->inode.id, .what = "create"});
}

// A file that stays empty: mknod(2).
Task<void> DelegationsLoad::create(Name name) {
  begin(name);
  Namespace::CreateOptions make{.kind = InodeType::file, .mode = 0755};
  auto making = names().create(caller(), {.id = name.first}, name.second, std::move(make));
  const Answer made = co_await std::move(making);
  co_await travel();
  if (!made) co_return end_failed({name}, made.error(), {.what = "create"});
  kinds_[name] = made->inode.kind;
  end(name, {.before = History::kAbsent, .after = made->inode.id, .what = "create"});
}

// False: not possible.
Task<bool> DelegationsLoad::create_file(Request& request) {
  const Name& name = request.name;
  begin(name);
  request.created_ns = begin_ns_;
  Namespace::CreateOptions make{.kind = InodeType::file, .mode = 0755};
  auto making = files_->create(caller(), {.id = name.first}, name.second, std::move(make));
  auto made = co_await std::move(making);
  co_await travel();
  if (!made) {
    end_failed({name}, made.error(), {.what = "create"});
    co_return false;
  }
  file_ = std::move(*made);
  cursor_ = file_->cursor();
  request.inode = file_->inode().id;
  kinds_[name] = InodeType::file;
  end(name, {.before = History::kAbsent, .after = request.inode, .what = "create"});
  request.step = Step::write;
  next_origin();
  co_return true;
}

// open(2) with O_CREAT and O_EXCL, write(2), close(2).
Task<void> DelegationsLoad::write_file() {
  Request& request = *request_;
  if (request.step == Step::create) {
    const bool created = co_await create_file(request);
    if (!created) co_return;
  }
  if (request.step == Step::write) {
    const std::string bytes = SmallFiles::content(request.inode, request.size);
    const auto written = co_await file_->write_behind(0, as_bytes(bytes));
    co_await travel();
    request.step = written ? Step::close : Step::release;
  }
  if (request.step == Step::close) {
    const auto closed = co_await file_->flush_on_close(cursor_);
    co_await travel();
    request.step = Step::release;
    if (closed) {
      written_ = request.name;
      oracle_.files.on_close(request.inode, program_, request.size, request.created_ns, now_ns());
    }
  }
  const auto file = std::exchange(file_, nullptr);
  if (file == nullptr) co_return;
  const auto deferred = co_await file->defer_close();
  if (!deferred || !*deferred) (void)co_await file->close();
}

// What a reader finds that opens the file now.
Task<void> DelegationsLoad::read(meta::InodeId inode, int64_t began_ns) {
  const auto size = oracle_.files.expected_size(inode, began_ns);
  if (!size) co_return;
  auto opening = files_->open({}, {.id = inode}, meta::kMayRead);
  const auto file = co_await std::move(opening);
  if (!file) co_return;  // it was removed, or servers are out of reach
  std::string bytes(*size + 1, '?');
  auto reading = (*file)->read(0, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
  const auto got = co_await std::move(reading);
  (void)co_await (*file)->close();
  if (!got) co_return;
  bytes.resize(*got);
  oracle_.files.on_read(inode, bytes, fmt::format("program{}", program_), now_ns());
}

// fsync(2) of a file that was closed before.
Task<void> DelegationsLoad::sync_file(Name name) {
  const auto inode = co_await lookup(name);
  if (!inode || !oracle_.files.expected_size(inode->id, begin_ns_)) co_return;
  auto opening = files_->open(caller(), {.id = inode->id}, meta::kMayRead | meta::kMayWrite);
  const auto file = co_await std::move(opening);
  if (!file) co_return;
  const auto before = unsynced_;
  const uint64_t losses = oracle_.losses;
  const auto synced = co_await (*file)->sync();
  if (synced) {
    oracle_.files.on_sync(inode->id, program_);
    end_sync(before, losses);
    syncs_++;
  }
  (void)co_await (*file)->close();
}

Task<void> DelegationsLoad::remove(Name name) {
  begin(name);
  const bool dir = kinds_[name] == InodeType::directory;
  auto removing = dir ? names().rmdir(caller(), {.id = name.first}, name.second)
                      : names().unlink(caller(), {.id = name.first}, name.second, std::nullopt);
  const Answer removed = co_await std::move(removing);
  co_await travel();
  if (!removed && (removed.error().sys == EISDIR || removed.error().sys == ENOTDIR)) {
    kinds_[name] = dir ? InodeType::file : InodeType::directory;
  }
  if (!removed) co_return end_failed({name}, removed.error(), {.what = "remove"});
  if (removed->inode.links == 0) files_->drop_unstored(removed->inode.id);
  end(name, {.before = removed->inode.id, .after = History::kAbsent, .what = "remove"});
}

Task<void> DelegationsLoad::rename(Name from, Name to) {
  if (from == to) co_return;
  begin(from);
  begin(to);
  meta::MetaClient::Rename how{.from_dir = {.id = from.first},
                               .from = from.second,
                               .to_dir = {.id = to.first},
                               .to = to.second};
  const Answer moved = co_await names().rename(caller(), std::move(how));
  co_await travel();
  if (!moved && (moved.error().sys == EISDIR || moved.error().sys == ENOTDIR)) co_return;
  if (!moved) co_return end_failed({from, to}, moved.error(), {.what = "rename from"});
  kinds_[to] = moved->inode.kind;
  end(from, {.before = moved->inode.id, .after = History::kAbsent, .what = "rename from"});
  end(to, {.after = moved->inode.id, .what = "rename to"});
}

Task<std::optional<meta::Inode>> DelegationsLoad::lookup(Name name) {
  begin(name);
  auto looking = names().lookup(caller(), {.id = name.first}, name.second);
  const Answer found = co_await std::move(looking);
  if (!found && found.error().sys != ENOENT) co_return std::nullopt;
  if (found) kinds_[name] = found->inode.kind;
  end(name, {.before = found ? found->inode.id : History::kAbsent, .what = "lookup"});
  if (!found) co_return std::nullopt;
  co_return found->inode;
}

// What was answered before it began is kept, unless a loss is reported until it ends.
Task<bool> DelegationsLoad::sync() {
  const auto before = unsynced_;
  const uint64_t losses = oracle_.losses;
  const auto synced = co_await names().sync();
  if (!synced) co_return false;
  end_sync(before, losses);
  co_return true;
}

void DelegationsLoad::end_sync(const std::map<Name, int64_t>& before, uint64_t losses) {
  if (losses != oracle_.losses) return;
  for (const auto& [name, since_ns] : before) unsynced_.erase(name);
}

// The answer is on the way to the program; the process may be killed meanwhile.
Task<void> DelegationsLoad::travel() {
  if (rng_.below(4) != 0) co_return;
  const auto travel_ns = static_cast<int64_t>(rng_.below(kTravelNs));
  (void)co_await sleep_for(context_.loop, travel_ns);
}

DelegationsLoad::Request DelegationsLoad::some_request() {
  constexpr Kind kKinds[] = {Kind::write,  Kind::write,      Kind::create, Kind::create,
                             Kind::remove, Kind::create_dir, Kind::remove, Kind::rename,
                             Kind::rename, Kind::lookup,     Kind::lookup, Kind::lookup};
  Request request{.kind = kKinds[rng_.below(std::size(kKinds))]};
  if (rng_.below(64) == 0) request.kind = Kind::sync;
  request.name = some_name();
  // Often the file that was just closed, whose bytes may not be stored yet.
  if (written_ && rng_.below(6) == 0) request = {.kind = Kind::sync, .name = *written_};
  written_.reset();
  if (request.kind == Kind::rename) request.to = some_name();
  const uint64_t most = rng_.below(16) == 0 ? kWrittenMax : 4 * kKiB;
  if (request.kind == Kind::write) request.size = 1 + rng_.below(most);
  return request;
}

// The kernel's next request has a number of its own; the last one was answered.
void DelegationsLoad::next_origin() {
  under_way_.clear();
  names().end_origin(origin_);
  origin_++;
}

Task<void> DelegationsLoad::call(Request request) {
  oracle_.calls++;
  if (files_->delegations() > 0) oracle_.held++;
  if (files_->pending_changes() == 0) idle_ns_ = now_ns();
  switch (request.kind) {
    case Kind::create: co_await create(request.name); break;
    case Kind::write: co_await write_file(); break;
    case Kind::create_dir: co_await create_dir(request.name); break;
    case Kind::remove: co_await remove(request.name); break;
    case Kind::rename: co_await rename(request.name, request.to); break;
    case Kind::sync: co_await sync_file(request.name); break;
    case Kind::lookup: {
      const auto found = co_await lookup(request.name);
      if (found) co_await read(found->id, begin_ns_);
    }
  }
  request_.reset();
  next_origin();
}

// Other processes of the program, which make calls while a request of the first one waits.
Task<void> DelegationsLoad::work_beside() {
  for (;;) {
    const auto waited =
        co_await sleep_for(context_.loop, static_cast<int64_t>(rng_.below(kBesideNs)));
    if (!waited) co_return;
    if (working_ && beside_ < kBesideMax) gate_->spawn(call_beside());
  }
}

// A server must not end the lease while the client answers such a call under it.
Task<void> DelegationsLoad::call_beside() {
  beside_++;
  const meta::InodeId dir = oracle_.own_dirs[program_][rng_.below(2)];
  const std::string name = fmt::format("{}", all_beside_++);
  const int64_t began_ns = now_ns();
  Namespace::CreateOptions make{.kind = InodeType::file, .mode = 0644};
  auto making = names().create({}, {.id = dir}, name, std::move(make));
  const Answer made = co_await std::move(making);
  if (made && now_ns() == began_ns) answered_ns_ = began_ns;
  auto removing = names().unlink({}, {.id = dir}, name, std::nullopt);
  (void)co_await std::move(removing);
  if (files_->pending_changes() == 0) idle_ns_ = now_ns();
  beside_--;
}

Task<void> DelegationsLoad::work() {
  const auto started = co_await files_->start(INT64_MAX);
  if (!started) co_return;
  if (table_->continues()) {
    const bool restored = co_await restore();
    if (!restored) co_return;
  }
  gate_->spawn(work_beside());
  while (!ended_) {
    if (!working_ || rng_.below(40) == 0) {
      const bool synced = co_await sync();
      ended_ = !working_ && synced && beside_ == 0;
    } else {
      request_ = some_request();
      co_await call(*request_);
    }
    // Bursts, so that a program is alone in a directory for a while.
    const bool rests = rng_.below(12) == 0;
    const auto pause_ns =
        static_cast<int64_t>(rng_.below(rests ? 20 * kLongPauseNs : kMillisecond));
    const auto waited = co_await sleep_for(context_.loop, pause_ns);
    if (!waited) co_return;
  }
}

}  // namespace ff::scenario::delegation_parts
