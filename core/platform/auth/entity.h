// Entities: the parties of a cluster. Each has a name and keys of its own, as in Ceph's cephx.
//
//   entity      ROLE "/" NAME: "storage/3", "mount/host7", "user/ann"
//   identity    "ff2 " entity " serial=" N " generation=" N, then, each only where it restricts:
//               " uids=" RANGES  " path=" PATH  " read-only"  " expires=" SECONDS
//   service     the name by which clients ask for a server: "meta", "storage/3", "agent/n12"
//   server key  HKDF-SHA256(root key, "ff2 server " service " " generation)       (RFC 5869)
//   client key  HKDF-SHA256(server key, "ff2 client " identity)
//
// An identity is one line of text, and the pre-shared-key identity of TLS (RFC 8446, 4.2.11).
// Spaces, control characters and '%' of a path are percent-encoded. Each entity has one text only.
//
// A server derives the client key of every client from the identity that the client presents, so it
// needs no table of clients, and no client can drop a restriction. Who has the root key can derive
// all keys; who has a server key can play clients of this server only.
#pragma once

#include <cstdint>
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
  std::string name = {};    // 1 to kEntityNameMax of a-z A-Z 0-9 . _ -
  uint64_t serial = 0;      // tells apart the keys that were made for one name
  uint32_t generation = 1;  // of the root key's derivation; two are valid at a time
  // The users that it may act for; empty: all. An entity of Role::user has exactly one.
  std::vector<UidRange> uids = {};
  std::string path = {};   // it reaches only what is below this directory; empty: everything
  bool read_only = false;  // it changes nothing
  int64_t expires_s = 0;   // seconds since 1970; 0: never
  bool operator==(const Entity&) const = default;

  // "storage/3".
  std::string full_name() const;
  bool may_act_for(uint32_t uid) const;
};

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
Key server_key(const Key& root, const Service& service, uint32_t generation);
Key client_key(const Key& server, const Entity& client);

}  // namespace ff::auth
