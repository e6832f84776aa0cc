// replica_update.cc: an update from its arrival to its commit.
#include <algorithm>
#include <utility>

#include "platform/base/backoff.h"
#include "platform/base/check.h"
#include "platform/base/log.h"
#include "platform/simd/crc32c.h"
#include "storage/chain/replica.h"
#include "storage/chain/wire.h"
#include "storage/chunk/layout.h"

namespace ff::chain {

using chunk::Change;
using chunk::ChunkState;

namespace {

// For a target to answer: longer than a failed one is in the chain.
constexpr int64_t kForwardNs = 15 * kSecond;
// Between attempts while nothing is heard of a change.
constexpr int64_t kUpdateRetryFirstNs = 5 * kMillisecond;
constexpr int64_t kUpdateRetryLastNs = 500 * kMillisecond;
constexpr int64_t kLeaseLookNs = 50 * kMillisecond;

// The successor has not stored the update, and will not.
bool is_refusal(const Error& error) {
  return error.code == Errc::disk_full || error.code == Errc::refused || error.code == Errc::usage;
}

// An update that makes the same of any chunk.
bool is_whole(const chunk::Update& update) {
  return update.change == Change::replace || update.change == Change::remove;
}

// Leaves nothing of what the chunk was. `bytes`: those that come with it.
bool covers_all(const chunk::Update& update, uint64_t bytes) {
  const bool clears = update.change == Change::clear;
  if (!clears && update.change != Change::write) return is_whole(update);
  return update.offset == 0 && (clears ? update.length : bytes) >= update.chunk_size;
}

// Of one for a chunk that is known to be missing: from now on it is a hole, or what is written.
std::optional<chunk::Update> whole_of(chunk::Update update) {
  if (update.change == Change::clear) update.change = Change::remove;
  return update;
}

}  // namespace

// A version on its way down the chain. Has the chunk's lock.
struct Replica::Flight {
  enum class Begins : uint8_t {
    stored,       // with the version pending in the store
    arrived,      // with an update that is the next version
    replacement,  // with a whole chunk, at a target that is being copied to
  };
  Flight(Loop& loop, ChunkLocks::Hold lock, chunk::Update what, uint64_t of_spell, Begins how)
      : hold(std::move(lock)), update(std::move(what)), spell(of_spell), begins(how), ended(loop) {}

