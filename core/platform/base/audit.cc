// audit.cc: rates, lines, and the file that they go to.
#include "platform/base/audit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "platform/base/fd.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff {
namespace {

// Actors whose rates are remembered; beyond it all are forgotten.
constexpr size_t kActorsMax = 10'000;
constexpr int64_t kReopenCheckNs = kSecond;

class Bucket {
 public:
  Bucket(double burst, double rate) : burst_(burst), rate_(rate), tokens_(burst) {}
  bool take(int64_t now_ns) {
    const double seconds = static_cast<double>(now_ns - last_ns_) / kSecond;
    tokens_ = std::min(burst_, tokens_ + std::max(seconds, 0.0) * rate_);
    last_ns_ = now_ns;
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

 private:
  double burst_, rate_, tokens_;
  int64_t last_ns_ = 0;
};

struct Actor {
  Bucket bucket{kAuditBurst, kAuditRate};
  uint64_t left_out = 0;
};

class AuditLog {
 public:
  AuditLog(std::string path, Clock& clock) : path_(std::move(path)), clock_(clock) {}

  Result<void> open() {
    if (path_ == "syslog") {
      ::openlog("ff", LOG_PID, LOG_AUTHPRIV);
      return {};
    }
    Fd fd(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (fd.get() < 0) return errno_error(errno, path_);
    fd_ = std::move(fd);
    return {};
  }

  void write(std::string_view event, std::string_view who, LogFields fields) {
    const std::lock_guard lock(mutex_);
    const int64_t now_ns = clock_.steady_ns();
    if (actors_.size() > kActorsMax) actors_.clear();
    Actor& actor = actors_[std::string(event) + '|' + std::string(who)];
    if (!actor.bucket.take(now_ns) || !all_.take(now_ns)) {
      actor.left_out++;
      return;
    }
    put(line_of(event, who, fields, std::exchange(actor.left_out, 0)), now_ns);
  }

 private:
  std::string line_of(std::string_view event, std::string_view who, LogFields fields,
                      uint64_t left_out) const {
    std::string line = "{\"time\":";
    append_json_string(line, format_time(clock_.wall_ns()));
    line += ",\"event\":";
    append_json_string(line, event);
    line += ",\"who\":";
    append_json_string(line, who);
    for (const LogField& field : fields) {
      line += ',';
      append_json_string(line, field.key);
      line += ':';
      if (field.is_text) append_json_string(line, field.value);
      if (!field.is_text) line += field.value;
    }
    if (left_out > 0) line += fmt::format(",\"left_out\":{}", left_out);
    return line + "}\n";
  }

  // A file that was renamed or removed gets a successor.
  void reopen_if_renamed(int64_t now_ns) {
    if (now_ns < check_ns_) return;
    check_ns_ = now_ns + kReopenCheckNs;
    struct stat open_file;
    struct stat named;
    const bool same = ::fstat(fd_.get(), &open_file) == 0 && ::stat(path_.c_str(), &named) == 0 &&
                      open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
    if (same) return;
    if (auto opened = open(); !opened) {
      log_error("cannot reopen the audit log", {{"cause", opened.error().message}});
    }
  }

  void put(const std::string& line, int64_t now_ns) {
    if (path_ == "syslog") {
      ::syslog(LOG_NOTICE, "%.*s", static_cast<int>(line.size() - 1), line.data());
      return;
    }
    reopen_if_renamed(now_ns);
    const ssize_t done = ::write(fd_.get(), line.data(), line.size());
    if (done == static_cast<ssize_t>(line.size())) return;
    log_error("cannot write the audit log",
              {{"file", path_}, {"cause", done < 0 ? ::strerror(errno) : "the disk is full"}});
  }

  const std::string path_;
  Clock& clock_;
  std::mutex mutex_;  // guards the rest
  Fd fd_;
  int64_t check_ns_ = 0;
  Bucket all_{kAuditBurstOfAll, kAuditRateOfAll};
  std::map<std::string, Actor> actors_;
};

// Never destroyed: threads may still write while the process exits.
AuditLog*& the_audit_log() {
  static AuditLog* log = nullptr;
  return log;
}

}  // namespace

Result<void> audit_setup(const std::string& to, Clock& clock) {
  auto log = std::make_unique<AuditLog>(to, clock);
  FF_TRY(log->open());
  delete std::exchange(the_audit_log(), log.release());
  return {};
}

void audit(std::string_view event, std::string_view who, LogFields fields) {
  if (AuditLog* const log = the_audit_log()) log->write(event, who, fields);
}

}  // namespace ff
