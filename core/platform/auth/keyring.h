// The keys that a process holds, as an entity (entity.h). A file holds either the root key or the
// keys of an entity:
//
//   64HEX                                  only managers need it: its holder may act as any entity
//
//   ff2 mount/host7 serial=17 generation=1 the identity
//   meta 64HEX                             a client key, after its service
//   server storage/3 1 64HEX               a server key, after its service and its generation
//
// Both end with a newline; messages never show a key. A client receives further client keys while
// it runs: a manager makes those for storage nodes, and a scheduler those for agents, when they
// tell the client where the nodes are (tickets).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/auth/entity.h"
#include "platform/auth/key.h"
#include "platform/auth/secret_memory.h"
#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::auth {

// What a client shows a server: an identity, and the key that belongs to it there.
struct Credential {
  std::string identity;
  Key key;
};

// Thread-safe. Keys lie in locked memory (secret_memory.h): make key rings there, too.
class Keyring {
 public:
  // The root key, used in the name of this entity.
  Keyring(const Key& root, Entity self);
  // The keys of an entity: further ones are added below.
  explicit Keyring(Entity self);

  const Entity& self() const { return self_; }
  const std::optional<Key>& root() const { return root_; }

  // The client's side: empty if there is no key for the service.
  std::optional<Credential> credential(const Service& service) const;
  // Replaces the credential for the service.
  void add(const Service& service, Credential credential);

  // The server's side. The service under which this process serves; empty: it has no server key.
  std::optional<Service> service() const;
  void add_server_key(const Service& service, uint32_t generation, const Key& key);
  // The key of a client with this identity. Errc::refused: no server key of its generation here.
  Result<Key> key_of(const Entity& client) const;

 private:
  const Entity self_;
  const std::optional<Key> root_;
  mutable std::mutex mutex_;  // guards the rest
  std::pmr::map<Service, Credential> credentials_{&locked_memory()};
  std::optional<Service> service_;
  std::pmr::map<uint32_t, Key> server_keys_{&locked_memory()};  // by generation
};

// A new client key of `client` for the service; with the root key only.
Credential make_credential(const Key& root, const Service& service, const Entity& client);

std::shared_ptr<Keyring> make_keyring(const Key& root, Entity self);

// The text of the file of an entity's keys.
SecretText make_key_text(const Key& root, const Entity& entity);
// The services that an entity of the role proves itself to with the keys of its file.
std::vector<Service> services_of(Role role);
// The service under which an entity serves; empty for clients.
std::optional<Service> service_of(const Entity& entity);

// Errc::corrupt: not such a text; the message shows no part of it.
Result<std::shared_ptr<Keyring>> parse_key_text(std::string_view text);
// Reads a file of either kind; `self` is the entity that a holder of the root key acts as.
// Errc::refused if others can read the file; all messages name it.
Result<std::shared_ptr<Keyring>> read_keyring(io::Disk& disk, const std::string& path, Entity self);

}  // namespace ff::auth
