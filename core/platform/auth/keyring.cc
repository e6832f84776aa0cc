// keyring.cc: which key belongs to which service, and the files of keys.
#include "platform/auth/keyring.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/base/text.h"

namespace ff::auth {

namespace {

using LockedAllocator = std::pmr::polymorphic_allocator<Keyring>;

constexpr size_t kFileMax = 8 * kKiB;
constexpr std::string_view kServer = "server";

Error not_keys() { return fail(Errc::corrupt, "neither a root key nor the keys of an entity"); }

// "meta 64HEX"
bool read_client_line(const std::vector<std::string_view>& words, Keyring& keyring) {
  if (words.size() != 2) return false;
  const auto service = parse_service(words[0]);
  const auto key = parse_key(words[1]);
  if (!service || !key) return false;
  keyring.add(*service, {format_identity(keyring.self()), *key});
  return true;
}

// "server 64HEX"
bool read_server_line(const std::vector<std::string_view>& words, Keyring& keyring) {
  if (words.size() != 2 || !service_of(keyring.self())) return false;
  const auto key = parse_key(words[1]);
  if (key) keyring.set_server_key(*key);
  return key.has_value();
}

bool keeps_root(Role role) {
  return role == Role::meta || role == Role::scheduler || role == Role::rank;
}

}  // namespace

Keyring::Keyring(Entity self)
    : self_(std::move(self)), revocations_(std::make_shared<const Revocations>()) {}

std::shared_ptr<Keyring> Keyring::from_root(const Key& root, Entity self) {
  if (!keeps_root(self.role)) return parse_key_text(make_key_text(root, self)).value();
  auto keyring = std::allocate_shared<Keyring>(LockedAllocator(&locked_memory()), std::move(self));
  keyring->root_ = root;
  keyring->server_key_ = server_key(root, *service_of(keyring->self_));
  return keyring;
}

std::string Keyring::text() const {
  return file_.empty() ? self_.full_name() : fmt::format("{} ({})", self_.full_name(), file_);
}

std::optional<Credential> Keyring::credential(const Service& service) const {
  const std::lock_guard lock(mutex_);
  const auto found = credentials_.find(service);
  if (found != credentials_.end()) return found->second;
  if (root_ && service.name.empty()) return make_credential(*root_, service, self_);
  return std::nullopt;
}

int64_t Keyring::credential_end_s(const Service& service) const {
  const std::lock_guard lock(mutex_);
  const auto ticket = tickets_.find(service);
  return ticket == tickets_.end() ? self_.expires_s : ticket->second.expires_s;
}

void Keyring::add(const Service& service, Credential credential) {
  const std::lock_guard lock(mutex_);
  credentials_[service] = std::move(credential);
}

bool Keyring::needs_ticket(const Entity& node, int64_t now_s) {
  const Service service{node.role, node.name};
  const std::string identity = format_identity(node);
  {
    const std::lock_guard lock(mutex_);
    const auto found = tickets_.find(service);
    const bool valid = found != tickets_.end() && found->second.node == identity &&
                       now_s < found->second.expires_s - kTicketSeconds / 2;
    if (valid || !root_) return !valid;
  }
  const int64_t expires_s = now_s + kTicketSeconds;
  add_ticket(node, make_ticket(*root_, node, self_, expires_s), expires_s);
  return false;
}

void Keyring::add_ticket(const Entity& node, Credential ticket, int64_t expires_s) {
  const Service service{node.role, node.name};
  const std::lock_guard lock(mutex_);
  credentials_[service] = std::move(ticket);
  tickets_[service] = {format_identity(node), expires_s};
}

std::optional<Service> Keyring::service() const { return service_of(self_); }

void Keyring::set_server_key(const Key& key) {
  const std::lock_guard lock(mutex_);
  server_key_ = key;
}

Result<Key> Keyring::key_of(const Entity& client) const {
  const std::lock_guard lock(mutex_);
  if (!server_key_) return fail(Errc::refused, "{} serves nobody", self_.full_name());
  return client_key(*server_key_, client);
}

std::optional<Key> Keyring::capability_key(uint32_t generation) const {
  if (root_) return hkdf_sha256(*root_, fmt::format("ff2 capabilities {}", generation));
  const std::lock_guard lock(mutex_);
  const auto found = capability_keys_.find(generation);
  if (found == capability_keys_.end()) return std::nullopt;
  return found->second;
}

void Keyring::set_capability_keys(std::map<uint32_t, Key> keys) {
  const std::lock_guard lock(mutex_);
  capability_keys_.clear();
  capability_keys_.insert(keys.begin(), keys.end());
}

std::shared_ptr<const Revocations> Keyring::revocations() const {
  const std::lock_guard lock(mutex_);
  return revocations_;
}

void Keyring::set_revocations(Revocations revocations) {
  const std::lock_guard lock(mutex_);
  revocations_ = std::make_shared<const Revocations>(std::move(revocations));
  revocations_version_ = revocations_->version;
}

Credential make_credential(const Key& root, const Service& service, const Entity& client) {
  return {format_identity(client), client_key(server_key(root, service), client)};
}

Credential make_ticket(const Key& root, const Entity& node, Entity client, int64_t expires_s) {
  client.expires_s =
      client.expires_s == 0 ? expires_s : std::min<int64_t>(client.expires_s, expires_s);
  return {format_identity(client), client_key(server_key(root, node), client)};
}

std::vector<Service> services_of(Role role) {
  switch (role) {
    case Role::storage:
    case Role::mount: return {{Role::meta, {}}};
    case Role::agent: return {{Role::scheduler, {}}};
    case Role::rank: return {{Role::rank, {}}};
    case Role::admin:
    case Role::meta:
    case Role::scheduler:
    case Role::user: return {{Role::meta, {}}, {Role::scheduler, {}}};
  }
  return {};
}

std::optional<Service> service_of(const Entity& entity) {
  switch (entity.role) {
    case Role::meta:
    case Role::scheduler:
    case Role::rank: return Service{entity.role, {}};
    case Role::storage:
    case Role::agent: return Service{entity.role, entity.name};
    case Role::admin:
    case Role::mount:
    case Role::user: break;
  }
  return std::nullopt;
}

SecretText make_key_text(const Key& root, const Entity& entity) {
  SecretText text;
  text.reserve(kFileMax);
  text += format_identity(entity) + '\n';
  for (const Service& service : services_of(entity.role)) {
    text += service.text() + ' ';
    append_hex(text, make_credential(root, service, entity).key);
    text += '\n';
  }
  if (service_of(entity) && !keeps_root(entity.role)) {
    text += kServer;
    text += ' ';
    append_hex(text, server_key(root, entity));
    text += '\n';
  }
  return text;
}

Result<std::shared_ptr<Keyring>> parse_key_text(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  const auto lines = split(text, '\n');
  auto self = parse_identity(lines[0]);
  if (!self) return not_keys();
  auto keyring = std::allocate_shared<Keyring>(LockedAllocator(&locked_memory()), std::move(*self));
  for (const std::string_view line : std::span(lines).subspan(1)) {
    const auto words = split(line, ' ');
    const bool valid =
        words[0] == kServer ? read_server_line(words, *keyring) : read_client_line(words, *keyring);
    if (!valid) return not_keys();
  }
  return keyring;
}

Result<std::shared_ptr<Keyring>> read_keyring(io::Disk& disk, const std::string& path,
                                              Entity self) {
  uint32_t owner = 0;
  FF_TRY(const SecretText text, read_secret_file(disk, path, "key", kFileMax, &owner));
  const auto root = parse_key(text);
  auto keyring = root ? Keyring::from_root(*root, std::move(self)) : parse_key_text(text);
  if (!keyring) {
    Error error = std::move(keyring).error().with_context(path + ": ");
    error.hint = "Make one: ff admin key create.";
    return error;
  }
  // A user's token may belong to the user, also where root mounts with it: it is good for nobody
  // else.
  if ((*keyring)->self().role != Role::user) FF_TRY(check_secret_owner(owner, path, "key"));
  (*keyring)->set_file(path);
  return keyring;
}

}  // namespace ff::auth
