// keeper.cc: starts, watches and replaces the process that serves a mount.
#include "storage/mount/keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "platform/base/fork.h"
#include "platform/base/log.h"
#include "platform/base/process.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "storage/mount/fuse_device.h"

namespace ff::mount {

namespace {

constexpr const char* kKeeperVariable = "FF_MOUNT_KEEPER";  // the descriptor of the socket
constexpr const char* kDeviceName = "device";
constexpr int kKeeperPollMs = 200;
// A serving process that has not reported to be healthy and lives shorter counts as a quick death.
constexpr int64_t kHealthyNs = 10 * kSecond;
constexpr size_t kQuickDeathsMax = 10;  // in succession
constexpr int64_t kRestartPauseNs = 200 * kMillisecond;
// Programs that ask for a replacement: how many the keeper hears at once, and for how long.
constexpr size_t kAskingMax = 8;
constexpr int64_t kAskingNs = 10 * kSecond;
// How long such a program waits while the mount is busy, and between two attempts.
constexpr int64_t kBusyNs = 30 * kSecond;
constexpr int64_t kBusyPauseNs = 100 * kMillisecond;
constexpr rlim_t kDescriptorsMax = 64 * 1024;
// What the keeper itself needs, also to start a process: what it holds, sockets, programs.
constexpr rlim_t kOwnDescriptors = 128;

// In the abstract namespace, so nothing is left behind.
struct KeeperAddress {
  sockaddr_un address = {};
  socklen_t size = 0;
};
KeeperAddress address_of_keeper(const std::string& device) {
  const std::string name = "ff-mount-keeper-" + device;
  KeeperAddress at;
  at.address.sun_family = AF_UNIX;
  std::memcpy(at.address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof at.address.sun_path - 1));
  at.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return at;
}

// Root may replace any mount, a user only mounts of his own.
bool trusts_peer(int socket) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == 0 || peer.uid == ::geteuid();
}

// For execveat(2) in another process, also after its file was replaced.
Result<Fd> this_program() {
  constexpr const char* kProgram = "/proc/self/exe";
  Fd fd(static_cast<int>(::syscall(SYS_openat, AT_FDCWD, kProgram, O_PATH | O_CLOEXEC)));
  if (fd.get() < 0) return errno_error(errno, kProgram);
  return fd;
}

std::vector<char*> keeper_pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// Each ring and each memory of a program takes a descriptor of both processes, or two.
void raise_descriptor_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, kDescriptorsMax);
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

