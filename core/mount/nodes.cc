// nodes.cc: an inode is known from its first lookup until the kernel has forgotten it and nobody
// has it open.
#include "mount/nodes.h"

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
  return *node;
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
