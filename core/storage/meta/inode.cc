// inode.cc: conversion to and from messages, and stripes.
#include "storage/meta/inode.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <numeric>

#include "platform/base/rng.h"
#include "platform/base/text.h"
#include "storage/chunk/layout.h"

namespace ff::meta {

// A partial Fisher-Yates shuffle with our own generator: the result is the same on every machine
// and in every version.
std::vector<size_t> stripe_swaps(const Layout& layout, size_t chains) {
  std::vector<size_t> swaps(std::min<size_t>(layout.stripe, chains));
  SeededRng rng(layout.seed);
  for (size_t i = 0; i < swaps.size(); i++) swaps[i] = i + rng.below(chains - i);
  return swaps;
}

std::vector<cluster::ChainId> stripe_chains(const Layout& layout,
                                            const std::vector<cluster::ChainId>& table) {
  std::vector<cluster::ChainId> chains = table;
  const std::vector<size_t> swaps = stripe_swaps(layout, chains.size());
  for (size_t i = 0; i < swaps.size(); i++) std::swap(chains[i], chains[swaps[i]]);
  chains.resize(swaps.size());
  return chains;
}

Result<std::vector<cluster::ChainId>> chains_of(const cluster::Routing& routing,
                                                const Layout& layout) {
  const auto found = routing.tables.find({layout.table, layout.version});
  if (found != routing.tables.end()) return stripe_chains(layout, found->second.chains);
  return fail(Errc::failed, "version {1} of chain table {0} is not known", layout.table,
              layout.version);
}

Layout with_defaults(Layout layout) {
  if (layout.table == 0) layout.table = kDefaultTable;
  if (layout.chunk_size == 0) layout.chunk_size = kDefaultChunkSize;
  if (layout.stripe == 0) layout.stripe = kDefaultStripe;
  return layout;
}

void to_wire(const Layout& layout, wire::Layout& out) {
  out.set_table(layout.table);
  out.set_version(layout.version);
  out.set_chunk_size(layout.chunk_size);
  out.set_stripe(layout.stripe);
  out.set_seed(layout.seed);
}

Layout from_wire(const wire::Layout& layout) {
  return {.table = layout.table(),
          .version = layout.version(),
          .chunk_size = layout.chunk_size(),
          .stripe = layout.stripe(),
          .seed = layout.seed()};
}

void to_wire(const Inode& inode, wire::Inode& out) {
  out.set_id(inode.id);
  out.set_kind(static_cast<uint32_t>(inode.kind));
  out.set_mode(inode.mode);
  out.set_uid(inode.uid);
  out.set_gid(inode.gid);
  out.set_links(inode.links);
  out.set_atime_ns(inode.atime_ns);
  out.set_mtime_ns(inode.mtime_ns);
  out.set_ctime_ns(inode.ctime_ns);
  out.set_btime_ns(inode.btime_ns);
  out.set_length(inode.length);
  out.set_floor(inode.min_length);
  out.set_truncations(inode.truncate_seq);
  out.set_cutting(inode.truncating);
  out.set_cut_to(inode.truncate_to);
  out.set_changes(inode.data_version);
  if (inode.layout.table != 0) to_wire(inode.layout, *out.mutable_layout());
  out.set_parent(inode.parent);
  out.set_target(inode.target);
  out.set_device(inode.device);
  out.set_xattrs(inode.xattrs);
  out.set_delegate(inode.delegate);
  if (!inode.unstored) return;
  out.mutable_unstored()->set_client(inode.unstored->client);
  out.mutable_unstored()->set_number(inode.unstored->number);
}

Result<Inode> from_wire(const wire::Inode& inode) {
  const bool known = inode.kind() >= 1 && inode.kind() <= static_cast<uint32_t>(InodeType::block);
  if (!known || inode.id() == 0 || inode.mode() > 07777 || inode.length() > kLengthMax) {
    return fail(Errc::corrupt, "invalid inode {}: kind {}, mode {:o}, {} bytes", inode.id(),
                inode.kind(), inode.mode(), inode.length());
  }
  Inode out{.id = inode.id(),
            .kind = static_cast<InodeType>(inode.kind()),
            .mode = inode.mode(),
            .uid = inode.uid(),
            .gid = inode.gid(),
            .links = inode.links(),
            .atime_ns = inode.atime_ns(),
            .mtime_ns = inode.mtime_ns(),
            .ctime_ns = inode.ctime_ns(),
            .btime_ns = inode.btime_ns(),
            .length = inode.length(),
            .min_length = inode.floor(),
            .truncate_seq = inode.truncations(),
            .truncating = inode.cutting(),
            .truncate_to = inode.cut_to(),
            .data_version = inode.changes(),
            .layout = from_wire(inode.layout()),
            .parent = inode.parent(),
            .target = inode.target(),
            .device = inode.device(),
            .xattrs = inode.xattrs(),
            .delegate = inode.delegate()};
  if (inode.has_unstored()) out.unstored = {inode.unstored().client(), inode.unstored().number()};
  if (out.is(InodeType::file)) {
    auto checked = check_layout(out.layout);
    if (!checked || out.layout.version == 0) {
      return fail(Errc::corrupt, "invalid inode {}: a file without a layout", inode.id());
    }
  }
  return out;
}

Result<void> check_name(std::string_view name) {
  if (name.size() > kNameMax) {
    Error error = errno_error(ENAMETOOLONG, printable(name.substr(0, 32)) + "...");
    error.code = Errc::usage;
    error.hint = fmt::format("Names have at most {} bytes.", kNameMax);
    return error;
  }
  const bool reserved = name.empty() || name == "." || name == "..";
  if (!reserved && name.find('/') == name.npos && name.find('\0') == name.npos) return {};
  Error error = errno_error(EINVAL, '\'' + printable(name) + '\'');
  error.code = Errc::usage;
  error.hint = "A name must not be empty, '.' or '..', and must not contain '/' or NUL.";
  return error;
}

Result<void> check_layout(const Layout& layout) {
  const bool sized = std::has_single_bit(layout.chunk_size) &&
                     layout.chunk_size >= chunk::kBlockMin && layout.chunk_size <= chunk::kChunkMax;
  if (sized && layout.stripe >= 1 && layout.stripe <= kStripeMax && layout.table != 0) return {};
  Error error = fail(Errc::usage, "invalid layout: chunks of {} bytes, {} chains of table {}",
                     layout.chunk_size, layout.stripe, layout.table);
  error.hint =
      "The chunk size is a power of two from 64 KiB to 64 MiB, the stripe 1 to 256 chains.";
  error.sys = EINVAL;
  return error;
}

}  // namespace ff::meta
