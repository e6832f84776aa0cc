// namespace_locks.cc: advisory locks on whole files with one owner each, for example for programs
// that must run only once.
#include "storage/meta/namespace.h"
#include "storage/meta/records.h"

namespace ff::meta {

namespace {

bool is_of(const wire::Lock& lock, SessionId owner) {
  return lock.client() == owner.client && lock.number() == owner.number;
}

}  // namespace

Task<Result<bool>> Namespace::lock(Caller caller, InodeId id, SessionId owner) {
  bool held = false;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(const Inode inode, co_await read_inode(txn, id));
    // As on any open file: the caller needs read or write permission.
    const std::string what = fmt::format("inode {}", id);
    if (!check_access(caller, inode, kMayRead, what)) {
      FF_CO_TRY(check_access(caller, inode, kMayWrite, what));
    }
    const std::string key = keys::of(keys::kLock, id);
    FF_CO_TRY(auto lock, co_await read_record<wire::Lock>(txn, key));
    held = !lock || is_of(*lock, owner);
    if (!held) co_return Result<void>();
    wire::Lock mine;
    mine.set_client(owner.client);
    mine.set_number(owner.number);
    mine.set_beat(lock ? lock->beat() + 1 : 1);
    txn.put(key, mine.SerializeAsString());
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.run(std::move(function), deadline()));
  co_return held;
}

Task<Result<void>> Namespace::unlock(InodeId id, SessionId owner) {
  kv::TxnFunction function = [id, owner](kv::Txn& txn) -> Task<Result<void>> {
    const std::string key = keys::of(keys::kLock, id);
    FF_CO_TRY(const auto lock, co_await read_record<wire::Lock>(txn, key));
    if (lock && is_of(*lock, owner)) txn.erase(key);
    co_return Result<void>();
  };
  co_return co_await engine_.run(std::move(function), deadline());
}

}  // namespace ff::meta
