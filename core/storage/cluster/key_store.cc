// key_store.cc: reads, changes and writes the record of the keys.
#include "storage/cluster/key_store.h"

#include <algorithm>
#include <utility>

#include "platform/auth/keyring.h"
#include "storage/cluster/cluster.pb.h"
#include "storage/cluster/wire.h"

namespace ff::cluster {

namespace {

constexpr char kKeysKey[] = "CONFkeys";
constexpr int64_t kTimeoutNs = 10 * kSecond;

Task<Result<KeyRecords>> get_records(kv::Txn& txn) {
  FF_CO_TRY(const auto value, co_await txn.get(kKeysKey));
  // Version 0 is that of a process that knows no records yet.
  if (!value) co_return KeyRecords{.revocations = {.version = 1}};
  wire::KeyRecords message;
  if (!message.ParseFromString(*value)) {
    co_return fail(Errc::corrupt, "the cluster database has a malformed record of keys");
  }
  co_return from_wire(message);
}

Result<void> put_records(kv::Txn& txn, KeyRecords& records) {
  records.revocations.version++;
  std::string bytes = to_wire(records).SerializeAsString();
  if (bytes.size() > kKeyRecordsMax) {
    Error error = fail(Errc::refused, "this cluster has too many keys: {}", records.issued.size());
    error.hint = "Revoke those that nobody uses: ff admin key list, ff admin key revoke.";
    return error;
  }
  txn.put(kKeysKey, std::move(bytes));
  return {};
}

// Users prove themselves to storage nodes with tickets, and metadata servers know the valid tokens:
// a revoked token is remembered as long as its tickets are valid.
constexpr uint64_t kUserMicroseconds = uint64_t{2} * auth::kTicketSeconds * 1'000'000;

void revoke_in(KeyRecords& records, const std::string& entity, int64_t now_us) {
  const auto now = static_cast<uint64_t>(now_us);
  std::erase_if(records.revocations.serials, [now](const auto& one) {
    return one.first.starts_with("user/") && one.second + kUserMicroseconds < now;
  });
  uint64_t& serial = records.revocations.serials[entity];
  serial = std::max(serial, static_cast<uint64_t>(now_us));
  for (const IssuedKey& key : records.issued) {
    if (key.entity.full_name() == entity) serial = std::max(serial, key.entity.serial);
  }
  std::erase_if(records.issued,
                [&](const IssuedKey& key) { return key.entity.full_name() == entity; });
}

}  // namespace

Task<Result<void>> revoke_keys(kv::Txn& txn, std::string entity, int64_t now_us) {
  FF_CO_TRY(KeyRecords records, co_await get_records(txn));
  revoke_in(records, entity, now_us);
  co_return put_records(txn, records);
}

Task<Result<KeyRecords>> KeyStore::read() {
  KeyRecords records;
  kv::TxnFunction function = [&records](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(records, co_await get_records(txn));
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.view_inline(std::move(function), clock_.steady_ns() + kTimeoutNs));
  co_return records;
}

Task<Result<KeyRecords>> KeyStore::change(std::function<Result<void>(KeyRecords&)> how) {
  KeyRecords records;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(records, co_await get_records(txn));
    FF_CO_TRY(how(records));
    co_return put_records(txn, records);
  };
  FF_CO_TRY(co_await engine_.run(std::move(function), clock_.steady_ns() + kTimeoutNs));
  co_return records;
}

// If the answer of a commit is lost, the transaction runs again and makes a second key; nobody has
// the first one.
Task<Result<IssuedKey>> KeyStore::create(IssuedKey wanted) {
  IssuedKey made;
  std::function<Result<void>(KeyRecords&)> how = [&](KeyRecords& records) -> Result<void> {
    made = wanted;
    auto serial = static_cast<uint64_t>(clock_.wall_ns() / kMicrosecond);
    const std::string name = wanted.entity.full_name();
    const auto revoked = records.revocations.serials.find(name);
    if (revoked != records.revocations.serials.end()) {
      serial = std::max(serial, revoked->second + 1);
    }
    for (const IssuedKey& key : records.issued) {
      if (key.entity.full_name() == name) serial = std::max(serial, key.entity.serial + 1);
    }
    made.entity.serial = serial;
    made.entity.generation = records.revocations.generation;
    FF_TRY(auth::check_entity(made.entity));
    records.issued.push_back(made);
    return {};
  };
  FF_CO_TRY(co_await change(std::move(how)));
  co_return made;
}

Task<Result<KeyRecords>> KeyStore::revoke(std::string entity) {
  std::function<Result<void>(KeyRecords&)> how = [&](KeyRecords& records) -> Result<void> {
    revoke_in(records, entity, clock_.wall_ns() / kMicrosecond);
    return {};
  };
  co_return co_await change(std::move(how));
}

// What was revoked before the last rotation has no valid generation from now on.
Task<Result<KeyRecords>> KeyStore::rotate() {
  std::function<Result<void>(KeyRecords&)> how = [&](KeyRecords& records) -> Result<void> {
    const auto last = static_cast<uint64_t>(records.rotated_us);
    std::erase_if(records.revocations.serials, [&](const auto& one) { return one.second < last; });
    const uint32_t generation = ++records.revocations.generation;
    std::erase_if(records.issued,
                  [&](const IssuedKey& key) { return key.entity.generation + 1 < generation; });
    records.rotated_us = clock_.wall_ns() / kMicrosecond;
    return {};
  };
  co_return co_await change(std::move(how));
}

}  // namespace ff::cluster