rlim_t descriptor_limit() {
  rlimit limit = {};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

// Runs in the child between fork and exec, so it must not allocate or lock.
[[noreturn]] void become_server(int program, const char* dir, char* const* argv, char* const* env,
                                int socket, pid_t parent) {
  ::setsid();  // Ctrl-C reaches the keeper only
  ::signal(SIGPIPE, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  (void)!::chdir(dir);
  ::fcntl(socket, F_SETFD, 0);
  ::syscall(SYS_execveat, program, "", argv, env, AT_EMPTY_PATH);
  ::_exit(127);
}

class Keeper {
 public:
  Keeper(const StopToken& stop, const KeeperOptions& options) : stop_(stop), options_(options) {}
  Result<void> run();

 private:
  Result<void> start();
  void send_held() const;
  Result<void> watch_once();
  void handle(KeeperMessage message);
  void keep_stored(KeeperMessage message);
  void listen(const std::string& dir);
  void accept_commands();
  void receive_commands();
  Result<void> take_command(Fd& socket, Result<std::optional<KeeperMessage>> message);
  void answer_command(KeeperMessageType type, std::string_view text);
  std::optional<Result<void>> after_exit(int status);
  Result<void> give_up(const std::string& why);
  void stop_server();
  bool serving() const { return pid_ > 0; }

  const StopToken& stop_;
  const KeeperOptions& options_;
  Fd program_;
  Fd next_program_;  // of a command that waits
  Fd former_program_;
  Fd command_;   // the socket of that command
  Fd listener_;  // for commands
  // Connected, and not heard yet.
  struct Asking {
    Fd socket;
    int64_t until_ns = 0;
  };
  std::vector<Asking> asking_;
  Fd socket_;  // of the serving process
  Fd pidfd_;
  pid_t pid_ = 0;
  std::map<std::string, Fd> held_;
  std::map<std::string, Fd> stored_;  // until the serving process releases them
  std::string dir_;                   // the mount point; empty: not mounted yet
  uint64_t starts_ = 0;
  size_t quick_deaths_ = 0;
  int64_t started_ns_ = 0;
  bool told_ready_ = false;  // to who started the keeper
  bool told_full_ = false;   // that there are too many descriptors
  bool ready_ = false;       // this serving process
  bool healthy_ = false;     // it, too
  bool releases_ = false;    // it, too
  bool resends_ = false;
  bool stopping_ = false;
  std::optional<Error> error_;  // of this serving process
  Result<void> result_;         // of on_ready
};

Result<void> Keeper::start() {
  std::array<int, 2> ends = {};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return errno_error(errno, "the socket of the mount's keeper");
  }
  socket_ = Fd(ends[0]);
  Fd theirs(ends[1]);
  std::vector<std::string> argv = options_.argv, env;
  for (char** variable = environ; *variable != nullptr; variable++) env.emplace_back(*variable);
  env.push_back(fmt::format("{}={}", kKeeperVariable, theirs.get()));
  const auto arguments = keeper_pointers(argv), variables = keeper_pointers(env);
  const pid_t parent = ::getpid();
  pid_ = fork_for_exec();
  if (pid_ == 0) {
    become_server(program_.get(), options_.dir.c_str(), arguments.data(), variables.data(),
                  theirs.get(), parent);
  }
  if (pid_ < 0) return errno_error(errno, "the process that serves the mount cannot be started");
  pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  started_ns_ = stop_.clock().steady_ns();
  starts_++;
  ready_ = healthy_ = releases_ = false;
  error_.reset();
  theirs = Fd();  // so that sending fails when the process has ended
  send_held();
  return {};
}

// Waits while the socket is full. A dead process is noticed elsewhere.
void Keeper::send_held() const {
  const auto send = [this](KeeperMessageType type, std::string_view text = {}, int fd = -1) {
    return send_message(socket_.get(), type, text, fd).ok();
  };
  bool sent = send(KeeperMessageType::hello, std::to_string(starts_ - 1)) &&
              send(KeeperMessageType::version, std::to_string(kKeeperChannelVersion)) &&
              send(KeeperMessageType::mounted, dir_);
  for (const auto& [name, fd] : held_) {
    sent = sent && send(KeeperMessageType::hold, name, fd.get());
  }
  for (const auto& [name, fd] : stored_) {
    sent = sent && send(KeeperMessageType::store, name, fd.get());
  }
  if (sent) (void)send(KeeperMessageType::go);
}

void Keeper::listen(const std::string& dir) {
  dir_ = dir;
  if (listener_.get() >= 0) return;
  const std::string device = mounted_device(dir);
  if (device.empty()) return;
  const KeeperAddress at = address_of_keeper(device);
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* const address = reinterpret_cast<const sockaddr*>(&at.address);
  if (::bind(listener.get(), address, at.size) != 0 || ::listen(listener.get(), 1) != 0) {
    return log_warning("'ff mount --replace' cannot reach this mount", {{"errno", errno}});
  }
  listener_ = std::move(listener);
}

void Keeper::answer_command(KeeperMessageType type, std::string_view text) {
  if (command_.get() < 0) return;
  (void)send_message(command_.get(), type, text);
  command_ = Fd();
  former_program_ = Fd();
}

void Keeper::accept_commands() {
  while (asking_.size() < kAskingMax) {
    Fd command(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (command.get() < 0) return;
    asking_.push_back({std::move(command), stop_.clock().steady_ns() + kAskingNs});
  }
}

// Each gets an answer, however late it asks, and only after its message is read: to close a socket
// with unread messages drops the answer.
void Keeper::receive_commands() {
  for (Asking& one : std::exchange(asking_, {})) {
    pollfd wait{one.socket.get(), POLLIN, 0};
    (void)::poll(&wait, 1, 0);
    if (wait.revents == 0 && stop_.clock().steady_ns() < one.until_ns) {
      asking_.push_back(std::move(one));
      continue;
    }
    auto message = receive_message(one.socket.get(), false);
    if (wait.revents != 0 && message && !*message) continue;  // it has ended
    const auto taken = take_command(one.socket, std::move(message));
    if (!taken)
      (void)send_message(one.socket.get(), KeeperMessageType::error, text_of(taken.error()));
  }
}

// Moves the socket if the process that serves the mount hands over.
Result<void> Keeper::take_command(Fd& socket, Result<std::optional<KeeperMessage>> message) {
  FF_TRY(auto command, std::move(message));
  if (!trusts_peer(socket.get())) {
    return fail(Errc::refused, "another user has mounted the directory");
  }
  if (command_.get() >= 0 || !ready_ || stopping_) {
    return fail(Errc::busy, "the process that serves the mount is being started or stopped");
  }
  if (!resends_) {
    return Error{Errc::unsupported,
                 "another process cannot continue this mount: it uses io_uring or delegations, or "
                 "Linux is older than 6.9",
                 "Unmount the directory and mount it again."};
  }
  if (!command || command->type != KeeperMessageType::replace || command->fd.get() < 0) {
    return fail(Errc::usage, "the keeper of the mount has got no command that it knows");
  }
  next_program_ = std::move(command->fd);
  command_ = std::move(socket);
  log_info("another program replaces the one that serves the mount", {{"pid", pid_}});
  (void)send_message(socket_.get(), KeeperMessageType::hand_over);
  return {};
}

void Keeper::keep_stored(KeeperMessage message) {
  if (message.fd.get() >= 0 && stored_.size() + kOwnDescriptors < descriptor_limit()) {
    stored_[message.text] = std::move(message.fd);
  } else if (!std::exchange(told_full_, true)) {
    log_warning(
        "more rings and memory of programs than this process may have descriptors; the "
        "others end with the process that serves the mount",
        {{"descriptors", stored_.size()}});
  }
}

void Keeper::handle(KeeperMessage message) {
  switch (message.type) {
    case KeeperMessageType::hold: held_[message.text] = std::move(message.fd); return;
    case KeeperMessageType::store: return keep_stored(std::move(message));
    case KeeperMessageType::release: stored_.erase(message.text); return;
    case KeeperMessageType::version: releases_ = true; return;
    case KeeperMessageType::resends: resends_ = true; return;
    case KeeperMessageType::healthy: healthy_ = true; return;
    case KeeperMessageType::mounted: return listen(message.text);
    case KeeperMessageType::error: error_ = error_of(message.text); return;
    case KeeperMessageType::ready: break;
    default: return;
  }
  ready_ = true;
  if (!releases_) stored_.clear();  // an older version: it would never release them
  answer_command(KeeperMessageType::ready, message.text);
  if (std::exchange(told_ready_, true)) return;
  result_ = options_.on_ready(message.text);
  if (!result_) stop_server();
}

void Keeper::stop_server() {
  stopping_ = true;
  if (serving()) ::kill(pid_, SIGTERM);
}

// Waits for the next event and handles it. Clears `pid_` when the serving process has ended.
Result<void> Keeper::watch_once() {
  const bool has_room = asking_.size() < kAskingMax;
  std::vector<pollfd> waits = {{socket_.get(), POLLIN, 0},
                               {pidfd_.get(), POLLIN, 0},
                               {has_room ? listener_.get() : -1, POLLIN, 0}};
  for (const Asking& one : asking_) waits.push_back({one.socket.get(), POLLIN, 0});
  (void)::poll(waits.data(), waits.size(), kKeeperPollMs);
  if (options_.on_tick) options_.on_tick();
  if (!stopping_ && stop_.requested()) stop_server();
  // What it said before its end comes first.
  while (socket_.get() >= 0) {
    FF_TRY(auto message, receive_message(socket_.get(), false));
    if (!message) break;
    handle(std::move(*message));
  }
  if ((waits[0].revents & POLLHUP) != 0) socket_ = Fd();
  if ((waits[2].revents & POLLIN) != 0) accept_commands();
  receive_commands();
  return {};
}

Result<void> Keeper::give_up(const std::string& why) {
  Error error = fail(Errc::failed, "the process that serves the mount has ended: {}", why);
  error.hint = std::string("Its log says why. Mount the directory again.");
  log_error("the mount ends", {{"dir", dir_}, {"cause", error.message}});
  held_.clear();  // from here on, programs get errors instead of waiting
  stored_.clear();
  if (!dir_.empty()) unmount_lazily(dir_);
  return error;
}

// Nothing: start another process.
std::optional<Result<void>> Keeper::after_exit(int status) {
  const bool quick = !healthy_ && stop_.clock().steady_ns() - started_ns_ < kHealthyNs;
  const bool handed_over = WIFEXITED(status) && WEXITSTATUS(status) == KeeperLink::kHandedOver;
  if (next_program_.get() >= 0 && !stopping_) {
    if (!handed_over && !resends_) return give_up(describe_exit(status));
    former_program_ = std::exchange(program_, std::move(next_program_));
    next_program_ = Fd();
    return std::nullopt;
  }
  if (!told_ready_) {
    if (error_) return std::move(*error_);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Result<void>();
    return fail(Errc::failed, "it has ended before it served: {}", describe_exit(status));
  }
  if (!result_) return result_;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return error_ ? Result<void>(*error_) : Result<void>();
  }
  if (stopping_) {
    return error_ ? *error_ : fail(Errc::failed, "the mount has ended: {}", describe_exit(status));
  }
  if (former_program_.get() >= 0) {
    const Error why =
        error_ ? *error_
               : fail(Errc::failed, "the new program has ended: {}", describe_exit(status));
    log_error("the new program cannot serve the mount; the former one continues",
              {{"cause", why.message}});
    program_ = std::exchange(former_program_, Fd());
    answer_command(KeeperMessageType::error, text_of(why));
    return std::nullopt;
  }
  quick_deaths_ = quick ? quick_deaths_ + 1 : 0;
  if (!held_.contains(kDeviceName) || !resends_) return give_up(describe_exit(status));
  if (quick_deaths_ > kQuickDeathsMax) {
    return give_up(fmt::format("{} times in short succession, the last time with {}", quick_deaths_,
                               describe_exit(status)));
  }
  log_error("the process that serves the mount has ended; another one continues",
            {{"pid", pid_}, {"end", describe_exit(status)}, {"restarts", starts_}});
  // A process that never served would fail again at once.
  if (!ready_) (void)stop_.sleep_ns(kRestartPauseNs);
  return std::nullopt;
}

Result<void> Keeper::run() {
  FF_TRY(program_, this_program());
  for (;;) {
    FF_TRY(start());
    int status = 0;
    for (pid_t ended = 0; ended == 0;) {
      FF_TRY(watch_once());
      ended = ::waitpid(pid_, &status, WNOHANG);
      if (ended < 0 && errno == EINTR) ended = 0;
    }
    FF_TRY(watch_once());
    const auto over = after_exit(status);
    pid_ = 0;
    if (over) return *over;
    if (stop_.requested()) return give_up("it was stopped while it was started");
  }
}

}  // namespace

