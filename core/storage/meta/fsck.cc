// fsck.cc: scans metadata and storage, and repairs.
#include "storage/meta/fsck.h"

#include <algorithm>
#include <utility>

#include "platform/base/text.h"
#include "storage/meta/metadata_scan.h"

namespace ff::meta {

namespace {

constexpr int64_t kScanTimeoutNs = 3600 * kSecond;  // for hundreds of millions of records
constexpr int64_t kFsckStepTimeoutNs = 30 * kSecond;

}  // namespace

// Lists storage before the metadata: chunks of files created later are not in the list.
Task<Result<std::vector<Fsck::StoredInode>>> Fsck::list_stored_inodes() {
  std::vector<cluster::ChainId> chains;
  for (const auto& [id, chain] : routing_.chains) chains.push_back(id);
  std::vector<StoredInode> all;
  for (const cluster::ChainId chain : chains) {
    for (InodeId from = 0;;) {
      FF_CO_TRY(const auto inodes, co_await storage_.list_inodes(chain, from, chain::kInodesMax));
      for (const InodeId inode : inodes) all.push_back({chain, inode});
      if (inodes.size() < chain::kInodesMax || inodes.back() == UINT64_MAX) break;
      from = inodes.back() + 1;
    }
  }
  co_return all;
}

Task<Result<FsckReport>> Fsck::run(Options options) {
  FF_CO_TRY(const auto in_storage, co_await list_stored_inodes());
  FsckReport report;
  MetadataScan scan(report);
  kv::TxnFunction function = [&scan](kv::Txn& txn) { return scan.run(txn); };
  FF_CO_TRY(co_await engine_.view(std::move(function), loop_.now_ns() + kScanTimeoutNs));
  if (report.has_damaged_records) co_return report;
  report.stored_files = in_storage.size();
  for (const StoredInode& stored : in_storage) {
    // `bench chain` uses inode numbers that no file has.
    if (scan.contains(stored.inode) || stored.inode >> 56 == 0xff) continue;
    report.problems++;
    if (report.reported.size() >= kProblemsMax) continue;
    report.reported.push_back(
        {.kind = FsckProblem::Kind::orphan_chunks,
         .inode = stored.inode,
         .expected = stored.chain,
         .text = fmt::format("chain {} has chunks of inode {}, which does not exist", stored.chain,
                             stored.inode)});
  }
  for (FsckProblem& problem : report.reported) {
    if (problem.kind == FsckProblem::Kind::orphan_chunks) {
      FF_CO_TRY(co_await remove_orphans(problem, options));
    } else if (options.repair) {
      FF_CO_TRY(co_await repair(problem));
    }
  }
  co_return report;
}

// `how` returns whether it repaired the problem. If the state has changed, the next fsck reports
// it.
Task<Result<void>> Fsck::change(FsckProblem& problem,
                                std::function<Task<Result<bool>>(kv::Txn&)> how) {
  bool repaired = false;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(repaired, co_await how(txn));
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.run(std::move(function), loop_.now_ns() + kFsckStepTimeoutNs));
  problem.repaired = repaired;
  co_return Result<void>();
}

namespace {

// The repairs, each inside a transaction.
struct Repair {
  const FsckProblem& problem;
  const int64_t now_ns;

  Task<Result<bool>> erase_name(kv::Txn& txn) const {
    FF_CO_TRY(const auto entry, co_await find_dentry(txn, problem.dir, problem.name));
    if (!entry || entry->inode != problem.inode) co_return false;
    FF_CO_TRY(const auto inode, co_await find_inode(txn, problem.inode));
    if (problem.kind == FsckProblem::Kind::dangling_name && inode) co_return false;
    txn.erase(keys::dentry(problem.dir, problem.name));
    touch_dir(txn, problem.dir, now_ns);
    co_return true;
  }

  Task<Result<bool>> set_kind(kv::Txn& txn) const {
    FF_CO_TRY(const auto entry, co_await find_dentry(txn, problem.dir, problem.name));
    if (!entry || entry->inode != problem.inode) co_return false;
    put_dentry(txn, problem.dir, problem.name,
               {problem.inode, static_cast<InodeType>(problem.expected)});
    touch_dir(txn, problem.dir, now_ns);
    co_return true;
  }

  Task<Result<bool>> set_inode(kv::Txn& txn) const {
    FF_CO_TRY(auto inode, co_await find_inode(txn, problem.inode));
    if (!inode) co_return false;
    switch (problem.kind) {
      case FsckProblem::Kind::wrong_links:
        inode->links = static_cast<uint32_t>(problem.expected);
        break;
      case FsckProblem::Kind::wrong_parent: inode->parent = problem.expected; break;
      case FsckProblem::Kind::wrong_xattrs:
        inode->xattrs = static_cast<uint32_t>(problem.expected);
        break;
      default: break;
    }
    if (problem.kind == FsckProblem::Kind::missing_times) touch_dir(txn, inode->id, now_ns);
    if (problem.kind == FsckProblem::Kind::not_collected) mark(txn, *inode);
    put_inode(txn, *inode);
    co_return true;
  }

