// user_store.cc: records of users. Serials are never reused, even if a user is created again.
#include "storage/meta/user_store.h"

#include <algorithm>
#include <utility>

#include "platform/base/text.h"
#include "storage/cluster/key_store.h"
#include "storage/meta/records.h"

namespace ff::meta {

namespace {

constexpr int64_t kUserTimeoutNs = 10 * kSecond;
constexpr size_t kNameBytes = 64;

UserAccount from_record(const wire::User& record) {
  return {.uid = record.uid(),
          .name = record.name(),
          .gid = record.gid(),
          .groups = {record.groups().begin(), record.groups().end()},
          .serials = {record.serials().begin(), record.serials().end()}};
}

Error no_user(uint32_t uid) {
  Error error = fail(Errc::not_found, "user {} does not exist", uid);
  error.hint = "Create it: ff admin user add NAME --uid N";
  return error;
}

}  // namespace

std::string entity_name(const UserAccount& user) {
  const auth::Entity entity{
      .role = auth::Role::user, .name = user.name, .uids = {{user.uid, user.uid}}};
  return auth::check_entity(entity) ? user.name : std::to_string(user.uid);
}

UserCache::Account UserCache::get(uint32_t uid, int64_t now_ns, uint64_t& changes) const {
  const std::lock_guard lock(mutex_);
  changes = changes_;
  const auto found = cached_.find(uid);
  if (found == cached_.end() || now_ns - found->second.since_ns >= kUserCacheNs) return nullptr;
  return found->second.user;
}

void UserCache::put(Account user, int64_t now_ns, uint64_t changes) {
  const std::lock_guard lock(mutex_);
  if (changes != changes_) return;
  const uint32_t uid = user->uid;
  cached_.insert_or_assign(uid, Cached{std::move(user), now_ns});
}

void UserCache::erase(uint32_t uid) {
  const std::lock_guard lock(mutex_);
  changes_++;
  cached_.erase(uid);
}

// A removed user leaves a record without a name, which keeps the last serial.
Task<Result<UserAccount>> UserStore::change(uint32_t uid, Change how, bool create, bool removes) {
  UserAccount user;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    const std::string key = keys::of(keys::kUser, uid);
    FF_CO_TRY(auto record, co_await read_record<wire::User>(txn, key));
    if ((!record || record->name().empty()) && !create) co_return no_user(uid);
    if (!record) record.emplace();
    record->set_uid(uid);
    for (int i = 0; removes && i < record->token_names_size(); i++) {
      const auth::Entity entity{.role = auth::Role::user, .name = record->token_names(i)};
      FF_CO_TRY(
          co_await cluster::revoke_keys(txn, entity.full_name(), clock_.wall_ns() / kMicrosecond));
    }
    FF_CO_TRY(how(*record));
    txn.put(key, record->SerializeAsString());
    user = from_record(*record);
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.run(std::move(function), clock_.steady_ns() + kUserTimeoutNs));
  cache_->erase(uid);
  co_return user;
}

Task<Result<UserAccount>> UserStore::set(UserAccount user) {
  const bool named = !user.name.empty() && user.name.size() <= kNameBytes;
  if (!named || printable(user.name) != user.name) {
    co_return fail(Errc::usage, "'{}' is not a valid user name", printable(user.name));
  }
  if (user.groups.size() > kGroupsMax) {
    co_return fail(Errc::usage, "too many groups: {} (the limit is {})", user.groups.size(),
                   kGroupsMax);
  }
  std::function<Result<void>(wire::User&)> how = [&user](wire::User& record) -> Result<void> {
    record.set_name(user.name);
    record.set_gid(user.gid);
    record.clear_groups();
    for (const uint32_t group : user.groups) record.add_groups(group);
    return {};
  };
  co_return co_await change(user.uid, std::move(how), true);
}

Task<Result<UserAccount>> UserStore::add_token(uint32_t uid) {
  std::function<Result<void>(wire::User&)> how = [this](wire::User& record) -> Result<void> {
    if (record.serials_size() >= static_cast<int>(kTokensMax)) {
      return fail(Errc::usage, "user {} already has {} tokens", record.uid(),
                  record.serials_size());
    }
    const auto now_us = static_cast<uint64_t>(clock_.wall_ns() / kMicrosecond);
    record.set_next_serial(std::max(record.next_serial() + 1, now_us));
    record.add_serials(record.next_serial());
    const std::string name = entity_name(from_record(record));
    if (std::ranges::find(record.token_names(), name) == record.token_names().end()) {
      record.add_token_names(name);
    }
    return {};
  };
  co_return co_await change(uid, std::move(how), false);
}

Task<Result<void>> UserStore::remove(uint32_t uid) {
  std::function<Result<void>(wire::User&)> how = [](wire::User& record) -> Result<void> {
    record.clear_name();
    record.clear_groups();
    record.clear_serials();
    record.clear_token_names();
    return {};
  };
  FF_CO_TRY(co_await change(uid, std::move(how), false, true));
  co_return Result<void>();
}

Task<Result<std::vector<UserAccount>>> UserStore::list() {
  std::vector<UserAccount> users;
  kv::TxnFunction function = [&users](kv::Txn& txn) -> Task<Result<void>> {
    users.clear();
    kv::Range range{.begin = std::string(keys::kUser),
                    .end = kv::end_of_prefix(std::string(keys::kUser)),
                    .limit = kUsersMax};
    auto ranging = txn.range(std::move(range), {});
    FF_CO_TRY(const auto entries, co_await std::move(ranging));
    for (const kv::Entry& entry : entries) {
      FF_CO_TRY(const auto record, parse_record<wire::User>(entry.key, entry.value));
      if (!record.name().empty()) users.push_back(from_record(record));
    }
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.view(std::move(function), clock_.steady_ns() + kUserTimeoutNs));
  co_return users;
}

Task<Result<Caller>> UserStore::caller_of(auth::TokenId token) {
  uint64_t changes = 0;
  UserCache::Account known = cache_->get(token.uid, clock_.steady_ns(), changes);
  if (known == nullptr) {
    UserAccount user{.uid = token.uid};
    kv::TxnFunction function = [&user](kv::Txn& txn) -> Task<Result<void>> {
      FF_CO_TRY(const auto record,
                co_await read_record<wire::User>(txn, keys::of(keys::kUser, user.uid)));
      user = record ? from_record(*record) : UserAccount{.uid = user.uid};
      co_return Result<void>();
    };
    FF_CO_TRY(co_await engine_.view(std::move(function), clock_.steady_ns() + kUserTimeoutNs));
    known = std::make_shared<const UserAccount>(std::move(user));
    cache_->put(known, clock_.steady_ns(), changes);
  }
  const UserAccount& user = *known;
  if (std::ranges::find(user.serials, token.serial) == user.serials.end()) {
    Error error = fail(Errc::refused, "token {} of user {} is revoked", token.serial, token.uid);
    error.hint = "Ask the operator of the cluster for a new token (ff admin user token).";
    co_return error;
  }
  Caller caller{.uid = user.uid, .gid = user.gid, .groups = user.groups};
  co_return caller;
}

}  // namespace ff::meta
