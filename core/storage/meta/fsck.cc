// fsck.cc: the look, storage beside it, and repairs.
#include "storage/meta/fsck.h"

#include <algorithm>
#include <utility>

#include "platform/base/text.h"
#include "storage/meta/census.h"

namespace ff::meta {

namespace {

constexpr int64_t kLookNs = 3600 * kSecond;  // over hundreds of millions of records
constexpr int64_t kFsckPatienceNs = 30 * kSecond;

}  // namespace

// Storage first: a file that is made after that has chunks after that.
Task<Result<std::vector<Fsck::Stored>>> Fsck::stored() {
  std::vector<cluster::ChainId> chains;
  for (const auto& [id, chain] : routing_.chains) chains.push_back(id);
  std::vector<Stored> all;
  for (const cluster::ChainId chain : chains) {
    for (InodeId from = 0;;) {
      auto asking = storage_.inodes(chain, from, chain::kInodesMax);
      FF_CO_TRY(const auto inodes, co_await std::move(asking));
      for (const InodeId inode : inodes) all.push_back({chain, inode});
      if (inodes.size() < chain::kInodesMax || inodes.back() == UINT64_MAX) break;
      from = inodes.back() + 1;
    }
  }
  co_return all;
}

Task<Result<FsckReport>> Fsck::run(Options options) {
  auto asking = stored();
  FF_CO_TRY(const auto in_storage, co_await std::move(asking));
  FsckReport report;
  Census census(report);
  kv::Function function = [&census](kv::Txn& txn) { return census.take(txn); };
  auto viewing = engine_.view(std::move(function), loop_.now_ns() + kLookNs);
  FF_CO_TRY(co_await std::move(viewing));
  if (report.damaged) co_return report;
  report.stored = in_storage.size();
  for (const Stored& stored : in_storage) {
    // `bench chain` writes under numbers that no file has.
    if (census.has(stored.inode) || stored.inode >> 56 == 0xff) continue;
    report.problems++;
    if (report.told.size() >= kProblemsMax) continue;
    report.told.push_back(
        {.kind = Problem::Kind::orphan_chunks,
         .inode = stored.inode,
         .wanted = stored.chain,
         .text = fmt::format("chain {} has chunks of inode {}, which is not there", stored.chain,
                             stored.inode)});
  }
  for (Problem& problem : report.told) {
    if (problem.kind == Problem::Kind::orphan_chunks) {
      auto removing = remove_orphans(problem, options);
      FF_CO_TRY(co_await std::move(removing));
    } else if (options.repair) {
      auto repairing = repair(problem);
      FF_CO_TRY(co_await std::move(repairing));
    }
  }
  co_return report;
}

// `how` says whether it has repaired it: where things are otherwise now, another look will tell.
Task<Result<void>> Fsck::change(Problem& problem, std::function<Task<Result<bool>>(kv::Txn&)> how) {
  bool repaired = false;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    auto doing = how(txn);
    FF_CO_TRY(repaired, co_await std::move(doing));
    co_return Result<void>();
  };
  auto running = engine_.run(std::move(function), loop_.now_ns() + kFsckPatienceNs);
  FF_CO_TRY(co_await std::move(running));
  problem.repaired = repaired;
  co_return Result<void>();
}

namespace {

// What a repair does in its transaction.
struct Repair {
  const Problem& problem;
  const int64_t now_ns;

  Task<Result<bool>> erase_name(kv::Txn& txn) const {
    auto finding = find_entry(txn, problem.dir, problem.name);
    FF_CO_TRY(const auto entry, co_await std::move(finding));
    if (!entry || entry->inode != problem.inode) co_return false;
    auto reading = find_inode(txn, problem.inode);
    FF_CO_TRY(const auto inode, co_await std::move(reading));
    if (problem.kind == Problem::Kind::dangling_name && inode) co_return false;
    txn.erase(keys::dentry(problem.dir, problem.name));
    touch(txn, problem.dir, now_ns);
    co_return true;
  }

