// The handshake at the start of each connection between two nodes of a job. That both hold the
// job's key, the transport has proven before (net/secure_stream.h):
//
//   connecting node                     accepting node
//   ranks  settings  node            ->
//                                    <-  from rank 0: the table of all nodes, or a refusal
//   connected to all (to rank 0)     ->
//                                    <-  from rank 0: all nodes are connected, or a refusal
//
// Later the successor of a leader that is gone may connect (successor.h):
//
//   successor                        leader of another node
//   of which node                ->
//                                    <-  it may report, or a refusal
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/net/connection.h"
#include "training/collective/world.h"

namespace ff::collective {

// What all nodes of a job must have alike.
struct JobTerms {
  uint32_t ranks = 0;         // of the job
  std::string settings = {};  // command-line options, compared as text
};

// Methods of the handshake's frames.
enum class HandshakeStep : uint32_t { node = 3, table, refusal, connected, start, successor };

void send_step(net::Connection& connection, HandshakeStep step, std::string_view message);
// Waits for this step. A refusal by the peer is returned as its error; Errc::corrupt for any other
// frame.
Task<Result<std::string>> receive_step(net::Connection& connection, HandshakeStep wanted);
void send_refusal(net::Connection& connection, const Error& error);

// The connecting node, up to its description of itself.
void introduce(net::Connection& connection, const JobTerms& terms, const WorldNode& self);
// The accepting node: who has connected. Errc::usage: its ranks or settings differ.
Task<Result<WorldNode>> accept_introduction(net::Connection& connection, const JobTerms& terms);

}  // namespace ff::collective
