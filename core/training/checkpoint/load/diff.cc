// diff.cc: lists A by hashes of its names, compares B with the list, reads A again for the rest.
#include "training/checkpoint/load/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>

#include "platform/base/text.h"
#include "platform/simd/digest.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/format/lease.h"

namespace ff::checkpoint {
namespace {

// A name is represented by a 128-bit hash: the probability of a collision among 2^32 names is
// 2^-65.
struct NameKey {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const NameKey&) const = default;
};

// An entry of A.
struct Listed {
  NameKey key;
  LinePosition place;
  bool met = false;  // B has it too
};

// Reads an index and knows the file that each tensor belongs to.
class Entries {
 public:
  static Result<Entries> open(io::Disk& disk, const std::string& path) {
    FF_TRY(auto reader, IndexReader::open(disk, path));
    return Entries(std::move(reader));
  }

  struct One {
    NameKey key;
    Record record;
  };
  Result<std::optional<One>> next() {
    FF_TRY(auto record, reader_.next());
    if (!record) return std::optional<One>();
    std::string name;
    if (const auto* file = std::get_if<FileRecord>(&*record)) {
      file_ = file->name;
      rank_ = file->rank;
      name = fmt::format("{}/{}", rank_, file_);
    } else if (const auto* tensor = std::get_if<TensorRecord>(&*record)) {
      name = fmt::format("{}/{}", rank_, file_) + '\0' + tensor->name;  // no name holds a NUL
    } else {
      return fail(Errc::corrupt, "index {}: a second header", reader_.path());
    }
    const auto hash = simd::fingerprint(simd::DigestKind::xxh128, as_bytes(name)).digest;
    const NameKey key{load_le<uint64_t>(hash.bytes.data()),
                      load_le<uint64_t>(hash.bytes.data() + 8)};
    return std::optional(One{key, std::move(*record)});
  }

  const IndexReader& reader() const { return reader_; }
  const std::string& file() const { return file_; }
  uint32_t rank() const { return rank_; }

 private:
  explicit Entries(IndexReader reader) : reader_(std::move(reader)) {}
  IndexReader reader_;
  std::string file_;
  uint32_t rank_ = 0;
};

uint64_t size_of(const std::vector<ChunkExtent>& extents) {
  uint64_t size = 0;
  for (const auto& extent : extents) size += extent.length;
  return size;
}

DiffSide side_of(const Record& record) {
  if (const auto* tensor = std::get_if<TensorRecord>(&record)) {
    return {.size = tensor->size, .dtype = tensor->dtype, .shape = tensor->shape};
  }
  return {.size = size_of(*extents_of(record)), .dtype = {}, .shape = {}};
}

// Whether two records of one name differ in anything but their bytes.
bool same_form(const Record& a, const Record& b) {
  if (a.index() != b.index()) return false;
  if (const auto* tensor = std::get_if<TensorRecord>(&a)) {
    const auto& other = std::get<TensorRecord>(b);
    return tensor->dtype == other.dtype && tensor->shape == other.shape &&
           tensor->size == other.size;
  }
  const auto& file = std::get<FileRecord>(a);
  const auto& other = std::get<FileRecord>(b);
  return file.kind == other.kind && file.target == other.target;
}

class Differ {
 public:
  using OnEntry = std::function<Result<void>(const DiffEntry&)>;

  Differ(Context& context, const Store& store, bool values, DiffReport& report,
         const OnEntry& on_entry)
      : context_(context),
        store_(store),
        values_(values),
        report_(report),
        on_entry_(on_entry),
        lease_(Lease::try_acquire(context, store,
                                  {.action = "diff", .name = report.a, .attempt = {}})) {}

  Result<void> run() {
    FF_TRY(reader_a_, ExtentReader::make(context_, store_, report_.a));
    FF_TRY(reader_b_, ExtentReader::make(context_, store_, report_.b));
    FF_TRY(list_a());
    FF_TRY(follow_b());
    return rest_of_a();
  }

 private:
  Result<void> list_a();
  Result<void> follow_b();
  Result<void> rest_of_a();
  Result<void> compare(const Record& a, const Record& b, DiffEntry& entry);
  Result<void> tell(const Entries& entries, const Record& record, DiffEntry entry);
  Listed* find(NameKey key) {
    const auto it =
        std::lower_bound(a_.begin(), a_.end(), key,
                         [](const auto& one, NameKey wanted) { return one.key < wanted; });
    return it == a_.end() || it->key != key ? nullptr : &*it;
  }

