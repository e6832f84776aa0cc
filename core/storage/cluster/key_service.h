// The keys of entities, in every manager: the commands of operators, and this process's copy of the
// revocations, which follows the KV store. Managers pass the revocations on to storage nodes in the
// replies to heartbeats (manager_service.h).
#pragma once

#include <cstdint>

#include "platform/auth/keyring.h"
#include "platform/base/gate.h"
#include "platform/kv/engine.h"
#include "storage/cluster/key_store.h"
#include "storage/cluster/service.h"

namespace ff::cluster {

class KeyService {
 public:
  // `keyring`: of this process, with the root key; null: the cluster has no keys, and the service
  // refuses its commands. All outlive it. Owned by `loop`.
  KeyService(kv::Engine& engine, Loop& loop, rpc::Router& router, auth::Keyring* keyring);

  // Reads the revocations, then again and again.
  void start();
  Task<void> close();

 private:
  Task<void> run();
  Result<void> has_keys() const;
  void apply(const KeyRecords& records);

  Task<Result<wire::CreateKeyReply>> create(rpc::ServerCall& call, wire::CreateKeyRequest request);
  Task<Result<wire::KeysReply>> revoke(rpc::ServerCall& call, wire::RevokeKeyRequest request);
  Task<Result<wire::KeysReply>> rotate(rpc::ServerCall& call, wire::RotateKeysRequest request);
  Task<Result<wire::KeysReply>> list(rpc::ServerCall& call, wire::ListKeysRequest request);

  KeyStore store_;
  Loop& loop_;
  auth::Keyring* const keyring_;
  Gate gate_;
};

// What a storage node must know to check its clients. `keyring` has the root key.
wire::ServerKeys server_keys(const auth::Keyring& keyring);
// Errc::corrupt: not such a message.
Result<void> apply_server_keys(const wire::ServerKeys& keys, auth::Keyring& keyring);

}  // namespace ff::cluster