  Task<Result<bool>> set_kind(kv::Txn& txn) const {
    auto finding = find_entry(txn, problem.dir, problem.name);
    FF_CO_TRY(const auto entry, co_await std::move(finding));
    if (!entry || entry->inode != problem.inode) co_return false;
    put_entry(txn, problem.dir, problem.name, {problem.inode, static_cast<Kind>(problem.wanted)});
    touch(txn, problem.dir, now_ns);
    co_return true;
  }

  Task<Result<bool>> set_inode(kv::Txn& txn) const {
    auto reading = find_inode(txn, problem.inode);
    FF_CO_TRY(auto inode, co_await std::move(reading));
    if (!inode) co_return false;
    switch (problem.kind) {
      case Problem::Kind::wrong_links: inode->links = static_cast<uint32_t>(problem.wanted); break;
      case Problem::Kind::wrong_parent: inode->parent = problem.wanted; break;
      case Problem::Kind::wrong_xattrs:
        inode->xattrs = static_cast<uint32_t>(problem.wanted);
        break;
      default: break;
    }
    if (problem.kind == Problem::Kind::missing_times) touch(txn, inode->id, now_ns);
    if (problem.kind == Problem::Kind::not_collected) mark(txn, *inode);
    put_inode(txn, *inode);
    co_return true;
  }

  void mark(kv::Txn& txn, const Inode& inode) const {
    if (inode.cutting) txn.put(keys::of(keys::kCut, inode.id), "");
    if (inode.links > 0) return;
    if (inode.is(Kind::directory)) {
      txn.put(keys::of(keys::kTree, inode.id), "");
    } else {
      txn.put(keys::of(keys::kGarbage, static_cast<uint64_t>(now_ns), inode.id), "");
    }
  }

  Task<Result<bool>> erase_record(kv::Txn& txn) const {
    txn.erase(problem.name);
    co_return true;
  }
};

}  // namespace

Task<Result<void>> Fsck::repair(Problem& problem) {
  const Repair repair{problem, loop_.clock().wall_ns()};
  std::function<Task<Result<bool>>(kv::Txn&)> how;
  switch (problem.kind) {
    case Problem::Kind::dangling_name:
    case Problem::Kind::name_nowhere:
    case Problem::Kind::second_name:
      how = [&repair](kv::Txn& txn) { return repair.erase_name(txn); };
      break;
    case Problem::Kind::wrong_kind:
      how = [&repair](kv::Txn& txn) { return repair.set_kind(txn); };
      break;
    case Problem::Kind::wrong_links:
    case Problem::Kind::wrong_parent:
    case Problem::Kind::wrong_xattrs:
    case Problem::Kind::missing_times:
    case Problem::Kind::not_collected:
      how = [&repair](kv::Txn& txn) { return repair.set_inode(txn); };
      break;
    case Problem::Kind::stray_record:
      how = [&repair](kv::Txn& txn) { return repair.erase_record(txn); };
      break;
    case Problem::Kind::lost: {
      auto adopting = adopt(problem);
      co_return co_await std::move(adopting);
    }
    case Problem::Kind::orphan_chunks:
    case Problem::Kind::unreadable: co_return Result<void>();
  }
  auto changing = change(problem, std::move(how));
  co_return co_await std::move(changing);
}

Task<Result<InodeId>> Fsck::lost_and_found() {
  auto numbering = ids_.next(loop_.now_ns() + kFsckPatienceNs);
  FF_CO_TRY(const InodeId id, co_await std::move(numbering));
  const int64_t now_ns = loop_.clock().wall_ns();
  InodeId found_id = 0;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    auto finding = find_entry(txn, kRoot, kLostAndFound);
    FF_CO_TRY(const auto entry, co_await std::move(finding));
    if (entry && entry->kind != Kind::directory) {
      co_return fail(Errc::failed, "/{} is no directory", kLostAndFound);
    }
    found_id = entry ? entry->inode : id;
    if (entry) co_return Result<void>();
    auto reading = read_inode(txn, kRoot);
    FF_CO_TRY(Inode root, co_await std::move(reading));
    root.links++;
    put_inode(txn, root);
    put_inode(txn, {.id = id,
                    .kind = Kind::directory,
                    .mode = 0700,
                    .links = 2,
                    .ctime_ns = now_ns,
                    .btime_ns = now_ns,
                    .parent = kRoot});
    put_entry(txn, kRoot, kLostAndFound, {id, Kind::directory});
    touch(txn, kRoot, now_ns);
    touch(txn, id, now_ns);
    co_return Result<void>();
  };
  auto running = engine_.run(std::move(function), loop_.now_ns() + kFsckPatienceNs);
  FF_CO_TRY(co_await std::move(running));
  co_return found_id;
}