  void mark(kv::Txn& txn, const Inode& inode) const {
    if (inode.truncating) txn.put(keys::of(keys::kTruncation, inode.id), "");
    if (inode.links > 0) return;
    if (inode.is(InodeType::directory)) {
      txn.put(keys::of(keys::kRemovedTree, inode.id), "");
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

Task<Result<void>> Fsck::repair(FsckProblem& problem) {
  const Repair repair{problem, loop_.clock().wall_ns()};
  std::function<Task<Result<bool>>(kv::Txn&)> how;
  switch (problem.kind) {
    case FsckProblem::Kind::dangling_name:
    case FsckProblem::Kind::name_nowhere:
    case FsckProblem::Kind::second_name:
      how = [&repair](kv::Txn& txn) { return repair.erase_name(txn); };
      break;
    case FsckProblem::Kind::wrong_kind:
      how = [&repair](kv::Txn& txn) { return repair.set_kind(txn); };
      break;
    case FsckProblem::Kind::wrong_links:
    case FsckProblem::Kind::wrong_parent:
    case FsckProblem::Kind::wrong_xattrs:
    case FsckProblem::Kind::missing_times:
    case FsckProblem::Kind::not_collected:
      how = [&repair](kv::Txn& txn) { return repair.set_inode(txn); };
      break;
    case FsckProblem::Kind::stray_record:
      how = [&repair](kv::Txn& txn) { return repair.erase_record(txn); };
      break;
    case FsckProblem::Kind::lost: {
      co_return co_await reconnect(problem);
    }
    case FsckProblem::Kind::orphan_chunks:
    case FsckProblem::Kind::unreadable: co_return Result<void>();
  }
  co_return co_await change(problem, std::move(how));
}

Task<Result<InodeId>> Fsck::lost_and_found() {
  FF_CO_TRY(const InodeId id, co_await ids_.next(loop_.now_ns() + kFsckStepTimeoutNs));
  const int64_t now_ns = loop_.clock().wall_ns();
  InodeId found_id = 0;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(const auto entry, co_await find_dentry(txn, kRoot, kLostAndFound));
    if (entry && entry->kind != InodeType::directory) {
      co_return fail(Errc::failed, "/{} is not a directory", kLostAndFound);
    }
    found_id = entry ? entry->inode : id;
    if (entry) co_return Result<void>();
    FF_CO_TRY(Inode root, co_await read_dir(txn, kRoot, "/", 0));
    root.links++;
    put_inode(txn, root);
    put_inode(txn, {.id = id,
                    .kind = InodeType::directory,
                    .mode = 0700,
                    .links = 2,
                    .ctime_ns = now_ns,
                    .btime_ns = now_ns,
                    .parent = kRoot});
    put_dentry(txn, kRoot, kLostAndFound, {id, InodeType::directory});
    touch_dir(txn, kRoot, now_ns);
    touch_dir(txn, id, now_ns);
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.run(std::move(function), loop_.now_ns() + kFsckStepTimeoutNs));
  co_return found_id;
}

namespace {

// Removes the dentry of `inode` from `dir`, so that the inode can get another one.
Task<Result<void>> remove_dentry_of(kv::Txn& txn, InodeId dir, InodeId inode, int64_t now_ns) {
  kv::Range range = keys::range_of(keys::kDentry, dir, 1000);
  for (;;) {
    FF_CO_TRY(const auto entries, co_await txn.range(range, keys::times(dir)));
    for (const kv::Entry& one : entries) {
      const auto entry = parse_dentry(one);
      if (!entry || entry->inode != inode) continue;
      txn.erase(one.key);
      touch_dir(txn, dir, now_ns);
      co_return Result<void>();
    }
    if (entries.size() < range.limit) co_return Result<void>();
    range.begin = entries.back().key + '\0';
  }
}

}  // namespace

// Gives an inode without a name, or a directory in a cycle, a name in lost+found.
Task<Result<void>> Fsck::reconnect(FsckProblem& problem) {
  FF_CO_TRY(const InodeId home, co_await lost_and_found());
  const int64_t now_ns = loop_.clock().wall_ns();
  auto how = [&problem, home, now_ns](kv::Txn& txn) -> Task<Result<bool>> {
    FF_CO_TRY(auto inode, co_await find_inode(txn, problem.inode));
    FF_CO_TRY(Inode dir, co_await read_dir(txn, home, kLostAndFound, 0));
    if (!inode || inode->links == 0) co_return false;
    const std::string name = fmt::format("#{}", problem.inode);
    FF_CO_TRY(const auto there, co_await find_dentry(txn, home, name));
    if (there) co_return false;
    if (problem.dir != 0) {
      FF_CO_TRY(co_await remove_dentry_of(txn, problem.dir, problem.inode, now_ns));
    }
    if (inode->is(InodeType::directory)) {
      inode->parent = home;
      dir.links++;
      put_inode(txn, dir);
    } else {
      inode->links = 1;
    }
    inode->ctime_ns = now_ns;
    put_inode(txn, *inode);
    put_dentry(txn, home, name, {inode->id, inode->kind});
    touch_dir(txn, home, now_ns);
    co_return true;
  };
  co_return co_await change(problem, std::move(how));
}

// Whether fsck first saw these chunks long ago; otherwise records that it has seen them now.
Task<Result<bool>> Fsck::is_old(InodeId inode, Options options) {
  const int64_t now_ns = loop_.clock().wall_ns();
  bool old = false;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    const std::string key = keys::of(keys::kOrphan, inode);
    FF_CO_TRY(const auto seen, co_await read_record<wire::Opened>(txn, key));
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
  FF_CO_TRY(co_await engine_.run(std::move(function), loop_.now_ns() + kFsckStepTimeoutNs));
  co_return old;
}

Task<Result<void>> Fsck::remove_orphans(FsckProblem& problem, Options options) {
  FF_CO_TRY(const bool old, co_await is_old(problem.inode, options));
  if (!options.repair || !old) co_return Result<void>();
  FF_CO_TRY(co_await chunks_.remove_all(problem.expected, problem.inode));
  problem.repaired = true;
  co_return Result<void>();
}

}  // namespace ff::meta
