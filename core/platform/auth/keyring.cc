// keyring.cc: which key belongs to which service, and the files of keys.
#include "platform/auth/keyring.h"

#include <fmt/format.h>

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

// "server storage/3 1 64HEX"
bool read_server_line(const std::vector<std::string_view>& words, Keyring& keyring) {
  if (words.size() != 4) return false;
  const auto service = parse_service(words[1]);
  const auto generation = parse_u64(words[2]);
  const auto key = parse_key(words[3]);
  if (!service || !generation || *generation == 0 || *generation > UINT32_MAX || !key) return false;
  if (service != service_of(keyring.self())) return false;
  keyring.add_server_key(*service, static_cast<uint32_t>(*generation), *key);
  return true;
}

}  // namespace

Keyring::Keyring(const Key& root, Entity self)
    : self_(std::move(self)), root_(root), service_(Service{self_.role, {}}) {}

Keyring::Keyring(Entity self) : self_(std::move(self)) {}

std::optional<Credential> Keyring::credential(const Service& service) const {
  if (root_) return make_credential(*root_, service, self_);
  const std::lock_guard lock(mutex_);
  const auto found = credentials_.find(service);
  if (found == credentials_.end()) return std::nullopt;
  return found->second;
}

void Keyring::add(const Service& service, Credential credential) {
  const std::lock_guard lock(mutex_);
  credentials_[service] = std::move(credential);
}

std::optional<Service> Keyring::service() const {
  const std::lock_guard lock(mutex_);
  return service_;
}

void Keyring::add_server_key(const Service& service, uint32_t generation, const Key& key) {
  const std::lock_guard lock(mutex_);
  service_ = service;
  server_keys_[generation] = key;
}

Result<Key> Keyring::key_of(const Entity& client) const {
  const std::lock_guard lock(mutex_);
  if (!service_) return fail(Errc::refused, "{} serves nobody", self_.full_name());
  if (root_) return client_key(server_key(*root_, *service_, client.generation), client);
  const auto found = server_keys_.find(client.generation);
  if (found == server_keys_.end()) {
    return fail(Errc::refused, "{} has a key of generation {}, which {} does not accept",
                client.full_name(), client.generation, service_->text());
  }
  return client_key(found->second, client);
}

Credential make_credential(const Key& root, const Service& service, const Entity& client) {
  return {format_identity(client),
          client_key(server_key(root, service, client.generation), client)};
}

std::vector<Service> services_of(Role role) {
  switch (role) {
    case Role::storage: return {{Role::meta, {}}};
    case Role::mount: return {{Role::meta, {}}, {Role::storage, {}}};
    case Role::agent: return {{Role::scheduler, {}}};
    case Role::rank: return {{Role::rank, {}}};
    case Role::admin:
    case Role::meta:
    case Role::scheduler: return {{Role::meta, {}}, {Role::scheduler, {}}};
    case Role::user:
      return {{Role::meta, {}}, {Role::storage, {}}, {Role::scheduler, {}}, {Role::agent, {}}};
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

std::shared_ptr<Keyring> make_keyring(const Key& root, Entity self) {
  return std::allocate_shared<Keyring>(LockedAllocator(&locked_memory()), root, std::move(self));
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
  if (const auto service = service_of(entity)) {
    text += fmt::format("{} {} {} ", kServer, service->text(), entity.generation);
    append_hex(text, server_key(root, *service, entity.generation));
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
  FF_TRY(const SecretText text, read_secret_file(disk, path, "key", kFileMax));
  if (const auto root = parse_key(text)) return make_keyring(*root, std::move(self));
  auto keyring = parse_key_text(text);
  if (keyring) return keyring;
  Error error = std::move(keyring).error().with_context(path + ": ");
  error.hint = "Make one: ff admin key create.";
  return error;
}

}  // namespace ff::auth
