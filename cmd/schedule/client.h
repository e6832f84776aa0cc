// The client of the scheduler, and of the agents that it names, for the subcommands of `ff
// schedule`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cmd/cli/cancel_on_stop.h"
#include "cmd/cli/cli.h"
#include "cmd/options/net_client.h"
#include "cmd/options/net_options.h"
#include "ops/scheduler/service.h"

namespace ff::cmd {

constexpr const char* kDefaultScheduler = "127.0.0.1:4500";
// The default timeout of a command: the scheduler may be restarting.
constexpr int64_t kScheduleNs = 30 * kSecond;

struct ScheduleOptions {
  std::string scheduler = kDefaultScheduler;
  NetOptions net;
};
// Declares --scheduler and the network options.
void declare_scheduler(Command& command, ScheduleOptions& options);

class SchedulerClient {
 public:
  // `timeout_ns`: timeout of the command, 0: none. With the root key it acts as ROLE/`name`, as
  // transport_options() has it. Errc::usage: addresses, files.
  static Result<std::unique_ptr<SchedulerClient>> open(Session& session,
                                                       const ScheduleOptions& options,
                                                       int64_t timeout_ns,
                                                       auth::Role role = auth::Role::admin,
                                                       std::string name = {});
  ~SchedulerClient();

  // Calls the scheduler. Repeated when the connection was lost: requests are idempotent
  // (SubmitRequest::once). Errc::unreachable: no scheduler answers.
  template <class Request, class Reply>
  Result<Reply> call(rpc::Method<Request, Reply> method, const Request& request) {
    bool is_lost = false;  // a lost call may have been executed
    for (;;) {
      bool sent = false;
      auto reply = run(call_once(*scheduler_, method, request, try_until_ns(), sent));
      if (reply) {
        note_answer();
        return reply;
      }
      FF_TRY(check_retry(std::move(reply).error(), sent, is_lost));
      is_lost = is_lost || sent;
    }
  }
  // Calls an agent ("host:port"), once.
  template <class Request, class Reply>
  Result<Reply> call_agent(const std::string& address, rpc::Method<Request, Reply> method,
                           const Request& request) {
    FF_TRY(rpc::Client* const agent, agent_at(address));
    bool sent = false;
    return run(call_once(*agent, method, request, try_until_ns(), sent));
  }

  // Errc::not_found.
  Result<scheduler::wire::ListedTask> task(uint64_t id);
  Result<std::vector<scheduler::wire::ListedNode>> nodes();

  Session& session() { return session_; }
  Rng& rng() { return client_.rng; }
  // The user whose token identifies the caller, whoever runs the command; empty: the caller may act
  // for any user.
  std::optional<uint32_t> token_user() const { return token_user_; }
  int64_t wall_ns() const { return session_.stop.clock().wall_ns(); }

 private:
  SchedulerClient(Session& session, net::TransportOptions transport, std::string address,
                  int64_t deadline_ns);
  template <class Request, class Reply>
  static Task<Result<Reply>> call_once(rpc::Client& client, rpc::Method<Request, Reply> method,
                                       Request request, int64_t until_ns, bool& sent) {
    FF_CO_TRY(co_await client.channel(until_ns));
    sent = true;
    co_return co_await rpc::call_method(client, method, std::move(request), until_ns);
  }
  template <class T>
  Result<T> run(Task<Result<T>> task) {
    return run_task(client_.loop, cancel_on_stop(client_.loop, session_.stop, std::move(task)));
  }
  int64_t try_until_ns();
  void note_answer();
  // Waits a moment; or returns the error of the command.
  Result<void> check_retry(Error error, bool sent, bool is_lost);
  Result<rpc::Client*> agent_at(const std::string& address);
  void take_ticket(const scheduler::wire::ListedNode& node, int64_t expires_s);

  Session& session_;
  std::optional<uint32_t> token_user_;
  const std::string address_;
  const int64_t deadline_ns_;  // steady
  NetClient client_;
  std::unique_ptr<rpc::Client> scheduler_;
  std::map<std::string, std::unique_ptr<rpc::Client>> agents_;  // by address
  std::map<std::string, std::string> agent_names_;              // of their keys, by address
  bool answered_before_ = false;                                // the scheduler has answered before
  int64_t unreachable_since_ns_ = 0;  // since when it does not answer, steady; 0: it does
};

constexpr uint32_t kTasksPerPage = 500;

// Selects tasks.
struct TaskFilter {
  bool finished = false;            // include finished tasks
  std::optional<std::string> user;  // a name, or a number
};
// Calls `take` for each task, newest first, until it returns false. (list.cc)
Result<void> for_each_task(SchedulerClient& client, const TaskFilter& wanted,
                           const std::function<bool(const scheduler::wire::ListedTask&)>& take);

}  // namespace ff::cmd
