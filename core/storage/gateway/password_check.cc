// password_check.cc: derives the key that belongs to the identity in a password, and compares.
#include "storage/gateway/password_check.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "platform/base/text.h"

namespace ff::gateway {

namespace {

constexpr uint32_t kOthersRead = 05, kOthersWrite = 07;
constexpr size_t kPasswordMax = 8 * kKiB;

Error wrong_password() {
  return fail(Errc::refused, "WRONGPASS invalid username-password pair or user is disabled.");
}

// The words of a text; spaces and line ends separate them.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (;;) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == text.npos) return words;
    text.remove_prefix(begin);
    const size_t end = std::min(text.find_first_of(" \t\r\n"), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

bool is_below(std::string_view path, std::string_view directory) {
  while (directory.ends_with('/')) directory.remove_suffix(1);
  return path == directory ||
         (path.starts_with(directory) && path.substr(directory.size()).starts_with('/'));
}

}  // namespace

// The identity is what stands before "meta 64HEX"; keys for other services may follow.
Result<auth::Entity> PasswordCheck::verify(std::string_view password) const {
  if (password.size() > kPasswordMax) return wrong_password();
  const auto words = words_of(password);
  const auto service = std::ranges::find(words, keyring_->service()->text());
  if (service == words.end() || service + 1 == words.end()) return wrong_password();
  const auto shown = auth::parse_key(*(service + 1));
  const auto entity =
      auth::parse_identity(fmt::format("{}", fmt::join(words.begin(), service, " ")));
  if (!shown || !entity) return wrong_password();
  const auto key = keyring_->key_of(*entity);
  if (!key || !auth::constant_time_equal(*key, *shown)) return wrong_password();
  return *entity;
}

bool PasswordCheck::still_valid(const auth::Entity& entity) const {
  return auth::check_valid(*keyring_->revocations(), entity, clock_.wall_ns() / kSecond).ok();
}

Result<PasswordResult> PasswordCheck::authorize(auth::Entity entity) const {
  const auto denied = [&entity](std::string_view why) {
    return fail(Errc::refused, "NOPERM {} {}", entity.full_name(), why);
  };
  if (!auth::kFileClients.contains(entity.role)) return denied("is no client of the file system");
  if (!entity.path.empty() && !is_below(folder_.cluster_path, entity.path)) {
    return denied("may only use what is below its directory");
  }
  PasswordResult login{.entity = std::move(entity), .read_only = false};
  const bool owns = login.entity.may_act_for(folder_.owner) || login.entity.may_act_for(0);
  const bool reads = owns || (folder_.mode & kOthersRead) == kOthersRead;
  const bool writes = owns || (folder_.mode & kOthersWrite) == kOthersWrite;
  if (!reads) {
    return fail(Errc::refused, "NOPERM {} may not read the folder of the store",
                login.entity.full_name());
  }
  login.read_only = login.entity.read_only || !writes;
  return login;
}

Result<PasswordResult> PasswordCheck::check(std::string_view user,
                                            std::string_view password) const {
  FF_TRY(auto entity, verify(password));
  const bool named = user == "default" || user == entity.name || user == entity.full_name();
  if (!named || !still_valid(entity)) return wrong_password();
  return authorize(std::move(entity));
}

}  // namespace ff::gateway
