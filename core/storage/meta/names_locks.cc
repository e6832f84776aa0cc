// names_locks.cc: advisory locks of whole files, one holder each, for programs that want to be the
// only one of their kind. A lock binds nobody who does not ask for it.
#include "storage/meta/names.h"
#include "storage/meta/records.h"

namespace ff::meta {

namespace {

bool is_of(const wire::Lock& lock, SessionId owner) {
  return lock.client() == owner.client && lock.number() == owner.number;
}

}  // namespace

Task<Result<bool>> Names::lock(Caller caller, InodeId id, SessionId owner) {
  bool held = false;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = read_inode(txn, id);
    FF_CO_TRY(const Inode inode, co_await std::move(reading));
    // As on any open file: of somebody who may read it, or write it.
    const std::string what = fmt::format("inode {}", id);
    if (!check_access(caller, inode, kMayRead, what)) {
      FF_CO_TRY(check_access(caller, inode, kMayWrite, what));
    }
    const std::string key = keys::of(keys::kLock, id);
    auto looking = read_record<wire::Lock>(txn, key);
    FF_CO_TRY(auto lock, co_await std::move(looking));
    held = !lock || is_of(*lock, owner);
    if (!held) co_return Result<void>();
    wire::Lock mine;
    mine.set_client(owner.client);
    mine.set_number(owner.number);
    mine.set_beat(lock ? lock->beat() + 1 : 1);
    txn.put(key, mine.SerializeAsString());
    co_return Result<void>();
  };
  auto running = engine_.run(std::move(function), deadline());
  FF_CO_TRY(co_await std::move(running));
  co_return held;
}

Task<Result<void>> Names::unlock(InodeId id, SessionId owner) {
  kv::Function function = [id, owner](kv::Txn& txn) -> Task<Result<void>> {
    const std::string key = keys::of(keys::kLock, id);
    auto looking = read_record<wire::Lock>(txn, key);
    FF_CO_TRY(const auto lock, co_await std::move(looking));
    if (lock && is_of(*lock, owner)) txn.erase(key);
    co_return Result<void>();
  };
  auto running = engine_.run(std::move(function), deadline());
  co_return co_await std::move(running);
}

}  // namespace ff::meta
