// garbage_collector.cc: each round works through the queues of keys.h, page by page.
#include "storage/meta/garbage_collector.h"

#include <algorithm>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/task_group.h"
#include "storage/meta/records.h"

namespace ff::meta {

namespace {

constexpr int64_t kRoundNs = 2 * kSecond;
constexpr size_t kCollectPage = 256;
constexpr size_t kErasuresAtOnce = 4;  // transactions
// Entries of a directory, or removed files, per transaction: each needs at most four writes, and a
// file one for each of its extended attributes.
constexpr size_t kEntriesAtOnce = 20;

void keep_first(Result<void>& first, Result<void> next) {
  if (first && !next) first = std::move(next);
}

}  // namespace

GarbageCollector::GarbageCollector(kv::Engine& engine, Namespace& name_space, FileChunks& chunks,
                                   Loop& loop, Metrics& metrics, Options options)
    : engine_(engine),
      namespace_(name_space),
      chunks_(chunks),
      loop_(loop),
      options_(std::move(options)),
      files_(metrics.counter("ff_meta_collected_files_total",
                             "Deleted files whose chunks were removed")),
      sessions_(metrics.counter("ff_meta_closed_sessions_total",
                                "Sessions of dead clients that were closed")),
      locks_(engine, loop, metrics) {}

Task<void> GarbageCollector::run() {
  std::string told;
  for (;;) {
    const auto waited = co_await sleep_for(loop_, kRoundNs);
    if (!waited) co_return;
    if (!options_.active()) {
      clients_.clear();  // another primary may have changed everything
      locks_.reset();
      continue;
    }
    const auto done = co_await collect();
    if (!done && done.error().code == Errc::interrupted) co_return;
    const std::string trouble = done ? "" : done.error().message;
    if (!trouble.empty() && trouble != told)
      log_warning("garbage collection failed", {{"cause", trouble}});
    told = trouble;
  }
}

Task<Result<void>> GarbageCollector::collect() {
  Result<void> first;
  auto locks = locks_.reap();
  keep_first(first, co_await std::move(locks));
  auto clients = expire_clients();
  keep_first(first, co_await std::move(clients));
  auto cuts = finish_truncations();
  keep_first(first, co_await std::move(cuts));
  auto trees = collect_trees();
  keep_first(first, co_await std::move(trees));
  auto garbage = collect_garbage();
  keep_first(first, co_await std::move(garbage));
  co_return first;
}

Task<Result<std::vector<kv::Entry>>> GarbageCollector::read_range(kv::Range range) {
  std::vector<kv::Entry> entries;
  kv::TxnFunction function = [&entries, &range](kv::Txn& txn) -> Task<Result<void>> {
    auto ranging = txn.range(range, {});
    FF_CO_TRY(entries, co_await std::move(ranging));
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.view(std::move(function), deadline()));
  co_return entries;
}

namespace {

// Reads what due_garbage() asks about these entries, in two round trips.
Task<Result<void>> prefetch_garbage(kv::Txn& txn, const std::vector<kv::Entry>& entries) {
  std::vector<std::string> inodes;
  std::vector<kv::GuardedRange> sessions;
  for (const kv::Entry& entry : entries) {
    const InodeId id = keys::number_at(entry.key, keys::kPrefixBytes + 8);
    inodes.push_back(keys::inode(id));
    sessions.push_back({.range = keys::range_of(keys::kSession, id, 1), .guard = {}});
  }
  FF_CO_TRY(co_await txn.prefetch(std::move(inodes)));
  co_return co_await txn.prefetch_ranges(std::move(sessions));
}

Task<Result<void>> prefetch_children(kv::Txn& txn, const std::vector<kv::Entry>& dentries) {
  std::vector<std::string> inodes;
  for (const kv::Entry& one : dentries) {
    FF_CO_TRY(const Dentry entry, parse_dentry(one));
    inodes.push_back(keys::inode(entry.inode));
  }
  co_return co_await txn.prefetch(std::move(inodes));
}

}  // namespace

// The next garbage that is old enough and that nobody has open. `from`: a key; set behind what this
// has looked at.
Task<Result<std::vector<GarbageCollector::Garbage>>> GarbageCollector::due_garbage(
    std::string& from) {
  std::vector<Garbage> due;
  const bool at_once = options_.needs_space && options_.needs_space();
  const int64_t until_ns = loop_.clock().wall_ns() - (at_once ? 0 : options_.delay_ns);
  kv::TxnFunction function = [&due, &from, until_ns](kv::Txn& txn) -> Task<Result<void>> {
    due.clear();
    kv::Range range{.begin = from,
                    .end = keys::of(keys::kGarbage, static_cast<uint64_t>(until_ns)),
                    .limit = kCollectPage};
    if (range.begin >= range.end) co_return Result<void>();
    while (due.empty()) {
      auto ranging = txn.range(range, {});
      FF_CO_TRY(const auto entries, co_await std::move(ranging));
      FF_CO_TRY(co_await prefetch_garbage(txn, entries));
      for (const kv::Entry& entry : entries) {
        const InodeId id = keys::number_at(entry.key, keys::kPrefixBytes + 8);
        Garbage garbage{.since = keys::number_at(entry.key, keys::kPrefixBytes),
                        .inode = {.id = id}};
        auto sessions = txn.range(keys::range_of(keys::kSession, id, 1), {});
        FF_CO_TRY(const auto open, co_await std::move(sessions));
        if (!open.empty()) continue;
        FF_CO_TRY(auto inode, co_await find_inode(txn, id));
        if (inode) garbage.inode = std::move(*inode);
        due.push_back(std::move(garbage));
      }
      if (entries.empty()) break;
      range.begin = entries.back().key + '\0';
    }
    from = range.begin;
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.view(std::move(function), deadline()));
  co_return due;
}

// Files whose chain is offline stay for a later round and do not hold up those behind them.
Task<Result<void>> GarbageCollector::collect_garbage() {
  Result<void> first;
  for (std::string from(keys::kGarbage);;) {
    FF_CO_TRY(auto page, co_await due_garbage(from));
    if (page.empty()) co_return first;
    // The unlink must be durable before the chunks are removed.
    FF_CO_TRY(co_await engine_.sync(deadline()));
    auto collecting = collect_page(std::move(page));
    keep_first(first, co_await std::move(collecting));
  }
}

// Removes the chunks of all files together, then erases those whose chunks are gone. Returns the
// first error.
Task<Result<void>> GarbageCollector::collect_page(std::vector<Garbage> page) {
  // Nobody has them open, so their lengths are final; many files are empty.
  const auto has_bytes = [](const Garbage& one) {
    return one.inode.is(InodeType::file) && (one.inode.length > 0 || one.inode.truncating);
  };
  std::vector<Inode> files;
  for (const Garbage& one : page) {
    if (has_bytes(one)) files.push_back(one.inode);
  }
  const std::vector<Result<void>> removed = co_await chunks_.remove(std::move(files));
  Result<void> first;
  size_t at = 0;
  std::erase_if(page, [&](const Garbage& one) {
    const Result<void> done = has_bytes(one) ? removed.at(at++) : Result<void>();
    keep_first(first, done);
    return !done;
  });
  // The files with extended attributes come last, each in a transaction of its own.
  const auto plain =
      std::ranges::stable_partition(page, [](const Garbage& one) { return one.inode.xattrs == 0; });
  const size_t together = page.size() - plain.size();
  Semaphore window(loop_, kErasuresAtOnce);
  TaskGroup all(loop_);
  for (size_t i = 0; i < page.size();) {
    const size_t count = i < together ? std::min(kEntriesAtOnce, together - i) : 1;
    auto slot = co_await window.acquire(1);
    if (!slot) {
      keep_first(first, std::move(slot).error());
      break;
    }
    all.add([](GarbageCollector& on, std::span<const Garbage> some,
               Semaphore::Permit) -> Task<Result<void>> {
      co_return co_await on.erase_files(some);
    }(*this, std::span(page).subspan(i, count), std::move(*slot)));
    i += count;
  }
  keep_first(first, co_await all.join());
  co_return first;
}

Task<Result<void>> GarbageCollector::erase_files(std::span<const Garbage> files) {
  kv::TxnFunction function = [files](kv::Txn& txn) -> Task<Result<void>> {
    std::vector<std::string> inodes;
    for (const Garbage& one : files) inodes.push_back(keys::inode(one.inode.id));
    FF_CO_TRY(co_await txn.prefetch(std::move(inodes)));
    for (const Garbage& one : files) {
      txn.erase(keys::of(keys::kGarbage, one.since, one.inode.id));
      FF_CO_TRY(auto inode, co_await find_inode(txn, one.inode.id));
      if (!inode || inode->links > 0) continue;
      FF_CO_TRY(co_await erase_inode(txn, std::move(*inode)));
    }
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.run(std::move(function), deadline()));
  files_.add(files.size());
  co_return Result<void>();
}

// Removes the first entries of a directory; subdirectories become removed trees of their own. If
// there are none, erases the directory and returns false.
Task<Result<bool>> GarbageCollector::remove_some_entries(InodeId dir) {
  const int64_t now_ns = loop_.clock().wall_ns();
  bool more = true;
  kv::TxnFunction function = [&more, dir, now_ns](kv::Txn& txn) -> Task<Result<void>> {
    more = false;
    FF_CO_TRY(auto top, co_await find_inode(txn, dir));
    if (!top || top->links > 0) {
      txn.erase(keys::of(keys::kRemovedTree, dir));  // another server has done it
      co_return Result<void>();
    }
    FF_CO_TRY(
        const auto entries,
        co_await txn.range(keys::range_of(keys::kDentry, dir, kEntriesAtOnce), keys::times(dir)));
    if (entries.empty()) {
      txn.erase(keys::of(keys::kRemovedTree, dir));
      co_return co_await erase_inode(txn, std::move(*top));
    }
    FF_CO_TRY(co_await prefetch_children(txn, entries));
    for (const kv::Entry& one : entries) {
      FF_CO_TRY(const Dentry entry, parse_dentry(one));
      txn.erase(one.key);
      FF_CO_TRY(auto child, co_await find_inode(txn, entry.inode));
      if (!child) continue;
      if (child->is(InodeType::directory)) {
        child->links = 0;
        put_inode(txn, *child);
        txn.put(keys::of(keys::kRemovedTree, child->id), "");
      } else {
        FF_CO_TRY(co_await drop_link(txn, *child, std::nullopt, now_ns));
      }
    }
    touch_dir(txn, dir, now_ns);
    more = true;
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.run(std::move(function), deadline()));
  co_return more;
}

Task<Result<void>> GarbageCollector::collect_trees() {
  for (;;) {
    kv::Range range{.begin = std::string(keys::kRemovedTree),
                    .end = kv::end_of_prefix(std::string(keys::kRemovedTree)),
                    .limit = kCollectPage};
    FF_CO_TRY(const auto trees, co_await read_range(std::move(range)));
    if (trees.empty()) co_return Result<void>();
    for (const kv::Entry& tree : trees) {
      for (bool more = true; more;) {
        FF_CO_TRY(more,
                  co_await remove_some_entries(keys::number_at(tree.key, keys::kPrefixBytes)));
      }
    }
  }
}

Task<Result<void>> GarbageCollector::finish_truncations() {
  kv::Range range{.begin = std::string(keys::kTruncation),
                  .end = kv::end_of_prefix(std::string(keys::kTruncation)),
                  .limit = kCollectPage};
  Result<void> first;
  for (;;) {
    FF_CO_TRY(const auto cuts, co_await read_range(range));
    for (const kv::Entry& cut : cuts) {
      auto finished = co_await namespace_.finish_truncation(
          keys::number_at(cut.key, keys::kPrefixBytes), chunks_);
      const bool gone = !finished && finished.error().code == Errc::stale;
      if (gone) {
        auto erasing = erase({cut.key});
        keep_first(first, co_await std::move(erasing));
      } else if (!finished) {
        keep_first(first, std::move(finished).error());
      }
    }
    if (cuts.size() < range.limit) co_return first;
    range.begin = cuts.back().key + '\0';
  }
}

Task<Result<void>> GarbageCollector::erase(std::vector<std::string> keys) {
  kv::TxnFunction function = [&keys](kv::Txn& txn) -> Task<Result<void>> {
    for (const std::string& key : keys) txn.erase(key);
    co_return Result<void>();
  };
  co_return co_await engine_.run(std::move(function), deadline());
}

// A live client increments its record. This measures how long the record has not changed.
Task<Result<void>> GarbageCollector::observe_clients() {
  std::vector<kv::Entry> entries;
  kv::TxnFunction function = [&entries](kv::Txn& txn) -> Task<Result<void>> {
    entries.clear();
    auto scanning = scan_records(txn, keys::kClient,
                                 [&entries](const kv::Entry& one) { entries.push_back(one); });
    co_return co_await std::move(scanning);
  };
  FF_CO_TRY(co_await engine_.view(std::move(function), deadline()));
  std::map<uint64_t, ObservedClient> now;
  for (const kv::Entry& entry : entries) {
    FF_CO_TRY(const auto counter, parse_record<wire::Counter>(entry.key, entry.value));
    const uint64_t client = keys::number_at(entry.key, keys::kPrefixBytes);
    const auto before = clients_.find(client);
    const bool same = before != clients_.end() && before->second.count == counter.next();
    now[client] = {counter.next(), same ? before->second.since_ns : loop_.now_ns()};
  }
  clients_ = std::move(now);
  co_return Result<void>();
}

namespace {

// The leases of a dead client that nobody missed: a recall would have ended them.
Task<Result<void>> erase_leases(kv::Engine& engine, uint64_t client, int64_t deadline_ns) {
  std::vector<std::string> leases;
  kv::TxnFunction finding = [&leases, client](kv::Txn& txn) -> Task<Result<void>> {
    leases.clear();
    auto scanning = scan_records(txn, keys::kLease, [&leases, client](const kv::Entry& entry) {
      const auto lease = parse_record<wire::DelegationLease>(entry.key, entry.value);
      if (lease && lease->client() == client) leases.push_back(entry.key);
    });
    co_return co_await std::move(scanning);
  };
  FF_CO_TRY(co_await engine.view(std::move(finding), deadline_ns));
  for (const std::string& key : leases) {
    kv::TxnFunction erasing = [&key](kv::Txn& txn) -> Task<Result<void>> {
      txn.erase(key);
      co_return Result<void>();
    };
    FF_CO_TRY(co_await engine.run(std::move(erasing), deadline_ns));
  }
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> GarbageCollector::expire_clients() {
  FF_CO_TRY(co_await observe_clients());
  std::set<uint64_t> dead;
  const int64_t now_ns = loop_.now_ns();
  for (const auto& [client, seen] : clients_) {
    if (now_ns - seen.since_ns >= kClientTimeoutNs) dead.insert(client);
  }
  if (dead.empty()) co_return Result<void>();
  FF_CO_TRY(co_await close_sessions(dead));
  for (const uint64_t client : dead) {
    const ObservedClient seen = clients_[client];
    if (now_ns - seen.since_ns < kReplyCacheNs) continue;
    FF_CO_TRY(co_await erase_leases(engine_, client, deadline()));
    FF_CO_TRY(co_await forget_replies(client, seen.count));
  }
  co_return Result<void>();
}

// A dead client may not have reported its last writes: asks storage for the length first.
Task<Result<void>> GarbageCollector::close_sessions(std::set<uint64_t> dead) {
  kv::Range range{.begin = std::string(keys::kSession),
                  .end = kv::end_of_prefix(std::string(keys::kSession)),
                  .limit = kCollectPage};
  Result<void> first;
  for (;;) {
    FF_CO_TRY(const auto entries, co_await read_range(range));
    for (const kv::Entry& entry : entries) {
      if (!dead.contains(keys::number_at(entry.key, keys::kPrefixBytes + 8))) continue;
      auto measured = co_await namespace_.refresh_length(
          keys::number_at(entry.key, keys::kPrefixBytes), chunks_);
      if (!measured && measured.error().code != Errc::stale) {
        keep_first(first, std::move(measured).error());
        continue;
      }
      auto closing = close_session(entry.key);
      keep_first(first, co_await std::move(closing));
      sessions_.add();
    }
    if (entries.size() < range.limit) co_return first;
    range.begin = entries.back().key + '\0';
  }
}

Task<Result<void>> GarbageCollector::close_session(std::string key) {
  const SessionId session{.client = keys::number_at(key, keys::kPrefixBytes + 8),
                          .number = keys::number_at(key, keys::kPrefixBytes + 16)};
  auto telling = namespace_.report_length(keys::number_at(key, keys::kPrefixBytes), session,
                                          {.maybe_written = true, .closed = true});
  const auto told = co_await std::move(telling);
  const bool gone = !told && told.error().code == Errc::stale;
  co_return told || gone ? Result<void>() : told.error();
}

Task<Result<void>> GarbageCollector::forget_replies(uint64_t client, uint64_t count) {
  kv::Range range = keys::range_of(keys::kReply, client, kSlots);
  FF_CO_TRY(const auto answers, co_await read_range(std::move(range)));
  for (size_t at = 0; at < answers.size(); at += kv::kWritesMax) {
    std::vector<std::string> some;
    for (size_t i = at; i < std::min(at + kv::kWritesMax, answers.size()); i++) {
      some.push_back(answers[i].key);
    }
    FF_CO_TRY(co_await erase(std::move(some)));
  }
  kv::TxnFunction function = [client, count](kv::Txn& txn) -> Task<Result<void>> {
    const std::string key = keys::of(keys::kClient, client);
    FF_CO_TRY(const auto counter, co_await read_record<wire::Counter>(txn, key));
    if (counter && counter->next() == count) txn.erase(key);
    co_return Result<void>();
  };
  co_return co_await engine_.run(std::move(function), deadline());
}

}  // namespace ff::meta