  std::optional<ChunkLocks::Hold> hold;
  chunk::Update update;
  const uint64_t spell;
  const Begins begins;
  Memory::Bytes bytes;         // the update's data
  chunk::VersionState image;   // what it makes of the chunk
  uint64_t chain_version = 0;  // replacement: under which it came
  Memory::Bytes whole;         // the whole new version
  bool has_whole = false;
  bool checked = false;  // the predecessor, and then this target, has read what it has again
  Result<Done> outcome = Done{};
  Event ended;
};

std::optional<chunk::ChannelResult> Replica::result_of(const chunk::Writer& writer) const {
  auto result = store_.result(id_, writer.client, writer.channel);
  return result ? std::move(*result) : std::nullopt;
}

// The pending version of a chunk, whose own update nobody has any more.
std::shared_ptr<Replica::Flight> Replica::flight_of(ChunkLocks::Hold hold,
                                                    const chunk::PendingState& pending,
                                                    chunk::ChunkId id) {
  const chunk::Update update{
      .target = id_, .id = id, .version = pending.image.version, .writer = pending.writer};
  auto flight = std::make_shared<Flight>(context_.loop, std::move(hold), update, spell_,
                                         Flight::Begins::stored);
  flight->image = pending.image;
  return flight;
}

// An update of its own, the next version.
std::shared_ptr<Replica::Flight> Replica::flight_with(ChunkLocks::Hold hold,
                                                      const chunk::Update& update,
                                                      Memory::Bytes bytes) {
  auto flight = std::make_shared<Flight>(context_.loop, std::move(hold), update, spell_,
                                         Flight::Begins::arrived);
  flight->bytes = std::move(bytes);
  return flight;
}

Task<Result<void>> Replica::load(Flight& flight, uint64_t bytes, Pull pull) {
  if (bytes == 0) co_return Result<void>();
  flight.bytes = context_.memory.take(bytes);
  flight.update.data = flight.bytes.span();
  auto pulling = pull(flight.bytes.span());
  co_return co_await std::move(pulling);
}

// Of a clear that has come to a write.
void Replica::lay_out_zeros(Flight& flight) {
  if (flight.update.change != Change::write) return;
  flight.bytes = context_.memory.take(flight.update.length);
  std::ranges::fill(flight.bytes.span(), std::byte{0});
  flight.update.data = flight.bytes.span();
}

// An update that changes nothing is done, too, and is known again: sent once more, it must not
// change what somebody else has written since. Only this head can be asked again, so it tells no
// other target.
Task<Result<Done>> Replica::keep_unchanged(chunk::Update update, ChunkState state) {
  const Steps::Hold step(steps_, seen_version_);
  std::vector<chunk::ChannelInfo> known(1);
  known[0] = {.client = update.writer.client,
              .channel = update.writer.channel,
              .result = {.sequence = update.writer.sequence,
                         .id = update.id,
                         .image = state.committed,
                         .committed = true,
                         .used_ns = context_.loop.clock().wall_ns()}};
  auto keeping = store_.install_results(id_, std::move(known));
  const auto kept = co_await std::move(keeping);
  if (!kept) co_return store_failed(kept.error());
  co_return Done{state.committed, state.chain_version};
}

// From here on it lives by itself.
Task<Result<Done>> Replica::end_of(std::shared_ptr<Flight> flight) {
  gate_.spawn(fly(flight));
  FF_CO_TRY(co_await flight->ended.wait());
  co_return flight->outcome;
}

Task<void> Replica::fly(std::shared_ptr<Flight> flight) {
  auto carrying = carry(*flight);
  auto outcome = co_await std::move(carrying);
  if (!flight->ended.is_set()) flight->outcome = std::move(outcome);
  flight->hold.reset();
  flight->ended.set();
}

Task<Result<Done>> Replica::write(uint64_t version, chunk::Update update, uint64_t bytes,
                                  Pull pull) {
  for (;;) {
    FF_CO_TRY(be_head(version));
    auto locking = locks_.take(update.id);
    FF_CO_TRY(auto hold, co_await std::move(locking));
    FF_CO_TRY(be_head(version));
    FF_CO_TRY(const ChunkState state, store_.state(id_, update.id));
    const Judgement judged = judge_write(state, result_of(update.writer), update.writer);
    switch (judged.verdict) {
      case Verdict::done: co_return Done{judged.image, state.chain_version};
      case Verdict::refuse: co_return fail(Errc::refused, "target {}: {}", id_, judged.why);
      case Verdict::carry_on: {
        auto ending = end_of(flight_of(std::move(hold), *state.pending, update.id));
        co_return co_await std::move(ending);
      }
      case Verdict::settle: {
        auto ending = end_of(flight_of(std::move(hold), *state.pending, update.id));
        const auto settled = co_await std::move(ending);
        if (!settled && !is_refusal(settled.error())) co_return settled.error();
        continue;
      }
      case Verdict::forget:
      case Verdict::store: break;
    }
    const bool lost = state.committed.version == 0 && missing(update.id);
    if (lost && !covers_all(update, bytes)) {
      co_return missing_error(update.id);  // the rest of it would read as zeros
    }
    const bool clears = update.change == Change::clear;
    auto wanted = lost ? whole_of(update) : comes_to(update, state.committed);
    if (!wanted) {
      auto keeping = keep_unchanged(update, state);
      co_return co_await std::move(keeping);
    }
    wanted->target = id_;
    wanted->version = state.committed.version + 1;
    auto flight = flight_with(std::move(hold), *wanted, {});
    if (clears) {
      lay_out_zeros(*flight);
    } else {
      auto loading = load(*flight, bytes, pull);
      FF_CO_TRY(co_await std::move(loading));
    }
    FF_CO_TRY(be_head(version));
    if (flight->spell != spell_) co_return stale("has left the chain meanwhile");
    auto ending = end_of(flight);
    co_return co_await std::move(ending);
  }
}

Result<void> Replica::be_head(uint64_t version) {
  FF_TRY(const Part part, take_part(version));
  if (part.head) return {};
  return stale("is not the head");
}

Task<Result<Done>> Replica::forward(uint64_t version, Forward forward, Pull pull) {
  chunk::Update& update = forward.update;
  update.target = id_;
  FF_CO_TRY(take_part(version));
  auto locking = locks_.take(update.id);
  FF_CO_TRY(auto hold, co_await std::move(locking));
  FF_CO_TRY(const Part part, take_part(version));
  if (part.head) co_return stale("is the head, to which nobody forwards");
  FF_CO_TRY(const ChunkState state, store_.state(id_, update.id));
  if (part.serves) {
    const Judgement judged =
        judge_update(state, result_of(update.writer), update.writer, update.version);
    if (judged.verdict == Verdict::done) co_return Done{judged.image, state.chain_version};
    if (judged.verdict == Verdict::refuse) {
      log_error("an update that cannot be", {{"target", id_}, {"why", judged.why}});
      co_return fail(Errc::refused, "target {}: {}", id_, judged.why);
    }
    if (judged.verdict == Verdict::carry_on) {
      auto ending = end_of(flight_of(std::move(hold), *state.pending, update.id));
      co_return co_await std::move(ending);
    }
    if (judged.verdict == Verdict::forget) {
      const Steps::Hold step(steps_, seen_version_);
      auto forgetting = store_.erase(id_, update.id);
      const auto forgotten = co_await std::move(forgetting);
      if (!forgotten) co_return store_failed(forgotten.error());
    }
  } else {
    if (has_replacement(state, update.version, version)) co_return Done{state.committed, version};
    if (!is_whole(update)) co_return stale("takes whole chunks only");
  }
  auto flight =
      std::make_shared<Flight>(context_.loop, std::move(hold), update, spell_,
                               part.serves ? Flight::Begins::arrived : Flight::Begins::replacement);
  flight->chain_version = version;
  flight->checked = forward.checked;
  auto loading = load(*flight, forward.bytes, std::move(pull));
  FF_CO_TRY(co_await std::move(loading));
  FF_CO_TRY(take_part(version));
  if (flight->spell != spell_) co_return stale("has left the chain meanwhile");
  auto ending = end_of(flight);
  co_return co_await std::move(ending);
}

Task<Result<Done>> Replica::carry(Flight& flight) {
  if (flight.begins == Flight::Begins::replacement) {
    auto storing = store_replacement(flight);
    co_return co_await std::move(storing);
  }
  if (flight.begins == Flight::Begins::arrived) {
    const auto last = is_last();
    auto storing = store_update(flight, last);
    FF_CO_TRY(co_await std::move(storing));
    if (last) co_return Done{flight.image, *last};
  }
  Backoff backoff(context_.rng, kUpdateRetryFirstNs, kUpdateRetryLastNs);
  for (;;) {
    look();
    if (flight.spell != spell_) co_return stale("serves no longer: the update is open");
    if (!context_.member.may_write(id_, context_.loop.now_ns())) {
      auto waiting = wait_for_change(kLeaseLookNs);
      FF_CO_TRY(co_await std::move(waiting));
      continue;
    }
    const uint64_t version = routed()->version;
    const Part part = *part_of(*routed(), id_);  // the spell is one of serving
    if (part.successor == nullptr) {
      auto committing = commit(flight, version);
      co_return co_await std::move(committing);
    }
    auto passing = pass_on(flight, part, *part.successor, version);
    auto passed = co_await std::move(passing);
    if (passed) {
      // All that come after have committed it, which is all that whoever waits has to know: until
      // this one has, it asks the last (replica_read.cc), and keeps the chunk's lock.
      flight.outcome = Done{flight.image, passed->chain_version};
      flight.ended.set();
      auto committing = commit(flight, passed->chain_version);
      co_return co_await std::move(committing);
    }
    if (is_refusal(passed.error())) {
      auto dropping = drop(flight, std::move(passed).error());
      co_return co_await std::move(dropping);
    }
    if (passed.error().code == Errc::corrupt) {
      auto checking = differs(flight, std::move(passed).error());
      FF_CO_TRY(co_await std::move(checking));
      continue;
    }
    auto waiting = wait_for_change(backoff.pause_ns());
    FF_CO_TRY(co_await std::move(waiting));
  }
}

// The chain's version, if under it there is nobody to pass updates on to: then they are committed
// as they are stored.
std::optional<uint64_t> Replica::is_last() {
  look();
  const auto part = part_of(*routed(), id_);
  const bool last = part && part->serves && part->successor == nullptr &&
                    context_.member.may_write(id_, context_.loop.now_ns());
  return last ? std::optional(routed()->version) : std::nullopt;
}

// An error of the store: its disk has failed, or the step was given up. For whoever has called, the
// target then is one that does not answer.
Error Replica::store_failed(Error error) {
  if (!store_.health()) return condemn(std::move(error));
  const bool given_up = error.code == Errc::interrupted || error.code == Errc::deadline;
  if (!given_up) error.code = Errc::unreachable;
  return error;
}

// As one that is copied to. It must refuse nothing: an update may have been committed by a target
// that has left since, and seen. So whoever has no room for the copy is out.
Error Replica::copy_failed(Error error) {
  if (!store_.health()) return store_failed(std::move(error));
  if (error.code == Errc::disk_full) return condemn(std::move(error));
  return error;
}

// What the target holds is not what it should be: it is out until it has been copied to.
Error Replica::condemn(Error error) {
  context_.fail(id_, error);
  error.code = Errc::unreachable;
  return error;
}

Task<Result<void>> Replica::store_update(Flight& flight, std::optional<uint64_t> commit_under) {
  if (flight.spell != spell_) co_return stale("has left the chain meanwhile");
  const Steps::Hold step(steps_, seen_version_);
  flight.update.committed_under = commit_under;
  auto writing = store_.write(flight.update);
  auto stored = co_await std::move(writing);
  if (stored) {
    flight.image = commit_under ? stored->committed : stored->pending->image;
    counters_.updates.add();
    counters_.update_bytes.add(flight.update.data.size());
    co_return Result<void>();
  }
  Error error = std::move(stored).error();
  if (!store_.health()) co_return store_failed(std::move(error));
  if (error.code == Errc::corrupt && !flight.update.checksum) {
    // What it builds upon is damaged.
    damaged(flight.update.id);
    const cluster::Target* const tail = reading_tail(*routed());
    if (tail == nullptr || tail->id != id_) error.code = Errc::unreachable;
    co_return error;
  }
  if (error.code != Errc::corrupt) co_return error;
  // The predecessor has made something else of the same update: it looks at its own again, and
  // sends the whole chunk, which builds upon nothing here.
  if (!flight.checked) co_return error;
  auto checking = own_is_sound(flight.update.id, chunk::Which::committed);
  FF_CO_TRY(const bool sound, co_await std::move(checking));
  if (sound) {
    log_error("two replicas differ, and both match their checksums",
              {{"target", id_}, {"chunk", to_string(flight.update.id)}, {"error", error.message}});
  }
  co_return condemn(std::move(error));
}

Task<Result<bool>> Replica::own_is_sound(chunk::ChunkId id, chunk::Which which) {
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  const bool pending = which == chunk::Which::pending;
  if (pending && !state.pending) co_return true;
  const uint64_t length = pending ? state.pending->image.length : state.committed.length;
  const Memory::Bytes bytes = context_.memory.take(length);
  auto reading = store_.read({.target = id_, .id = id, .which = which}, bytes.span());
  const auto read = co_await std::move(reading);
  co_return read.ok() || read.error().code == Errc::not_found;
}

// The successor makes another chunk of the update than this target has.
Task<Result<void>> Replica::differs(Flight& flight, Error error) {
  auto checking = own_is_sound(flight.update.id, chunk::Which::pending);
  FF_CO_TRY(const bool sound, co_await std::move(checking));
  if (!sound) co_return condemn(std::move(error));
  flight.checked = true;  // then it is the successor's fault
  co_return Result<void>();
}

Task<Result<Done>> Replica::store_replacement(Flight& flight) {
  const chunk::Update& update = flight.update;
  flight.image = {.version = update.version,
                  .length = update.data.size(),
                  .checksum = update.checksum.value_or(0),
                  .removed = update.change == Change::remove};
  chunk::Install install{.target = id_,
                         .id = update.id,
                         .state = flight.image,
                         .chain_version = flight.chain_version,
                         .data = update.data};
  if (flight.spell != spell_) co_return stale("has left the chain meanwhile");
  const Steps::Hold step(steps_, seen_version_);
  const auto known = result_of(update.writer);
  if (!known || known->sequence <= update.writer.sequence) install.writer = update.writer;
  auto installing = store_.install(install);
  const auto installed = co_await std::move(installing);
  if (!installed) co_return copy_failed(installed.error());
  co_return Done{flight.image, flight.chain_version};
}

// The whole new version, from the update's data where that is all of it.
Task<Result<void>> Replica::read_whole(Flight& flight) {
  if (flight.has_whole || flight.image.removed) co_return Result<void>();
  flight.whole = context_.memory.take(flight.image.length);
  auto reading = store_.read(
      {.target = id_, .id = flight.update.id, .which = chunk::Which::pending}, flight.whole.span());
  const auto read = co_await std::move(reading);
  if (!read && read.error().code == Errc::corrupt) co_return condemn(read.error());
  if (!read) co_return store_failed(read.error());
  flight.has_whole = true;
  co_return Result<void>();
}

wire::Place Replica::place_of(cluster::TargetId target, uint64_t version) const {
  wire::Place place;
  place.set_chain(chain_);
  place.set_chain_version(version);
  place.set_target(target);
  return place;
}

Task<Result<Done>> Replica::pass_on(Flight& flight, Part part, cluster::Target successor,
                                    uint64_t version) {
  chunk::Update sent = flight.update;
  const bool as_it_came = flight.begins == Flight::Begins::arrived;
  const bool whole = !part.successor_serves || flight.checked;
  if (!as_it_came || (whole && !is_whole(sent))) {
    const bool all = as_it_came && sent.change == Change::write && sent.offset == 0 &&
                     sent.data.size() == flight.image.length;
    if (!all) {
      auto reading = read_whole(flight);
      FF_CO_TRY(co_await std::move(reading));
      sent.data = flight.whole.span();
    }
    sent.change = flight.image.removed ? Change::remove : Change::replace;
    sent.chunk_size = chunk::kChunkMax;
  }
  wire::ForwardRequest request;
  to_wire(sent, *request.mutable_write());
  *request.mutable_write()->mutable_place() = place_of(successor.id, version);
  const bool all_of_it = sent.change == Change::replace;
  request.mutable_write()->set_data_crc(all_of_it ? flight.image.checksum
                                                  : simd::crc32c(sent.data));
  request.set_version(flight.image.version);
  request.set_checksum(flight.image.checksum);
  request.set_checked(flight.checked);
  auto calling = call(successor.node, kForward, std::move(request), sent.data, kForwardNs);
  FF_CO_TRY(const wire::WriteReply reply, co_await std::move(calling));
  co_return Done{from_wire(reply.image()), reply.chain_version()};
}

Task<Result<Done>> Replica::commit(Flight& flight, uint64_t chain_version) {
  const Steps::Hold step(steps_, seen_version_);
  auto committing = store_.commit(id_, flight.update.id, flight.image.version, chain_version);
  const auto committed = co_await std::move(committing);
  if (!committed) co_return store_failed(committed.error());
  co_return Done{flight.image, chain_version};
}

// No target after this one has the update, so it has never been.
Task<Result<Done>> Replica::drop(Flight& flight, Error error) {
  const Steps::Hold step(steps_, seen_version_);
  auto dropping = store_.drop_pending(id_, flight.update.id, flight.image.version);
  const auto dropped = co_await std::move(dropping);
  if (!dropped) co_return store_failed(dropped.error());
  co_return error;
}

// Carries the pending version of a chunk, if there is one, to its end.
Task<Result<void>> Replica::settle(chunk::ChunkId id) {
  auto locking = locks_.take(id);
  FF_CO_TRY(auto hold, co_await std::move(locking));
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  if (!state.pending) co_return Result<void>();
  auto ending = end_of(flight_of(std::move(hold), *state.pending, id));
  const auto ended = co_await std::move(ending);
  if (!ended && !is_refusal(ended.error())) co_return ended.error();
  co_return Result<void>();
}

}  // namespace ff::chain
