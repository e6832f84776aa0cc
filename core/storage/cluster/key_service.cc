// key_service.cc: the commands of operators on keys, and the copy of the revocations.
#include "storage/cluster/key_service.h"

#include <utility>

#include "platform/base/audit.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/base/wait.h"
#include "platform/rpc/error_wire.h"
#include "storage/cluster/wire.h"

namespace ff::cluster {

namespace {

// With the interval of heartbeats, every server refuses a revoked key within 10 s.
constexpr int64_t kReadIntervalNs = 2 * kSecond;

Result<auth::Entity> wanted_entity(const wire::CreateKeyRequest& request, int64_t now_s) {
  const std::string& name = request.entity();
  auto named = auth::parse_full_name(name);
  if (!named) {
    Error error = fail(Errc::usage, "'{}' is not the name of an entity", printable(name));
    error.hint = "Give ROLE/NAME, such as storage/n4, mount/host7, agent/n12 or admin/ann.";
    return error;
  }
  auth::Entity& entity = *named;
  const auth::Role role = entity.role;
  if (role == auth::Role::user) {
    Error error = fail(Errc::usage, "users get tokens");
    error.hint = "Make one: ff admin user add, or ff admin user token.";
    return error;
  }
  if (role == auth::Role::meta || role == auth::Role::scheduler || role == auth::Role::rank) {
    Error error = fail(Errc::usage, "a {} needs the root key itself", auth::role_name(role));
    error.hint = "Copy the file of the root key to its machine.";
    return error;
  }
  if (!request.uids().empty()) {
    auto uids = auth::parse_uids(request.uids());
    if (!uids) return fail(Errc::usage, "'{}' are not user ids", printable(request.uids()));
    entity.uids = std::move(*uids);
  }
  entity.path = request.path();
  entity.read_only = request.read_only();
  if (entity.restricted() && role != auth::Role::mount) {
    return fail(Errc::usage, "only keys of mounts can be restricted, not those of the role {}",
                auth::role_name(role));
  }
  if (request.lifetime_s() < 0) return fail(Errc::usage, "a lifetime cannot be negative");
  if (request.lifetime_s() > 0) entity.expires_s = now_s + request.lifetime_s();
  FF_TRY(auth::check_entity(entity));
  return std::move(entity);
}

}  // namespace

KeyService::KeyService(kv::Engine& engine, Loop& loop, rpc::Router& router, auth::Keyring* keyring)
    : store_(engine, loop.clock()), loop_(loop), keyring_(keyring), gate_(loop) {
  rpc::add_method(router, kCreateKey, *this, &KeyService::create);
  rpc::add_method(router, kRevokeKey, *this, &KeyService::revoke);
  rpc::add_method(router, kRotateKeys, *this, &KeyService::rotate);
  rpc::add_method(router, kListKeys, *this, &KeyService::list);
}

void KeyService::start() {
  if (keyring_ != nullptr) gate_.spawn(run());
}

Task<void> KeyService::close() {
  Error reason = fail(Errc::interrupted, "the manager is shutting down");
  co_await gate_.close(std::move(reason));
}

Task<void> KeyService::run() {
  bool failed = false;
  for (;;) {
    const auto records = co_await store_.read();
    if (records) {
      apply(*records);
    } else if (!failed) {
      log_warning("cannot read the revoked keys", {{"cause", records.error().message}});
    }
    failed = !records;
    if (!co_await sleep_for(loop_, kReadIntervalNs)) co_return;
  }
}

void KeyService::apply(const KeyRecords& records) {
  if (records.revocations != *keyring_->revocations()) {
    keyring_->set_revocations(records.revocations);
  }
}

Result<void> KeyService::has_keys() const {
  if (keyring_ != nullptr) return {};
  Error error = fail(Errc::refused, "this cluster has no keys");
  error.hint = "Start its daemons with --key.";
  return error;
}

Task<Result<wire::CreateKeyReply>> KeyService::create(rpc::ServerCall& call,
                                                      wire::CreateKeyRequest request) {
  FF_CO_TRY(has_keys());
  FF_CO_TRY(auth::Entity entity, wanted_entity(request, loop_.clock().wall_ns() / kSecond));
  const auto& peer = call.peer().entity;
  IssuedKey wanted{.entity = std::move(entity), .by = peer ? peer->full_name() : std::string()};
  FF_CO_TRY(const IssuedKey made, co_await store_.create(std::move(wanted)));
  log_info("made a key", {{"key", auth::format_identity(made.entity)}, {"by", made.by}});
  audit("key created", made.by, {{"key", auth::format_identity(made.entity)}});
  wire::CreateKeyReply reply;
  reply.set_text(auth::make_key_text(*keyring_->root(), made.entity));
  *reply.mutable_issued() = to_wire(made);
  co_return reply;
}

Task<Result<wire::KeysReply>> KeyService::revoke(rpc::ServerCall& call,
                                                 wire::RevokeKeyRequest request) {
  FF_CO_TRY(has_keys());
  FF_CO_TRY(const KeyRecords records, co_await store_.revoke(request.entity()));
  apply(records);
  const auto& peer = call.peer().entity;
  audit("keys revoked", peer ? peer->full_name() : call.peer().address,
        {{"key", request.entity()}});
  log_info("revoked keys", {{"entity", printable(request.entity())}, {"by", call.peer().text()}});
  wire::KeysReply reply;
  *reply.mutable_records() = to_wire(records);
  co_return reply;
}

Task<Result<wire::KeysReply>> KeyService::rotate(rpc::ServerCall& call, wire::RotateKeysRequest) {
  FF_CO_TRY(has_keys());
  FF_CO_TRY(const KeyRecords records, co_await store_.rotate());
  apply(records);
  const auto& peer = call.peer().entity;
  audit("keys rotated", peer ? peer->full_name() : call.peer().address,
        {{"generation", records.revocations.generation}});
  log_info("began a generation of keys",
           {{"generation", records.revocations.generation}, {"by", call.peer().text()}});
  wire::KeysReply reply;
  *reply.mutable_records() = to_wire(records);
  co_return reply;
}

Task<Result<wire::KeysReply>> KeyService::list(rpc::ServerCall&, wire::ListKeysRequest) {
  FF_CO_TRY(has_keys());
  FF_CO_TRY(const KeyRecords records, co_await store_.read());
  wire::KeysReply reply;
  *reply.mutable_records() = to_wire(records);
  co_return reply;
}

wire::ServerKeys server_keys(const auth::Keyring& keyring) {
  wire::ServerKeys out;
  const auto revocations = keyring.revocations();
  rpc::to_wire(*revocations, *out.mutable_revocations());
  const uint32_t now = revocations->generation;
  for (uint32_t generation = now > 1 ? now - 1 : 1; generation <= now; generation++) {
    const auto key = keyring.capability_key(generation);
    if (!key) continue;
    wire::CapabilityKey& one = *out.add_capability_keys();
    one.set_generation(generation);
    one.set_key(std::string(as_text(*key)));
  }
  return out;
}

Result<void> apply_server_keys(const wire::ServerKeys& keys, auth::Keyring& keyring) {
  std::map<uint32_t, auth::Key> capability_keys;
  for (const wire::CapabilityKey& one : keys.capability_keys()) {
    auto key = auth::key_of_bytes(one.key());
    if (!key) return fail(Errc::corrupt, "a key of another size");
    capability_keys[one.generation()] = std::move(*key);
  }
  keyring.set_capability_keys(std::move(capability_keys));
  keyring.set_revocations(rpc::from_wire(keys.revocations()));
  return {};
}

}  // namespace ff::cluster