  Context& context_;
  const Store& store_;
  bool values_;
  DiffReport& report_;
  const OnEntry& on_entry_;
  std::optional<Lease> lease_;
  std::optional<ExtentReader> reader_a_;
  std::optional<ExtentReader> reader_b_;
  std::vector<Listed> a_;  // by key
  simd::DigestKind kind_a_ = simd::DigestKind::xxh128;
};

Result<void> Differ::list_a() {
  FF_TRY(auto entries, Entries::open(context_.disk, store_.index_path(report_.a)));
  kind_a_ = entries.reader().header().digest;
  for (;;) {
    FF_TRY(context_.stop.check());
    FF_TRY(const auto one, entries.next());
    if (!one) break;
    a_.push_back({one->key, entries.reader().line_position()});
  }
  std::sort(a_.begin(), a_.end(), [](const auto& x, const auto& y) { return x.key < y.key; });
  return {};
}

Result<void> Differ::follow_b() {
  FF_TRY(auto entries, Entries::open(context_.disk, store_.index_path(report_.b)));
  FF_TRY(auto index_a, context_.disk.open(store_.index_path(report_.a), {}));
  for (;;) {
    FF_TRY(context_.stop.check());
    FF_TRY(const auto one, entries.next());
    if (!one) return {};
    DiffEntry entry;
    entry.b = side_of(one->record);
    Listed* listed = find(one->key);
    if (listed == nullptr) {
      entry.state = DiffState::added;
      entry.differing = entry.b->size;
    } else {
      listed->met = true;
      FF_TRY(const auto record, read_record_at(*index_a, listed->place, kind_a_));
      if (record.index() != one->record.index()) {
        return fail(Errc::failed, "{} changed during the diff", report_.a.text());
      }
      entry.a = side_of(record);
      FF_TRY(compare(record, one->record, entry));
    }
    context_.progress.done += entry.b->size;
    FF_TRY(tell(entries, one->record, std::move(entry)));
  }
}

Result<void> Differ::rest_of_a() {
  const bool all_met =
      std::all_of(a_.begin(), a_.end(), [](const auto& listed) { return listed.met; });
  if (all_met) return {};
  FF_TRY(auto entries, Entries::open(context_.disk, store_.index_path(report_.a)));
  for (;;) {
    FF_TRY(context_.stop.check());
    FF_TRY(const auto one, entries.next());
    if (!one) return {};
    const Listed* listed = find(one->key);
    if (listed == nullptr)
      return fail(Errc::failed, "{} changed during the diff", report_.a.text());
    if (listed->met) continue;
    DiffEntry entry;
    entry.state = DiffState::removed;
    entry.a = side_of(one->record);
    entry.differing = entry.a->size;
    FF_TRY(tell(entries, one->record, std::move(entry)));
  }
}

Result<void> Differ::compare(const Record& a, const Record& b, DiffEntry& entry) {
  const ReaderPair readers{*reader_a_, *reader_b_};
  FF_TRY(entry.differing, differing_bytes(readers, *extents_of(a), *extents_of(b)));
  const bool form = same_form(a, b);
  entry.state = form && entry.differing == 0 ? DiffState::same : DiffState::changed;
  const auto* tensor = std::get_if<TensorRecord>(&b);
  if (!values_ || !form || tensor == nullptr || entry.differing == 0) return {};
  if (value_compare(tensor->dtype) == nullptr) return {};
  auto values = compare_values(readers, tensor->dtype, *extents_of(a), *extents_of(b));
  if (!values) {
    return std::move(values).error().with_context(
        fmt::format("tensor '{}': ", printable(tensor->name)));
  }
  entry.values = *values;
  return {};
}

Result<void> Differ::tell(const Entries& entries, const Record& record, DiffEntry entry) {
  entry.file = entries.file();
  entry.rank = entries.rank();
  const auto* tensor = std::get_if<TensorRecord>(&record);
  if (tensor != nullptr) {
    entry.tensor = tensor->name;
    entry.kind = EntryKind::safetensors;
  } else {
    entry.kind = std::get<FileRecord>(record).kind;
  }
  DiffCount& count = tensor != nullptr ? report_.tensors : report_.files;
  switch (entry.state) {
    case DiffState::same: count.same++; break;
    case DiffState::changed: count.changed++; break;
    case DiffState::added: count.added++; break;
    case DiffState::removed: count.removed++; break;
  }
  count.differing += entry.differing;
  if (lease_) FF_TRY(lease_->renew_if_due());
  return on_entry_(entry);
}

}  // namespace

Result<DiffReport> diff(Context& context, const std::string& store_path, const DiffOptions& options,
                        const std::function<Result<void>(const DiffEntry&)>& entry) {
  const int64_t began = context.clock.steady_ns();
  FF_TRY(const auto store, Store::open(context.disk, store_path));
  DiffReport report;
  FF_TRY(report.a, resolve_step(context.disk, store, options.a));
  FF_TRY(report.b, resolve_step(context.disk, store, options.b));
  Differ differ(context, store, options.values, report, entry);
  FF_TRY(differ.run());
  report.elapsed_ns = context.clock.steady_ns() - began;
  return report;
}

}  // namespace ff::checkpoint
