// `ff admin user`: users who authenticate with a token instead of the cluster key.
#include "cmd/admin/admin.h"
#include "platform/base/text.h"
#include "platform/io/system_disk.h"
#include "storage/meta/meta_client.h"
#include "storage/s3/access_key.h"

namespace ff::cmd {
namespace {

struct UserOptions {
  std::string name;  // or uid, of an existing user
  uint32_t uid = 0;
  std::optional<uint32_t> gid;
  std::optional<std::string> groups;
  std::optional<std::string> token_file;
};

// The RPCs of one command.
class UserCalls {
 public:
  static Result<std::unique_ptr<UserCalls>> open(Session& session, const AdminOptions& options) {
    FF_TRY(const auto servers, parse_meta(options.meta));
    io::SystemDisk disk;
    FF_TRY(auto transport, transport_options(disk, options.net));
    return std::unique_ptr<UserCalls>(new UserCalls(session, std::move(transport), servers));
  }
  ~UserCalls() { run_task(client_.loop, names_.close()); }

  meta::MetaClient& names() { return names_; }
  template <class T>
  Result<T> run(Task<Result<T>> task) {
    return run_task(client_.loop, cancel_on_stop(client_.loop, session_.stop, std::move(task)));
  }

 private:
  UserCalls(Session& session, net::TransportOptions transport,
            const std::vector<net::Address>& servers)
      : session_(session),
        client_(session.stop, std::move(transport), "admin user"),
        names_(client_.context, servers) {}

