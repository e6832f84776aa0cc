// peer_handshake.cc: the checks of the accepting node.
#include "training/collective/peer_handshake.h"

#include <algorithm>

#include "platform/base/text.h"
#include "training/collective/message_reader.h"

namespace ff::collective {

namespace {

constexpr std::string_view kProtocol = "ff reduce ";
constexpr std::string_view kHello = "ff reduce 4|";  // with the version of all messages of nodes

}  // namespace

void send_step(net::Connection& connection, HandshakeStep step, std::string_view message) {
  connection.send({.kind = net::FrameKind::hello, .method = static_cast<uint32_t>(step)}, message);
}

Task<Result<std::string>> receive_step(net::Connection& connection, HandshakeStep wanted) {
  FF_CO_TRY(const net::Frame frame, co_await connection.receive());
  const bool is_hello = frame.head.kind == net::FrameKind::hello;
  if (is_hello && frame.head.method == static_cast<uint32_t>(HandshakeStep::refusal)) {
    const ByteView bytes = as_bytes(frame.message);
    Error error = fail(Errc::refused, "{}",
                       printable(frame.message.substr(std::min<size_t>(1, bytes.size()))));
    if (!bytes.empty() && static_cast<size_t>(bytes[0]) < kErrcCount) {
      error.code = static_cast<Errc>(bytes[0]);
    }
    co_return error;
  }
  if (!is_hello || frame.head.method != static_cast<uint32_t>(wanted)) {
    co_return fail(Errc::corrupt, "{}: the peer is no node of a job", connection.peer());
  }
  co_return frame.message;
}

void send_refusal(net::Connection& connection, const Error& error) {
  std::string message(1, static_cast<char>(error.code));
  send_step(connection, HandshakeStep::refusal, message + error.message);
}

void introduce(net::Connection& connection, const JobTerms& terms, const WorldNode& self) {
  std::string message(kHello);
  append_le(message, terms.ranks);
  append_le(message, static_cast<uint32_t>(terms.settings.size()));
  send_step(connection, HandshakeStep::node, message + terms.settings + encode_node(self));
}

Task<Result<WorldNode>> accept_introduction(net::Connection& connection, const JobTerms& terms) {
  FF_CO_TRY(const std::string message, co_await receive_step(connection, HandshakeStep::node));
  if (!message.starts_with(kProtocol)) {
    co_return fail(Errc::corrupt, "{}: the peer is no node of a job", connection.peer());
  }
  if (!message.starts_with(kHello)) {
    const std::string theirs = message.substr(0, message.find('|'));
    Error error = fail(Errc::usage,
                       "{} runs another version of ff: its protocol is '{}', that of rank "
                       "0 is '{}'",
                       connection.peer(), printable(theirs.substr(0, 32)),
                       kHello.substr(0, kHello.size() - 1));
    error.hint = "Install the same version of ff on all hosts.";
    co_return error;
  }
  MessageReader reader(as_bytes(message).subspan(kHello.size()));
  const auto text = [&reader] {
    const auto size = reader.read<uint32_t>();
    return as_text(reader.read_bytes(size));
  };
  const auto ranks = reader.read<uint32_t>();
  const std::string settings(text());
  FF_CO_TRY(WorldNode node, parse_node(reader.read_bytes(reader.remaining())));
  if (ranks != terms.ranks) {
    co_return fail(Errc::usage, "rank {} on {} is of a job of {} ranks, rank 0 of a job of {}",
                   node.first_rank, node.host, ranks, terms.ranks);
  }
  if (settings != terms.settings) {
    co_return fail(Errc::usage, "rank {} on {} has {}, rank 0 has {}", node.first_rank, node.host,
                   printable(settings), terms.settings);
  }
  if (node.first_rank >= ranks || node.ranks() > ranks - node.first_rank) {
    co_return fail(Errc::usage, "{} has ranks {} to {} of a job of {}", node.host, node.first_rank,
                   node.first_rank + node.ranks() - 1, ranks);
  }
  co_return node;
}

}  // namespace ff::collective
