// replica_service.cc: converts RPCs to operations of a replica, and transfers data.
#include "storage/chain/replica_service.h"

#include <algorithm>
#include <utility>

#include "platform/rpc/error_wire.h"
#include "platform/simd/crc32c.h"
#include "storage/chain/capability.h"
#include "storage/chain/wire.h"
#include "storage/chunk/layout.h"

namespace ff::chain {

namespace {

// Limit for the data of client calls in progress, of all shards, but not less than the second for
// one; it also bounds what targets forward to each other.
constexpr uint64_t kMemory = 256 * kMiB;
constexpr uint64_t kShardMemory = 64 * kMiB;
// The rest is for other storage nodes: chains go on whatever clients do.
constexpr uint64_t client_share(uint64_t memory) { return memory / 4 * 3; }
// Of one client: a hanging one must not stop the others.
constexpr uint64_t mount_share(uint64_t memory) { return memory / 4; }
constexpr uint64_t user_share(uint64_t memory) { return memory / 8; }
constexpr int kItemsMax = 1024;  // per read call
constexpr int64_t kRpcPollNs = 5 * kMillisecond;

Result<void> check_size(uint64_t bytes) {
  if (bytes <= chunk::kChunkMax) return {};
  return fail(Errc::usage, "{} bytes exceed the maximum chunk size of {}", bytes, chunk::kChunkMax);
}

// Pulls the data of a call and verifies it: the memory of the caller may change, and bytes may be
// corrupted in transit.
Replica::PullData puller(rpc::ServerCall& call, const rpc::wire::Slice& buffer,
                         std::optional<uint32_t> crc) {
  return [&call, source = rpc::from_wire(buffer), crc](ByteSpan into) -> Task<Result<void>> {
    return [](rpc::ServerCall& from, net::RemoteBuffer data, std::optional<uint32_t> expected,
              ByteSpan memory) -> Task<Result<void>> {
      FF_CO_TRY(co_await from.pull(data, 0, memory));
      if (!expected || simd::crc32c(memory) == *expected) co_return Result<void>();
      co_return fail(Errc::busy, "the data of the call does not match its checksum");
    }(call, source, crc, into);
  };
}

wire::WriteReply reply_of(const UpdateOutcome& done, const Replica& replica) {
  wire::WriteReply reply;
  *reply.mutable_image() = to_wire(done.state);
  reply.set_chain_version(done.chain_version);
  reply.set_verifier(replica.client_verifier());
  return reply;
}

wire::ReadDone done_of(const chunk::ReadResult& read) {
  wire::ReadDone done;
  *done.mutable_image() = to_wire(read.state);
  done.set_bytes(read.bytes);
  done.set_crc(read.checksum);
  return done;
}

const wire::Place& target_place(const wire::ForwardRequest& request) {
  return request.write().place();
}
template <class Request>
const wire::Place& target_place(const Request& request) {
  return request.place();
}

Task<void> pause(Loop& loop) { (void)co_await sleep_for(loop, kRpcPollNs); }

// Storage nodes call one another; operators may repair by hand.
constexpr auth::Roles kNodes = {auth::Role::storage, auth::Role::admin};
constexpr auth::Roles kChunkClients = {auth::Role::storage, auth::Role::admin, auth::Role::meta,
                                       auth::Role::mount, auth::Role::user};

}  // namespace

template <class Request, class Reply>
void ReplicaService::add_method(rpc::Router& router, rpc::Method<Request, Reply> method,
                                Function<Request, Reply> function, auth::Roles roles) {
  const auto handler = [this, function](rpc::ServerCall& call, std::string message) {
    return serve(function, call, std::move(message));
  };
  router.add(method.number, method.name, handler, roles);
}

template <class Request, class Reply>
Task<Result<std::string>> ReplicaService::serve(Function<Request, Reply> function,
                                                rpc::ServerCall& call, std::string message) {
  FF_CO_TRY(Request request, rpc::parse_message<Request>(message));
  ReplicaService& owner = owner_of(target_place(request));
  auto serving = (owner.*function)(call, std::move(request));
  if (&owner != this) {
    handovers_.add();
    FF_CO_TRY(const Reply reply, co_await call.hand_over(owner.handed_over_, std::move(serving)));
    co_return reply.SerializeAsString();
  }
  FF_CO_TRY(const Reply reply, co_await std::move(serving));
  co_return reply.SerializeAsString();
}

ReplicaService::ReplicaService(rpc::Router& router, ReplicaContext& context)
    : context_(context),
      handovers_(context.metrics.counter("ff_shard_handovers_total",
                                         "Calls that came to another shard than that of their "
                                         "target: the client did not know it")),
      memory_bytes_(std::max(kMemory / context.shards, kShardMemory)),
      memory_(context.loop, memory_bytes_),
      client_memory_(context.loop, client_share(memory_bytes_)),
      memory_shares_(context.loop, context.metrics),
      handed_over_(context.loop) {
  add_method(router, kWrite, &ReplicaService::write, kChunkClients);
  add_method(router, kForward, &ReplicaService::forward, kNodes);
  add_method(router, kRead, &ReplicaService::read, kChunkClients);
  add_method(router, kSync, &ReplicaService::sync, kChunkClients);
  add_method(router, kLast, &ReplicaService::last, kChunkClients);
  add_method(router, kChunks, &ReplicaService::chunks, kChunkClients);
  add_method(router, kInodes, &ReplicaService::inodes, kChunkClients);
  add_method(router, kCommitted, &ReplicaService::committed, kNodes);
  add_method(router, kList, &ReplicaService::list, kNodes);
  add_method(router, kErase, &ReplicaService::erase, kNodes);
  add_method(router, kCopy, &ReplicaService::copy, kNodes);
  add_method(router, kResults, &ReplicaService::results, kNodes);
  add_method(router, kCopied, &ReplicaService::copied, kNodes);
  add_method(router, kRepair, &ReplicaService::repair, kNodes);
  add_method(router, kCompare, &ReplicaService::compare, kNodes);
  add_method(router, kAbsent, &ReplicaService::absent, kNodes);
}

void ReplicaService::add(chunk::ChunkStore& store, cluster::TargetId id, cluster::ChainId chain) {
  auto& replica = replicas_[id];
  FF_CHECK(replica == nullptr);
  replica = std::make_shared<Replica>(context_, store, id, chain);
  replica->on_routing_change();
}

Task<void> ReplicaService::remove(cluster::TargetId id) {
  const auto found = replicas_.find(id);
  if (found == replicas_.end()) co_return;
  const ReplicaRef replica = std::move(found->second);
  replicas_.erase(found);
  co_await replica->close();
  // RPCs in progress end soon, since the replica no longer serves.
  while (replica.use_count() > 1) {
    co_await pause(context_.loop).shielded();
  }
}

Replica* ReplicaService::find(cluster::TargetId id) {
  const auto found = replicas_.find(id);
  return found == replicas_.end() ? nullptr : found->second.get();
}

void ReplicaService::on_routing_change() {
  for (const auto& [id, replica] : replicas_) replica->on_routing_change();
}

// A target that the routing does not know is looked for here.
ReplicaService& ReplicaService::owner_of(const wire::Place& place) {
  if (shards_.empty() || replicas_.contains(place.target())) return *this;
  const cluster::Chain* const chain = context_.member.routing().chain(place.chain());
  const auto* const target =
      chain == nullptr ? nullptr : cluster::find_target(*chain, place.target());
  if (target == nullptr || target->node != context_.member.self().id) return *this;
  const auto& disks = context_.member.self().disks;
  const auto disk = std::ranges::find(disks, target->disk, &cluster::DiskInfo::id);
  const uint32_t shard = disk == disks.end() ? 0 : disk->shard.value_or(0);
  return *shards_[shard];
}

Task<void> ReplicaService::close() {
  co_await handed_over_.wait_empty();
  for (const auto& [id, replica] : replicas_) {
    co_await replica->close();
  }
}

Result<ReplicaService::ReplicaRef> ReplicaService::find_replica(const wire::Place& place) {
  const auto found = replicas_.find(place.target());
  if (found != replicas_.end() && found->second->chain() == place.chain()) return found->second;
  return fail(Errc::stale, "this node has no target {} of chain {}", place.target(), place.chain());
}

// Checks that the caller may access the chunks of the file.
Result<void> ReplicaService::check_access(const rpc::ServerCall& call,
                                          const std::string& capability, uint64_t inode,
                                          uint32_t right) const {
  if (call.peer().trusted()) return {};
  const auto& client = call.peer().entity;
  if (context_.keyring == nullptr || !client) {
    return fail(Errc::refused, "this node has no key and serves no users");
  }
  return check_capability(*context_.keyring, capability, *client, inode, right,
                          context_.loop.clock().wall_ns());
}

Task<Result<ReplicaService::Memory>> ReplicaService::reserve_memory(const rpc::ServerCall& call,
                                                                    uint64_t bytes) {
  Memory memory;
  const auto& entity = call.peer().entity;
  if (entity && (entity->role == auth::Role::mount || entity->role == auth::Role::user)) {
    const uint64_t share =
        entity->role == auth::Role::mount ? mount_share(memory_bytes_) : user_share(memory_bytes_);
    const uint64_t of_clients = std::min(bytes, client_share(memory_bytes_));
    FF_CO_TRY(memory.own, co_await memory_shares_.acquire(entity->full_name(), share, bytes));
    FF_CO_TRY(memory.clients, co_await client_memory_.acquire(of_clients));
  }
  FF_CO_TRY(memory.all, co_await memory_.acquire(std::min(bytes, memory_bytes_)));
  co_return memory;
}

Task<Result<wire::WriteReply>> ReplicaService::write(rpc::ServerCall& call,
                                                     wire::WriteRequest request) {
  FF_CO_TRY(check_access(call, request.capability(), request.chunk().inode(), kRightWrite));
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  FF_CO_TRY(chunk::Update update, from_wire(request));
  const uint64_t bytes = request.data().size();
  FF_CO_TRY(check_size(bytes));
  // A punch_hole needs memory for its zeros.
  const bool clears = update.type == chunk::UpdateType::punch_hole;
  const uint64_t zeros = clears ? std::min(update.length, chunk::kChunkMax) : 0;
  FF_CO_TRY(const auto memory, co_await reserve_memory(call, bytes + zeros));
  FF_CO_TRY(const UpdateOutcome done,
            co_await replica->write(request.place().chain_version(), update, bytes,
                                    puller(call, request.data(), request.data_crc())));
  co_return reply_of(done, *replica);
}

Task<Result<wire::WriteReply>> ReplicaService::forward(rpc::ServerCall& call,
                                                       wire::ForwardRequest request) {
  const wire::WriteRequest& write = request.write();
  FF_CO_TRY(const ReplicaRef replica, find_replica(write.place()));
  FF_CO_TRY(chunk::Update update, from_wire(write));
  update.version = request.version();
  update.checksum = request.checksum();
  FF_CO_TRY(check_size(write.data().size()));
  Replica::Forward forward{
      .update = update, .bytes = write.data().size(), .checked = request.checked()};
  FF_CO_TRY(const UpdateOutcome done,
            co_await replica->forward(write.place().chain_version(), forward,
                                      puller(call, write.data(), write.data_crc())));
  co_return reply_of(done, *replica);
}

Task<Result<wire::ReadReply>> ReplicaService::read(rpc::ServerCall& call,
                                                   wire::ReadRequest request) {
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  if (request.items_size() > kItemsMax) {
    co_return fail(Errc::usage, "{} reads at once (the limit is {})", request.items_size(),
                   kItemsMax);
  }
  for (const wire::ReadItem& item : request.items()) FF_CO_TRY(check_size(item.sink().size()));
  wire::ReadReply reply;
  for (int item = 0; item < request.items_size(); item++) reply.add_items();
  CancellationToken& cancel = *co_await current_cancellation();  // of this RPC
  Gate items(context_.loop);
  for (int item = 0; item < request.items_size(); item++) {
    items.spawn([](Task<Result<wire::ReadDone>> reading, wire::ReadDone& done,
                   CancellationToken& with) -> Task<void> {
      auto read = co_await std::move(reading).with_cancellation(with);
      if (read) done = std::move(*read);
      if (!read) rpc::to_wire(read.error(), *done.mutable_error());
    }(read_item(call, *replica, request.place(), request.items(item)), *reply.mutable_items(item),
                                            cancel));
  }
  co_await items.wait_empty();
  co_return reply;
}

// Reads from disk directly into the memory of the caller if possible, otherwise through a buffer.
Task<Result<wire::ReadDone>> ReplicaService::read_item(rpc::ServerCall& call, Replica& replica,
                                                       const wire::Place& place,
                                                       const wire::ReadItem& item) {
  FF_CO_TRY(check_access(call, item.capability(), item.chunk().inode(), kRightRead));
  const net::RemoteBuffer sink = rpc::from_wire(item.sink());
  const uint64_t version = place.chain_version();
  const chunk::ChunkId id = from_wire(item.chunk());
  if (const auto mapped = item.distrusted() ? std::nullopt : call.mapped_memory(sink)) {
    const auto read = co_await replica.read(version, id, item.offset(), mapped->bytes(), true);
    if (read) co_return done_of(*read);
    if (read.error().code != Errc::unsupported) co_return read.error();
  }
  FF_CO_TRY(const auto memory, co_await reserve_memory(call, sink.size));
  const BufferPool::Buffer bytes = context_.buffers.allocate(sink.size);
  FF_CO_TRY(const chunk::ReadResult read,
            co_await replica.read(version, id, item.offset(), bytes.span(), false));
  if (read.bytes > 0) {
    FF_CO_TRY(co_await call.push(sink, 0, bytes.span().first(read.bytes)));
  }
  co_return done_of(read);
}

Task<Result<wire::SyncReply>> ReplicaService::sync(rpc::ServerCall&, wire::SyncRequest request) {
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  FF_CO_TRY(const uint64_t verifier, co_await replica->sync(request.place().chain_version()));
  wire::SyncReply reply;
  reply.set_verifier(verifier);
  co_return reply;
}

Task<Result<wire::LastReply>> ReplicaService::last(rpc::ServerCall& call,
                                                   wire::LastRequest request) {
  FF_CO_TRY(check_access(call, request.capability(), request.inode(), kRightRead));
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  FF_CO_TRY(const auto found,
            co_await replica->last_chunk(request.place().chain_version(), request.inode()));
  wire::LastReply reply;
  reply.set_found(found.has_value());
  if (found) {
    *reply.mutable_chunk() = to_wire(found->id);
    *reply.mutable_image() = to_wire(found->state.committed);
  }
  co_return reply;
}

Task<Result<wire::ChunksReply>> ReplicaService::chunks(rpc::ServerCall& call,
                                                       wire::ChunksRequest request) {
  FF_CO_TRY(check_access(call, request.capability(), request.inode(), kRightRead));
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  // It is unknown which of the absent chunks are holes.
  const chunk::ChunkId first = {request.inode(), request.from()};
  if (request.step() != 0 && replica->is_missing(first)) co_return replica->missing_error(first);
  auto looking = replica->list_range(request.place().chain_version(),
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
  reply.set_verifier(replica->client_verifier());
  co_return reply;
}

Task<Result<wire::InodesReply>> ReplicaService::inodes(rpc::ServerCall&,
                                                       wire::InodesRequest request) {
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  const size_t limit = std::min(request.limit(), kInodesMax);
  FF_CO_TRY(const auto inodes,
            replica->list_inodes(request.place().chain_version(), request.from(), limit));
  wire::InodesReply reply;
  for (const uint64_t inode : inodes) reply.add_inodes(inode);
  co_return reply;
}

Task<Result<wire::CommittedReply>> ReplicaService::committed(rpc::ServerCall&,
                                                             wire::CommittedRequest request) {
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  FF_CO_TRY(const uint64_t version,
            co_await replica->committed_version(request.place().chain_version(),
                                                from_wire(request.chunk())));
  wire::CommittedReply reply;
  reply.set_version(version);
  co_return reply;
}

Task<Result<wire::AbsentReply>> ReplicaService::absent(rpc::ServerCall&,
                                                       wire::AbsentRequest request) {
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  std::vector<chunk::ChunkId> ids;
  for (const wire::Chunk& chunk : request.chunks()) ids.push_back(from_wire(chunk));
  FF_CO_TRY(const auto missing,
            co_await replica->absent_chunks(request.place().chain_version(), std::move(ids)));
  wire::AbsentReply reply;
  for (const chunk::ChunkId id : missing) *reply.add_chunks() = to_wire(id);
  co_return reply;
}

Task<Result<wire::CompareReply>> ReplicaService::compare(rpc::ServerCall&,
                                                         wire::CompareRequest request) {
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  std::vector<chunk::ChunkInfo> theirs;
  for (const wire::ListedChunk& listed : request.chunks()) theirs.push_back(from_wire(listed));
  FF_CO_TRY(const auto differ,
            replica->differing_chunks(request.place().chain_version(), std::move(theirs),
                                      {from_wire(request.from()), from_wire(request.to())},
                                      request.settled()));
  wire::CompareReply reply;
  for (const chunk::ChunkId id : differ) *reply.add_chunks() = to_wire(id);
  co_return reply;
}

Task<Result<wire::Done>> ReplicaService::repair(rpc::ServerCall&, wire::RepairRequest request) {
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  FF_CO_TRY(co_await replica->repair(request.place().chain_version(), from_wire(request.chunk())));
  co_return wire::Done();
}

Task<Result<wire::ListReply>> ReplicaService::list(rpc::ServerCall&, wire::ListRequest request) {
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  FF_CO_TRY(const auto page, replica->list(request.place().chain_version(),
                                           from_wire(request.chunk()), request.limit()));
  context_.member.set_progress(replica->id(), request.copied(), request.to_copy());
  wire::ListReply reply;
  for (const chunk::ChunkInfo& info : page) *reply.add_chunks() = to_wire(info);
  co_return reply;
}

Task<Result<wire::Done>> ReplicaService::erase(rpc::ServerCall&, wire::EraseRequest request) {
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  FF_CO_TRY(co_await replica->erase(request.place().chain_version(), from_wire(request.chunk())));
  co_return wire::Done();
}

Task<Result<wire::Done>> ReplicaService::copy(rpc::ServerCall& call, wire::CopyRequest request) {
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  const chunk::VersionState state = from_wire(request.image());
  FF_CO_TRY(check_size(state.length));
  if (state.length != request.data().size() || state.version == 0) {
    co_return fail(Errc::usage, "copy of version {}: {} bytes of data, but length {}",
                   state.version, request.data().size(), state.length);
  }
  chunk::ChunkCopy install{
      .id = from_wire(request.chunk()), .state = state, .chain_version = request.chain_version()};
  for (const wire::Damage& place : request.damaged()) {
    install.damaged.push_back({place.offset(), place.length()});
  }
  const uint32_t crc = install.damaged.empty() ? state.checksum : request.data_crc();
  FF_CO_TRY(co_await replica->copy(request.place().chain_version(), std::move(install),
                                   puller(call, request.data(), crc)));
  co_return wire::Done();
}

Task<Result<wire::Done>> ReplicaService::results(rpc::ServerCall&, wire::ResultsRequest request) {
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  std::vector<chunk::ChannelInfo> results;
  for (const wire::ChannelResult& result : request.results()) results.push_back(from_wire(result));
  FF_CO_TRY(co_await replica->install_results(request.place().chain_version(), std::move(results)));
  co_return wire::Done();
}

Task<Result<wire::Done>> ReplicaService::copied(rpc::ServerCall&, wire::CopiedRequest request) {
  FF_CO_TRY(const ReplicaRef replica, find_replica(request.place()));
  FF_CO_TRY(co_await replica->finish_copy(request.place().chain_version(), request.verifier()));
  co_return wire::Done();
}

}  // namespace ff::chain
