// The keys that a process holds, as an entity (entity.h). A file holds either the root key or the
// keys of an entity:
//
//   64HEX                                  only managers need it: its holder may act as any entity
//
//   ff2 storage/3 serial=17 generation=1   the identity
//   meta 64HEX                             a client key, after its service
//   server 64HEX                           the server key of a storage node or an agent
//
// Both end with a newline; messages never show a key. A client receives further client keys while
// it runs: a manager makes those for storage nodes, and a scheduler those for agents, when they
// tell the client where the nodes are (tickets).
#pragma once

#include <atomic>
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
#include "platform/auth/revocations.h"
#include "platform/auth/secret_memory.h"
#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::auth {

// What a client shows a server: an identity, and the key that belongs to it there.
struct Credential {
  std::string identity;
  Key key;
};

// How long a ticket is valid; clients renew it in the second half of this time.
constexpr int64_t kTicketSeconds = 3600;

// Thread-safe. Keys lie in locked memory (secret_memory.h): make key rings there, too.
class Keyring {
 public:
  // The keys of an entity: further ones are added below.
  explicit Keyring(Entity self);
  // Managers, schedulers and ranks keep the root key. Every other entity derives its own keys from
  // it and forgets it.
  static std::shared_ptr<Keyring> from_root(const Key& root, Entity self);

  const Entity& self() const { return self_; }
  const std::optional<Key>& root() const { return root_; }
  // The file of the keys, for messages; empty: none.
  const std::string& file() const { return file_; }
  void set_file(std::string path) { file_ = std::move(path); }
  // "mount/host7 (/etc/ff/mount.key)".
  std::string text() const;

  // The client's side: empty if there is no key for the service.
  std::optional<Credential> credential(const Service& service) const;
  // When that credential ends, in seconds since 1970; 0: never, or there is none.
  int64_t credential_end_s(const Service& service) const;
  // Replaces the credential for the service.
  void add(const Service& service, Credential credential);
  // Whether the client needs a (new) ticket for this storage node or agent. A holder of the root
  // key makes its own here, and needs none.
  bool needs_ticket(const Entity& node, int64_t now_s);
  void add_ticket(const Entity& node, Credential ticket, int64_t expires_s);

  // The server's side. The service under which this process serves; empty: it serves nobody.
  std::optional<Service> service() const;
  void set_server_key(const Key& key);
  // The key of a client with this identity. Errc::refused: this process serves nobody.
  Result<Key> key_of(const Entity& client) const;

  // The key that signs capabilities of this generation (storage/chain/capability.h). Holders of the
  // root key derive it; storage nodes get it from a manager.
  std::optional<Key> capability_key(uint32_t generation) const;
  void set_capability_keys(std::map<uint32_t, Key> keys);

  // The keys that this server refuses. The version is that of the list.
  std::shared_ptr<const Revocations> revocations() const;
  uint64_t revocations_version() const { return revocations_version_.load(); }
  void set_revocations(Revocations revocations);

 private:
  struct Ticket {
    std::string node;  // the identity of the server
    int64_t expires_s = 0;
  };

  const Entity self_;
  std::optional<Key> root_;
  std::string file_;
  std::atomic<uint64_t> revocations_version_ = 0;
  mutable std::mutex mutex_;  // guards the rest
  std::pmr::map<Service, Credential> credentials_{&locked_memory()};
  std::map<Service, Ticket> tickets_;
  std::optional<Key> server_key_;
  std::pmr::map<uint32_t, Key> capability_keys_{&locked_memory()};  // by generation
  std::shared_ptr<const Revocations> revocations_;
};

// A new client key of `client` for the service of holders of the root key.
Credential make_credential(const Key& root, const Service& service, const Entity& client);
// A new client key of `client` for a storage node or an agent. It expires with the client's own
// key, and at the latest at `expires_s`.
Credential make_ticket(const Key& root, const Entity& node, Entity client, int64_t expires_s);

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
