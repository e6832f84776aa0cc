// replicas.cc: from messages to the steps of a replica, and the data to and fro.
#include "storage/chain/replicas.h"

#include <algorithm>
#include <utility>

#include "platform/rpc/error_wire.h"
#include "platform/simd/crc32c.h"
#include "storage/chain/capability.h"
#include "storage/chain/wire.h"
#include "storage/chunk/layout.h"

namespace ff::chain {

namespace {

// For the data of clients' calls under way; what targets pass on to one another is bounded by that.
constexpr uint64_t kMemory = 256 * kMiB;
constexpr int kItemsMax = 1024;  // of a read

Result<void> check_size(uint64_t bytes) {
  if (bytes <= chunk::kChunkMax) return {};
  return fail(Errc::usage, "{} bytes for a chunk of at most {}", bytes, chunk::kChunkMax);
}

// The data of a call, checked: the caller's memory may change, and so may bytes on their way.
Replica::Pull puller(rpc::ServerCall& call, const rpc::wire::Slice& slice,
                     std::optional<uint32_t> crc) {
  return [&call, source = rpc::from_wire(slice), crc](ByteSpan into) -> Task<Result<void>> {
    return [](rpc::ServerCall& from, net::Slice data, std::optional<uint32_t> expected,
              ByteSpan memory) -> Task<Result<void>> {
      FF_CO_TRY(co_await from.pull(data, 0, memory));
      if (!expected || simd::crc32c(memory) == *expected) co_return Result<void>();
      co_return fail(Errc::busy, "the data of the call does not match its checksum");
    }(call, source, crc, into);
  };
}

wire::WriteReply reply_of(const Done& done, const Replica& replica) {
  wire::WriteReply reply;
  *reply.mutable_image() = to_wire(done.image);
  reply.set_chain_version(done.chain_version);
  reply.set_verifier(replica.told_verifier());
  return reply;
}

wire::ReadDone done_of(const chunk::ReadDone& read) {
  wire::ReadDone done;
  *done.mutable_image() = to_wire(read.state);
  done.set_bytes(read.bytes);
  done.set_crc(read.checksum);
  return done;
}

}  // namespace

Replicas::Replicas(rpc::Router& router, ReplicaContext& context)
    : context_(context), memory_(context.loop, kMemory) {
  rpc::add_method(router, kWrite, *this, &Replicas::write, rpc::Access::users);
  rpc::add_method(router, kForward, *this, &Replicas::forward);
  rpc::add_method(router, kRead, *this, &Replicas::read, rpc::Access::users);
  rpc::add_method(router, kSync, *this, &Replicas::sync, rpc::Access::users);
  rpc::add_method(router, kLast, *this, &Replicas::last, rpc::Access::users);
  rpc::add_method(router, kChunks, *this, &Replicas::chunks, rpc::Access::users);
  rpc::add_method(router, kInodes, *this, &Replicas::inodes);
  rpc::add_method(router, kCommitted, *this, &Replicas::committed);
  rpc::add_method(router, kList, *this, &Replicas::list);
  rpc::add_method(router, kErase, *this, &Replicas::erase);
  rpc::add_method(router, kCopy, *this, &Replicas::copy);
  rpc::add_method(router, kResults, *this, &Replicas::results);
  rpc::add_method(router, kCopied, *this, &Replicas::copied);
  rpc::add_method(router, kRepair, *this, &Replicas::repair);
  rpc::add_method(router, kCompare, *this, &Replicas::compare);
  rpc::add_method(router, kAbsent, *this, &Replicas::absent);
}

void Replicas::add(chunk::Store& store, cluster::TargetId id, cluster::ChainId chain) {
  auto& replica = replicas_[id];
  FF_CHECK(replica == nullptr);
  replica = std::make_shared<Replica>(context_, store, id, chain);
  replica->look();
}

Task<void> Replicas::remove(cluster::TargetId id) {
  const auto found = replicas_.find(id);
  if (found == replicas_.end()) co_return;
  const ReplicaRef replica = std::move(found->second);
  replicas_.erase(found);
  auto closing = replica->close();
  co_await std::move(closing);
}

Replica* Replicas::find(cluster::TargetId id) {
  const auto found = replicas_.find(id);
  return found == replicas_.end() ? nullptr : found->second.get();
}

void Replicas::look() {
  for (const auto& [id, replica] : replicas_) replica->look();
}

Task<void> Replicas::close() {
  for (const auto& [id, replica] : replicas_) {
    auto closing = replica->close();
    co_await std::move(closing);
  }
}

Result<Replicas::ReplicaRef> Replicas::at(const wire::Place& place) {
  const auto found = replicas_.find(place.target());
  if (found != replicas_.end() && found->second->chain() == place.chain()) return found->second;
  return fail(Errc::stale, "target {} of chain {} is not here", place.target(), place.chain());
}

// Whether the caller may do that with chunks of the file.
Result<void> Replicas::may(const rpc::ServerCall& call, const std::string& capability,
                           uint64_t inode, uint32_t right) const {
  if (call.peer().trusted()) return {};
  if (!context_.key) return fail(Errc::refused, "a node without the cluster key serves no users");
  return check(*context_.key, capability, inode, right, context_.loop.clock().wall_ns());
}

Task<Result<Semaphore::Hold>> Replicas::take_memory(uint64_t bytes) {
  return memory_.take(std::min(bytes, kMemory));
}

Task<Result<wire::WriteReply>> Replicas::write(rpc::ServerCall& call, wire::WriteRequest request) {
  FF_CO_TRY(may(call, request.capability(), request.chunk().inode(), kRightWrite));
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  FF_CO_TRY(chunk::Update update, from_wire(request));
  const uint64_t bytes = request.data().size();
  FF_CO_TRY(check_size(bytes));
  // Zeros take as much.
  const bool clears = update.change == chunk::Change::clear;
  const uint64_t zeros = clears ? std::min(update.length, chunk::kChunkMax) : 0;
  auto taking = take_memory(bytes + zeros);
  FF_CO_TRY(const auto memory, co_await std::move(taking));
  auto writing = replica->write(request.place().chain_version(), update, bytes,
                                puller(call, request.data(), request.data_crc()));
  FF_CO_TRY(const Done done, co_await std::move(writing));
  co_return reply_of(done, *replica);
}

Task<Result<wire::WriteReply>> Replicas::forward(rpc::ServerCall& call,
                                                 wire::ForwardRequest request) {
  const wire::WriteRequest& write = request.write();
  FF_CO_TRY(const ReplicaRef replica, at(write.place()));
  FF_CO_TRY(chunk::Update update, from_wire(write));
  update.version = request.version();
  update.checksum = request.checksum();
  FF_CO_TRY(check_size(write.data().size()));
  Replica::Forward forward{
      .update = update, .bytes = write.data().size(), .checked = request.checked()};
  auto forwarding = replica->forward(write.place().chain_version(), forward,
                                     puller(call, write.data(), write.data_crc()));
  FF_CO_TRY(const Done done, co_await std::move(forwarding));
  co_return reply_of(done, *replica);
}

Task<Result<wire::ReadReply>> Replicas::read(rpc::ServerCall& call, wire::ReadRequest request) {
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  if (request.items_size() > kItemsMax) {
    co_return fail(Errc::usage, "{} reads at once (the limit is {})", request.items_size(),
                   kItemsMax);
  }
  for (const wire::ReadItem& item : request.items()) FF_CO_TRY(check_size(item.sink().size()));
  wire::ReadReply reply;
  for (int item = 0; item < request.items_size(); item++) reply.add_items();
  Cancel& cancel = *co_await current_cancel();  // the call's
  Gate items(context_.loop);
  for (int item = 0; item < request.items_size(); item++) {
    items.spawn([](Task<Result<wire::ReadDone>> reading, wire::ReadDone& done,
                   Cancel& with) -> Task<void> {
      auto read = co_await std::move(reading).under(with);
      if (read) done = std::move(*read);
      if (!read) rpc::to_wire(read.error(), *done.mutable_error());
    }(read_item(call, *replica, request.place(), request.items(item)), *reply.mutable_items(item),
                                 cancel));
  }
  co_await items.wait_empty();
  co_return reply;
}

// From the disk into the caller's memory, where that can be; else through memory of our own.
Task<Result<wire::ReadDone>> Replicas::read_item(rpc::ServerCall& call, Replica& replica,
                                                 const wire::Place& place,
                                                 const wire::ReadItem& item) {
  FF_CO_TRY(may(call, item.capability(), item.chunk().inode(), kRightRead));
  const net::Slice sink = rpc::from_wire(item.sink());
  const uint64_t version = place.chain_version();
  const chunk::ChunkId id = from_wire(item.chunk());
  if (const auto reached = item.distrusted() ? std::nullopt : call.reach(sink)) {
    auto reading = replica.read(version, id, item.offset(), *reached, true);
    const auto read = co_await std::move(reading);
    if (read) co_return done_of(*read);
    if (read.error().code != Errc::unsupported) co_return read.error();
  }
  auto taking = take_memory(sink.size);
  FF_CO_TRY(const auto memory, co_await std::move(taking));
  const Memory::Bytes bytes = context_.memory.take(sink.size);
  auto reading = replica.read(version, id, item.offset(), bytes.span(), false);
  FF_CO_TRY(const chunk::ReadDone read, co_await std::move(reading));
  if (read.bytes > 0) {
    auto pushing = call.push(sink, 0, bytes.span().first(read.bytes));
    FF_CO_TRY(co_await std::move(pushing));
  }
  co_return done_of(read);
}

Task<Result<wire::SyncReply>> Replicas::sync(rpc::ServerCall&, wire::SyncRequest request) {
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  auto syncing = replica->sync(request.place().chain_version());
  FF_CO_TRY(const uint64_t verifier, co_await std::move(syncing));
  wire::SyncReply reply;
  reply.set_verifier(verifier);
  co_return reply;
}

Task<Result<wire::LastReply>> Replicas::last(rpc::ServerCall& call, wire::LastRequest request) {
  FF_CO_TRY(may(call, request.capability(), request.inode(), kRightRead));
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  auto looking = replica->last(request.place().chain_version(), request.inode());
  FF_CO_TRY(const auto found, co_await std::move(looking));
  wire::LastReply reply;
  reply.set_found(found.has_value());
  if (found) {
    *reply.mutable_chunk() = to_wire(found->id);
    *reply.mutable_image() = to_wire(found->state.committed);
  }
  co_return reply;
}

Task<Result<wire::ChunksReply>> Replicas::chunks(rpc::ServerCall& call,
                                                 wire::ChunksRequest request) {
  FF_CO_TRY(may(call, request.capability(), request.inode(), kRightRead));
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  // Which of its chunks are holes, nobody knows.
  const chunk::ChunkId first = {request.inode(), request.from()};
  if (request.step() != 0 && replica->missing(first)) co_return replica->missing_error(first);
  auto looking = replica->chunks(request.place().chain_version(),
                                 {.inode = request.inode(),
                                  .from = request.from(),
                                  .end = request.end() == 0 ? UINT64_MAX : request.end(),
                                  .limit = std::min(request.limit(), kChunksMax),
                                  .step = request.step(),
                                  .run_max = kRunMax});
  FF_CO_TRY(const auto page, co_await std::move(looking));
  wire::ChunksReply reply;
  for (const chunk::ChunkInfo& info : page.chunks) *reply.add_chunks() = to_wire(info);
  reply.set_run(page.run);
  reply.set_next(page.next);
  reply.set_verifier(replica->told_verifier());
  co_return reply;
}

Task<Result<wire::InodesReply>> Replicas::inodes(rpc::ServerCall&, wire::InodesRequest request) {
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  const size_t limit = std::min(request.limit(), kInodesMax);
  FF_CO_TRY(const auto inodes,
            replica->inodes(request.place().chain_version(), request.from(), limit));
  wire::InodesReply reply;
  for (const uint64_t inode : inodes) reply.add_inodes(inode);
  co_return reply;
}

Task<Result<wire::CommittedReply>> Replicas::committed(rpc::ServerCall&,
                                                       wire::CommittedRequest request) {
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  auto asking = replica->committed(request.place().chain_version(), from_wire(request.chunk()));
  FF_CO_TRY(const uint64_t version, co_await std::move(asking));
  wire::CommittedReply reply;
  reply.set_version(version);
  co_return reply;
}

Task<Result<wire::AbsentReply>> Replicas::absent(rpc::ServerCall&, wire::AbsentRequest request) {
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  std::vector<chunk::ChunkId> ids;
  for (const wire::Chunk& chunk : request.chunks()) ids.push_back(from_wire(chunk));
  auto looking = replica->absent(request.place().chain_version(), std::move(ids));
  FF_CO_TRY(const auto missing, co_await std::move(looking));
  wire::AbsentReply reply;
  for (const chunk::ChunkId id : missing) *reply.add_chunks() = to_wire(id);
  co_return reply;
}

Task<Result<wire::CompareReply>> Replicas::compare(rpc::ServerCall&, wire::CompareRequest request) {
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  std::vector<chunk::ChunkInfo> theirs;
  for (const wire::ListedChunk& listed : request.chunks()) theirs.push_back(from_wire(listed));
  FF_CO_TRY(
      const auto differ,
      replica->differing(request.place().chain_version(), std::move(theirs),
                         {from_wire(request.from()), from_wire(request.to())}, request.settled()));
  wire::CompareReply reply;
  for (const chunk::ChunkId id : differ) *reply.add_chunks() = to_wire(id);
  co_return reply;
}

Task<Result<wire::Done>> Replicas::repair(rpc::ServerCall&, wire::RepairRequest request) {
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  auto repairing = replica->repair(request.place().chain_version(), from_wire(request.chunk()));
  FF_CO_TRY(co_await std::move(repairing));
  co_return wire::Done();
}

Task<Result<wire::ListReply>> Replicas::list(rpc::ServerCall&, wire::ListRequest request) {
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  FF_CO_TRY(const auto page, replica->list(request.place().chain_version(),
                                           from_wire(request.chunk()), request.limit()));
  context_.member.set_progress(replica->id(), request.copied(), request.to_copy());
  wire::ListReply reply;
  for (const chunk::ChunkInfo& info : page) *reply.add_chunks() = to_wire(info);
  co_return reply;
}

Task<Result<wire::Done>> Replicas::erase(rpc::ServerCall&, wire::EraseRequest request) {
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  auto erasing = replica->erase(request.place().chain_version(), from_wire(request.chunk()));
  FF_CO_TRY(co_await std::move(erasing));
  co_return wire::Done();
}

Task<Result<wire::Done>> Replicas::copy(rpc::ServerCall& call, wire::CopyRequest request) {
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  const chunk::VersionState image = from_wire(request.image());
  FF_CO_TRY(check_size(image.length));
  if (image.length != request.data().size() || image.version == 0) {
    co_return fail(Errc::usage, "a copy of version {} with {} bytes has length {}", image.version,
                   request.data().size(), image.length);
  }
  chunk::Install install{
      .id = from_wire(request.chunk()), .state = image, .chain_version = request.chain_version()};
  for (const wire::Damage& place : request.damaged()) {
    install.damaged.push_back({place.offset(), place.length()});
  }
  const uint32_t crc = install.damaged.empty() ? image.checksum : request.data_crc();
  auto copying = replica->copy(request.place().chain_version(), std::move(install),
                               puller(call, request.data(), crc));
  FF_CO_TRY(co_await std::move(copying));
  co_return wire::Done();
}

Task<Result<wire::Done>> Replicas::results(rpc::ServerCall&, wire::ResultsRequest request) {
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  std::vector<chunk::ChannelInfo> results;
  for (const wire::ChannelResult& result : request.results()) results.push_back(from_wire(result));
  auto storing = replica->results(request.place().chain_version(), std::move(results));
  FF_CO_TRY(co_await std::move(storing));
  co_return wire::Done();
}

Task<Result<wire::Done>> Replicas::copied(rpc::ServerCall&, wire::CopiedRequest request) {
  FF_CO_TRY(const ReplicaRef replica, at(request.place()));
  auto ending = replica->copied(request.place().chain_version(), request.verifier());
  FF_CO_TRY(co_await std::move(ending));
  co_return wire::Done();
}

}  // namespace ff::chain
