// successor_messages.cc: numbers in order.
#include "training/collective/successor_messages.h"

#include "training/collective/message_reader.h"

namespace ff::collective {

namespace {

void append_members(std::string& to, const NodeMembers& members) {
  append_le(to, members.ranks);
  append_le(to, members.port);
}

NodeMembers read_members(MessageReader& reader) {
  NodeMembers members;
  members.ranks = reader.read<RankSet>();
  members.port = reader.read<uint32_t>();
  if (members.port > UINT16_MAX) reader.set_malformed();
  return members;
}

Error malformed_ballot_message() {
  return fail(Errc::corrupt, "a malformed message of a ballot arrived");
}

}  // namespace

std::string encode_hello(const SuccessorHello& hello) {
  std::string bytes;
  append_le(bytes, hello.world);
  append_le(bytes, hello.node);
  append_le(bytes, hello.rank);
  return bytes;
}

std::string encode_report(const SuccessorReport& report) {
  std::string bytes;
  append_le(bytes, report.ballot);
  append_le(bytes, report.mark);
  if (report.vote) append_members(bytes, *report.vote);
  return bytes;
}

std::string encode_decision(const SuccessorDecision& decision) {
  std::string bytes;
  append_le(bytes, decision.ballot);
  append_le(bytes, uint32_t{decision.all_joined});
  if (is_of_joining(decision.ballot)) return bytes;
  for (const NodeMembers& one : decision.nodes) append_members(bytes, one);
  return bytes;
}

Result<SuccessorHello> parse_hello(ByteView bytes) {
  MessageReader reader(bytes);
  SuccessorHello hello;
  hello.world = reader.read<uint64_t>();
  hello.node = reader.read<uint32_t>();
  hello.rank = reader.read<uint32_t>();
  if (!reader.at_end()) return malformed_ballot_message();
  return hello;
}

Result<SuccessorReport> parse_report(ByteView bytes) {
  MessageReader reader(bytes);
  SuccessorReport report;
  report.ballot = reader.read<uint32_t>();
  report.mark = reader.read<uint64_t>();
  if (reader.more()) report.vote = read_members(reader);
  if (!reader.at_end() || report.ballot >= VoteTable::kBallotsMax)
    return malformed_ballot_message();
  return report;
}

Result<SuccessorDecision> parse_decision(ByteView bytes, size_t nodes) {
  MessageReader reader(bytes);
  SuccessorDecision decision;
  decision.ballot = reader.read<uint32_t>();
  const auto all_joined = reader.read<uint32_t>();
  if (all_joined > 1) reader.set_malformed();
  decision.all_joined = all_joined == 1;
  if (!is_of_joining(decision.ballot)) {
    for (size_t node = 0; node < nodes; node++) decision.nodes.push_back(read_members(reader));
  }
  if (!reader.at_end() || decision.ballot >= VoteTable::kBallotsMax)
    return malformed_ballot_message();
  return decision;
}

}  // namespace ff::collective
