// result.cc: names, exit codes and errno translation for the errors of result.h.
#include "platform/base/result.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace ff {

void check_failed(const char* file, int line, const char* text) {
  std::fprintf(stderr, "ff: %s:%d: check failed: %s\nThis is a bug in ff.\n", file, line, text);
  std::abort();
}

std::string_view errc_name(Errc code) {
  switch (code) {
    case Errc::failed: return "failed";
    case Errc::usage: return "usage";
    case Errc::corrupt: return "corrupt";
    case Errc::incomplete: return "incomplete";
    case Errc::refused: return "refused";
    case Errc::deadline: return "deadline";
    case Errc::interrupted: return "interrupted";
    case Errc::not_found: return "not_found";
    case Errc::exists: return "exists";
    case Errc::disk_full: return "disk_full";
    case Errc::newer_format: return "newer_format";
    case Errc::unsupported: return "unsupported";
    case Errc::unreachable: return "unreachable";
    case Errc::busy: return "busy";
    case Errc::fault: return "fault";
    case Errc::stale: return "stale";
  }
  return "failed";
}

std::optional<Errc> errc_from_name(std::string_view name) {
  for (size_t number = 0; number < kErrcCount; number++) {
    const auto code = static_cast<Errc>(number);
    if (errc_name(code) == name) return code;
  }
  return std::nullopt;
}

int exit_code(Errc code) {
  switch (code) {
    case Errc::usage: return 2;
    case Errc::corrupt:
    case Errc::fault: return 3;
    case Errc::incomplete: return 4;
    case Errc::refused:
    case Errc::newer_format: return 5;
    case Errc::deadline: return 6;
    case Errc::interrupted: return 130;
    default: return 1;
  }
}

Error&& Error::with_context(std::string_view context) && {
  message.insert(0, context);
  return std::move(*this);
}

namespace {

Errc code_of(int err) {
  switch (err) {
    case ENOENT: return Errc::not_found;
    case EEXIST: return Errc::exists;
    case ENOSPC:
    case EDQUOT: return Errc::disk_full;
    case EACCES:
    case EPERM:
    case EROFS: return Errc::refused;
    case ESTALE: return Errc::stale;
    case ENOSYS:
    case EOPNOTSUPP: return Errc::unsupported;
    default: return Errc::failed;
  }
}

std::string hint_of(int err) {
  switch (err) {
    case ENOSPC: return "Free space on that file system and run the command again.";
    case EDQUOT: return "Your disk quota is used up; free space or raise it.";
    case EACCES:
    case EPERM: return "Check the owner and mode of the path, or run as a user who may use it.";
    case EROFS: return "The file system is mounted read-only.";
    case EMFILE:
    case ENFILE: return "Raise the limit on open files (ulimit -n).";
    default: return {};
  }
}

}  // namespace

Error errno_error(int err, std::string_view what) {
  return Error{code_of(err), fmt::format("{}: {}", what, std::generic_category().message(err)),
               hint_of(err), err};
}

}  // namespace ff
