// dir_events.cc: inotify, restricted to IN_MOVED_TO, which marks a complete file.
#include "platform/io/dir_events.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ff::io {

Result<DirEvents> DirEvents::open(const std::string& dir) {
  const int fd = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd < 0) return errno_error(errno, "inotify");
  DirEvents events(fd);
  if (::inotify_add_watch(fd, dir.c_str(), IN_MOVED_TO | IN_ONLYDIR) < 0) {
    return errno_error(errno, dir);
  }
  return events;
}

DirEvents::~DirEvents() {
  if (fd_ >= 0) ::close(fd_);
}

DirEvents::DirEvents(DirEvents&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

std::vector<std::string> DirEvents::read_names() {
  std::vector<std::string> names;
  alignas(inotify_event) char buffer[16384];
  for (;;) {
    const ssize_t got = ::read(fd_, buffer, sizeof buffer);
    if (got <= 0) return names;
    for (ssize_t at = 0; at < got;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      if ((event->mask & IN_MOVED_TO) != 0 && event->len > 0) names.emplace_back(event->name);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
}

}  // namespace ff::io
