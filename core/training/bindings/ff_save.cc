// ff_save.cc: savers behind the C interface. The caller's thread copies the state (staged_state.h);
// a second thread then saves the copy as `ff checkpoint save` does, and reports the step to the
// agent if this process belongs to a task.
#include <openssl/crypto.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/base/stop_token.h"
#include "platform/io/system_disk.h"
#include "platform/net/resolve.h"
#include "training/bindings/checkpoint.h"
#include "training/bindings/ff.h"
#include "training/bindings/last_error.h"
#include "training/bindings/quiet_thread.h"
#include "training/bindings/staged_state.h"
#include "training/checkpoint/format/index.h"
#include "training/checkpoint/save/save.h"
#include "training/checkpoint/save/saver_identity.h"
#include "training/cuda/pinned_copies.h"
#include "training/task/task_client.h"

using ff::Errc;
using ff::Result;
using ff::bindings::failed;
using ff::checkpoint::SaveOptions;
using ff::checkpoint::SaveReport;

namespace {

// The request of ff_save_begin().
struct Request {
  std::string store;
  std::string file;
  SaveOptions options;
  unsigned threads = 0;                 // 0: the default
  std::optional<std::string> task_dir;  // of the task of this process
};

}  // namespace

struct ff_saver {
  const pid_t process = ::getpid();
  ff::SystemClock clock = {};
  ff::StopToken stop{clock};
  ff::io::SystemDisk disk = {};
  ff::SeededRng rng{ff::system_seed()};
  ff::bindings::StagedState state = {};
  std::unique_ptr<ff::cuda::PinnedCopies> copies = {};  // from devices, into the memory of `state`
  std::optional<Request> prepared = {};
  std::thread writer = {};                       // from start to join()
  std::atomic<bool> busy = false;                // the writer runs
  std::optional<Result<SaveReport>> ended = {};  // of the last save, after join()

  void join() {
    if (writer.joinable()) writer.join();
  }
};

