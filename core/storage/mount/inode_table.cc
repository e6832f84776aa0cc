// inode_table.cc: an entry lives from the first lookup until the kernel has forgotten the inode and
// no program has it open.
#include "storage/mount/inode_table.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ff::mount {

void CachedInode::count_own_writes() {
  if (writer == nullptr) return;
  const uint64_t now = writer->reported_writes();
  if (pages_version) *pages_version += now - counted_writes;
  counted_writes = now;
}

void CachedInode::on_reply(const meta::Inode& inode) {
  const KernelAttributes given{inode.length, inode.mtime_ns};
  if (kernel_attributes && *kernel_attributes != given) kernel_attributes_differ = true;
  kernel_attributes = given;
}

bool CachedInode::kernel_knows(const meta::Inode& inode) const {
  return !kernel_attributes_differ &&
         kernel_attributes == KernelAttributes{inode.length, inode.mtime_ns};
}

void CachedInode::on_entry_changed(int64_t wall_ns, int subdirs) {
  entry_ns = std::max(entry_ns, wall_ns);
  if (!cached_dir) return;
  // The cached attributes may include this change already.
  if (wall_ns <= cached_dir->ctime_ns) return cached_dir.reset();
  cached_dir->mtime_ns = std::max(cached_dir->mtime_ns, wall_ns);
  cached_dir->ctime_ns = std::max(cached_dir->ctime_ns, wall_ns);
  cached_dir->links += static_cast<uint32_t>(subdirs);
}

CachedInodeRef InodeTable::get_or_create(meta::InodeId inode) {
  CachedInodeRef& cached = inodes_[inode];
  if (cached == nullptr) cached = std::make_shared<CachedInode>(loop_, inode);
  return cached;
}

CachedInodeRef InodeTable::find(meta::InodeId inode) const {
  const auto found = inodes_.find(inode);
  return found == inodes_.end() ? nullptr : found->second;
}

CachedInode& InodeTable::add_lookup(const meta::InodeView& view) {
  const CachedInodeRef cached = get_or_create(view.inode.id);
  cached->lookups++;
  cached->lookup_ns = loop_.now_ns();
  cached->ctime_ns = view.inode.ctime_ns;
  cached->on_reply(view.inode);
  if (!view.proof.empty()) set_proof(*cached, view.proof);
  cache_directory(view.inode);
  return *cached;
}

void InodeTable::set_proof(CachedInode& cached, const std::string& proof) {
  if (cached.proof == proof) return;
  cached.proof = proof;
  if (recovery_ == nullptr) return;
  cached.proof_record = recovery_->add(
      {.kind = client::RecoveryTable::Kind::proof, .fixed = {cached.id}, .text = proof});
}

void InodeTable::restore_proofs() {
  if (recovery_ == nullptr) return;
  for (auto& record : recovery_->take(client::RecoveryTable::Kind::proof)) {
    const CachedInodeRef cached = get_or_create(record.fixed(0));
    cached->lookups = 1;  // at least; the kernel knows more
    cached->proof = record.text();
    cached->proof_record = std::move(record);
  }
}

void InodeTable::cache_directory(const meta::Inode& inode) {
  const CachedInodeRef cached = inode.is(meta::InodeType::directory) ? find(inode.id) : nullptr;
  if (cached == nullptr) return;
  cached->cached_dir.reset();
  if (inode.ctime_ns < cached->entry_ns) return;  // the reply is older than that change
  cached->cached_dir = inode;
  cached->cached_dir_ns = loop_.now_ns();
}

void InodeTable::on_entry_changed(meta::InodeId dir, int64_t wall_ns, int subdirs) {
  const CachedInodeRef cached = find(dir);
  if (cached != nullptr) cached->on_entry_changed(wall_ns, subdirs);
}

void InodeTable::drop_directory(meta::InodeId dir) {
  const CachedInodeRef cached = find(dir);
  if (cached != nullptr) cached->cached_dir.reset();
}

void InodeTable::on_reply(const meta::Inode& inode) {
  const CachedInodeRef cached = find(inode.id);
  if (cached != nullptr) cached->on_reply(inode);
}

void InodeTable::on_changed(const meta::Inode& inode) {
  const CachedInodeRef cached = find(inode.id);
  if (cached == nullptr) return;
  cached->ctime_ns = std::max(cached->ctime_ns, inode.ctime_ns);
  cached->opened_ns = 0;
  cached->changes++;
}

void InodeTable::forget(meta::InodeId inode, uint64_t lookups) {
  const CachedInodeRef cached = find(inode);
  if (cached == nullptr) return;
  cached->lookups -= std::min(cached->lookups, lookups);
  drop_unused(inode);
}

void InodeTable::drop_if_unused(const CachedInodeRef& cached) { drop_unused(cached->id); }

void InodeTable::drop_unused(meta::InodeId inode) {
  const auto found = inodes_.find(inode);
  if (found == inodes_.end()) return;
  const CachedInode& cached = *found->second;
  if (cached.lookups == 0 && cached.handles.empty()) inodes_.erase(found);
}

std::vector<CachedInodeRef> InodeTable::open_inodes() const {
  std::vector<CachedInodeRef> open;
  for (const auto& [inode, cached] : inodes_) {
    if (!cached->handles.empty()) open.push_back(cached);
  }
  return open;
}

std::vector<CachedInodeRef> InodeTable::with_files() const {
  std::vector<CachedInodeRef> all;
  for (const auto& [inode, cached] : inodes_) {
    if (cached->file() != nullptr) all.push_back(cached);
  }
  return all;
}

}  // namespace ff::mount
