// users.cc: records of users. A serial is never given twice, also not to a user made anew.
#include "storage/meta/users.h"

#include <algorithm>
#include <utility>

#include "platform/base/text.h"
#include "storage/meta/records.h"

namespace ff::meta {

namespace {

constexpr int64_t kUsersPatienceNs = 10 * kSecond;
constexpr size_t kNameBytes = 64;

User from_record(const wire::User& record) {
  return {.uid = record.uid(),
          .name = record.name(),
          .gid = record.gid(),
          .groups = {record.groups().begin(), record.groups().end()},
          .serials = {record.serials().begin(), record.serials().end()}};
}

Error no_user(uint32_t uid) {
  Error error = fail(Errc::not_found, "there is no user {}", uid);
  error.hint = "Make one: ff admin user add NAME --uid N";
  return error;
}

}  // namespace

// A user that was removed leaves a record without a name, for the serials.
Task<Result<User>> Users::change(uint32_t uid, std::function<Result<void>(wire::User&)> how,
                                 bool make) {
  User user;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    const std::string key = keys::of(keys::kUser, uid);
    auto reading = read_record<wire::User>(txn, key);
    FF_CO_TRY(auto record, co_await std::move(reading));
    if ((!record || record->name().empty()) && !make) co_return no_user(uid);
    if (!record) record.emplace();
    record->set_uid(uid);
    FF_CO_TRY(how(*record));
    txn.put(key, record->SerializeAsString());
    user = from_record(*record);
    co_return Result<void>();
  };
  auto running = engine_.run(std::move(function), clock_.steady_ns() + kUsersPatienceNs);
  FF_CO_TRY(co_await std::move(running));
  cached_.erase(uid);
  co_return user;
}

Task<Result<User>> Users::set(User user) {
  const bool named = !user.name.empty() && user.name.size() <= kNameBytes;
  if (!named || printable(user.name) != user.name) {
    co_return fail(Errc::usage, "'{}' is no name for a user", printable(user.name));
  }
  if (user.groups.size() > kGroupsMax) {
    co_return fail(Errc::usage, "{} groups (the limit is {})", user.groups.size(), kGroupsMax);
  }
  std::function<Result<void>(wire::User&)> how = [&user](wire::User& record) -> Result<void> {
    record.set_name(user.name);
    record.set_gid(user.gid);
    record.clear_groups();
    for (const uint32_t group : user.groups) record.add_groups(group);
    return {};
  };
  auto changing = change(user.uid, std::move(how), true);
  co_return co_await std::move(changing);
}

Task<Result<User>> Users::add_token(uint32_t uid) {
  std::function<Result<void>(wire::User&)> how = [](wire::User& record) -> Result<void> {
    if (record.serials_size() >= static_cast<int>(kTokensMax)) {
      return fail(Errc::usage, "user {} has {} tokens", record.uid(), record.serials_size());
    }
    record.set_next_serial(record.next_serial() + 1);
    record.add_serials(record.next_serial());
    return {};
  };
  auto changing = change(uid, std::move(how), false);
  co_return co_await std::move(changing);
}

Task<Result<void>> Users::remove(uint32_t uid) {
  std::function<Result<void>(wire::User&)> how = [](wire::User& record) -> Result<void> {
    record.clear_name();
    record.clear_groups();
    record.clear_serials();
    return {};
  };
  auto changing = change(uid, std::move(how), false);
  FF_CO_TRY(co_await std::move(changing));
  co_return Result<void>();
}

Task<Result<std::vector<User>>> Users::list() {
  std::vector<User> users;
  kv::Function function = [&users](kv::Txn& txn) -> Task<Result<void>> {
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
  auto viewing = engine_.view(std::move(function), clock_.steady_ns() + kUsersPatienceNs);
  FF_CO_TRY(co_await std::move(viewing));
  co_return users;
}

Task<Result<Caller>> Users::caller(auth::User token) {
  auto found = cached_.find(token.uid);
  if (found == cached_.end() || clock_.steady_ns() - found->second.since_ns >= kCachedNs) {
    User user{.uid = token.uid};
    kv::Function function = [&user](kv::Txn& txn) -> Task<Result<void>> {
      auto reading = read_record<wire::User>(txn, keys::of(keys::kUser, user.uid));
      FF_CO_TRY(const auto record, co_await std::move(reading));
      user = record ? from_record(*record) : User{.uid = user.uid};
      co_return Result<void>();
    };
    auto viewing = engine_.view(std::move(function), clock_.steady_ns() + kUsersPatienceNs);
    FF_CO_TRY(co_await std::move(viewing));
    found = cached_.insert_or_assign(token.uid, Cached{std::move(user), clock_.steady_ns()}).first;
  }
  const User& user = found->second.user;
  if (std::ranges::find(user.serials, token.serial) == user.serials.end()) {
    Error error =
        fail(Errc::refused, "token {} of user {} does not hold any more", token.serial, token.uid);
    error.hint = "Ask the cluster's operator for a new one (ff admin user token).";
    co_return error;
  }
  Caller caller{.uid = user.uid, .gid = user.gid, .groups = user.groups};
  co_return caller;
}

}  // namespace ff::meta
