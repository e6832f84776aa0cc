// census.cc: what each record says, and what does not fit.
#include "storage/meta/census.h"

#include <algorithm>
#include <utility>

#include "platform/base/text.h"
#include "platform/kv/seal.h"

namespace ff::meta {

const Census::Node* Census::find(InodeId id) const {
  const auto at = std::ranges::lower_bound(nodes_, id, {}, &Node::id);
  return at != nodes_.end() && at->id == id ? &*at : nullptr;
}

Census::Node* Census::find(InodeId id) { return const_cast<Node*>(std::as_const(*this).find(id)); }

void Census::add(Problem problem) {
  report_.problems++;
  if (report_.told.size() < kProblemsMax) report_.told.push_back(std::move(problem));
}

void Census::take_inode(const kv::Entry& entry) {
  const InodeId id = keys::number_at(entry.key, keys::kPrefix);
  const auto inode = inode_of(entry.value);
  if (!inode || inode->id != id) {
    return add({.kind = Problem::Kind::unreadable,
                .inode = id,
                .text = fmt::format("the record of inode {} cannot be read", id)});
  }
  report_.inodes++;
  if (inode->is(Kind::directory)) report_.directories++;
  nodes_.push_back({.id = id,
                    .parent = inode->parent,
                    .links = inode->links,
                    .xattrs = inode->xattrs,
                    .kind = inode->kind,
                    .cutting = inode->cutting});
}

void Census::take_name(const kv::Entry& entry) {
  report_.names++;
  const InodeId dir = keys::number_at(entry.key, keys::kPrefix);
  const std::string name(keys::name_of(entry.key));
  const auto found = entry_of(entry);
  Problem problem{.dir = dir, .name = name};
  const auto told = [&](Problem::Kind kind, std::string_view why) {
    problem.kind = kind;
    problem.text = fmt::format("'{}' in directory {} {}", printable(name), dir, why);
    add(problem);
  };
  if (!found) return told(Problem::Kind::unreadable, "cannot be read");
  problem.inode = found->inode;
  Node* const above = find(dir);
  Node* const node = find(found->inode);
  if (node == nullptr) {
    return told(Problem::Kind::dangling_name,
                fmt::format("names inode {}, which is not there", found->inode));
  }
  if (above == nullptr || above->kind != Kind::directory) {
    return told(Problem::Kind::name_nowhere, "is in no directory");
  }
  if (node->kind != found->kind) {
    problem.wanted = static_cast<uint64_t>(node->kind);
    told(Problem::Kind::wrong_kind,
         fmt::format("is of kind {}, its inode {} of kind {}", static_cast<int>(found->kind),
                     found->inode, static_cast<int>(node->kind)));
  }
  if (node->kind == Kind::directory) {
    if (node->names > 0) {
      return told(Problem::Kind::second_name,
                  fmt::format("is another name of directory {}", found->inode));
    }
    node->named_in = dir;
    above->subdirs++;
  }
  node->names++;
}

void Census::take_xattr(const kv::Entry& entry) {
  const InodeId id = keys::number_at(entry.key, keys::kPrefix);
  if (Node* const node = find(id)) {
    node->xattrs_found++;
    return;
  }
  add({.kind = Problem::Kind::stray_record,
       .inode = id,
       .name = entry.key,
       .text = fmt::format("an attribute of inode {}, which is not there", id)});
}

// A record that says something of an inode, whose number stands at `at` of the key.
void Census::take_mark(const kv::Entry& entry, size_t at, bool Node::*seen) {
  const InodeId id = keys::number_at(entry.key, at);
  const std::string_view prefix = std::string_view(entry.key).substr(0, keys::kPrefix);
  Node* const node = find(id);
  // Of a directory, or of what has no name; a directory that is removed takes its times along.
  const bool fits = node != nullptr && (seen == &Node::timed ? node->kind == Kind::directory
                                        : seen == &Node::cut ? node->cutting
                                                             : node->links == 0);
  if (fits) {
    if (seen == &Node::collected) report_.garbage++;
    node->*seen = true;
    return;
  }
  add({.kind = Problem::Kind::stray_record,
       .inode = id,
       .name = entry.key,
       .text = fmt::format("a {} record of inode {}, which {}", prefix, id,
                           node == nullptr ? "is not there" : "needs none")});
}

// A session or a lock.
void Census::take_holder(const kv::Entry& entry) {
  const InodeId id = keys::number_at(entry.key, keys::kPrefix);
  const bool lock = entry.key.starts_with(keys::kLock);
  if (!lock) report_.sessions++;
  if (find(id) != nullptr) return;
  add({.kind = Problem::Kind::stray_record,
       .inode = id,
       .name = entry.key,
       .text = fmt::format("a {} of inode {}, which is not there", lock ? "lock" : "session", id)});
}

// The directory that has lost its place when this one has: itself, if it has no name, or the first
// that is met of a circle that it is in, or hangs on. Null: it has one, or the one it hangs on is
// known already.
Census::Node* Census::find_lost(Node& node) {
  if (node.named_in == 0) return &node;
  walk_++;
  for (Node* at = &node; at != nullptr && !at->placed && at->id != kRoot; at = find(at->named_in)) {
    if (at->walk == walk_) {
      at->placed = true;
      return at;
    }
    at->walk = walk_;
    if (at->named_in == 0) break;
  }
  node.placed = true;
  return nullptr;
}

void Census::judge_directory(Node& node) {
  if (!node.timed) {
    add({.kind = Problem::Kind::missing_times,
         .inode = node.id,
         .text = fmt::format("directory {} has no times", node.id)});
  }
  if (node.links > 0 && node.links != 2 + node.subdirs) {
    add({.kind = Problem::Kind::wrong_links,
         .inode = node.id,
         .wanted = 2 + node.subdirs,
         .text = fmt::format("directory {} has {} links, and should have {}", node.id, node.links,
                             2 + node.subdirs)});
  }
  if (node.id == kRoot || node.links == 0) return;
  if (const Node* const lost = find_lost(node)) {
    add({.kind = Problem::Kind::lost,
         .inode = lost->id,
         .dir = lost->named_in,
         .text = fmt::format("directory {} cannot be reached from the root", lost->id)});
  } else if (node.named_in != node.parent) {
    add({.kind = Problem::Kind::wrong_parent,
         .inode = node.id,
         .wanted = node.named_in,
         .text = fmt::format("directory {} says that it is in {}, and is in {}", node.id,
                             node.parent, node.named_in)});
  }
}

void Census::judge(Node& node) {
  if (node.xattrs != node.xattrs_found) {
    add({.kind = Problem::Kind::wrong_xattrs,
         .inode = node.id,
         .wanted = node.xattrs_found,
         .text = fmt::format("inode {} has {} attributes, and says {}", node.id, node.xattrs_found,
                             node.xattrs)});
  }
  if (node.links == 0 && node.names == 0 && !node.collected) {
    add({.kind = Problem::Kind::not_collected,
         .inode = node.id,
         .text = fmt::format("inode {} has no name, and nobody is to collect it", node.id)});
  }
  if (node.cutting && !node.cut) {
    add({.kind = Problem::Kind::not_collected,
         .inode = node.id,
         .text = fmt::format("inode {} is to be cut, and nobody is to do it", node.id)});
  }
  if (node.kind == Kind::directory) return judge_directory(node);
  if (node.names == 0 && node.links > 0) {
    add({.kind = Problem::Kind::lost,
         .inode = node.id,
         .text = fmt::format("inode {} has no name, but {} links", node.id, node.links)});
  } else if (node.names != node.links) {
    add({.kind = Problem::Kind::wrong_links,
         .inode = node.id,
         .wanted = node.names,
         .text =
             fmt::format("inode {} has {} links, and {} names", node.id, node.links, node.names)});
  }
}

// All of the store. Without them the others seem to be what they are not, and are not to be
// repaired.
Task<Result<void>> Census::take_damaged(kv::Txn& txn) {
  constexpr size_t kPage = 4096;
  for (std::string begin;;) {
    kv::Range range{.begin = begin, .end = "\xff", .limit = kPage};
    auto ranging = txn.range(std::move(range), std::string(kv::kWithDamaged));
    FF_CO_TRY(const auto entries, co_await std::move(ranging));
    for (const kv::Entry& entry : entries) {
      if (!kv::is_damaged(entry.key)) continue;
      const std::string key(kv::stored_key(entry.key));
      report_.damaged = true;
      add({.kind = Problem::Kind::unreadable,
           .name = key,
           .text = fmt::format("the record {} is damaged: put it back (ff admin restore --name), "
                               "and look again for what else there is",
                               kv::key_text(key))});
    }
    if (entries.size() < kPage) co_return Result<void>();
    begin = std::string(kv::stored_key(entries.back().key)) + '\0';
  }
}

Task<Result<void>> Census::take(kv::Txn& txn) {
  nodes_.clear();
  report_ = {};
  auto damaged = take_damaged(txn);
  FF_CO_TRY(co_await std::move(damaged));
  if (report_.damaged) co_return Result<void>();
  auto inodes = scan_records(txn, keys::kInode, [this](const auto& entry) { take_inode(entry); });
  FF_CO_TRY(co_await std::move(inodes));
  auto names = scan_records(txn, keys::kDentry, [this](const auto& entry) { take_name(entry); });
  FF_CO_TRY(co_await std::move(names));
  auto xattrs = scan_records(txn, keys::kXattr, [this](const auto& entry) { take_xattr(entry); });
  FF_CO_TRY(co_await std::move(xattrs));
  const auto mark = [&](std::string_view prefix, size_t at, bool Node::*seen) {
    return scan_records(txn, prefix,
                        [this, at, seen](const auto& entry) { take_mark(entry, at, seen); });
  };
  auto times = mark(keys::kTimes, keys::kPrefix, &Node::timed);
  FF_CO_TRY(co_await std::move(times));
  auto garbage = mark(keys::kGarbage, keys::kPrefix + 8, &Node::collected);
  FF_CO_TRY(co_await std::move(garbage));
  auto trees = mark(keys::kTree, keys::kPrefix, &Node::collected);
  FF_CO_TRY(co_await std::move(trees));
  auto cuts = mark(keys::kCut, keys::kPrefix, &Node::cut);
  FF_CO_TRY(co_await std::move(cuts));
  for (const std::string_view held : {keys::kSession, keys::kLock}) {
    auto holders = scan_records(txn, held, [this](const auto& entry) { take_holder(entry); });
    FF_CO_TRY(co_await std::move(holders));
  }
  if (find(kRoot) == nullptr) {
    add({.kind = Problem::Kind::unreadable, .inode = kRoot, .text = "there is no root directory"});
  }
  for (Node& node : nodes_) judge(node);
  co_return Result<void>();
}

}  // namespace ff::meta
