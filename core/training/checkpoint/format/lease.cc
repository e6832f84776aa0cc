// lease.cc: acquiring, renewing and listing leases.
#include "training/checkpoint/format/lease.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "training/checkpoint/format/sealed_line.h"

namespace ff::checkpoint {
namespace {

constexpr uint64_t kLeaseFileMax = 64 * kKiB;

}  // namespace

Lease::Lease(Context& context, io::Disk& disk, std::string base, std::string id)
    : context_(&context),
      disk_(&disk),
      base_(std::move(base)),
      id_(std::move(id)),
      renewed_ns_(context.clock.steady_ns()) {}

Lease::Lease(Lease&& other) noexcept
    : context_(std::exchange(other.context_, nullptr)),
      inside_(std::move(other.inside_)),
      disk_(other.disk_),
      base_(std::move(other.base_)),
      id_(std::move(other.id_)),
      renewed_ns_(other.renewed_ns_.load()) {}

Result<Lease> Lease::acquire(Context& context, const Store& store, const Purpose& purpose) {
  return make(context, context.disk, store, purpose);
}

Result<Lease> Lease::make(Context& context, io::Disk& disk, const Store& store,
                          const Purpose& purpose) {
  std::string id = context.rng.hex_id();
  std::string base = io::join(store.tmp_dir(), id);
  std::string line =
      fmt::format(R"({{"lease":1,"id":"{}","action":"{}","run":)", id, purpose.action);
  append_json_string(line, purpose.name.run);
  fmt::format_to(std::back_inserter(line), R"(,"step":{},"attempt":)", purpose.name.step);
  append_json_string(line, purpose.attempt);
  FF_TRY(disk.make_dir(base, 0777));
  Lease lease(context, disk, base, std::move(id));  // its destructor removes both from here on
  FF_TRY(auto file,
         disk.open(base + std::string(kLeaseSuffix),
                   {.access = io::AccessMode::write, .create = true, .exclusive = true}));
  FF_TRY(file->write_at(as_bytes(seal_line(std::move(line))), 0));
  return lease;
}

std::optional<Lease> Lease::try_acquire(Context& context, const Store& store,
                                        const Purpose& purpose) {
  auto inside = context.disk.beneath(store.path());
  if (!inside) return std::nullopt;
  auto lease = make(context, **inside, store, purpose);
  if (!lease) return std::nullopt;
  lease->inside_ = std::move(*inside);
  return std::move(*lease);
}

Lease::~Lease() {
  if (context_ == nullptr) return;
  // Best effort: the next prune removes the rest.
  (void)io::remove_tree(*disk_, base_);
  (void)disk_->remove(base_ + std::string(kLeaseSuffix));
}

Result<void> Lease::renew_if_due() {
  int64_t last = renewed_ns_.load();
  const int64_t now = context_->clock.steady_ns();
  if (now - last < kLeaseRenewNs || !renewed_ns_.compare_exchange_strong(last, now)) return {};
  auto renewed = disk_->set_mtime(base_ + std::string(kLeaseSuffix), -1);
  // Before it publishes anything, a save finds by is_held() that a pruner has removed its lease.
  if (!renewed && renewed.error().code != Errc::not_found) return std::move(renewed).error();
  return {};
}

Result<bool> Lease::is_held() const {
  FF_TRY(const bool folder, io::exists(*disk_, base_));
  if (!folder) return false;
  return io::exists(*disk_, base_ + std::string(kLeaseSuffix));
}

Result<int64_t> store_now_ns(Context& context, const Store& store) {
  const std::string probe = io::join(store.tmp_dir(), context.rng.hex_id() + ".probe");
  FF_TRY(auto file,
         context.disk.open(probe,
                           {.access = io::AccessMode::write, .create = true, .exclusive = true}));
  auto info = file->info();
  FF_TRY(context.disk.remove(probe));
  if (!info) return std::move(info).error();
  return info->mtime_ns;
}

Result<std::vector<LeaseInfo>> list_leases(Context& context, const Store& store) {
  std::vector<LeaseInfo> leases;
  FF_TRY(const int64_t now, store_now_ns(context, store));
  FF_TRY(const auto entries, context.disk.list(store.tmp_dir()));
  for (const auto& entry : entries) {
    if (!entry.name.ends_with(kLeaseSuffix)) continue;
    const std::string path = io::join(store.tmp_dir(), entry.name);
    const auto info = context.disk.info(path);
    auto text = io::read_file(context.disk, path, kLeaseFileMax);
    if (!info || !text) continue;  // released meanwhile
    std::string_view line = *text;
    if (line.ends_with('\n')) line.remove_suffix(1);
    LeaseInfo lease{.id = entry.name.substr(0, entry.name.size() - kLeaseSuffix.size()),
                    .action = {},
                    .run = {},
                    .step = 0,
                    .attempt = {},
                    .alive = now - info->mtime_ns < kLeaseTimeoutNs,
                    .ahead_ns = std::max<int64_t>(0, info->mtime_ns - now)};
    // A truncated lease file (a crash) counts until it is overdue.
    if (line_is_sealed(line)) {
      lease.action = sealed_text(line, "action").value_or("");
      lease.run = sealed_text(line, "run").value_or("");
      lease.step = static_cast<uint64_t>(sealed_number(line, "step").value_or(0));
      lease.attempt = sealed_text(line, "attempt").value_or("");
    }
    leases.push_back(std::move(lease));
  }
  return leases;
}

}  // namespace ff::checkpoint
