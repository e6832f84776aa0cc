// `ff admin key`: makes, lists, revokes and rotates the keys of entities.
#include <fmt/format.h>

#include "cmd/admin/admin.h"
#include "platform/auth/keyring.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"
#include "storage/cluster/service.h"
#include "storage/cluster/wire.h"

namespace ff::cmd {
namespace {

struct KeyOptions {
  std::string entity;
  std::optional<std::string> uids;
  std::optional<std::string> path;
  bool read_only = false;
  int64_t lifetime_ns = 0;
  std::optional<std::string> file;
};

// What it may reach: "uids 1000-2000, below /home, read-only".
std::string restrictions(const auth::Entity& entity) {
  std::vector<std::string> parts;
  if (!entity.uids.empty()) parts.push_back("uids " + auth::format_uids(entity.uids));
  if (!entity.path.empty()) parts.push_back("below " + printable(entity.path));
  if (entity.read_only) parts.emplace_back("read-only");
  return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, ", "));
}

Json key_json(const cluster::IssuedKey& key, const auth::Revocations& revocations) {
  const auth::Entity& entity = key.entity;
  return {{"entity", entity.full_name()},
          {"serial", entity.serial},
          {"generation", entity.generation},
          {"current", entity.generation == revocations.generation},
          {"uids", auth::format_uids(entity.uids)},
          {"path", entity.path},
          {"read_only", entity.read_only},
          {"expires", entity.expires_s == 0 ? Json() : Json(entity.expires_s)},
          {"by", key.by}};
}

// Creates the new file first, so that no key is made that cannot be stored.
Result<void> run_key_create(Session& session, const AdminOptions& admin, const KeyOptions& options,
                            int64_t timeout_ns) {
  cluster::wire::CreateKeyRequest request;
  request.set_entity(options.entity);
  request.set_uids(options.uids.value_or(""));
  request.set_path(options.path.value_or(""));
  request.set_read_only(options.read_only);
  request.set_lifetime_s(options.lifetime_ns / kSecond);
  FF_TRY(const auto calls, AdminClient::open(session, admin, timeout_ns));
  io::SystemDisk disk;
  std::unique_ptr<io::File> to;
  if (options.file) {
    FF_TRY(to,
           disk.open(
               *options.file,
               {.access = io::AccessMode::write, .create = true, .exclusive = true, .mode = 0600}));
  }
  auto reply = calls->call(cluster::kCreateKey, std::move(request), AdminClient::CallKind::write);
  Result<void> stored;
  if (reply && to != nullptr) {
    stored = to->write_at(as_bytes(reply->text()), 0);
    if (stored) stored = to->sync();
  }
  if (to != nullptr && (!reply || !stored)) (void)disk.remove(*options.file);
  if (!reply) return std::move(reply).error();
  FF_TRY(std::move(stored));
  FF_TRY(const auto entity, auth::parse_identity(reply->issued().identity()));
  Json data = key_json({.entity = entity}, {.generation = entity.generation});
  if (to != nullptr) {
    session.out.note("the key of {} is in {}", entity.full_name(), *options.file);
    data["key_file"] = *options.file;
  } else {
    data["text"] = reply->text();
    const std::string_view whole =
        std::string_view(reply->text()).substr(0, reply->text().size() - 1);
    for (const std::string_view line : split(whole, '\n')) session.out.line("{}", line);
  }
  session.out.data(std::move(data));
  return {};
}

Result<cluster::KeyRecords> records_of(Result<cluster::wire::KeysReply> reply) {
  FF_TRY(const auto message, std::move(reply));
  return cluster::from_wire(message.records());
}

Result<void> run_key_list(Session& session, const AdminOptions& admin, int64_t timeout_ns) {
  FF_TRY(const auto calls, AdminClient::open(session, admin, timeout_ns));
  FF_TRY(const auto records,
         records_of(calls->call(cluster::kListKeys, cluster::wire::ListKeysRequest(),
                                AdminClient::CallKind::read)));
  Json json = Json::array();
  Json revoked = Json::object();
  {
    auto table = session.out.table(
        {{"KEY"}, {"MADE"}, {"GENERATION", Align::right}, {"EXPIRES"}, {"MAY ONLY"}, {"BY"}});
    for (const cluster::IssuedKey& key : records.issued) {
      const auth::Entity& entity = key.entity;
      table.row({entity.full_name(),
                 format_time(static_cast<int64_t>(entity.serial) * kMicrosecond),
                 fmt::to_string(entity.generation),
                 entity.expires_s == 0 ? "never" : format_time(entity.expires_s * kSecond),
                 restrictions(entity), printable(key.by)});
      json.push_back(key_json(key, records.revocations));
    }
  }
  for (const auto& [entity, serial] : records.revocations.serials) {
    session.out.detail("revoked: {}, up to the serial number {}", printable(entity), serial);
    revoked[entity] = serial;
  }
  session.out.data({{"generation", records.revocations.generation},
                    {"keys", std::move(json)},
                    {"revoked", std::move(revoked)}});
  if (records.issued.empty()) session.out.note("no keys; 'ff admin key create' makes them");
  return {};
}