  Session& session_;
  NetClient client_;
  meta::MetaClient names_;
};

Json user_json(const meta::wire::User& user) {
  Json groups = Json::array();
  for (const uint32_t group : user.groups()) groups.push_back(group);
  return {{"uid", user.uid()},
          {"name", user.name()},
          {"gid", user.gid()},
          {"groups", std::move(groups)},
          {"tokens", user.serials_size()}};
}

// Creates a new file with mode 0600; fails if it exists.
Result<std::unique_ptr<io::File>> token_file(io::Disk& disk, const UserOptions& options) {
  if (!options.token_file) return std::unique_ptr<io::File>();
  return disk.open(
      *options.token_file,
      {.access = io::AccessMode::write, .create = true, .exclusive = true, .mode = 0600});
}

// Creates a token and writes it to a file or to stdout. The cluster does not store it.
Result<void> give_token(Session& session, UserCalls& calls, const UserOptions& options,
                        io::File* to) {
  FF_TRY(const auto reply, calls.run(calls.names().token(options.uid, false)));
  Json data = user_json(reply.user());
  if (to != nullptr) {
    FF_TRY(to->write_at(as_bytes(reply.token() + "\n"), 0));
    FF_TRY(to->sync());
    data["token_file"] = *options.token_file;
    session.out.note("the token of user {} is in {}", options.uid, *options.token_file);
  } else {
    data["token"] = reply.token();
    for (const std::string_view line : split(reply.token(), '\n')) session.out.line("{}", line);
  }
  session.out.data(std::move(data));
  return {};
}

// Create the file first, so that no token is created that cannot be stored.
Result<void> with_token_file(Session& session, UserCalls& calls, const UserOptions& options,
                             const std::function<Result<void>()>& before) {
  io::SystemDisk disk;
  FF_TRY(const auto file, token_file(disk, options));
  Result<void> done = before();
  if (done) done = give_token(session, calls, options, file.get());
  if (!done && file != nullptr) (void)disk.remove(*options.token_file);
  return done;
}

Result<void> run_add(Session& session, const AdminOptions& admin, const UserOptions& options) {
  meta::wire::User user;
  user.set_uid(options.uid);
  user.set_name(options.name);
  user.set_gid(options.gid.value_or(options.uid));
  for (const std::string_view one : split(options.groups.value_or(""), ',')) {
    if (!options.groups) break;
    const auto group = parse_u64(one);
    if (!group || *group >= UINT32_MAX) {
      return fail(Errc::usage, "--groups: '{}' is not a group number", printable(one));
    }
    user.add_groups(static_cast<uint32_t>(*group));
  }
  FF_TRY(const auto calls, UserCalls::open(session, admin));
  return with_token_file(session, *calls, options, [&]() -> Result<void> {
    FF_TRY(calls->run(calls->names().set_user(user)));
    return {};
  });
}

// The uid of an existing user by name; a number is taken as it is.
Result<uint32_t> find_uid(UserCalls& calls, const std::string& user) {
  const auto number = parse_u64(user);
  if (number && *number <= UINT32_MAX) return static_cast<uint32_t>(*number);
  FF_TRY(const auto users, calls.run(calls.names().users()));
  std::vector<uint32_t> named;
  for (const auto& one : users) {
    if (one.name() == user) named.push_back(one.uid());
  }
  if (named.size() == 1) return named.front();
  if (named.empty()) {
    return Error{Errc::usage, fmt::format("there is no user '{}'", printable(user)),
                 "'ff admin user list' lists the users."};
  }
  return Error{Errc::usage,
               fmt::format("{} users have the name '{}'", named.size(), printable(user)),
               fmt::format("Give the uid of one of them: {}.", fmt::join(named, ", "))};
}

Result<void> run_token(Session& session, const AdminOptions& admin, UserOptions options) {
  FF_TRY(const auto calls, UserCalls::open(session, admin));
  FF_TRY(options.uid, find_uid(*calls, options.name));
  return with_token_file(session, *calls, options, [] { return Result<void>(); });
}

Result<void> run_remove(Session& session, const AdminOptions& admin, const UserOptions& options) {
  FF_TRY(const auto calls, UserCalls::open(session, admin));
  FF_TRY(const uint32_t uid, find_uid(*calls, options.name));
  FF_TRY(calls->run(calls->names().token(uid, true)));
  session.out.note("removed user {}; servers refuse the tokens within seconds",
                   printable(options.name));
  session.out.data({{"uid", uid}});
  return {};
}

struct S3KeyOptions {
  std::string token_file;
};

// The keys of a token for S3, which derive from it: no server is asked.
Result<void> run_s3_key(Session& session, const S3KeyOptions& options) {
  io::SystemDisk disk;
  FF_TRY(const auto keyring, auth::read_keyring(disk, options.token_file, auth::Entity()));
  const auto credential = keyring->credential({.role = auth::Role::meta});
  if (keyring->root() || !credential) {
    Error error = fail(Errc::usage, "{}: not a token", options.token_file);
    error.hint = "'ff admin user token' makes one.";
    return error;
  }
  const std::string access = s3::access_key_of(keyring->self());
  const auth::SecretText secret = s3::secret_key_of(credential->key);
  session.out.line("AWS_ACCESS_KEY_ID={}", access);
  session.out.line("AWS_SECRET_ACCESS_KEY={}", std::string_view(secret));
  session.out.data({{"access_key", access}, {"secret_key", std::string_view(secret)}});
  return {};
}

Result<void> run_user_list(Session& session, const AdminOptions& admin) {
  FF_TRY(const auto calls, UserCalls::open(session, admin));
  FF_TRY(const auto users, calls->run(calls->names().users()));
  Json json = Json::array();
  {
    auto table = session.out.table({{"UID", Align::right},
                                    {"NAME"},
                                    {"GID", Align::right},
                                    {"GROUPS"},
                                    {"TOKENS", Align::right}});
    for (const auto& user : users) {
      table.row({fmt::to_string(user.uid()), user.name(), fmt::to_string(user.gid()),
                 fmt::to_string(fmt::join(user.groups(), ",")),
                 fmt::to_string(user.serials_size())});
      json.push_back(user_json(user));
    }
  }
  session.out.data({{"users", std::move(json)}});
  if (users.empty()) session.out.note("no users; 'ff admin user add' creates them");
  return {};
}

void declare_token_file(Command& command, UserOptions& options) {
  command
      .option("--token-file", file(options.token_file),
              "Write the token to this new file (mode 0600); without it ff prints the token")
      .section(kCommonOptions);
}

}  // namespace

void declare_admin_users(Command& admin, const AdminOptions& options) {
  Command& user = admin.sub("user", "Manage users with tokens");
  user.about(
      "Whoever holds the cluster key can act as any user. Other users get a token, which is valid "
      "for one user: 'ff fs --token FILE' then has the rights of that user. ff does not store "
      "tokens: it prints each token once; give a user a new token if one is lost.");

  Command& add = user.sub("add", "Create or change a user, and create a token");
  auto& adding = add.keep<UserOptions>();
  add.about(
      "Creates the user, or changes it if it exists, and creates a token. --uid is the owner "
      "number of the files of the user.");
  add.argument("NAME", text(adding.name, "NAME"), "Name for lists");
  add.option("--uid", number(adding.uid), "User id").required();
  add.option("--gid", number(adding.gid),
             "Group of the files that the user creates; without it the same number as --uid");
  add.option("--groups", text(adding.groups, "N,N..."), "Additional groups");
  declare_token_file(add, adding);
  add.example("ff admin user add ann --uid 1000 --groups 50 --token-file ann.token", "a new user");
  add.blocking(kAdminTimeoutNs);
  add.run([&](Session& session) { return run_add(session, options, adding); });

  Command& token = user.sub("token", "Create another token for a user");
  auto& wanted = token.keep<UserOptions>();
  token.about("Existing tokens of the user stay valid. A user can have at most 16 tokens.");
  token.argument("USER", text(wanted.name, "USER"), "Name or user id");
  declare_token_file(token, wanted);
  token.blocking(kAdminTimeoutNs);
  token.run([&](Session& session) { return run_token(session, options, wanted); });

  Command& key = user.sub("s3-key", "Print the S3 keys of a token");
  auto& keyed = key.keep<S3KeyOptions>();
  key.about(
      "Prints the access key and the secret key with which clients of S3 sign their requests to "
      "'ff "
      "serve-kv --s3-listen'. They derive from the token and have its rights; they are revoked "
      "with "
      "it. Nothing is sent to the cluster.");
  key.argument("FILE", file(keyed.token_file), "File of the token");
  key.example("ff admin user s3-key ann.token > ann.env", "for 'set -a; . ./ann.env'");
  key.run([&](Session& session) { return run_s3_key(session, keyed); });

  Command& list = user.sub("list", "List the users");
  list.about("Lists the users and their number of valid tokens.");
  list.blocking(kAdminTimeoutNs);
  list.run([&](Session& session) { return run_user_list(session, options); });

  Command& remove = user.sub("remove", "Remove a user and all of the user's tokens");
  auto& gone = remove.keep<UserOptions>();
  remove.about("Revokes all tokens of the user. Files keep the number of the user as their owner.");
  remove.argument("USER", text(gone.name, "USER"), "Name or user id");
  remove.blocking(kAdminTimeoutNs);
  remove.run([&](Session& session) { return run_remove(session, options, gone); });
}

}  // namespace ff::cmd
