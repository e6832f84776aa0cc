// nodes.cc: an inode is known from its first lookup until the kernel has forgotten it and nobody
// has it open.
#include "storage/mount/nodes.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ff::mount {

void Node::count_own_changes() {
  if (writer == nullptr) return;
  const uint64_t now = writer->times_told();
  if (pages) *pages += now - told;
  told = now;
}

void Node::entry_changed(int64_t wall_ns, int subdirs) {
  entry_ns = std::max(entry_ns, wall_ns);
  if (!dir) return;
  // Who told of the directory may have counted it already.
  if (wall_ns <= dir->ctime_ns) return dir.reset();
  dir->mtime_ns = std::max(dir->mtime_ns, wall_ns);
  dir->ctime_ns = std::max(dir->ctime_ns, wall_ns);
  dir->links += static_cast<uint32_t>(subdirs);
}

NodeRef Nodes::at(meta::InodeId inode) {
  NodeRef& node = nodes_[inode];
  if (node == nullptr) node = std::make_shared<Node>(loop_, inode);
  return node;
}

NodeRef Nodes::find(meta::InodeId inode) const {
  const auto found = nodes_.find(inode);
  return found == nodes_.end() ? nullptr : found->second;
}

Node& Nodes::named(const meta::Seen& seen) {
  const NodeRef node = at(seen.inode.id);
  node->lookups++;
  node->named_ns = loop_.now_ns();
  node->ctime_ns = seen.inode.ctime_ns;
  if (!seen.proof.empty()) node->proof = seen.proof;
  looked_at(seen.inode);
  return *node;
}

void Nodes::looked_at(const meta::Inode& inode) {
  const NodeRef node = inode.is(meta::Kind::directory) ? find(inode.id) : nullptr;
  if (node == nullptr) return;
  node->dir.reset();
  if (inode.ctime_ns < node->entry_ns) return;  // it was asked for before that
  node->dir = inode;
  node->dir_ns = loop_.now_ns();
}

void Nodes::entry_changed(meta::InodeId dir, int64_t wall_ns, int subdirs) {
  const NodeRef node = find(dir);
  if (node != nullptr) node->entry_changed(wall_ns, subdirs);
}

void Nodes::forget_dir(meta::InodeId dir) {
  const NodeRef node = find(dir);
  if (node != nullptr) node->dir.reset();
}

void Nodes::changed(const meta::Inode& inode) {
  const NodeRef node = find(inode.id);
  if (node != nullptr) node->ctime_ns = std::max(node->ctime_ns, inode.ctime_ns);
}

void Nodes::forget(meta::InodeId inode, uint64_t lookups) {
  const NodeRef node = find(inode);
  if (node == nullptr) return;
  node->lookups -= std::min(node->lookups, lookups);
  drop_unused(inode);
}

void Nodes::let_go(const NodeRef& node) { drop_unused(node->id); }

void Nodes::drop_unused(meta::InodeId inode) {
  const auto found = nodes_.find(inode);
  if (found == nodes_.end()) return;
  const Node& node = *found->second;
  if (node.lookups == 0 && node.handles.empty()) nodes_.erase(found);
}

std::vector<NodeRef> Nodes::open() const {
  std::vector<NodeRef> open;
  for (const auto& [inode, node] : nodes_) {
    if (!node->handles.empty()) open.push_back(node);
  }
  return open;
}

}  // namespace ff::mount
