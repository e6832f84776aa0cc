// Commands about the connection itself: who the client is, and how it speaks.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "platform/base/audit.h"
#include "storage/gateway/client_info.h"
#include "storage/gateway/command_handlers.h"
#include "storage/gateway/gateway.h"
#include "storage/gateway/gateway_connection.h"
#include "storage/gateway/redis_numbers.h"
#include "storage/gateway/server_info.h"

namespace ff::gateway {

namespace {

Error connection_error(std::string text) { return Error{Errc::usage, std::move(text), {}}; }

// Names may be in lines of CLIENT LIST: no spaces, no control characters.
bool is_plain_name(std::string_view name) {
  return std::ranges::all_of(name, [](char c) { return c >= '!' && c <= '~'; });
}

Error not_plain(std::string_view what) {
  return connection_error(
      fmt::format("ERR {} cannot contain spaces, newlines or special characters.", what));
}

// `user`, or "default", with a password.
Result<void> log_in(CommandCall& call, std::string_view user, std::string_view password) {
  const PasswordCheck& passwords = call.gateway.passwords();
  if (!passwords.required()) {
    if (user == "default") return {};
    return fail(Errc::refused, "WRONGPASS invalid username-password pair or user is disabled.");
  }
  auto login = passwords.check(user, password);
  if (!login) {
    audit("refused", call.client.address, {{"error", login.error().message}});
    return std::move(login).error();
  }
  audit("login", login->entity.full_name(),
        {{"address", call.client.address},
         {"serial", login->entity.serial},
         {"generation", login->entity.generation},
         {"program", "redis client"}});
  call.client.entity = std::move(login->entity);
  call.client.read_only = login->read_only;
  call.client.authenticated = true;
  return {};
}

// The options of HELLO behind the version.
struct HelloOptions {
  const std::string* user = nullptr;
  const std::string* password = nullptr;
  const std::string* name = nullptr;
};

Result<HelloOptions> parse_hello_options(const CommandCall& call) {
  HelloOptions options;
  for (size_t i = 2; i < call.size(); i++) {
    const size_t left = call.size() - i - 1;
    if (call.is_option(i, "AUTH") && left >= 2) {
      options.user = &call.word(i + 1);
      options.password = &call.word(i + 2);
      i += 2;
    } else if (call.is_option(i, "SETNAME") && left >= 1) {
      options.name = &call.word(++i);
      if (!is_plain_name(*options.name)) return not_plain("Client names");
    } else {
      return connection_error(fmt::format("ERR Syntax error in HELLO option '{}'", call.word(i)));
    }
  }
  return options;
}

void reply_hello(CommandCall& call) {
  RespWriter reply(call.reply.out(), call.client.version);
  reply.map(7);
  const auto text = [&reply](std::string_view key, std::string_view value) {
    reply.bulk(key);
    reply.bulk(value);
  };
  text("server", "redis");
  text("version", kRedisVersion);
  reply.bulk("proto");
  reply.integer(call.client.version);
  reply.bulk("id");
  reply.integer(static_cast<int64_t>(call.client.id));
  text("mode", server_mode(call.gateway));
  text("role", "master");
  reply.bulk("modules");
  reply.array(0);
}

}  // namespace

Task<Result<void>> run_ping(CommandCall& call) {
  if (call.size() > 2) co_return wrong_arity(call.row);
  if (call.size() == 2) {
    call.reply.bulk(call.word(1));
  } else {
    call.reply.simple("PONG");
  }
  co_return Result<void>();
}

Task<Result<void>> run_echo(CommandCall& call) {
  call.reply.bulk(call.word(1));
  co_return Result<void>();
}

Task<Result<void>> run_hello(CommandCall& call) {
  int version = call.client.version;
  if (call.size() > 1) {
    const auto wanted = parse_integer(call.word(1));
    if (!wanted) {
      co_return connection_error("ERR Protocol version is not an integer or out of range");
    }
    if (*wanted != 2 && *wanted != 3) {
      co_return connection_error("NOPROTO unsupported protocol version");
    }
    version = static_cast<int>(*wanted);
  }
  FF_CO_TRY(const HelloOptions options, parse_hello_options(call));
  if (options.user != nullptr) FF_CO_TRY(log_in(call, *options.user, *options.password));
  if (!call.client.authenticated) {
    co_return connection_error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
        "<proto> AUTH <user> <pass> option can be used to authenticate the client and select the "
        "RESP protocol version at the same time");
  }
  if (options.name != nullptr) call.client.name = *options.name;
  call.client.version = version;
  reply_hello(call);
  co_return Result<void>();
}

