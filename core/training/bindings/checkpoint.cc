// checkpoint.cc: the scheme of a store's path decides whether a cluster holds it.
#include "training/bindings/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "training/bindings/quiet_thread.h"

namespace ff::bindings {

Result<void> check_process(std::string_view what, pid_t maker) {
  if (maker == ::getpid()) return {};
  return fail(Errc::usage, "process {} made the {}: it does not outlive a fork", maker, what);
}

Result<std::string> store_path(const char* given) {
  const std::string_view path = given != nullptr ? given : "";
  if (path.empty()) return fail(Errc::usage, "the store is null or empty");
  return std::string(path);
}

Result<OpenStore> OpenStore::open(const StopToken& stop, io::Disk& local, std::string store) {
  OpenStore opened(local, std::move(store));
  if (!opened.path_.starts_with("ff://")) return opened;
  // The threads of the client inherit the signal mask.
  const QuietSignals quiet;
  FF_TRY(opened.cluster_, open_remote_store(stop, local, opened.path_));
  opened.path_ = opened.cluster_->path();
  return opened;
}

Result<std::string> OpenStore::path_of(const std::string& given) const {
  if (!given.starts_with("ff://")) return given;
  if (cluster_ == nullptr) return fail(Errc::usage, "{}: no cluster was opened", given);
  return cluster_->path_of(given);
}

unsigned OpenStore::worker_count(unsigned wanted) const {
  constexpr unsigned kMost = 8;  // more do not make the disk faster
  // Workers wait for the network, not for a processor.
  const unsigned least = cluster_ != nullptr ? 6 : 1;
  return wanted > 0 ? wanted : std::clamp(std::thread::hardware_concurrency(), least, kMost);
}

}  // namespace ff::bindings
