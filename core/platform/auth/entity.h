// Entities: the parties of a cluster. Each has a name and keys of its own, as in Ceph's cephx.
//
//   entity      ROLE "/" NAME: "storage/3", "mount/host7", "user/ann"
//   identity    "ff2 " entity " serial=" N " generation=" N, then, each only where it restricts:
//               " uids=" RANGES  " path=" PATH  " read-only"  " expires=" SECONDS
//   service     the name by which clients ask for a server: "meta", "storage/3", "agent/n12"
//   server key  HKDF-SHA256(root key, "ff2 server " server)                        (RFC 5869)
//               server: the service of those who hold the root key ("meta", "scheduler", "rank"),
//               the identity of a storage node or an agent
//   client key  HKDF-SHA256(server key, "ff2 client " identity)
//   capabilities  HKDF-SHA256(root key, "ff2 capabilities " generation)
//
// An identity is one line of text, and the pre-shared-key identity of TLS (RFC 8446, 4.2.11).
// Spaces, control characters and '%' of a path are percent-encoded. Each entity has one text only.
//
// A server derives the client key of every client from the identity that the client presents, so it
// needs no table of clients, and no client can drop a restriction. Who has the root key can derive
// all keys; who has a server key can play clients of this server only. revocations.h says which
// keys servers refuse.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/auth/key.h"
#include "platform/base/result.h"

namespace ff::auth {

enum class Role : uint8_t {
  admin,      // operators: every method
  meta,       // cluster managers and metadata services; they hold the root key
  storage,    // a storage node
  mount,      // a client that acts for any user of its machine
  scheduler,  // the scheduler's server
  agent,      // the scheduler's agent of one node
  user,       // one user
  rank,       // a rank of an allreduce job, whose root key is the job's
};
std::string_view role_name(Role role);
std::optional<Role> parse_role(std::string_view name);

// A set of roles.
class Roles {
 public:
  constexpr Roles(std::initializer_list<Role> roles) {
    for (const Role role : roles) bits_ |= bit(role);
  }
  constexpr bool contains(Role role) const { return (bits_ & bit(role)) != 0; }
  constexpr bool operator==(const Roles&) const = default;

 private:
  static constexpr uint32_t bit(Role role) { return 1U << static_cast<uint32_t>(role); }
  uint32_t bits_ = 0;
};

// May call every method of every server. Managers and schedulers are among them because they hold
// the root key.
constexpr Roles kOperators = {Role::admin, Role::meta, Role::scheduler};
// Read and write files.
constexpr Roles kFileClients = {Role::admin, Role::meta, Role::mount, Role::user};

// Inclusive.
struct UidRange {
  uint32_t first = 0;
  uint32_t last = 0;
  bool operator==(const UidRange&) const = default;
};

// Longest identity, in bytes. TLS carries it in the first message of a connection.
constexpr size_t kIdentityMax = 1024;
constexpr size_t kEntityNameMax = 128;

struct Entity {
  Role role = Role::user;
  std::string name = {};  // 1 to kEntityNameMax of a-z A-Z 0-9 . _ -
  // Microseconds since 1970 when the key was made; a later key of the same name has a larger one.
  // 0: its holder derived it from the root key.
  uint64_t serial = 0;
  // `ff admin key rotate` begins the next one; two are valid at a time. 0: as with the serial.
  uint32_t generation = 0;
  // The users that it may act for; empty: all. An entity of Role::user has exactly one.
  std::vector<UidRange> uids = {};
  std::string path = {};   // it reaches only what is below this directory; empty: everything
  bool read_only = false;  // it changes nothing
  int64_t expires_s = 0;   // seconds since 1970; 0: never
  bool operator==(const Entity&) const = default;

  // "storage/3".
  std::string full_name() const;
  bool may_act_for(uint32_t uid) const;
  // It may not act for all users, on all files.
  bool restricted() const { return !uids.empty() || !path.empty() || read_only; }
};

// Of "storage/3"; the name is not checked (check_entity()). Empty: no such role, or no name.
std::optional<Entity> parse_full_name(std::string_view text);

// The user of a user's key, and the key's serial number: users lose keys one by one.
struct TokenId {
  uint32_t uid = 0;
  uint64_t serial = 0;
  bool operator==(const TokenId&) const = default;
};

// Errc::usage: the message names the part that is not valid.
Result<void> check_entity(const Entity& entity);
std::string format_identity(const Entity& entity);
// Accepts exactly what format_identity() prints for valid entities. Errc::corrupt otherwise.
Result<Entity> parse_identity(std::string_view identity);

// "1000,2000-2999"; empty for an invalid text.
std::string format_uids(const std::vector<UidRange>& uids);
std::optional<std::vector<UidRange>> parse_uids(std::string_view text);

// The name of a server that its clients ask for.
struct Service {
  Role role = Role::meta;
  std::string name = {};  // storage nodes and agents with keys of their own: the node's
  bool operator==(const Service&) const = default;
  auto operator<=>(const Service&) const = default;
  std::string text() const;
};
std::optional<Service> parse_service(std::string_view text);

// HKDF-SHA256 without salt, 32 bytes (RFC 5869).
Key hkdf_sha256(const Key& key, std::string_view info);
Key server_key(const Key& root, const Service& service);
Key server_key(const Key& root, const Entity& node);
Key client_key(const Key& server, const Entity& client);

}  // namespace ff::auth
