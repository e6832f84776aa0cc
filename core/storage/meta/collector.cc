// collector.cc: rounds over what the keys of keys.h say is left to do, in pages.
#include "storage/meta/collector.h"

#include <algorithm>
#include <utility>

#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "storage/meta/records.h"

namespace ff::meta {

namespace {

constexpr int64_t kRoundNs = 2 * kSecond;
constexpr size_t kCollectPage = 256;
constexpr size_t kFilesAtOnce = 16;
// Entries of a directory removed in one transaction: each is at most four writes.
constexpr size_t kEntriesAtOnce = 20;

void keep_first(Result<void>& first, Result<void> next) {
  if (first && !next) first = std::move(next);
}

}  // namespace

Collector::Collector(kv::Engine& engine, Names& names, Chunks& chunks, Loop& loop, Metrics& metrics,
                     Options options)
    : engine_(engine),
      names_(names),
      chunks_(chunks),
      loop_(loop),
      options_(std::move(options)),
      files_(metrics.counter("ff_meta_collected_files_total",
                             "Files whose bytes were removed after their last name")),
      sessions_(metrics.counter("ff_meta_closed_sessions_total",
                                "Files that dead clients had open for writing")),
      locks_(engine, loop, metrics) {}

Task<void> Collector::run() {
  std::string told;
  for (;;) {
    const auto waited = co_await after(loop_, kRoundNs);
    if (!waited) co_return;
    if (!options_.active()) {
      clients_.clear();  // what was seen before says nothing once another has looked
      locks_.forget();
      continue;
    }
    auto collecting = collect();
    const auto done = co_await std::move(collecting);
    if (!done && done.error().code == Errc::interrupted) co_return;
    const std::string trouble = done ? "" : done.error().message;
    if (!trouble.empty() && trouble != told) log_warning("cannot clean up", {{"cause", trouble}});
    told = trouble;
  }
}

Task<Result<void>> Collector::collect() {
  Result<void> first;
  auto locks = locks_.look();
  keep_first(first, co_await std::move(locks));
  auto clients = forget_clients();
  keep_first(first, co_await std::move(clients));
  auto cuts = finish_cuts();
  keep_first(first, co_await std::move(cuts));
  auto trees = collect_trees();
  keep_first(first, co_await std::move(trees));
  auto garbage = collect_garbage();
  keep_first(first, co_await std::move(garbage));
  co_return first;
}

Task<Result<std::vector<kv::Entry>>> Collector::page(kv::Range range) {
  std::vector<kv::Entry> entries;
  kv::Function function = [&entries, &range](kv::Txn& txn) -> Task<Result<void>> {
    auto ranging = txn.range(range, {});
    FF_CO_TRY(entries, co_await std::move(ranging));
    co_return Result<void>();
  };
  auto viewing = engine_.view(std::move(function), deadline());
  FF_CO_TRY(co_await std::move(viewing));
  co_return entries;
}

// Files without a name for long enough, and that nobody has open.
Task<Result<std::vector<Collector::Garbage>>> Collector::due() {
  std::vector<Garbage> due;
  const int64_t until_ns = loop_.clock().wall_ns() - options_.delay_ns;
  kv::Function function = [&due, until_ns](kv::Txn& txn) -> Task<Result<void>> {
    due.clear();
    kv::Range range{.begin = std::string(keys::kGarbage),
                    .end = keys::of(keys::kGarbage, static_cast<uint64_t>(until_ns)),
                    .limit = kCollectPage};
    if (range.begin >= range.end) co_return Result<void>();
    while (due.empty()) {
      auto ranging = txn.range(range, {});
      FF_CO_TRY(const auto entries, co_await std::move(ranging));
      for (const kv::Entry& entry : entries) {
        const InodeId id = keys::number_at(entry.key, keys::kPrefix + 8);
        Garbage garbage{.since = keys::number_at(entry.key, keys::kPrefix), .inode = {.id = id}};
        auto sessions = txn.range(keys::all(keys::kSession, id, 1), {});
        FF_CO_TRY(const auto open, co_await std::move(sessions));
        if (!open.empty()) continue;
        auto finding = find_inode(txn, id);
        FF_CO_TRY(auto inode, co_await std::move(finding));
        if (inode) garbage.inode = std::move(*inode);
        due.push_back(std::move(garbage));
      }
      if (entries.size() < range.limit) break;
      range.begin = entries.back().key + '\0';
    }
    co_return Result<void>();
  };
  auto viewing = engine_.view(std::move(function), deadline());
  FF_CO_TRY(co_await std::move(viewing));
  co_return due;
}

Task<Result<void>> Collector::collect_garbage() {
  Result<void> first;
  while (first) {
    auto looking = due();
    FF_CO_TRY(auto some, co_await std::move(looking));
    if (some.empty()) break;
    // What they lost their names by must not be undone by a loss of power.
    auto syncing = engine_.sync(deadline());
    FF_CO_TRY(co_await std::move(syncing));
    Semaphore window(loop_, kFilesAtOnce);
    Gate gate(loop_);
    for (Garbage& garbage : some) {
      auto waiting = window.take(1);
      auto slot = co_await std::move(waiting);
      if (!slot) break;
      gate.spawn(
          [](Collector& on, Garbage one, Semaphore::Hold, Result<void>& error) -> Task<void> {
            auto collecting = on.collect_one(std::move(one));
            keep_first(error, co_await std::move(collecting));
          }(*this, std::move(garbage), std::move(*slot), first));
    }
    co_await gate.wait_empty();
  }
  co_return first;
}

Task<Result<void>> Collector::collect_one(Garbage garbage) {
  // Nobody has it open, so the length is what was written; many files are empty.
  const bool has_bytes = garbage.inode.length > 0 || garbage.inode.cutting;
  if (garbage.inode.is(Kind::file) && has_bytes) {
    auto cutting = chunks_.cut(garbage.inode, 0, {});
    FF_CO_TRY(co_await std::move(cutting));
  }
  kv::Function function = [&garbage](kv::Txn& txn) -> Task<Result<void>> {
    txn.erase(keys::of(keys::kGarbage, garbage.since, garbage.inode.id));
    auto finding = find_inode(txn, garbage.inode.id);
    FF_CO_TRY(auto inode, co_await std::move(finding));
    if (!inode || inode->links > 0) co_return Result<void>();
    auto erasing = erase_inode(txn, std::move(*inode));
    co_return co_await std::move(erasing);
  };
  auto running = engine_.run(std::move(function), deadline());
  FF_CO_TRY(co_await std::move(running));
  files_.add();
  co_return Result<void>();
}

// The first entries of a directory go; subdirectories become trees of their own. When there are
// none the directory goes, and false is returned.
Task<Result<bool>> Collector::empty_some(InodeId dir) {
  const int64_t now_ns = loop_.clock().wall_ns();
  bool more = true;
  kv::Function function = [&more, dir, now_ns](kv::Txn& txn) -> Task<Result<void>> {
    more = false;
    auto finding = find_inode(txn, dir);
    FF_CO_TRY(auto top, co_await std::move(finding));
    if (!top || top->links > 0) {
      txn.erase(keys::of(keys::kTree, dir));  // done by another
      co_return Result<void>();
    }
    auto ranging = txn.range(keys::all(keys::kDentry, dir, kEntriesAtOnce), keys::times(dir));
    FF_CO_TRY(const auto entries, co_await std::move(ranging));
    if (entries.empty()) {
      txn.erase(keys::of(keys::kTree, dir));
      auto erasing = erase_inode(txn, std::move(*top));
      co_return co_await std::move(erasing);
    }
    for (const kv::Entry& one : entries) {
      FF_CO_TRY(const Entry entry, entry_of(one));
      txn.erase(one.key);
      auto reading = find_inode(txn, entry.inode);
      FF_CO_TRY(auto child, co_await std::move(reading));
      if (!child) continue;
      if (child->is(Kind::directory)) {
        child->links = 0;
        put_inode(txn, *child);
        txn.put(keys::of(keys::kTree, child->id), "");
      } else {
        auto dropping = drop_name(txn, *child, std::nullopt, now_ns);
        FF_CO_TRY(co_await std::move(dropping));
      }
    }
    touch(txn, dir, now_ns);
    more = true;
    co_return Result<void>();
  };
  auto running = engine_.run(std::move(function), deadline());
  FF_CO_TRY(co_await std::move(running));
  co_return more;
}

Task<Result<void>> Collector::collect_trees() {
  for (;;) {
    kv::Range range{.begin = std::string(keys::kTree),
                    .end = kv::end_of_prefix(std::string(keys::kTree)),
                    .limit = kCollectPage};
    auto paging = page(std::move(range));
    FF_CO_TRY(const auto trees, co_await std::move(paging));
    if (trees.empty()) co_return Result<void>();
    for (const kv::Entry& tree : trees) {
      for (bool more = true; more;) {
        auto emptying = empty_some(keys::number_at(tree.key, keys::kPrefix));
        FF_CO_TRY(more, co_await std::move(emptying));
      }
    }
  }
}

Task<Result<void>> Collector::finish_cuts() {
  kv::Range range{.begin = std::string(keys::kCut),
                  .end = kv::end_of_prefix(std::string(keys::kCut)),
                  .limit = kCollectPage};
  Result<void> first;
  for (;;) {
    auto paging = page(range);
    FF_CO_TRY(const auto cuts, co_await std::move(paging));
    for (const kv::Entry& cut : cuts) {
      auto finishing = names_.finish_cut(keys::number_at(cut.key, keys::kPrefix), chunks_);
      auto finished = co_await std::move(finishing);
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

Task<Result<void>> Collector::erase(std::vector<std::string> keys) {
  kv::Function function = [&keys](kv::Txn& txn) -> Task<Result<void>> {
    for (const std::string& key : keys) txn.erase(key);
    co_return Result<void>();
  };
  auto running = engine_.run(std::move(function), deadline());
  co_return co_await std::move(running);
}

// A client's record counts up while it lives; how long it has not is measured here.
Task<Result<void>> Collector::look_at_clients() {
  std::vector<kv::Entry> entries;
  kv::Function function = [&entries](kv::Txn& txn) -> Task<Result<void>> {
    entries.clear();
    auto scanning = scan_records(txn, keys::kClient,
                                 [&entries](const kv::Entry& one) { entries.push_back(one); });
    co_return co_await std::move(scanning);
  };
  auto viewing = engine_.view(std::move(function), deadline());
  FF_CO_TRY(co_await std::move(viewing));
  std::map<uint64_t, Seen> now;
  for (const kv::Entry& entry : entries) {
    FF_CO_TRY(const auto counter, parse_record<wire::Counter>(entry.key, entry.value));
    const uint64_t client = keys::number_at(entry.key, keys::kPrefix);
    const auto before = clients_.find(client);
    const bool same = before != clients_.end() && before->second.count == counter.next();
    now[client] = {counter.next(), same ? before->second.since_ns : loop_.now_ns()};
  }
  clients_ = std::move(now);
  co_return Result<void>();
}

Task<Result<void>> Collector::forget_clients() {
  auto looking = look_at_clients();
  FF_CO_TRY(co_await std::move(looking));
  std::set<uint64_t> dead;
  const int64_t now_ns = loop_.now_ns();
  for (const auto& [client, seen] : clients_) {
    if (now_ns - seen.since_ns >= kClientNs) dead.insert(client);
  }
  if (dead.empty()) co_return Result<void>();
  auto closing = close_sessions(dead);
  FF_CO_TRY(co_await std::move(closing));
  for (const uint64_t client : dead) {
    const Seen seen = clients_[client];
    if (now_ns - seen.since_ns < kAnswersNs) continue;
    auto forgetting = forget_client(client, seen.count);
    FF_CO_TRY(co_await std::move(forgetting));
  }
  co_return Result<void>();
}

// What a dead client wrote last it may not have told of: storage is asked.
Task<Result<void>> Collector::close_sessions(std::set<uint64_t> dead) {
  kv::Range range{.begin = std::string(keys::kSession),
                  .end = kv::end_of_prefix(std::string(keys::kSession)),
                  .limit = kCollectPage};
  Result<void> first;
  for (;;) {
    auto paging = page(range);
    FF_CO_TRY(const auto entries, co_await std::move(paging));
    for (const kv::Entry& entry : entries) {
      if (!dead.contains(keys::number_at(entry.key, keys::kPrefix + 8))) continue;
      auto measuring = names_.measure(keys::number_at(entry.key, keys::kPrefix), chunks_);
      auto measured = co_await std::move(measuring);
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

Task<Result<void>> Collector::close_session(std::string key) {
  const SessionId session{.client = keys::number_at(key, keys::kPrefix + 8),
                          .number = keys::number_at(key, keys::kPrefix + 16)};
  auto telling =
      names_.wrote(keys::number_at(key, keys::kPrefix), session, {.perhaps = true, .closed = true});
  const auto told = co_await std::move(telling);
  const bool gone = !told && told.error().code == Errc::stale;
  co_return told || gone ? Result<void>() : told.error();
}

Task<Result<void>> Collector::forget_client(uint64_t client, uint64_t count) {
  kv::Range range = keys::all(keys::kAnswer, client, kSlots);
  auto paging = page(std::move(range));
  FF_CO_TRY(const auto answers, co_await std::move(paging));
  for (size_t at = 0; at < answers.size(); at += kv::kWritesMax) {
    std::vector<std::string> some;
    for (size_t i = at; i < std::min(at + kv::kWritesMax, answers.size()); i++) {
      some.push_back(answers[i].key);
    }
    auto erasing = erase(std::move(some));
    FF_CO_TRY(co_await std::move(erasing));
  }
  kv::Function function = [client, count](kv::Txn& txn) -> Task<Result<void>> {
    const std::string key = keys::of(keys::kClient, client);
    auto reading = read_record<wire::Counter>(txn, key);
    FF_CO_TRY(const auto counter, co_await std::move(reading));
    if (counter && counter->next() == count) txn.erase(key);
    co_return Result<void>();
  };
  auto running = engine_.run(std::move(function), deadline());
  co_return co_await std::move(running);
}

}  // namespace ff::meta