namespace {

Result<void> check_saver(const ff_saver* saver) {
  if (saver == nullptr) return ff::fail(Errc::usage, "the saver is null");
  return ff::bindings::check_process("saver", saver->process);
}

Result<Request> request_of(const ff_save_options* given) {
  if (given == nullptr || given->size != sizeof *given) {
    return ff::fail(Errc::usage,
                    "ff_save_options is null or was compiled with another version of ff.h");
  }
  Request request;
  FF_TRY(request.store, ff::bindings::store_path(given->store));
  request.file = given->file != nullptr ? given->file : "state.safetensors";
  if (!ff::checkpoint::safe_name(request.file) || !request.file.ends_with(".safetensors")) {
    return ff::fail(Errc::usage, "'{}' is not a name for a safetensors file", request.file);
  }
  SaveOptions& options = request.options;
  if (given->run != nullptr) options.run = given->run;
  FF_TRY(ff::checkpoint::check_run_name(options.run));
  if (given->step != FF_STEP_NEXT) options.step = given->step;
  options.rank = given->rank;
  options.world = std::max(given->world, 1U);
  options.attempt =
      given->attempt != nullptr ? given->attempt : ff::checkpoint::attempt_from_environment();
  if (options.rank >= options.world) {
    return ff::fail(Errc::usage, "there is no rank {} of {}", options.rank, options.world);
  }
  if (options.world > 1 && (options.attempt.empty() || !options.step)) {
    return ff::Error{Errc::usage, "several ranks save together under one step and one attempt",
                     "Give all ranks the same step and attempt, or set FF_ATTEMPT or torchrun's "
                     "--rdzv-id to a new value for each start of the job."};
  }
  options.replace = given->replace != 0;
  options.compress = given->compress != 0;
  request.threads = given->threads;
  request.task_dir = ff::task::task_dir_from_environment();
  return request;
}

Result<SaveReport> write(ff_saver& saver, Request& request) {
  if (saver.copies != nullptr) FF_TRY(saver.copies->wait(saver.stop));
  ff::Progress progress;
  FF_TRY(auto store, ff::bindings::OpenStore::open(saver.stop, saver.disk, request.store));
  ff::checkpoint::Context context{.disk = store.disk(),
                                  .clock = saver.clock,
                                  .rng = saver.rng,
                                  .stop = saver.stop,
                                  .progress = progress,
                                  .threads = store.worker_count(request.threads)};
  request.options.identity =
      ff::checkpoint::saver_identity(saver.disk, ff::net::host_name(), FF_VERSION);
  return ff::checkpoint::save(
      context, store.path(),
      {.paths = {},
       .stream = {},
       .open = {{.name = request.file, .file = saver.state.file(request.file)}}},
      request.options);
}

// The save succeeds even if the report to the agent fails.
void tell_agent(ff_saver& saver, const Request& request, const Result<SaveReport>& report) {
  if (!request.task_dir || !report || report->outcome == ff::checkpoint::SaveOutcome::waiting)
    return;
  const uint64_t step = report->name.step;
  const auto told = ff::task::TaskClient(saver.disk, saver.rng, *request.task_dir).saved(step);
  if (told) return;
  std::fprintf(stderr, "ff: step %llu is saved, but the task's agent was not told: %s\n",
               static_cast<unsigned long long>(step), told.error().message.c_str());
}

Result<void> begin_save(ff_saver* saver, const ff_save_options* options,
                        std::span<const ff_tensor> tensors, std::span<const ff_text> metadata,
                        void** places) {
  FF_TRY(check_saver(saver));
  if ((tensors.data() == nullptr || places == nullptr) && !tensors.empty()) {
    return ff::fail(Errc::usage, "tensors or places is null");
  }
  if (metadata.data() == nullptr && !metadata.empty()) {
    return ff::fail(Errc::usage, "the metadata is null");
  }
  saver->prepared.reset();
  FF_TRY(auto request, request_of(options));
  saver->join();
  // Copies that no save has waited for.
  if (saver->copies != nullptr && !saver->copies->wait(saver->stop)) saver->copies.reset();
  FF_TRY(saver->state.stage(tensors, metadata, {places, tensors.size()},
                            [saver] { saver->copies.reset(); }));
  saver->prepared = std::move(request);
  return {};
}

Result<void> copy_from_device(ff_saver* saver, void* place, const void* device, uint64_t bytes,
                              void* stream) {
  FF_TRY(check_saver(saver));
  if (!saver->prepared) return ff::fail(Errc::usage, "ff_save_begin() was not called");
  const Result<ff::cuda::Driver>& driver = ff::cuda::Driver::of_machine();
  if (!driver) return driver.error();
  if (saver->copies == nullptr) {
    FF_TRY(saver->copies, ff::cuda::PinnedCopies::make(*driver, saver->state.memory()));
  }
  return saver->copies->copy(place, device, bytes, static_cast<ff::cuda::CUstream>(stream));
}

Result<void> start(ff_saver* saver) {
  FF_TRY(check_saver(saver));
  if (!saver->prepared) return ff::fail(Errc::usage, "ff_save_begin() was not called");
  saver->busy = true;
  saver->ended.reset();
  saver->writer =
      ff::bindings::quiet_thread([saver, request = std::move(*saver->prepared)]() mutable {
        saver->ended = write(*saver, request);
        tell_agent(*saver, request, *saver->ended);
        saver->busy = false;
      });
  saver->prepared.reset();
  return {};
}

Result<ff_saved> wait(ff_saver* saver) {
  FF_TRY(check_saver(saver));
  saver->join();
  if (!saver->ended) return ff::fail(Errc::usage, "ff_save_start() was not called");
  if (!*saver->ended) return saver->ended->error();
  const SaveReport& report = **saver->ended;
  return ff_saved{.step = report.name.step,
                  .missing_ranks = report.missing_ranks,
                  .bytes = report.bytes,
                  .bytes_written = report.bytes_written,
                  .seconds = static_cast<double>(report.elapsed_ns) / ff::kSecond,
                  .outcome = static_cast<ff_outcome>(report.outcome)};
}

static_assert(FF_COMMITTED == static_cast<int>(ff::checkpoint::SaveOutcome::committed) &&
              FF_ALREADY_THERE == static_cast<int>(ff::checkpoint::SaveOutcome::already_there) &&
              FF_WAITING == static_cast<int>(ff::checkpoint::SaveOutcome::waiting));

}  // namespace

int ff_saver_open(ff_saver** saver) {
  if (saver == nullptr) return failed(ff::fail(Errc::usage, "saver is null"));
  // A writer thread that outlives main() may use OpenSSL for a digest: keep it loaded until the
  // end.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  *saver = std::make_unique<ff_saver>().release();
  return FF_OK;
}

void ff_saver_close(ff_saver* saver, int give_up) {
  // A forked child does not have its thread, so it must not destroy it.
  if (saver == nullptr || saver->process != ::getpid()) return;
  if (give_up != 0) saver->stop.request();
  saver->join();
  delete saver;
}

int ff_save_begin(ff_saver* saver, const ff_save_options* options, const ff_tensor* tensors,
                  size_t count, const ff_text* metadata, size_t texts, void** places) {
  return ff::bindings::outcome(
      begin_save(saver, options, {tensors, count}, {metadata, texts}, places));
}

int ff_save_copy_on(ff_saver* saver, void* place, const void* device, uint64_t bytes,
                    void* stream) {
  return ff::bindings::outcome(copy_from_device(saver, place, device, bytes, stream));
}

int ff_save_start(ff_saver* saver) { return ff::bindings::outcome(start(saver)); }

int ff_save_busy(const ff_saver* saver, int* busy) {
  if (auto checked = check_saver(saver); !checked) return failed(checked.error());
  if (busy == nullptr) return failed(ff::fail(Errc::usage, "busy is null"));
  *busy = saver->busy ? 1 : 0;
  return FF_OK;
}

int ff_save_wait(ff_saver* saver, ff_saved* saved) {
  const auto waited = wait(saver);
  if (!waited) return failed(waited.error());
  if (saved != nullptr) *saved = *waited;
  return FF_OK;
}