Result<void> run_key_revoke(Session& session, const AdminOptions& admin, const KeyOptions& options,
                            int64_t timeout_ns) {
  if (!auth::parse_full_name(options.entity)) {
    Error error = fail(Errc::usage, "'{}' is not the name of a key", printable(options.entity));
    error.hint = "Give ROLE/NAME, as 'ff admin key list' prints it.";
    return error;
  }
  cluster::wire::RevokeKeyRequest request;
  request.set_entity(options.entity);
  FF_TRY(const auto calls, AdminClient::open(session, admin, timeout_ns));
  FF_TRY(calls->call(cluster::kRevokeKey, std::move(request), AdminClient::CallKind::read));
  session.out.note("revoked the keys of {}; servers refuse them within 10 s", options.entity);
  session.out.data({{"entity", options.entity}});
  return {};
}

Result<void> run_key_rotate(Session& session, const AdminOptions& admin, int64_t timeout_ns) {
  FF_TRY(const auto calls, AdminClient::open(session, admin, timeout_ns));
  FF_TRY(const auto records,
         records_of(calls->call(cluster::kRotateKeys, cluster::wire::RotateKeysRequest(),
                                AdminClient::CallKind::write)));
  const uint32_t now = records.revocations.generation;
  size_t old = 0;
  for (const cluster::IssuedKey& key : records.issued) old += key.entity.generation != now;
  session.out.line(
      "generation {} begins; {} of the generation before stay valid until the next "
      "rotation",
      now, old == 1 ? "1 key" : fmt::format("{} keys", old));
  session.out.data({{"generation", now}, {"older_keys", old}});
  return {};
}

void declare_create(Command& key, const AdminOptions& options) {
  Command& create = key.sub("create", "Make a key");
  auto& made = create.keep<KeyOptions>();
  create.about(
      "Makes a key for ROLE/NAME and prints it, or writes it to a new file. Roles: storage (a "
      "storage node), mount (a client that acts for the users of its machine), agent (the "
      "scheduler's agent of a node), admin (an operator). Users get tokens instead: 'ff admin user "
      "add'. Copy the file to the machine that needs it and to no other one; ff does not store "
      "keys.");
  create.argument("ROLE/NAME", text(made.entity, "ROLE/NAME"), "Whose key");
  create.option("--key-file", file(made.file),
                "Write the key to this new file (mode 0600); without it ff prints the key");
  create.option("--uids", text(made.uids, "N,N-N..."),
                "Mounts: the users for whom it may act; everybody else is nobody (65534)");
  create.option("--path", text(made.path, "PATH"),
                "Mounts: the directory below which everything lies that it may reach");
  create.flag("--read-only", made.read_only, "Mounts: the key changes nothing");
  create.option("--lifetime", duration(made.lifetime_ns),
                "How long it is valid; 0: without an end");
  create.example("ff admin key create storage/n4 --key-file n4.key", "for a new storage node");
  create.example("ff admin key create mount/host7 --path /data --read-only",
                 "a machine that reads one directory");
  create.blocking(kAdminTimeoutNs);
  create.run([&](Session& session) {
    return run_key_create(session, options, made, create.timeout_ns());
  });
}

}  // namespace

void declare_admin_keys(Command& admin, const AdminOptions& options) {
  Command& key = admin.sub("key", "Manage the keys of daemons, mounts and operators");
  key.about(
      "Every party of a cluster has a key of its own. Managers hold the root key, from which all "
      "others follow; a command that is given the root key derives what it needs and forgets it. A "
      "stolen key stands for its owner only, until it is revoked.");
  declare_create(key, options);

  Command& list = key.sub("list", "List the keys");
  list.about(
      "Lists the keys that 'ff admin key create' has made and that are not revoked. Not in the "
      "list "
      "are tokens of users ('ff admin user list') and keys that commands derived from the root "
      "key.");
  list.blocking(kAdminTimeoutNs);
  list.run([&](Session& session) { return run_key_list(session, options, list.timeout_ns()); });

  Command& revoke = key.sub("revoke", "Revoke the keys of an entity");
  auto& gone = revoke.keep<KeyOptions>();
  revoke.about(
      "Revokes all keys of ROLE/NAME that exist, also those derived from the root key: servers "
      "refuse them within 10 s, on open connections too. A key that you create afterwards is "
      "valid.");
  revoke.argument("ROLE/NAME", text(gone.entity, "ROLE/NAME"), "Whose keys");
  revoke.blocking(kAdminTimeoutNs);
  revoke.run([&](Session& session) {
    return run_key_revoke(session, options, gone, revoke.timeout_ns());
  });

  Command& rotate = key.sub("rotate", "Begin a new generation of keys");
  rotate.about(
      "Begins a new generation: keys that you create from now on belong to it. Keys of the "
      "generation before stay valid until the next rotation, so that you can replace them one by "
      "one, without downtime; older ones are refused within 10 s. 'ff admin key list' shows the "
      "generation of each key.");
  rotate.blocking(kAdminTimeoutNs);
  rotate.run(
      [&](Session& session) { return run_key_rotate(session, options, rotate.timeout_ns()); });
}

}  // namespace ff::cmd
