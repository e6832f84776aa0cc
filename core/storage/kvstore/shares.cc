// shares.cc: whoever has most keeps one more, where the partitions cannot be divided evenly.
#include "storage/kvstore/shares.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace ff::kvstore {

std::vector<std::string> sharing_members(const std::vector<std::string>& owners,
                                         const std::vector<ShareMember>& members) {
  std::map<std::string, ptrdiff_t> owned;  // by hosts
  for (const ShareMember& member : members) {
    owned[member.host] += std::count(owners.begin(), owners.end(), member.id);
  }
  std::string host;
  if (!owned.contains(host)) {
    const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto most = std::max_element(owned.begin(), owned.end(), fewer);
    if (most != owned.end()) host = most->first;
  }
  std::vector<std::string> ids;
  for (const ShareMember& member : members) {
    if (member.host == host) ids.push_back(member.id);
  }
  return ids;
}

std::vector<std::string> plan_shares(const std::vector<std::string>& owners,
                                     std::vector<std::string> members) {
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  std::map<std::string, size_t> owned;
  for (const std::string& owner : owners) ++owned[owner];
  std::vector<std::string> by_number = members;
  std::stable_sort(by_number.begin(), by_number.end(),
                   [&](const std::string& a, const std::string& b) { return owned[a] > owned[b]; });
  std::map<std::string, size_t> room;  // partitions that the member may still get
  const size_t least = owners.size() / members.size();
  const size_t with_one_more = owners.size() % members.size();
  for (size_t i = 0; i < by_number.size(); ++i) {
    room[by_number[i]] = least + (i < with_one_more ? 1 : 0);
  }
  std::vector<std::string> plan(owners.size());
  for (size_t i = 0; i < owners.size(); ++i) {
    const auto owner = room.find(owners[i]);
    if (owner == room.end() || owner->second == 0) continue;
    --owner->second;
    plan[i] = owners[i];
  }
  auto next = members.begin();
  for (std::string& owner : plan) {
    if (!owner.empty()) continue;
    while (room[*next] == 0) ++next;
    --room[*next];
    owner = *next;
  }
  return plan;
}

}  // namespace ff::kvstore
