// Everything that makes a subcommand of `ff schedule` a client of the scheduler, and of the agents
// that it names.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cmd/cli/cli.h"
#include "cmd/cli/stop_watch.h"
#include "cmd/options/net_client.h"
#include "cmd/options/net_options.h"
#include "ops/scheduler/service.h"

namespace ff::cmd {

constexpr const char* kDefaultScheduler = "127.0.0.1:4500";
// The time of a command, by default: the scheduler may be starting again.
constexpr int64_t kScheduleNs = 30 * kSecond;

struct ScheduleOptions {
  std::string scheduler = kDefaultScheduler;
  NetOptions net;
};
// --scheduler and the network's options.
void declare_scheduler(Command& command, ScheduleOptions& options);

class ScheduleCalls {
 public:
  // `timeout_ns`: the command's, 0 for none. Errc::usage: addresses, files.
  static Result<std::unique_ptr<ScheduleCalls>> open(Session& session,
                                                     const ScheduleOptions& options,
                                                     int64_t timeout_ns);
  ~ScheduleCalls();

  // Of the scheduler. Asked again when the connection was lost: what is asked for may be done
  // twice (SubmitRequest::once). Errc::unreachable: it is not there.
  template <class Request, class Reply>
  Result<Reply> call(rpc::Method<Request, Reply> method, const Request& request) {
    bool is_lost = false;  // one that may have been done
    for (;;) {
      bool sent = false;
      auto reply = run(ask_once(*scheduler_, method, request, try_until_ns(), sent));
      if (reply) {
        has_answered();
        return reply;
      }
      FF_TRY(may_try_again(std::move(reply).error(), sent, is_lost));
      is_lost = is_lost || sent;
    }
  }
  // Of an agent ("host:port"), once.
  template <class Request, class Reply>
  Result<Reply> ask_agent(const std::string& address, rpc::Method<Request, Reply> method,
                          const Request& request) {
    FF_TRY(rpc::Client* const agent, agent_at(address));
    bool sent = false;
    return run(ask_once(*agent, method, request, try_until_ns(), sent));
  }

  // Errc::not_found.
  Result<scheduler::wire::ListedTask> task(uint64_t id);
  Result<std::vector<scheduler::wire::ListedNode>> nodes();

  Session& session() { return session_; }
  Rng& rng() { return client_.rng; }
  // It speaks for one user, whoever runs it.
  bool has_token() const { return has_token_; }
  int64_t wall_ns() const { return session_.stop.clock().wall_ns(); }

 private:
  ScheduleCalls(Session& session, net::TransportOptions transport, std::string address,
                int64_t deadline_ns);
  template <class Request, class Reply>
  static Task<Result<Reply>> ask_once(rpc::Client& client, rpc::Method<Request, Reply> method,
                                      Request request, int64_t until_ns, bool& sent) {
    auto connecting = client.channel(until_ns);
    FF_CO_TRY(co_await std::move(connecting));
    sent = true;
    auto calling = rpc::call_method(client, method, std::move(request), until_ns);
    co_return co_await std::move(calling);
  }
  template <class T>
  Result<T> run(Task<Result<T>> task) {
    return run_task(client_.loop, stoppable(client_.loop, session_.stop, std::move(task)));
  }
  int64_t try_until_ns();
  void has_answered();
  // Waits a moment; or the error that the command ends with.
  Result<void> may_try_again(Error error, bool sent, bool is_lost);
  Result<rpc::Client*> agent_at(const std::string& address);

  Session& session_;
  bool has_token_ = false;
  const std::string address_;
  const int64_t deadline_ns_;  // steady
  NetClient client_;
  std::unique_ptr<rpc::Client> scheduler_;
  std::map<std::string, std::unique_ptr<rpc::Client>> agents_;
  bool met_ = false;       // it has been there
  int64_t absent_ns_ = 0;  // since when it is not, steady; 0: it is there
};

constexpr uint32_t kTasksOfPage = 500;

// Which tasks.
struct Wanted {
  bool finished = false;            // too
  std::optional<std::string> user;  // a name, or a number
};
// The newest first, in pages; `take` returns whether it wants more. (list.cc)
Result<void> each_task(ScheduleCalls& calls, const Wanted& wanted,
                       const std::function<bool(const scheduler::wire::ListedTask&)>& take);

}  // namespace ff::cmd
