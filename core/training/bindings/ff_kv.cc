// ff_kv.cc: reads and changes a store of keys and values, behind the C interface.
#include <unistd.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/stop_token.h"
#include "platform/io/system_disk.h"
#include "training/bindings/checkpoint.h"
#include "training/bindings/ff.h"
#include "training/bindings/kv.h"
#include "training/bindings/last_error.h"

using ff::Errc;
using ff::Result;
using ff::bindings::failed;
using ff::bindings::outcome;

static_assert(FF_KV_NONE == ff::bindings::kNoValue);

struct ff_kv {
  const pid_t process = ::getpid();
  ff::SystemClock clock = {};
  ff::StopToken stop{clock};
  ff::io::SystemDisk local = {};
  std::unique_ptr<ff::bindings::KvClient> store = {};
};

namespace {

using Texts = std::vector<std::string_view>;

// Longer ones are not told from none.
constexpr double kMostSeconds = 1e9;

Result<int64_t> nanoseconds(double seconds, const char* what) {
  if (std::isnan(seconds) || seconds < 0) {
    return ff::fail(Errc::usage, "{} is {}: it must not be negative", what, seconds);
  }
  return static_cast<int64_t>(std::min(seconds, kMostSeconds) * ff::kSecond);
}

Result<void> open_kv(ff_kv& made, const ff_kv_options* given) {
  if (given == nullptr || given->size != sizeof *given) {
    return ff::fail(Errc::usage, "the options are null, or their size is not that of this version");
  }
  ff::bindings::KvClientOptions options;
  FF_TRY(options.path, ff::bindings::store_path(given->store));
  FF_TRY(options.max_age_ns, nanoseconds(given->max_age_seconds, "max_age_seconds"));
  FF_TRY(options.write_ns, nanoseconds(given->write_seconds, "write_seconds"));
  FF_TRY(made.store, ff::bindings::open_kv_client(made.stop, made.local, options));
  return {};
}

Result<void> check_kv(const ff_kv* kv) {
  if (kv == nullptr) return ff::fail(Errc::usage, "the store is null");
  return ff::bindings::check_process("store", kv->process);
}

Result<Texts> texts_of(const void* const* data, const size_t* bytes, size_t count,
                       const char* what) {
  if (count > 0 && (data == nullptr || bytes == nullptr)) {
    return ff::fail(Errc::usage, "the array of {}, or of their sizes, is null", what);
  }
  Texts texts(count);
  for (size_t i = 0; i < count; i++) {
    if (data[i] == nullptr && bytes[i] > 0) {
      return ff::fail(Errc::usage, "one of the {}, number {}, is null", what, i);
    }
    texts[i] = {static_cast<const char*>(data[i]), bytes[i]};
  }
  return texts;
}

// One behind the other.
Result<Texts> keys_of(const void* keys, const size_t* bytes, size_t count) {
  if (count > 0 && (keys == nullptr || bytes == nullptr)) {
    return ff::fail(Errc::usage, "the keys, or the array of their sizes, are null");
  }
  Texts texts(count);
  const char* at = static_cast<const char*>(keys);
  for (size_t i = 0; i < count; i++) {
    texts[i] = {at, bytes[i]};
    at += bytes[i];
  }
  return texts;
}

Result<void> find_keys(ff_kv* kv, const Texts& keys, uint64_t* sizes) {
  if (sizes == nullptr && !keys.empty()) return ff::fail(Errc::usage, "the sizes are null");
  return kv->store->find(keys, {sizes, keys.size()});
}

Result<void> exists_many(ff_kv* kv, const void* keys, const size_t* key_bytes, size_t count,
                         uint64_t* sizes) {
  FF_TRY(check_kv(kv));
  FF_TRY(const Texts names, keys_of(keys, key_bytes, count));
  return find_keys(kv, names, sizes);
}

Result<void> get_many(ff_kv* kv, const void* keys, const size_t* key_bytes, size_t count,
                      void* const* places, const size_t* rooms, uint64_t* sizes) {
  FF_TRY(check_kv(kv));
  FF_TRY(const Texts names, keys_of(keys, key_bytes, count));
  FF_TRY(texts_of(places, rooms, count, "places"));
  if (sizes == nullptr && count > 0) return ff::fail(Errc::usage, "the sizes are null");
  std::vector<ff::ByteSpan> into(count);
  for (size_t i = 0; i < count; i++) into[i] = {static_cast<std::byte*>(places[i]), rooms[i]};
  return kv->store->read(names, into, {sizes, count});
}

Result<void> put_many(ff_kv* kv, const void* keys, const size_t* key_bytes,
                      const void* const* values, const size_t* value_bytes, size_t count,
                      double ttl_seconds) {
  FF_TRY(check_kv(kv));
  FF_TRY(const Texts names, keys_of(keys, key_bytes, count));
  FF_TRY(const Texts contents, texts_of(values, value_bytes, count, "values"));
  FF_TRY(const int64_t ttl_ns, nanoseconds(ttl_seconds, "ttl_seconds"));
  const int64_t ttl_ms = ttl_ns / ff::kMillisecond;
  if (ttl_seconds > 0 && ttl_ms == 0) return ff::fail(Errc::usage, "less than a millisecond");
  return kv->store->put(names, contents, ttl_ms);
}

Result<void> delete_many(ff_kv* kv, const void* keys, const size_t* key_bytes, size_t count,
                         uint64_t* deleted) {
  FF_TRY(check_kv(kv));
  FF_TRY(const Texts names, keys_of(keys, key_bytes, count));
  FF_TRY(const uint64_t there, kv->store->remove(names));
  if (deleted != nullptr) *deleted = there;
  return {};
}

}  // namespace

int ff_kv_open(ff_kv** kv, const ff_kv_options* options) {
  if (kv == nullptr) return failed(ff::fail(Errc::usage, "kv is null"));
  *kv = nullptr;
  auto made = std::make_unique<ff_kv>();
  if (auto opened = open_kv(*made, options); !opened) return outcome(opened);
  *kv = made.release();
  return FF_OK;
}

void ff_kv_close(ff_kv* kv) {
  if (kv != nullptr && kv->process == ::getpid()) delete kv;
}

int ff_kv_refresh(ff_kv* kv) {
  auto checked = check_kv(kv);
  return outcome(checked ? kv->store->refresh() : checked);
}

int ff_kv_exists_many(ff_kv* kv, const void* keys, const size_t* key_bytes, size_t count,
                      uint64_t* sizes) {
  return outcome(exists_many(kv, keys, key_bytes, count, sizes));
}

int ff_kv_get_many(ff_kv* kv, const void* keys, const size_t* key_bytes, size_t count,
                   void* const* places, const size_t* rooms, uint64_t* sizes) {
  return outcome(get_many(kv, keys, key_bytes, count, places, rooms, sizes));
}

int ff_kv_put_many(ff_kv* kv, const void* keys, const size_t* key_bytes, const void* const* values,
                   const size_t* value_bytes, size_t count, double ttl_seconds) {
  return outcome(put_many(kv, keys, key_bytes, values, value_bytes, count, ttl_seconds));
}

int ff_kv_delete_many(ff_kv* kv, const void* keys, const size_t* key_bytes, size_t count,
                      uint64_t* deleted) {
  return outcome(delete_many(kv, keys, key_bytes, count, deleted));
}
