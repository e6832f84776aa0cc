// vote_table.cc: words that are written at once, so that no killed rank leaves half a vote.
#include "training/collective/vote_table.h"

namespace ff::collective {

size_t VoteTable::bytes() { return sizeof(Data); }

void VoteTable::vote(uint32_t rank, uint32_t ballot, bool yes) {
  const uint64_t word = (uint64_t{ballot} + 1) * 2 + (yes ? 1 : 0);
  data_->votes[rank].store(word, std::memory_order_release);
}

std::optional<bool> VoteTable::vote_of(uint32_t rank, uint32_t ballot) const {
  const uint64_t word = data_->votes[rank].load(std::memory_order_acquire);
  if (word / 2 != uint64_t{ballot} + 1) return std::nullopt;
  return word % 2 == 1;
}

void VoteTable::decide(uint32_t ballot, uint64_t decision) {
  uint64_t none = 0;
  data_->decisions[ballot].compare_exchange_strong(none, decision);
}

std::optional<uint64_t> VoteTable::decision(uint32_t ballot) const {
  const uint64_t word = data_->decisions[ballot].load(std::memory_order_acquire);
  return word != 0 ? std::optional(word) : std::nullopt;
}

uint32_t VoteTable::decided() const {
  uint32_t ballot = 0;
  while (ballot < kBallotsMax && decision(ballot)) ballot++;
  return ballot;
}

void VoteTable::exclude(HostExclusion why) {
  auto none = static_cast<uint32_t>(HostExclusion::none);
  data_->exclusion.compare_exchange_strong(none, static_cast<uint32_t>(why));
}

HostExclusion VoteTable::exclusion() const {
  return static_cast<HostExclusion>(data_->exclusion.load(std::memory_order_acquire));
}

void VoteTable::set_members(uint32_t ballot, const std::vector<NodeMembers>& nodes) {
  data_->members_ballot.store(0);
  for (size_t node = 0; node < nodes.size(); node++) {
    data_->members[node].store(nodes[node].ranks);
    data_->ports[node].store(nodes[node].port);
  }
  data_->members_ballot.store(ballot + 1);
}

std::optional<std::vector<NodeMembers>> VoteTable::members(uint32_t ballot, size_t nodes) const {
  std::vector<NodeMembers> members(nodes);
  for (size_t node = 0; node < nodes; node++) {
    members[node] = {.ranks = data_->members[node].load(), .port = data_->ports[node].load()};
  }
  if (data_->members_ballot.load() != ballot + 1) return std::nullopt;
  return members;
}

}  // namespace ff::collective