Task<Result<void>> run_auth(CommandCall& call) {
  if (call.size() > 3) co_return syntax_error();
  if (call.size() == 2 && !call.gateway.passwords().required()) {
    co_return connection_error(
        "ERR AUTH <password> called without any password configured for the default user. Are you "
        "sure your configuration is correct?");
  }
  const std::string user = call.size() == 3 ? call.word(1) : "default";
  FF_CO_TRY(log_in(call, user, call.words.back()));
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> run_quit(CommandCall& call) {
  call.client.closing = true;
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> run_reset(CommandCall& call) {
  RedisClient& client = call.client;
  client.end_multi();
  client.name.clear();
  client.version = 2;
  client.authenticated = !call.gateway.passwords().required();
  client.entity.reset();
  client.read_only = false;
  call.reply.simple("RESET");
  co_return Result<void>();
}

Task<Result<void>> run_select(CommandCall& call) {
  const auto database = parse_integer(call.word(1));
  if (!database) co_return not_an_integer();
  if (*database != 0) co_return connection_error("ERR DB index is out of range");
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> run_client_id(CommandCall& call) {
  call.reply.integer(static_cast<int64_t>(call.client.id));
  co_return Result<void>();
}

Task<Result<void>> run_client_getname(CommandCall& call) {
  if (call.client.name.empty()) {
    call.reply.null();
  } else {
    call.reply.bulk(call.client.name);
  }
  co_return Result<void>();
}

Task<Result<void>> run_client_setname(CommandCall& call) {
  if (!is_plain_name(call.word(2))) co_return not_plain("Client names");
  call.client.name = call.word(2);
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> run_client_setinfo(CommandCall& call) {
  const bool is_name = call.is_option(2, "LIB-NAME");
  if (!is_name && !call.is_option(2, "LIB-VER")) {
    co_return connection_error(fmt::format("ERR Unrecognized option '{}'", call.word(2)));
  }
  if (!is_plain_name(call.word(3))) co_return not_plain(lower_case(call.word(2)));
  (is_name ? call.client.library_name : call.client.library_version) = call.word(3);
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> run_client_unblock(CommandCall& call) {
  const auto id = parse_integer(call.word(2));
  if (!id) co_return not_an_integer();
  std::optional<Error> error;
  if (call.size() == 4 && call.is_option(3, "ERROR")) {
    error = connection_error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
  } else if (call.size() > 4) {
    co_return wrong_arity(call.row);
  } else if (call.size() == 4 && !call.is_option(3, "TIMEOUT")) {
    co_return connection_error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
  }
  const auto& connections = call.gateway.connections();
  const auto found = connections.find(static_cast<uint64_t>(*id));
  const bool ended = found != connections.end() && found->second->end_wait(std::move(error));
  call.reply.integer(ended ? 1 : 0);
  co_return Result<void>();
}

Task<Result<void>> run_client_info(CommandCall& call) {
  call.reply.verbatim(client_line(call.client, call.gateway.loop().now_ns()));
  co_return Result<void>();
}

Task<Result<void>> run_client_list(CommandCall& call) {
  std::string lines;
  for (const auto& [id, connection] : call.gateway.connections()) {
    lines += client_line(connection->client(), call.gateway.loop().now_ns());
  }
  call.reply.verbatim(lines);
  co_return Result<void>();
}

}  // namespace ff::gateway
