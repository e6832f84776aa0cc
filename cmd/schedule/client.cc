// client.cc: calls to the scheduler and to agents, with retries.
#include "cmd/schedule/client.h"

#include <algorithm>

#include "platform/io/system_disk.h"

namespace ff::cmd {
namespace {

constexpr int64_t kTryNs = 10 * kSecond;
constexpr int64_t kPauseNs = 200 * kMillisecond;
// A scheduler that never answered is probably elsewhere; one that did is restarting.
constexpr int64_t kAbsentNs = 2 * kSecond;
constexpr int64_t kLostNs = 600 * kSecond;

}  // namespace

void declare_scheduler(Command& command, ScheduleOptions& options) {
  command
      .option("--scheduler", text(options.scheduler, "ADDR:PORT"),
              "Address of the scheduler ('ff schedule serve')")
      .config("schedule.scheduler")
      .env("FF_SCHEDULER")
      .section(kNetworkOptions);
  declare_net(command, options.net);
}

SchedulerClient::SchedulerClient(Session& session, net::TransportOptions transport,
                                 std::string address, int64_t deadline_ns)
    : session_(session),
      address_(std::move(address)),
      deadline_ns_(deadline_ns),
      client_(session.stop, std::move(transport), "schedule") {}

Result<std::unique_ptr<SchedulerClient>> SchedulerClient::open(Session& session,
                                                               const ScheduleOptions& options,
                                                               int64_t timeout_ns, auth::Role role,
                                                               std::string name) {
  auto address = net::parse_address(options.scheduler);
  if (!address) return std::move(address).error().with_context("--scheduler: ");
  io::SystemDisk disk;
  FF_TRY(auto transport, transport_options(disk, options.net, role, std::move(name)));
  std::optional<uint32_t> token_user;
  if (transport.keyring != nullptr && transport.keyring->self().role == auth::Role::user) {
    token_user = transport.keyring->self().uids.front().first;
  }
  const int64_t deadline_ns = deadline_before_stop_ns(session.stop, timeout_ns);
  std::unique_ptr<SchedulerClient> client(
      new SchedulerClient(session, std::move(transport), address->text(), deadline_ns));
  client->token_user_ = token_user;
  client->scheduler_ = std::make_unique<rpc::Client>(client->client_.context, *address,
                                                     auth::Service{auth::Role::scheduler, {}});
  return client;
}

SchedulerClient::~SchedulerClient() {
  if (scheduler_ != nullptr) run_task(client_.loop, scheduler_->close());
  for (const auto& [address, agent] : agents_) run_task(client_.loop, agent->close());
}

int64_t SchedulerClient::try_until_ns() {
  return std::min(client_.loop.now_ns() + kTryNs, deadline_ns_);
}

void SchedulerClient::note_answer() {
  if (unreachable_since_ns_ != 0 && answered_before_)
    session_.out.detail("{} answers again", address_);
  answered_before_ = true;
  unreachable_since_ns_ = 0;
}

Result<void> SchedulerClient::check_retry(Error error, bool sent, bool is_lost) {
  FF_TRY(session_.stop.check());
  if (error.code != Errc::unreachable && error.code != Errc::deadline) {
    if (is_lost) {
      error.hint =
          "The connection was lost before, so an earlier attempt may have succeeded: check with "
          "'ff schedule list -a'.";
    }
    return error;
  }
  const int64_t now_ns = client_.loop.now_ns();
  if (unreachable_since_ns_ == 0) unreachable_since_ns_ = now_ns;
  answered_before_ = answered_before_ || sent;
  const int64_t patience_ns = unreachable_since_ns_ + (answered_before_ ? kLostNs : kAbsentNs);
  if (now_ns + kPauseNs < std::min(deadline_ns_, patience_ns)) {
    return session_.stop.sleep_ns(kPauseNs);
  }
  Error gone = fail(Errc::unreachable, "no scheduler answers at {}: {}", address_, error.message);
  gone.hint = "Is 'ff schedule serve' running there? --scheduler or FF_SCHEDULER names it.";
  return gone;
}

Result<rpc::Client*> SchedulerClient::agent_at(const std::string& address) {
  auto& agent = agents_[address];
  if (agent == nullptr) {
    FF_TRY(auto parsed, net::parse_address(address));
    const auth::Service service{auth::Role::agent, agent_names_[address]};
    agent = std::make_unique<rpc::Client>(client_.context, std::move(parsed), service);
  }
  return agent.get();
}

Result<scheduler::wire::ListedTask> SchedulerClient::task(uint64_t id) {
  scheduler::wire::ListRequest request;
  request.set_finished(true);
  request.set_task(id);
  auto reply = call(scheduler::kList, request);
  if (reply && reply->tasks_size() == 1) return std::move(*reply->mutable_tasks(0));
  if (!reply && reply.error().code != Errc::not_found) return std::move(reply).error();
  return Error{Errc::not_found, fmt::format("there is no task {}", id),
               "List them: ff schedule list -a"};
}

// The key for the agent of a node, which the scheduler has made for this client.
void SchedulerClient::take_ticket(const scheduler::wire::ListedNode& node, int64_t expires_s) {
  const auto entity = auth::parse_identity(node.agent_identity());
  auth::Keyring* const keyring = client_.context.transport.keyring();
  const auto key = auth::key_of_bytes(node.ticket_key());
  if (!entity || keyring == nullptr || !key) return;
  auth::Credential ticket{.identity = node.ticket_identity(), .key = *key};
  keyring->add_ticket(*entity, std::move(ticket), expires_s);
  agent_names_[node.node().agent()] = entity->name;
}

Result<std::vector<scheduler::wire::ListedNode>> SchedulerClient::nodes() {
  FF_TRY(auto reply, call(scheduler::kNodes, scheduler::wire::NodesRequest()));
  for (const auto& node : reply.nodes()) take_ticket(node, reply.tickets_end());
  return std::vector<scheduler::wire::ListedNode>(reply.nodes().begin(), reply.nodes().end());
}

}  // namespace ff::cmd
