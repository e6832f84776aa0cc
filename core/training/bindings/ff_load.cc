// ff_load.cc: loads tensors into memory, behind the C interface.
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/base/stop_token.h"
#include "platform/io/system_disk.h"
#include "training/bindings/checkpoint.h"
#include "training/bindings/ff.h"
#include "training/bindings/last_error.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/load/tensor_memory.h"

using ff::Errc;
using ff::Result;
using ff::bindings::failed;
using ff::bindings::outcome;
using ff::checkpoint::TensorMemory;

struct ff_loading {
  const pid_t process = ::getpid();
  ff::SystemClock clock = {};
  ff::StopToken stop{clock};
  ff::io::SystemDisk disk = {};
  ff::SeededRng rng{ff::system_seed()};
  ff::Progress progress = {};
  std::optional<ff::bindings::OpenStore> store = {};
  std::optional<ff::checkpoint::Context> context = {};  // of `store`
  std::unique_ptr<TensorMemory> found = {};
};

namespace {

Result<void> check_loading(const ff_loading* loading) {
  if (loading == nullptr) return ff::fail(Errc::usage, "the loading is null");
  return ff::bindings::check_process("loading", loading->process);
}

// Errc::usage: an index beyond `count`, or a null pointer for the result.
Result<void> check_loading(const ff_loading* loading, size_t index, size_t count,
                           const void* place) {
  FF_TRY(check_loading(loading));
  if (place == nullptr) return ff::fail(Errc::usage, "the pointer for the result is null");
  if (index < count) return {};
  return ff::fail(Errc::usage, "there are {}: index {} does not exist", count, index);
}

Result<void> begin_load(ff_loading& loading, const ff_load_options* given) {
  if (given == nullptr || given->size != sizeof *given) {
    return ff::fail(Errc::usage,
                    "ff_load_options is null or was compiled with another version of ff.h");
  }
  FF_TRY(auto path, ff::bindings::store_path(given->store));
  const std::string run = given->run != nullptr ? given->run : "default";
  FF_TRY(ff::checkpoint::check_run_name(run));
  ff::checkpoint::TensorMemoryOptions options{
      .name = given->step == FF_STEP_LAST ? run : ff::checkpoint::StepName{run, given->step}.text(),
      .rank = {},
      .tensors = {}};
  if (given->rank != FF_RANK_ANY) options.rank = given->rank;
  for (size_t i = 0; i < given->globs; i++) {
    if (given->tensors == nullptr || given->tensors[i] == nullptr) {
      return ff::fail(Errc::usage, "a glob of tensors is null");
    }
    options.tensors.emplace_back(given->tensors[i]);
  }
  FF_TRY(loading.store, ff::bindings::OpenStore::open(loading.stop, loading.disk, std::move(path)));
  loading.context.emplace(
      ff::checkpoint::Context{.disk = loading.store->disk(),
                              .clock = loading.clock,
                              .rng = loading.rng,
                              .stop = loading.stop,
                              .progress = loading.progress,
                              .threads = loading.store->worker_count(given->threads)});
  FF_TRY(loading.found, TensorMemory::plan(*loading.context, loading.store->path(), options));
  return {};
}

Result<void> read(ff_loading* loading, void* const* places) {
  FF_TRY(check_loading(loading));
  std::vector<std::byte*> into;
  for (const auto& tensor : loading->found->tensors()) {
    void* const place = places != nullptr ? places[into.size()] : nullptr;
    if (place == nullptr && tensor.bytes > 0) {
      return ff::fail(Errc::usage, "the memory for tensor '{}' is null", tensor.name);
    }
    into.push_back(static_cast<std::byte*>(place));
  }
  return loading->found->read(into);
}

// FF_STEP_NONE: the store or the run does not exist.
Result<uint64_t> latest(const char* store, const char* run) {
  ff::io::SystemDisk local;
  ff::SystemClock clock;
  const ff::StopToken stop(clock);
  FF_TRY(auto path, ff::bindings::store_path(store));
  const std::string name = run != nullptr ? run : "default";
  FF_TRY(ff::checkpoint::check_run_name(name));
  FF_TRY(auto access, ff::bindings::OpenStore::open(stop, local, std::move(path)));
  const auto none_or = [](const ff::Error& error) -> Result<uint64_t> {
    return error.code == Errc::not_found ? Result<uint64_t>(FF_STEP_NONE) : error;
  };
  const auto opened = ff::checkpoint::Store::open(access.disk(), access.path());
  if (!opened) return none_or(opened.error());
  const auto step = ff::checkpoint::latest_step(access.disk(), *opened, name);
  return step ? step->step : none_or(step.error());
}

}  // namespace

int ff_load_begin(ff_loading** loading, const ff_load_options* options) {
  if (loading == nullptr) return failed(ff::fail(Errc::usage, "loading is null"));
  *loading = nullptr;
  auto made = std::make_unique<ff_loading>();
  if (auto begun = begin_load(*made, options); !begun) return failed(begun.error());
  *loading = made.release();
  return FF_OK;
}

void ff_load_end(ff_loading* loading) {
  // A forked child must not release the lease of its parent.
  if (loading != nullptr && loading->process == ::getpid()) delete loading;
}

uint64_t ff_load_step(const ff_loading* loading) {
  return loading != nullptr ? loading->found->name().step : 0;
}
size_t ff_load_files(const ff_loading* loading) {
  return loading != nullptr ? loading->found->files().size() : 0;
}
size_t ff_load_tensors(const ff_loading* loading) {
  return loading != nullptr ? loading->found->tensors().size() : 0;
}

int ff_load_file(const ff_loading* loading, size_t index, ff_file* file) {
  const auto checked = check_loading(loading, index, ff_load_files(loading), file);
  if (!checked) return failed(checked.error());
  const auto& found = loading->found->files()[index];
  *file = {.name = found.name.c_str(),
           .rank = found.rank,
           .first = found.first,
           .tensors = found.tensors,
           .texts = found.metadata.size()};
  return FF_OK;
}

int ff_load_text(const ff_loading* loading, size_t file, size_t index, ff_text* text) {
  auto checked = check_loading(loading, file, ff_load_files(loading), text);
  if (!checked) return failed(checked.error());
  const auto& metadata = loading->found->files()[file].metadata;
  checked = check_loading(loading, index, metadata.size(), text);
  if (!checked) return failed(checked.error());
  *text = {.key = metadata[index].first.c_str(), .value = metadata[index].second.c_str()};
  return FF_OK;
}

int ff_load_tensor(const ff_loading* loading, size_t index, ff_tensor* tensor) {
  const auto checked = check_loading(loading, index, ff_load_tensors(loading), tensor);
  if (!checked) return failed(checked.error());
  const auto& found = loading->found->tensors()[index];
  *tensor = {.name = found.name.c_str(),
             .dtype = found.dtype.c_str(),
             .shape = found.shape.data(),
             .dimensions = found.shape.size(),
             .bytes = found.bytes,
             .data = nullptr};
  return FF_OK;
}

int ff_load_read(ff_loading* loading, void* const* places) {
  return outcome(read(loading, places));
}

int ff_latest_step(const char* store, const char* run, uint64_t* step) {
  if (step == nullptr) return failed(ff::fail(Errc::usage, "step is null"));
  const auto found = latest(store, run);
  if (!found) return failed(found.error());
  *step = *found;
  return FF_OK;
}