namespace {

// The name of a directory in another, so that it can have a better one.
Task<Result<void>> take_name(kv::Txn& txn, InodeId dir, InodeId inode, int64_t now_ns) {
  kv::Range range = keys::all(keys::kDentry, dir, 1000);
  for (;;) {
    auto ranging = txn.range(range, keys::times(dir));
    FF_CO_TRY(const auto entries, co_await std::move(ranging));
    for (const kv::Entry& one : entries) {
      const auto entry = entry_of(one);
      if (!entry || entry->inode != inode) continue;
      txn.erase(one.key);
      touch(txn, dir, now_ns);
      co_return Result<void>();
    }
    if (entries.size() < range.limit) co_return Result<void>();
    range.begin = entries.back().key + '\0';
  }
}

}  // namespace

// What nothing names, or only what hangs on it itself, gets a name.
Task<Result<void>> Fsck::adopt(Problem& problem) {
  auto finding = lost_and_found();
  FF_CO_TRY(const InodeId home, co_await std::move(finding));
  const int64_t now_ns = loop_.clock().wall_ns();
  auto how = [&problem, home, now_ns](kv::Txn& txn) -> Task<Result<bool>> {
    auto reading = find_inode(txn, problem.inode);
    FF_CO_TRY(auto inode, co_await std::move(reading));
    auto reading_home = read_dir(txn, home, kLostAndFound);
    FF_CO_TRY(Inode dir, co_await std::move(reading_home));
    if (!inode || inode->links == 0) co_return false;
    const std::string name = fmt::format("#{}", problem.inode);
    auto looking = find_entry(txn, home, name);
    FF_CO_TRY(const auto there, co_await std::move(looking));
    if (there) co_return false;
    if (problem.dir != 0) {
      auto taking = take_name(txn, problem.dir, problem.inode, now_ns);
      FF_CO_TRY(co_await std::move(taking));
    }
    if (inode->is(Kind::directory)) {
      inode->parent = home;
      dir.links++;
      put_inode(txn, dir);
    } else {
      inode->links = 1;
    }
    inode->ctime_ns = now_ns;
    put_inode(txn, *inode);
    put_entry(txn, home, name, {inode->id, inode->kind});
    touch(txn, home, now_ns);
    co_return true;
  };
  auto changing = change(problem, std::move(how));
  co_return co_await std::move(changing);
}

// Whether some look has seen them long ago; this one remembers that it has.
Task<Result<bool>> Fsck::is_old(InodeId inode, Options options) {
  const int64_t now_ns = loop_.clock().wall_ns();
  bool old = false;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    const std::string key = keys::of(keys::kOrphan, inode);
    auto reading = read_record<wire::Opened>(txn, key);
    FF_CO_TRY(const auto seen, co_await std::move(reading));
    old = (seen ? seen->since_ns() : now_ns) + options.orphans_after_ns <= now_ns;
    if (old && options.repair) {
      txn.erase(key);
    } else if (!seen) {
      wire::Opened record;
      record.set_since_ns(now_ns);
      txn.put(key, record.SerializeAsString());
    }
    co_return Result<void>();
  };
  auto running = engine_.run(std::move(function), loop_.now_ns() + kFsckPatienceNs);
  FF_CO_TRY(co_await std::move(running));
  co_return old;
}

Task<Result<void>> Fsck::remove_orphans(Problem& problem, Options options) {
  auto asking = is_old(problem.inode, options);
  FF_CO_TRY(const bool old, co_await std::move(asking));
  if (!options.repair || !old) co_return Result<void>();
  auto removing = chunks_.remove_all(problem.wanted, problem.inode);
  FF_CO_TRY(co_await std::move(removing));
  problem.repaired = true;
  co_return Result<void>();
}

}  // namespace ff::meta
