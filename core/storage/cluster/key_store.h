// The keys of entities that operators have made, and the ones that servers refuse (auth/entity.h):
// one record in the KV store, CONF "keys" (KeyRecords of cluster.proto). The keys themselves are
// not stored: a manager derives them from the root key.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "platform/base/clock.h"
#include "platform/base/task.h"
#include "platform/kv/engine.h"
#include "storage/cluster/key_records.h"

namespace ff::cluster {

// Largest record, in bytes: some thousand keys.
constexpr size_t kKeyRecordsMax = 512 * kKiB;

class KeyStore {
 public:
  // Both outlive it.
  KeyStore(kv::Engine& engine, Clock& clock) : engine_(engine), clock_(clock) {}

  Task<Result<KeyRecords>> read();
  // Gives the entity its serial number and the current generation. Errc::usage: not a valid entity;
  // Errc::refused: there are too many keys.
  Task<Result<IssuedKey>> create(IssuedKey wanted);
  // Revokes all keys of the entity that exist. Later ones are valid.
  Task<Result<KeyRecords>> revoke(std::string entity);
  // Begins the next generation: servers go on accepting keys of the one that was current.
  Task<Result<KeyRecords>> rotate();

 private:
  Task<Result<KeyRecords>> change(std::function<Result<void>(KeyRecords&)> how);

  kv::Engine& engine_;
  Clock& clock_;
};

// Revokes the keys of the entity as a part of another transaction. `now_us`: since 1970.
Task<Result<void>> revoke_keys(kv::Txn& txn, std::string entity, int64_t now_us);

}  // namespace ff::cluster