Result<void> keep_mount(const StopToken& stop, const KeeperOptions& options) {
  raise_descriptor_limit();
  return Keeper(stop, options).run();
}

Result<std::unique_ptr<KeeperLink>> KeeperLink::connect() {
  const char* const number = std::getenv(kKeeperVariable);
  if (number == nullptr) return std::unique_ptr<KeeperLink>();
  std::unique_ptr<KeeperLink> link(new KeeperLink(Fd(std::atoi(number))));
  ::unsetenv(kKeeperVariable);
  ::fcntl(link->socket_.get(), F_SETFD, FD_CLOEXEC);
  ::prctl(PR_SET_NAME, "ff");  // not the number of a descriptor
  for (;;) {
    FF_TRY(auto message, receive_message(link->socket_.get(), true));
    if (!message) return fail(Errc::failed, "the keeper of the mount has ended");
    if (message->type == KeeperMessageType::go) break;
    if (message->type == KeeperMessageType::hello) {
      link->restarts_ = std::strtoull(message->text.c_str(), nullptr, 10);
    }
    if (message->type == KeeperMessageType::mounted) link->dir_ = message->text;
    if (message->type == KeeperMessageType::version) {
      link->version_ = std::strtoull(message->text.c_str(), nullptr, 10);
    }
    if (message->type == KeeperMessageType::hold) {
      link->held_[message->text] = std::move(message->fd);
    }
    if (message->type == KeeperMessageType::store) {
      link->stored_[message->text] = std::move(message->fd);
    }
  }
  (void)send_message(link->socket_.get(), KeeperMessageType::version,
                     std::to_string(kKeeperChannelVersion));
  return link;
}

