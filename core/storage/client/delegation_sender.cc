// delegation_sender.cc: the lease of a client, recalls, and the batches of its changes.
#include <algorithm>
#include <utility>

#include "platform/base/log.h"
#include "storage/client/delegating_meta_client.h"
#include "storage/meta/service.h"

namespace ff::client {

namespace {

constexpr uint32_t kIdsAtOnce = 512;
// A batch renews the lease, too. A renewal beside it would make its transaction run again.
constexpr int kSkippedMax = 2;
constexpr int64_t kRetryNs = 200 * kMillisecond;
// How long an unmount waits for servers.
constexpr int64_t kCloseNs = 20 * kSecond;

// The lengths of files that servers may know: their bytes are stored.
Task<void> report_lengths(meta::MetaClient& client, Delegations::Batch batch) {
  for (const auto& operation : batch.request.operations()) {
    if (!operation.has_wrote() || operation.wrote().end() == 0) continue;
    const auto& wrote = operation.wrote();
    const meta::SessionId session{wrote.session().client(), wrote.session().number()};
    const meta::Namespace::LengthReport report{.min_length = wrote.end(),
                                               .truncate_seq = wrote.truncations(),
                                               .mtime_ns = wrote.mtime_ns(),
                                               .closed = wrote.closed()};
    (void)co_await client.report_length(wrote.inode(), session, report, std::string());
  }
}

void pulse(Event& event) {
  event.set();
  event.reset();
}

}  // namespace

void DelegatingMetaClient::wake_sender() {
  if (delegations_.empty()) return;
  changed_.set();
  if (delegations_.batch_is_full()) urgent_.set();
}

bool DelegatingMetaClient::end_session(const meta::Namespace::EndedSession& ended) {
  const bool logged = delegations_.end_session(ended);
  delegations_.record();
  wake_sender();
  return logged;
}

// One batch at a time, so that changes are applied in order.
Task<void> DelegatingMetaClient::send_changes() {
  for (;;) {
    const auto woken = co_await changed_.wait();
    if (!woken) co_return;
    changed_.reset();
    const auto waited = co_await urgent_.wait(loop().now_ns() + kSendNs);
    if (!waited && waited.error().code != Errc::deadline) co_return;
    urgent_.reset();
    while (!delegations_.empty()) {
      co_await send_batch();
      if (gate_.cancellation().requested()) co_return;
    }
  }
}

// Others must not see a length before the bytes. Without room for them, the report has only the
// time of the write, and the session stays: until it ends, others may not write to the file.
Task<Result<void>> DelegatingMetaClient::store_bytes(Delegations::Batch& batch) {
  std::vector<meta::InodeId> inodes;
  for (const auto& operation : batch.request.operations()) {
    if (operation.has_wrote()) inodes.push_back(operation.wrote().inode());
  }
  if (!store_ || inodes.empty()) co_return Result<void>();
  FF_CO_TRY(const auto full, co_await store_(std::move(inodes)));
  for (auto& operation : *batch.request.mutable_operations()) {
    const bool kept = operation.has_wrote() &&
                      operation.wrote().truncations() != Delegations::kEndsSession &&
                      std::ranges::find(full, operation.wrote().inode()) != full.end();
    if (!kept) continue;
    auto& wrote = *operation.mutable_wrote();
    wrote.set_end(0);
    wrote.set_closed(false);
    wrote.set_unstored(true);
  }
  co_return Result<void>();
}

Task<void> DelegatingMetaClient::send_batch() {
  auto batch = delegations_.take_batch(SIZE_MAX);
  Result<void> sent = co_await store_bytes(batch);
  if (sent) sent = co_await send(batch);
  const bool refused =
      !sent && !meta::is_lease_lost(sent.error()) && sent.error().code != Errc::interrupted;
  if (refused) {
    end_batch(batch.last);
    co_await send_singly(std::move(batch));
    co_return;
  }
  if (!sent) report_lost(batch.changes, sent.error().message);
  delegations_.applied(batch);
  end_batch(batch.last);  // after the journal says that it is applied
  if (!sent && meta::is_lease_lost(sent.error())) {
    lose();
    gate_.spawn(report_lengths(*this, std::move(batch)));
  }
  pulse(applied_);
}

Task<Result<void>> DelegatingMetaClient::send(Delegations::Batch& batch) {
  const int64_t began_ns = loop().now_ns();
  const uint64_t lease = batch.request.lease();
  std::vector<Delegations::Change> changes;
  for (const Delegations::Change& change : batch.changes) {
    changes.push_back({.mark = {}, .action = change.action, .inodes = change.inodes, .sent = {}});
  }
  FF_CO_TRY(const auto recalled,
            co_await apply_batch(batch.request, std::move(changes), batch.last));
  if (lease != delegations_.lease()) co_return Result<void>();
  delegations_.renewed(began_ns);
  if (!restoring_) delegations_.recall(recalled);
  wake_sender();
  co_return Result<void>();
}

// A server refused the batch: finds out which changes are to blame. They are lost, and the
// directories are given back, since this client was wrong about them.
Task<void> DelegatingMetaClient::send_singly(Delegations::Batch batch) {
  size_t change = 0;
  uint64_t number = batch.last - static_cast<uint64_t>(batch.request.operations_size());
  for (const auto& operation : batch.request.operations()) {
    Delegations::Batch one;
    one.last = ++number;
    one.request.set_lease(batch.request.lease());
    *one.request.add_operations() = operation;
    const bool counts = operation.what_case() != meta::wire::BatchOperation::kGiveBack;
    if (counts) one.changes.push_back(std::move(batch.changes[change++]));
    const auto sent = co_await send(one);
    if (!sent) report_lost(one.changes, sent.error().message);
    delegations_.applied(one);
    end_batch(one.last);
    if (sent) continue;
    if (meta::is_lease_lost(sent.error())) {
      lose();
      continue;
    }
    for (const Delegations::Change& lost : one.changes) {
      for (const meta::InodeId inode : lost.inodes) {
        delegations_.expose(inode);
        if (delegations_.holds(inode)) delegations_.give_back(inode);
      }
    }
  }
  delegations_.applied(batch);
  pulse(applied_);
}

// The lease has ended.
void DelegatingMetaClient::lose() {
  if (delegations_.lease() == 0) return;
  if (delegations_.held() > 0) {
    log_warning("all directory delegations of this client have ended",
                {{"held", delegations_.held()}, {"unsent_changes", delegations_.pending()}});
  }
  const auto lost = delegations_.lose();
  set_lease(0);
  report_lost(lost, "its lease had ended before a metadata server got the change");
  delegations_.end_lease();
  pulse(applied_);
  if (lost_) lost_();
}

Task<Result<void>> DelegatingMetaClient::renew_own_lease(bool fresh,
                                                         std::optional<meta::Layout> ids_of) {
  const int64_t began_ns = loop().now_ns();
  const uint64_t lease = delegations_.lease();
  meta::wire::LeaseRequest request;
  request.set_lease(lease);
  request.set_fresh(fresh);
  const auto grant = ids_of ? delegations_.next_id_grant() : std::nullopt;
  if (grant) {
    request.set_grant(*grant);
    request.set_inodes(kIdsAtOnce);
    to_wire(*ids_of, *request.mutable_layout());
  }
  FF_CO_TRY(const auto reply, co_await renew_lease(std::move(request)));
  if (lease != delegations_.lease()) co_return Result<void>();
  if (!reply.live()) {
    lose();
    co_return Result<void>();
  }
  delegations_.renewed(began_ns);
  delegations_.set_clock(reply.now_ns());
  std::vector<meta::Layout> layouts;
  for (const auto& layout : reply.layouts()) layouts.push_back(meta::from_wire(layout));
  if (grant && reply.first() != 0) {
    delegations_.add_ids(reply.first(), std::move(layouts), *ids_of);
  }
  if (!restoring_) delegations_.recall({reply.recalled().begin(), reply.recalled().end()});
  wake_sender();
  co_return Result<void>();
}

Task<Result<void>> DelegatingMetaClient::start_lease() {
  FF_CO_TRY(const auto hold, co_await starting_.acquire(1));
  if (delegations_.lease() != 0) co_return Result<void>();
  const uint64_t lease = rng().next() | 1;
  if (!delegations_.start_lease(lease)) co_return fail(Errc::busy, "the recovery table is full");
  set_lease(lease);
  auto started = co_await renew_own_lease(true, std::nullopt);
  if (!started) {
    // What other servers do not offer either is not asked for again.
    if (started.error().code == Errc::unsupported) enabled_ = false;
    lose();
    co_return started;
  }
  gate_.spawn(keep_lease(lease));
  for (size_t i = 0; i < servers(); i++) gate_.spawn(watch_recalls(lease, i));
  co_return Result<void>();
}

Task<void> DelegatingMetaClient::keep_lease(uint64_t lease) {
  for (int skipped = 0;;) {
    const auto waited = co_await sleep_for(loop(), meta::kDelegationRenewNs);
    if (!waited || lease != delegations_.lease()) co_return;
    const bool under_way = pending_changes() > delegations_.pending();
    if (under_way && skipped++ < kSkippedMax) continue;
    skipped = 0;
    const auto renewed = co_await renew_own_lease(false, std::nullopt);
    if (!renewed && renewed.error().code == Errc::interrupted) co_return;
  }
}

Task<void> DelegatingMetaClient::watch_recalls(uint64_t lease, size_t server) {
  while (lease == delegations_.lease()) {
    const auto recalled = co_await recalls(server);
    if (lease != delegations_.lease()) co_return;
    if (recalled) {
      delegations_.recall(*recalled);
      if (!recalled->empty()) urgent_.set();
      wake_sender();
      continue;
    }
    const auto waited = co_await sleep_for(loop(), kRetryNs);
    if (!waited) co_return;
  }
}

Task<void> DelegatingMetaClient::fetch_ids() {
  const auto of = delegations_.wants_ids();
  if (of && delegations_.lease() != 0 && delegations_.next_id_grant()) {
    (void)co_await renew_own_lease(false, of);  // the next creation asks again
  }
  fetching_ids_ = false;
}

Task<void> DelegatingMetaClient::ask_for(meta::InodeId dir) {
  const auto leased = co_await start_lease();
  if (leased && prepare_) co_await prepare_();
  if (!leased || delegations_.lease() == 0 || !delegations_.begin_grant(dir)) co_return;
  const auto reply = co_await delegate(dir);
  if (!reply || !reply->granted()) {
    delegations_.end_grant(dir, std::nullopt);
    co_return;
  }
  auto inode = meta::from_wire(reply->dir());
  if (!inode) {
    delegations_.end_grant(dir, std::nullopt);
    co_return;
  }
  const meta::Layout layout = meta::with_defaults(inode->layout);
  Delegations::Grant grant{.dir = std::move(*inode), .names = {}};
  for (const auto& entry : reply->entries()) {
    const meta::Dentry dentry{entry.id(), static_cast<meta::InodeType>(entry.kind())};
    grant.names.emplace_back(entry.name(), dentry);
  }
  delegations_.end_grant(dir, std::move(grant));
  wake_sender();
  const auto of = delegations_.wants_ids();
  if (!of && delegations_.has_ids_for(layout)) co_return;
  if (!std::exchange(fetching_ids_, true)) {
    (void)co_await renew_own_lease(false, layout);
    fetching_ids_ = false;
  }
}

Task<Result<void>> DelegatingMetaClient::restore() {
  const uint64_t lease = delegations_.restore(restored_batch());
  if (lease == 0) co_return Result<void>();
  set_lease(lease);
  restoring_ = true;
  gate_.spawn(keep_lease(lease));
  urgent_.set();
  wake_sender();
  while (pending_changes() > 0) FF_CO_TRY(co_await applied_.wait());
  co_return Result<void>();
}

Task<void> DelegatingMetaClient::end_lease() {
  restoring_ = false;
  if (delegations_.lease() == 0) co_return;
  meta::wire::LeaseRequest request;
  request.set_lease(delegations_.lease());
  request.set_end(true);
  if (pending_changes() == 0) {
    (void)co_await renew_lease(std::move(request));
    (void)delegations_.lose();  // nothing, since all was applied
    set_lease(0);
    delegations_.end_lease();
  }
  lose();
}

Task<void> DelegatingMetaClient::close() {
  if (delegations_.lease() != 0) {
    CancelScope scope(loop(), co_await current_cancellation(), loop().now_ns() + kCloseNs,
                      "the unmount");
    (void)co_await settle_all().with_cancellation(scope.cancellation());
    co_await end_lease().with_cancellation(scope.cancellation());
  }
  Error reason = fail(Errc::interrupted, "the client is shutting down");
  co_await gate_.close(std::move(reason));
  co_await MetaClient::close();
}

}  // namespace ff::client
