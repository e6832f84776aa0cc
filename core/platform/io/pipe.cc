// pipe.cc: one detached thread per call; it outlives a cancelled task.
#include "platform/io/pipe.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <thread>
#include <utility>

#include "platform/base/thread_result.h"

namespace ff::io {

namespace {

Result<std::string> read_all(int fd, size_t size) {
  std::string bytes(size, '\0');
  size_t got = 0;
  while (got < size) {
    const ssize_t count = ::read(fd, bytes.data() + got, size - got);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error(errno, "standard input");
    if (count == 0) break;
    got += static_cast<size_t>(count);
  }
  bytes.resize(got);
  return bytes;
}

Result<bool> write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error(errno, "standard output");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

Task<Result<std::string>> read_pipe(Loop& loop, int fd, size_t size) {
  using Bytes = ThreadResult<std::string>;
  auto taking = Bytes::wait(loop, [fd, size](std::shared_ptr<Bytes> result) {
    std::thread([result, fd, size] { result->set(read_all(fd, size)); }).detach();
  });
  co_return co_await std::move(taking);
}

Task<Result<void>> write_pipe(Loop& loop, int fd, std::string bytes) {
  using Done = ThreadResult<bool>;
  auto shared = std::make_shared<std::string>(std::move(bytes));
  auto taking = Done::wait(loop, [fd, shared](std::shared_ptr<Done> result) {
    std::thread([result, fd, shared] { result->set(write_all(fd, *shared)); }).detach();
  });
  const auto done = co_await std::move(taking);
  if (!done) co_return done.error();
  co_return Result<void>();
}

}  // namespace ff::io