Fd KeeperLink::take(const std::string& name) {
  const auto found = held_.find(name);
  return found == held_.end() ? Fd() : std::exchange(found->second, Fd());
}

Result<void> KeeperLink::hold(const std::string& name, int fd) {
  return send_message(socket_.get(), KeeperMessageType::hold, name, fd);
}

Result<void> KeeperLink::store(const std::string& name, int fd) {
  return send_message(socket_.get(), KeeperMessageType::store, name, fd);
}

// If the keeper has died, this process dies with it.
void KeeperLink::release(const std::string& name) {
  (void)send_message(socket_.get(), KeeperMessageType::release, name);
}

std::map<std::string, Fd> KeeperLink::take_stored(std::string_view prefix) {
  std::map<std::string, Fd> taken;
  for (auto at = stored_.lower_bound(std::string(prefix));
       at != stored_.end() && at->first.starts_with(prefix);) {
    taken.insert(stored_.extract(at++));
  }
  return taken;
}

void KeeperLink::report_mounted(const std::string& dir) {
  (void)send_message(socket_.get(), KeeperMessageType::mounted, dir);
}

void KeeperLink::report_resends() { (void)send_message(socket_.get(), KeeperMessageType::resends); }

void KeeperLink::report_healthy() { (void)send_message(socket_.get(), KeeperMessageType::healthy); }

