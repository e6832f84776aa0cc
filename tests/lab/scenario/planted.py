#!/usr/bin/env python3
# Bugs planted into a cluster one by one, and the seed of the scenario that finds each.
"""Shows that `ff sim` can fail: plants known bugs, builds, and searches the scenarios for them.

usage: planted.py [--fit | --build BUILD --seeds N] [NAME...]

Bugs of the log of a disk are searched by the crash tests of the chunk store (test_chunk).

Run it in a clone whose build folder BUILD (build) is configured for release: sources are changed
and restored, one bug at a time. Without names all bugs are planted. Exits with 1 when one of them
is not found within N seeds. --fit only looks whether the sources still have what each bug replaces.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]

# name: places, each a file, what stands there, and what is to stand there
CHAIN = {
    "drop-chain-version-check": [
        (
            "core/storage/chain/replica.cc",
            "  if (version != chain->version) {",
            "  if (version > chain->version) {",
        )
    ],
    "acknowledge-before-commit": [
        (
            "core/storage/chain/replica_update.cc",
            "    co_return co_await run_to_end(inflight);\n"
            "  }\n}\n\nResult<void> Replica::check_head",
            "    gate_.spawn(run_update(inflight));\n    while (inflight->hold) {\n"
            "      const auto now = store_.state(id_, inflight->update.id);\n"
            "      if (now && now->pending &&\n"
            "          now->pending->request_id == inflight->update.request_id) {\n"
            "        co_return UpdateOutcome{now->pending->state, version};\n      }\n"
            "      const auto waited = co_await sleep_for(context_.loop, kMillisecond);\n"
            "      FF_CO_TRY(waited);\n    }\n    co_return inflight->outcome;\n  }\n}\n\n"
            "Result<void> Replica::check_head",
        )
    ],
    # Alone it does no harm: what is copied late is refused where it is older.
    "skip-resync-lock-and-what-is-behind-it": [
        (
            "core/storage/chain/replica_copy.cc",
            "  FF_CO_TRY(const auto hold, co_await locks_.lock(id));\n"
            "  FF_CO_TRY(const ChunkState state, store_.state(id_, id));\n"
            "  // The local state",
            "  FF_CO_TRY(const ChunkState state, store_.state(id_, id));\n"
            "  // The local state",
        ),
        (
            "core/storage/chain/decisions.cc",
            "  if (already_replaced(state, copy.version, chain_version)) return false;\n",
            "  (void)chain_version;\n",
        ),
        (
            "core/storage/chain/decisions.cc",
            "  return state.committed.version == 0 || state.chain_version != chain_version;\n",
            "  return state.committed.version == 0 || chain_version > 0;\n",
        ),
    ],
    "reuse-freed-block-at-once": [
        (
            "core/storage/chunk/block_store.cc",
            "  freed_.push_back({epoch_, block.location});",
            "  files(block.location.size_class).bitmap.free(block.location.number);",
        )
    ],
    "forget-the-fence": [
        (
            "core/storage/cluster/member.cc",
            "  return answered_ && now_ns - lease_start_ns_ < kNodeLeaseNs;",
            "  return answered_ && now_ns >= 0;",
        )
    ],
    "a-successor-out-of-reach-is-not-told-of": [
        (
            "core/storage/cluster/manager.cc",
            "  record_unreachable(beat, now_ns);\n",
            "",
        )
    ],
    "deposed-primary-answers": [
        (
            "core/storage/cluster/manager_service.cc",
            "  if (!is_active(term)) {\n    *reply.mutable_elsewhere() = elsewhere();\n"
            "    co_return reply;\n  }\n  if (!term->manager) co_return no_cluster();\n"
            "  const NodeId node",
            "  if (term == nullptr) {\n    *reply.mutable_elsewhere() = elsewhere();\n"
            "    co_return reply;\n  }\n  if (!term->manager) co_return no_cluster();\n"
            "  const NodeId node",
        ),
        (
            "core/storage/cluster/manager_service.cc",
            "    term->end();\n    term_.reset();\n",
            "    term->end();\n",
        ),
    ],
    # Alone it does no harm: the last that serves brings what is pending to its end before it tells
    # which version counts, so that no predecessor answers less than the promoted one.
    "read-before-promotion-is-confirmed-and-what-is-behind-it": [
        (
            "core/storage/cluster/member.cc",
            "  return own(id)->predecessors_confirmed;",
            "  return true;",
        ),
        (
            "core/storage/chain/replica_read.cc",
            "    FF_CO_TRY(co_await resolve_pending(id));\n"
            "    co_return std::nullopt;\n",
            "    co_return std::optional(VersionKind::committed);\n",
        ),
        (
            "core/storage/chain/replica_read.cc",
            "    if (!state.pending) co_return state.committed.version;\n"
            "    FF_CO_TRY(co_await resolve_pending(id));\n",
            "    co_return state.committed.version;\n",
        ),
    ],
    # What the index names and the disk has lost is taken for a copy.
    "lost-blocks-count-as-a-copy": [
        ("core/storage/chunk/chunk_store_open.cc", "  record_damage(changes);\n", ""),
    ],
    "forget-results-at-restart": [
        (
            "core/storage/chunk/chunk_store_open.cc",
            "  keep_newest(target->second.channels, channel, result);\n  return {};",
            "  (void)channel, (void)result;\n  return {};",
        )
    ],
    # Alone it does no harm: no target serves before it has settled what is pending.
    "take-anothers-pending-version-and-serve-before-it-is-settled": [
        (
            "core/storage/chain/replica_sync.cc",
            "  co_return co_await resolve_all_pending();\n}\n\n"
            "Task<Result<void>> Replica::resolve_all_pending",
            "  co_return Result<void>();\n}\n\nTask<Result<void>> Replica::resolve_all_pending",
        ),
        (
            "core/storage/chain/decisions.cc",
            "  const bool its = state.pending->request_id == request_id;",
            "  const bool its = true;",
        )
    ],
    "cancel-a-stored-pending-version": [
        (
            "core/storage/chain/replica_update.cc",
            "    if (is_refusal(passed.error())) {",
            "    if (passed.error().code != Errc::stale) {",
        )
    ],
    # Alone it does no harm: each chunk is looked at again under its lock, at both ends.
    "resync-lists-in-the-wrong-order-and-what-is-behind-it": [
        (
            "core/storage/chain/replica_copy.cc",
            "    // The other's list first: what is in it alone has not come into being since.\n",
            "    FF_CO_TRY(auto early, store_.list(id_, from, kChunkPage));\n",
        ),
        (
            "core/storage/chain/replica_copy.cc",
            "    FF_CO_TRY(auto local, store_.list(id_, from, kChunkPage));\n",
            "    auto local = early;\n",
        ),
        (
            "core/storage/chain/replica_copy.cc",
            "  for (const auto& [id, state] : theirs) differ.push_back(id);\n",
            "  for (const auto& [id, state] : theirs) {\n"
            "    wire::EraseRequest erase;\n"
            "    *erase.mutable_place() = place_of(job.to.id, job.version);\n"
            "    *erase.mutable_chunk() = to_wire(id);\n"
            "    auto erasing = call(job.to.node, kErase, std::move(erase), {}, kStepNs);\n"
            "    FF_CO_TRY(co_await std::move(erasing));\n  }\n",
        ),
        (
            "core/storage/chain/decisions.cc",
            "  return state.committed.version == 0 || state.chain_version != chain_version;\n",
            "  return chain_version > 0;\n  (void)state;\n",
        ),
    ],
    "write-a-sink-after-the-call-was-given-up": [
        (
            "core/platform/rpc/channel.cc",
            "  if (!has_memory || !connection().one_sided()) co_return;",
            "  if (!has_memory || next_call_ > 0) co_return;",
        )
    ],
}


FILES = {
    "forget-answers": [
        (
            "core/storage/meta/namespace.cc",
            "    if (before && before->sequence() == request.sequence) {",
            "    if (before && before->sequence() == request.sequence && request.slot >= kSlots) {",
        )
    ],
    "move-a-directory-below-itself": [
        (
            "core/storage/meta/namespace_rename.cc",
            "        overtaken = moves != moved->moves ||",
            "        overtaken =",
        )
    ],
    "remove-a-directory-that-is-not-empty": [
        (
            "core/storage/meta/records.cc",
            "  co_return entries.empty();",
            "  co_return entries.empty() || dir % 5 == 0;",
        )
    ],
    "lose-a-link": [
        (
            "core/storage/meta/namespace.cc",
            "  inode.links++;\n  inode.ctime_ns = now_ns;",
            "  if (id % 3 != 0) inode.links++;\n  inode.ctime_ns = now_ns;",
        )
    ],
    "forget-the-cut": [
        (
            "core/storage/meta/namespace_lengths.cc",
            "    FF_CO_TRY(co_await chunks.truncate(inode, inode.truncate_to, still_needed));\n",
            "    (void)chunks;\n",
        )
    ],
    # Alone each does no harm: either is enough for nearly all that come late.
    "cut-what-was-written-after-it": [
        (
            "core/storage/meta/file_chunks.cc",
            "  over |= !goes;\n",
            "  over |= !goes && share.length > UINT64_MAX / 2;\n",
        ),
        (
            "core/storage/chain/decisions.cc",
            "  if (update.expected_version && *update.expected_version != committed.version) "
            "return std::nullopt;\n",
            "",
        ),
    ],
    "clear-what-was-appended-meanwhile": [
        (
            "core/storage/chain/decisions.cc",
            "  const bool all_of_it = update.length == committed.length;\n",
            "  const bool all_of_it = update.offset == 0;\n",
        )
    ],
    "cut-without-sync": [
        (
            "core/storage/meta/file_chunks.cc",
            "  FF_CO_TRY(const uint64_t synced, co_await client_.sync(chain));\n",
            "  FF_CO_TRY(const uint64_t synced, co_await client_.sync(chain));\n"
            "  if (chain > 0) co_return true;\n",
        )
    ],
    "cut-by-another-without-sync": [
        (
            "core/storage/meta/file_chunks.cc",
            "    if (found.verifier) verifiers.insert(*found.verifier);\n",
            "",
        ),
        (
            "core/storage/meta/file_chunks.cc",
            "  FF_CO_TRY(const uint64_t synced, co_await client_.sync(chain));\n",
            "  FF_CO_TRY(const uint64_t synced, co_await client_.sync(chain));\n"
            "  if (seen.empty()) co_return true;\n",
        ),
    ],
    "append-where-another-does": [
        (
            "core/storage/meta/namespace_lengths.cc",
            "    inode.length += size;\n",
            "    if (inode.length % 3 != 0) inode.length += size;\n",
        )
    ],
    "never-collect": [
        (
            "core/storage/meta/records.cc",
            "    txn.put(keys::of(keys::kGarbage, static_cast<uint64_t>(now_ns), inode.id), "
            '"");\n',
            "",
        )
    ],
    "write-behind-out-of-turn": [
        (
            "core/storage/client/write_behind.cc",
            "  while (order_[chunk].done != ticket) {",
            "  while (order_[chunk].done != ticket && chunk > 1000) {",
        )
    ],
    "sync-half-of-it": [
        (
            "core/storage/client/file.cc",
            "    all.add(with_cancellation(sync_chain(chain, count), scope.cancellation()));\n",
            "    if (chain % 2 != 0)\n"
            "      all.add(with_cancellation(sync_chain(chain, count), scope.cancellation()));\n",
        )
    ],
    "tell-an-error-to-whoever-asks-first": [
        (
            "core/storage/client/error_seq.h",
            "    if (cursor.seen_ == count_) return {};",
            "    if (cursor.seen_ == count_ || reported_) return {};",
        )
    ],
}

NAMES = {
    "believe-a-server-that-has-lost-it": [
        (
            "core/storage/meta/uncommitted_changes.h",
            "      if (!kept) lost.push_back(std::move(change));\n",
            "      if (!kept && change.mark.generation == 0) lost.push_back(std::move(change));\n",
        )
    ],
    "answer-a-sync-at-once": [
        (
            "core/storage/meta/meta_calls.cc",
            "  FF_CO_TRY(co_await namespace_.sync());\n"
            "  wire::SyncReply reply;\n",
            "  wire::SyncReply reply;\n",
        ),
        (
            "core/storage/meta/meta_calls.cc",
            "    durable.set_position(*position);\n",
            "    durable.set_position(*position + 1000);\n",
        )
    ],
    "lengths-are-not-told-again": [
        (
            "core/storage/meta/meta_client.cc",
            "        lost_lengths_.push_back(std::move(change));\n",
            "        change.sent.reset();\n",
        )
    ],
    "tell-the-file-and-not-its-directory": [
        (
            "core/storage/meta/meta_client.cc",
            "    if (ref.path.empty() && !known) change.inodes.push_back(ref.id);\n",
            "    if (ref.id == kRoot && !known) change.inodes.push_back(ref.id);\n",
        )
    ],
}

CLUSTER = {
    # Alone each does no harm: the manager looks at it in several ways.
    "go-on-with-any-that-is-alive": [
        (
            "core/storage/cluster/manager_loss.cc",
            "    if (promotable(chain, target) && beats(alive)) alive = &target;\n",
            "    if (promotable(chain, target)) alive = &target;\n",
        ),
        (
            "core/storage/cluster/manager_loss.cc",
            "  if (!complete && other_complete) {\n",
            "  if (!complete && other_complete && chain.id == 0) {\n",
        ),
        (
            "core/storage/cluster/manager_loss.cc",
            "  if (most != nullptr &&\n      has_less(",
            "  if (most == candidate &&\n      has_less(",
        ),
        (
            "core/storage/cluster/manager_loss.cc",
            "  if (plan.incomplete && !options.incomplete) {\n",
            "  if (plan.incomplete && options.chain == 0) {\n",
        ),
    ],
    "serve-while-those-set-aside-may": [
        (
            "core/storage/cluster/manager_loss.cc",
            "    return node == nullptr || node->routing_version < aside.changed;\n",
            "    return node == nullptr;\n",
        )
    ],
}

DELEGATIONS = {
    "give-back-before-the-changes-are-sent": [
        (
            "core/storage/client/delegations.cc",
            "  log({dir}, 0, 0).set_give_back(dir);\n",
            "  log({dir}, 0, 0).set_give_back(dir);\n"
            "  std::rotate(log_.begin(), log_.end() - 1, log_.end());\n",
        )
    ],
    "send-a-batch-twice": [
        (
            "core/storage/client/delegation_sender.cc",
            "  if (sent) sent = co_await send(batch);\n",
            "  (void)co_await send(batch);\n  if (sent) sent = co_await send(batch);\n",
        )
    ],
    "say-not-there-after-a-recall": [
        (
            "core/storage/client/delegations.cc",
            "    held_.erase(found);\n  }\n  log(",
            "  }\n  log(",
        )
    ],
    "grant-while-another-holds": [
        (
            "core/storage/meta/namespace_delegations.cc",
            "read_dir(txn, dir, fmt::format(\"inode {}\", dir), lease);",
            "read_inode(txn, dir);",
        )
    ],
    "answer-after-the-lease": [
        (
            "core/storage/client/delegations.cc",
            "loop_.now_ns() - renewed_ns_ < meta::kDelegationHolderNs &&",
            "loop_.now_ns() >= renewed_ns_ &&",
        )
    ],
    "end-a-lease-that-is-renewed": [
        (
            "core/storage/meta/namespace_delegations.cc",
            "    if (lease && lease->beat() == beat) txn.erase",
            "    if (lease && lease->beat() >= beat) txn.erase",
        ),
        (
            "core/storage/meta/delegation_recalls.cc",
            "  if (lease.since_ns == 0 || lease.beat != state.beat) {",
            "  if (lease.since_ns == 0) {",
        ),
    ],
    "forget-deferred-bytes-at-a-kill": [
        (
            "core/storage/client/file_system_restore.cc",
            "      co_return co_await replay(std::move(*file), std::move(session.buffers));\n",
            "      co_return Result<void>();\n",
        )
    ],
    "let-others-in-before-the-bytes-are-stored": [
        (
            "core/storage/client/delegation_sender.cc",
            "  FF_CO_TRY(const auto full, co_await store_(std::move(inodes)));\n",
            "  gate_.spawn([](Task<Result<std::vector<meta::InodeId>>> storing) -> Task<void> {\n"
            "    (void)co_await std::move(storing);\n  }(store_(std::move(inodes))));\n"
            "  const std::vector<meta::InodeId> full;\n",
        )
    ],
    "send-lengths-before-the-bytes-after-a-restart": [
        (
            "core/storage/client/file_system.cc",
            "  if (!left_sessions_.empty()) FF_CO_TRY",
            "  if (left_sessions_.size() > 1000) FF_CO_TRY",
        )
    ],
    # The bytes are stored when the changes are sent, but after the sync of their chain.
    "sync-a-file-before-its-bytes-are-stored": [
        (
            "core/storage/client/file_system.cc",
            "  if (!deferred_.empty()) {\n",
            "  if (!deferred_.empty() && (rights & meta::kMayWrite) == 0) {\n",
        )
    ],
    "return-from-fsync-before-the-changes-are-sent": [
        (
            "core/storage/client/file.cc",
            "  co_return co_await of_.metadata_.sync();\n",
            "  co_return co_await of_.metadata_.MetaClient::sync();\n",
        )
    ],
    "drop-the-bytes-of-closed-files-when-disks-are-full": [
        (
            "core/storage/client/file_system_deferred.cc",
            "      wait_for_room(file, true);  // by the batch with its length\n      continue;\n",
            "      file->behind_.drop_buffers();\n",
        )
    ],
    "lose-the-tail-of-the-journal": [
        (
            "core/storage/client/delegations.cc",
            "  auto left = journal_.take();\n",
            "  auto left = journal_.take();\n"
            "  if (!left.changes.empty()) left.changes.pop_back();\n",
        )
    ],
    "answer-before-the-journal": [
        (
            "core/storage/client/delegating_meta_client.cc",
            "  delegations_.record();\n  wake_sender();\n  co_return answer;",
            "  wake_sender();\n  co_return answer;",
        )
    ],
    "send-a-batch-again-after-a-restart": [
        (
            "core/storage/client/delegation_sender.cc",
            "  const uint64_t lease = delegations_.restore(restored_batch());\n",
            "  const auto sent = restored_batch();\n"
            "  if (sent) end_batch(*sent);\n"
            "  const uint64_t lease = delegations_.restore(sent);\n",
        )
    ],
    "use-inode-numbers-that-servers-have-forgotten": [
        (
            "core/storage/client/delegations.cc",
            "  return valid ? std::optional(next) : std::nullopt;\n",
            "  return valid || next > 0 ? std::optional(next) : std::nullopt;\n",
        )
    ],
    "read-zeros-where-a-file-was-removed-meanwhile": [
        (
            "core/storage/client/file.cc",
            "  const auto there = co_await check_exists(hole, INT64_MAX);\n",
            "  const auto there = co_await check_exists(hole, began_ns);\n",
        )
    ],
    "forget-what-was-answered": [
        (
            "core/storage/client/change_journal.cc",
            "  if (origin == 0 || restored_.empty()) return std::nullopt;\n",
            "  if (origin != 0) return std::nullopt;\n",
        )
    ],
}
LOG = {
    # Blocks are overwritten in place; if the power is lost, what they have to hold is nowhere.
    "overwrite-blocks-before-the-log-is-durable": [
        (
            "core/storage/chunk/chunk_store_log.cc",
            "  FF_CO_TRY(co_await make_all_durable());\n  for (;;) {\n",
            "  for (;;) {\n",
        )
    ],
    # The rows say that the data is in the blocks; it is only on its way.
    "forget-the-log-before-the-blocks-are-durable": [
        (
            "core/storage/chunk/chunk_store_log.cc",
            "    if (!all.empty()) FF_CO_TRY(co_await make_all_durable());\n",
            "",
        )
    ],
    "do-not-repeat-what-the-log-intends": [
        (
            "core/storage/chunk/chunk_store_log.cc",
            "  if (units.empty() || BlockStore::lost(version.block)) co_return Result<void>();\n",
            "  if (units.empty() || end == UINT64_MAX) co_return Result<void>();\n",
        )
    ],
    "use-a-segment-again-too-soon": [
        (
            "core/storage/chunk/chunk_store_log.cc",
            "  FF_CO_TRY(co_await move_log(metadata_->segment_lsn()));\n",
            "",
        )
    ],
    "use-a-segment-again-while-undo-rows-need-it": [
        (
            "core/storage/chunk/chunk_store_log.cc",
            "    FF_CO_TRY(co_await make_all_durable());\n    if (last) ",
            "    if (last) ",
        )
    ],
    "overwrite-a-block-while-it-is-read": [
        (
            "core/storage/chunk/chunk_store_log.cc",
            "  for (;;) {\n    FF_CO_TRY(co_await wait_for_reads());\n",
            "  for (;;) {\n",
        )
    ],
    "forget-a-commit-record": [
        (
            "core/storage/chunk/chunk_store.cc",
            "  more.push_back(\n"
            "      {.key = key_of(RowKind::chunk, {claim.target_id(), id.inode, id.index}), "
            ".body = row});\n",
            "  if (next.pending || next.committed.state.version % 4 != 0)\n"
            "    more.push_back({.key = key_of(RowKind::chunk,\n"
            "                                  {claim.target_id(), id.inode, id.index}),\n"
            "                    .body = row});\n",
        )
    ],
    "trust-a-torn-entry": [
        (
            "core/storage/chunk/log_segment.cc",
            "  return crc == load_le<uint32_t>(from) ? std::optional(entry) : std::nullopt;\n",
            "  return entry;\n",
        )
    ],
}
SCENARIOS = {
    "chain": CHAIN,
    "files": FILES,
    "names": NAMES,
    "cluster": CLUSTER,
    "delegations": DELEGATIONS,
}
PLANTED = CHAIN | FILES | NAMES | CLUSTER | DELEGATIONS | LOG


def changed(name):
    """Sources with the bug in them: {path: text}."""
    texts = {}
    for path, old, new in PLANTED[name]:
        text = texts.get(path) or (ROOT / path).read_text()
        if text.count(old) != 1:
            sys.exit(f"{name}: {path} has not this once any more:\n{old}")
        texts[path] = text.replace(old, new)
    return texts


def sim(args, name, seed, seeds):
    scenario = next(scenario for scenario, planted in SCENARIOS.items() if name in planted)
    words = ["sim", "--scenario", scenario, "--seed", str(seed), "--seeds", str(seeds)]
    return subprocess.run(
        [f"{args.build}/ff", *words], capture_output=True, text=True, check=False
    )


def crash_tests(args):
    """The first crash test that fails, as sim() in search(): (seed, failure)."""
    subprocess.run(["ninja", "-C", args.build, "test_chunk"], check=True, stdout=subprocess.DEVNULL)
    words = [f"{args.build}/test_chunk", "--gtest_filter=ChunkCrash.*:LogTest.*"]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return None
    seed = re.search(r"seed (\d+)", run.stdout)
    failed = re.search(r"\[  FAILED  \] (\S+)", run.stdout)
    return int(seed[1]) if seed else 0, failed[1] if failed else run.stderr.strip()[-200:]


def search(name, args):
    originals = {path: (ROOT / path).read_text() for path, _, _ in PLANTED[name]}
    try:
        for path, text in changed(name).items():
            (ROOT / path).write_text(text)
        if name in LOG:
            return crash_tests(args)
        subprocess.run(["ninja", "-C", args.build, "ff"], check=True, stdout=subprocess.DEVNULL)
        run = sim(args, name, 1, args.seeds)
        if run.returncode not in (0, 3):  # a check of the code itself: of which seed?
            seed = 1
            while (run := sim(args, name, seed, 1)).returncode in (0, 3):
                seed += 1
            return seed, run.stderr.strip().split("\n", maxsplit=1)[0]
    finally:
        for path, text in originals.items():
            (ROOT / path).write_text(text)
    found = re.search(r"seed (\d+): (.*)", run.stderr)
    return (int(found[1]), found[2]) if found else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--seeds", type=int, default=5000)
    parser.add_argument("--fit", action="store_true")
    args = parser.parse_args()
    if args.fit:
        for name in args.names or PLANTED:
            changed(name)
        return 0
    missed = 0
    for name in args.names or PLANTED:
        found = search(name, args)
        missed += found is None
        what = f"seed {found[0]}: {found[1]}" if found else f"NOT FOUND in {args.seeds} seeds"
        print(f"{name}: {what}", flush=True)
    targets = ["ff", "test_chunk"] if LOG.keys() & set(args.names or PLANTED) else ["ff"]
    subprocess.run(["ninja", "-C", args.build, *targets], check=True, stdout=subprocess.DEVNULL)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
