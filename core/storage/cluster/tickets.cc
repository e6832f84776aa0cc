// tickets.cc: asks for tickets, and puts them into the keyring.
#include "storage/cluster/tickets.h"

#include <cstring>
#include <map>
#include <utility>

namespace ff::cluster {

namespace {

// In one request; the reply stays below a hundred kilobytes.
constexpr size_t kTicketsMax = 1000;

}  // namespace

std::optional<auth::Entity> entity_of(const NodeInfo& node) {
  auto entity = auth::parse_identity(node.identity);
  if (!entity) return std::nullopt;
  return std::move(*entity);
}

auth::Service service_of(const NodeInfo& node) {
  const auto entity = entity_of(node);
  return {auth::Role::storage, entity ? entity->name : std::string()};
}

Task<Result<void>> fetch_tickets(ManagerClient& managers, auth::Keyring* keyring,
                                 std::vector<const NodeInfo*> nodes, int64_t now_s, int64_t try_ns,
                                 int64_t deadline_ns) {
  std::map<NodeId, auth::Entity> wanted;
  for (const NodeInfo* node : nodes) {
    auto entity = entity_of(*node);
    if (!entity || keyring == nullptr || wanted.size() == kTicketsMax) continue;
    if (keyring->needs_ticket(*entity, now_s)) wanted.emplace(node->id, std::move(*entity));
  }
  if (wanted.empty()) co_return Result<void>();
  wire::TicketsRequest request;
  for (const auto& [id, entity] : wanted) request.add_nodes(id);
  FF_CO_TRY(const wire::TicketsReply reply,
            co_await managers.call(kTickets, std::move(request), try_ns, deadline_ns, true));
  for (const wire::Ticket& ticket : reply.tickets()) {
    const auto found = wanted.find(ticket.node());
    const auto key = auth::key_of_bytes(ticket.key());
    if (found == wanted.end() || !key) continue;
    auth::Credential credential{.identity = reply.identity(), .key = *key};
    keyring->add_ticket(found->second, std::move(credential), reply.expires_s());
  }
  co_return Result<void>();
}

}  // namespace ff::cluster
