// watch.cc: polls the directory once a second. A file is finished when its size and time (those of
// all entries, for a directory) no longer change.
#include "training/checkpoint/save/watch.h"

#include <charconv>
#include <map>
#include <set>

#include "platform/base/clock.h"
#include "platform/io/files.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/save/input.h"
#include "training/checkpoint/save/save.h"

namespace ff::checkpoint {
namespace {

constexpr int64_t kLookNs = kSecond;
constexpr uint64_t kDigitsMax = 19;  // of a step in a name: they fit 64 bits

bool on_skipped_file(std::string_view name) {
  return name.starts_with('.') || name.ends_with(".tmp") || name.ends_with(".part");
}

// Changes with any name, size or time.
using Print = simd::Digest;

class Watcher {
 public:
  Watcher(Context& context, const std::string& store_path, const WatchOptions& options)
      : context_(context), store_path_(store_path), options_(options) {}

  Result<void> remember_saved();
  Result<void> poll(const std::set<std::string>& finished, const OnSave& on_save);
  bool waiting() const { return waiting_; }
  const std::optional<Error>& first_error() const { return first_error_; }

 private:
  struct Seen {
    Print print;
    int64_t since_ns = 0;  // unchanged since
    bool handled = false;  // saved, or reported as an error
  };

  Result<Print> print_of(const std::string& path, const io::FileInfo& info) const;
  bool parses(const std::string& path) const;
  Result<void> save_one(const std::string& name, const OnSave& on_save);
  static std::string saved_key(const std::string& name, uint64_t size, int64_t mtime_ns);

  Context& context_;
  const std::string& store_path_;
  const WatchOptions& options_;
  std::map<std::string, Seen> seen_;
  std::set<std::string> saved_;  // keys of files that the run has
  bool waiting_ = false;
  std::optional<Error> first_error_;
};

std::string Watcher::saved_key(const std::string& name, uint64_t size, int64_t mtime_ns) {
  return fmt::format("{}/{}/{}", name, size, mtime_ns);
}

// The first record of each index is the file or directory it was made from.
Result<void> Watcher::remember_saved() {
  auto store = Store::open(context_.disk, store_path_);
  if (!store) {
    if (store.error().code == Errc::not_found) return {};
    return std::move(store).error();
  }
  FF_TRY(const auto steps, committed_steps(context_.disk, *store, options_.save.run));
  for (const uint64_t step : steps) {
    auto reader = IndexReader::open(context_.disk, store->index_path({options_.save.run, step}));
    if (!reader) continue;
    const auto record = reader->next();
    if (!record || !*record) continue;
    if (const auto* file = std::get_if<FileRecord>(&**record)) {
      saved_.insert(saved_key(file->name, file->size, file->mtime_ns));
    }
  }
  return {};
}

Result<Print> Watcher::print_of(const std::string& path, const io::FileInfo& info) const {
  simd::Digester digester(simd::DigestKind::xxh128);
  const auto add = [&](const std::string& name, const io::FileInfo& file) {
    digester.update(as_bytes(saved_key(name, file.size, file.mtime_ns)));
  };
  if (info.kind == io::FileKind::directory) {
    FF_TRY(const auto entries, list_inputs(context_, {path}));
    for (const auto& entry : entries) add(entry.name, entry.info);
  } else {
    add(path, info);
  }
  return digester.finish();
}

// Whether a file that should hold tensors is complete enough to be read.
bool Watcher::parses(const std::string& path) const {
  if (!path.ends_with(".safetensors")) return true;
  auto file = context_.disk.open(path, {});
  if (!file) return false;
  const auto info = (*file)->info();
  std::string text(kSafetensorsLengthBytes, '\0');
  const auto read = [&](uint64_t offset) {
    const auto got =
        (*file)->read_at({reinterpret_cast<std::byte*>(text.data()), text.size()}, offset);
    return got && *got == text.size();
  };
  if (!info || !read(0)) return false;
  const auto length = safetensors_header_length(text, info->size);
  if (!length) return false;
  text.resize(*length);
  return read(kSafetensorsLengthBytes) &&
         SafetensorsHeader::parse(text, info->size - kSafetensorsLengthBytes - *length);
}

Result<void> Watcher::poll(const std::set<std::string>& finished, const OnSave& on_save) {
  waiting_ = false;
  FF_TRY(const auto entries, context_.disk.list(options_.dir));
  const int64_t now = context_.clock.steady_ns();
  std::map<std::string, Seen> still;
  for (const auto& entry : entries) {
    if (on_skipped_file(entry.name)) continue;
    const std::string path = io::join(options_.dir, entry.name);
    const auto info = context_.disk.info(path);
    if (!info || (info->kind != io::FileKind::regular && info->kind != io::FileKind::directory)) {
      continue;  // removed meanwhile, or nothing to save
    }
    const uint64_t size = info->kind == io::FileKind::regular ? info->size : 0;
    if (saved_.contains(saved_key(entry.name, size, info->mtime_ns))) continue;
    const auto print = print_of(path, *info);
    if (!print) continue;
    const auto known = seen_.find(entry.name);
    Seen seen{.print = *print, .since_ns = now, .handled = false};
    if (known != seen_.end() && known->second.print == *print) seen = known->second;
    if (!seen.handled) {
      const bool settled =
          finished.contains(entry.name) || now - seen.since_ns >= options_.settle_ns;
      if (settled && (parses(path) || finished.contains(entry.name))) {
        FF_TRY(save_one(entry.name, on_save));
        seen.handled = true;
      } else if (!settled) {
        waiting_ = true;
      }
    }
    still.emplace(entry.name, seen);
  }
  seen_ = std::move(still);
  return {};
}

Result<void> Watcher::save_one(const std::string& name, const OnSave& on_save) {
  SaveOptions options = options_.save;
  options.step = step_from_name(name);
  const std::string path = io::join(options_.dir, name);
  auto saved = save(context_, store_path_, {.paths = {path}, .stream = {}}, options);
  if (!saved) {
    if (saved.error().code == Errc::interrupted || saved.error().code == Errc::deadline) {
      return std::move(saved).error();
    }
    if (!first_error_) first_error_ = saved.error();
  }
  return on_save(path, saved);
}

}  // namespace

std::optional<uint64_t> step_from_name(std::string_view name) {
  std::string_view stem = name.substr(0, name.rfind('.'));
  size_t digits = 0;
  while (digits < stem.size() && stem[stem.size() - 1 - digits] >= '0' &&
         stem[stem.size() - 1 - digits] <= '9') {
    digits++;
  }
  if (digits == 0 || digits > kDigitsMax) return std::nullopt;
  stem.remove_prefix(stem.size() - digits);
  uint64_t step = 0;
  std::from_chars(stem.data(), stem.data() + stem.size(), step);
  return step;
}

Result<void> watch(Context& context, const std::string& store_path, const WatchOptions& options,
                   const ListMovedFiles& moved_in, const OnSave& on_save) {
  Watcher watcher(context, store_path, options);
  FF_TRY(watcher.remember_saved());
  for (;;) {
    FF_TRY(context.stop.check());
    const auto moved = moved_in();
    FF_TRY(watcher.poll({moved.begin(), moved.end()}, on_save));
    if (options.once && !watcher.waiting()) {
      if (watcher.first_error()) return *watcher.first_error();
      return {};
    }
    FF_TRY(context.stop.sleep_ns(kLookNs));
  }
}

}  // namespace ff::checkpoint