void KeeperLink::report_ready(const std::string& text) {
  (void)send_message(socket_.get(), KeeperMessageType::ready, text);
}

void KeeperLink::report_error(const Error& error) {
  (void)send_message(socket_.get(), KeeperMessageType::error, text_of(error));
}

bool KeeperLink::must_hand_over() {
  const auto message = receive_message(socket_.get(), false);
  if (message && *message) hand_over_ |= (*message)->type == KeeperMessageType::hand_over;
  return hand_over_;
}

namespace {

// Errc::busy: ask again.
Result<void> ask_keeper(const StopToken& stop, const std::string& device) {
  const KeeperAddress at = address_of_keeper(device);
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto* const address = reinterpret_cast<const sockaddr*>(&at.address);
  if (::connect(socket.get(), address, at.size) != 0) {
    Error error = errno_error(errno, "the keeper of the mount");
    error.hint =
        std::string("A mount of an older version has none: unmount it and mount it again.");
    return error;
  }
  if (!trusts_peer(socket.get()) && ::geteuid() != 0) {
    return fail(Errc::refused, "another user has mounted the directory");
  }
  FF_TRY(const Fd program, this_program());
  // A keeper of an older version may have refused already, or may have given up waiting for this.
  (void)send_message(socket.get(), KeeperMessageType::replace, {}, program.get());
  for (;;) {
    pollfd wait{socket.get(), POLLIN, 0};
    (void)::poll(&wait, 1, kKeeperPollMs);
    FF_TRY(stop.check());
    if (wait.revents == 0) continue;
    FF_TRY(const auto message, receive_message(socket.get(), true));
    if (!message) return fail(Errc::busy, "the keeper of the mount has not answered");
    if (message->type == KeeperMessageType::error) return error_of(message->text);
    return {};
  }
}

}  // namespace

Result<void> replace_mount(const StopToken& stop, const std::string& device) {
  const int64_t until_ns = stop.clock().steady_ns() + kBusyNs;
  for (bool asked = false;;) {
    auto replaced = ask_keeper(stop, device);
    if (!replaced && asked && replaced.error().sys == ECONNREFUSED) {
      return fail(Errc::failed, "the keeper of the mount has ended");
    }
    const bool busy = !replaced && replaced.error().code == Errc::busy;
    if (!busy || stop.clock().steady_ns() >= until_ns) return replaced;
    asked = true;
    FF_TRY(stop.sleep_ns(kBusyPauseNs));
  }
}

}  // namespace ff::mount
