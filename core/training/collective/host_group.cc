// host_group.cc: a thread with the sockets between the ranks of a host.
#include "training/collective/host_group.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>

#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/base/task.h"
#include "platform/net/socket.h"

namespace ff::collective {

namespace {

constexpr int64_t kGroupPollNs = 50 * kMillisecond;  // how soon a stop is noticed
constexpr int64_t kGroupRetryNs = 5 * kMillisecond;  // until rank 0 listens
constexpr uint32_t kGroupMagic = 0x31525246;         // "FRR1"
// Smaller regions, of which a rank may have two for each operation in flight, would mostly waste a
// page of 2 MiB.
constexpr uint64_t kHugeFrom = kMiB;
constexpr auto kReachWait = std::chrono::milliseconds(50);

// All that the sockets carry. Little-endian, as are all machines that this runs on.
struct Note {
  enum Kind : uint32_t {
    hello = 1,  // to rank 0: rank, value: how many ranks, pid
    welcome,    // from it: one for each rank: rank, pid; with the board, and what nudges rank 0
    refused,    // from it: value: a Refusal
    region,     // rank's region `id` of `value` bytes: with its descriptor
    forget,     // that one is no more
    bye,        // what comes next is the end
  };
  uint32_t magic = kGroupMagic;
  uint32_t kind = hello;
  uint32_t rank = 0;
  uint32_t id = 0;
  uint64_t value = 0;
  int32_t pid = 0;
  uint32_t unused = 0;
};
static_assert(sizeof(Note) == 32);

enum Refusal : uint64_t { kOtherRanks = 1, kTwice };

ByteView bytes_of(const Note& note) {
  return {reinterpret_cast<const std::byte*>(&note), sizeof note};
}

// Errc::refused: the other end is of another user.
Result<void> check_user(const net::SocketStream& stream) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (::getsockopt(stream.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return errno_error(errno, "the credentials of a rank's socket");
  }
  if (peer.uid == ::geteuid()) return {};
  return fail(Errc::refused, "process {} of user {} is on the socket of this job's ranks", peer.pid,
              peer.uid);
}

}  // namespace

// A region of another rank, in this process.
struct HostGroup::Mapped {
  std::byte* base = nullptr;
  uint64_t size = 0;

  Mapped() = default;
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() {
    if (base != nullptr) ::munmap(base, size);
  }
  static Result<std::shared_ptr<const Mapped>> map(const Fd& fd, uint64_t size) {
    struct stat file = {};
    if (::fstat(fd.get(), &file) != 0) return errno_error(errno, "a rank's region");
    if (size == 0 || static_cast<uint64_t>(file.st_size) < size) {
      return fail(Errc::corrupt, "a rank's region has {} bytes, not {}", file.st_size, size);
    }
    void* const base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (base == MAP_FAILED) return errno_error(errno, "mapping a rank's region");
    auto mapped = std::make_shared<Mapped>();
    mapped->base = static_cast<std::byte*>(base);
    mapped->size = size;
    return std::shared_ptr<const Mapped>(std::move(mapped));
  }
};

// What runs in the thread.
class HostGroup::Keeper {
 public:
  explicit Keeper(HostGroup& group)
      : group_(group), loop_(group.clock_), gate_(std::in_place, loop_), all_came_(loop_) {}

  void start(int64_t until_ns) {
    thread_ = std::thread([this, until_ns] {
      gate_->spawn(begin(until_ns));
      loop_.run();
      gate_.reset();
      peers_.clear();
    });
  }
  // Whether it has come to an end, good or bad.
  std::optional<Result<void>> outcome() {
    const std::lock_guard lock(mutex_);
    return outcome_;
  }
  void stop() {
    loop_.post([this] { gate_->spawn(finish()); });
    thread_.join();
  }
  // To all, if this is rank 0; else to rank 0, which passes it on. `held`: what keeps fd open.
  void tell(Note note, int fd, std::shared_ptr<const void> held) {
    loop_.post([this, note, fd, held = std::move(held)] {
      for (auto& [rank, peer] : peers_) send(*peer, note, fd, held);
    });
  }

 private:
  struct Out {
    Note note;
    int fd = -1;
    std::shared_ptr<const void> held = {};
  };
  struct Peer {
    std::unique_ptr<net::SocketStream> stream;
    std::deque<Out> out = {};
    bool writes = false;
    bool said_bye = false;
    std::unique_ptr<Event> written = {};
  };

  bool is_first() const { return group_.self_.rank == 0; }
  net::Address address() const {
    net::Address at;
    at.unix_path = "@ff-reduce-" + group_.self_.job;
    return at;
  }

  void set_outcome(Result<void> outcome) {
    const std::lock_guard lock(mutex_);
    if (!outcome_) outcome_ = std::move(outcome);
  }

  Task<void> begin(int64_t until_ns) {
    auto joining = with_deadline(loop_, until_ns, "the ranks", is_first() ? lead() : follow());
    auto joined = co_await std::move(joining);
    if (!joined && joined.error().code == Errc::deadline) joined = late();
    set_outcome(std::move(joined));
  }
  Error late() const {
    std::string missing;
    for (uint32_t rank = 0; rank < group_.self_.ranks; rank++) {
      const bool came = rank == group_.self_.rank || peers_.contains(rank);
      if (!came) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
    const bool some = is_first() && !missing.empty();
    Error error = fail(Errc::deadline, "{} did not come in time",
                       some ? "of this host's ranks, " + missing : "not all ranks of this host");
    error.hint = "Look whether each was started with the same job, and what it says.";
    return error;
  }

  // Rank 0 from here on.
  Task<Result<void>> lead() {
    FF_CO_TRY(listener_, net::SocketListener::listen(loop_, address()));
    gate_->spawn(accept());
    if (group_.self_.ranks == 1) all_came_.set();
    FF_CO_TRY(co_await all_came_.wait());
    if (refusal_) co_return std::move(*refusal_);
    const auto& board = group_.board_region_;
    for (auto& [rank, peer] : peers_) {
      for (const auto& [other, pid] : group_.pids_) {
        const Note note{
            .kind = Note::welcome, .rank = other, .value = board->memory().size(), .pid = pid};
        send(*peer, note, other == 0 ? board->fd() : other == 1 ? group_.nudged() : -1, board);
      }
      gate_->spawn(listen(rank));
    }
    co_return Result<void>();
  }
  Task<void> accept() {
    for (;;) {
      auto accepting = listener_->accept();
      auto socket = co_await std::move(accepting);
      if (!socket) co_return;
      auto stream = net::SocketStream::make(loop_, std::move(*socket));
      if (stream && check_user(**stream)) gate_->spawn(greet(std::move(*stream)));
    }
  }
  Task<void> greet(std::unique_ptr<net::SocketStream> stream) {
    Note note;
    const ByteSpan into(reinterpret_cast<std::byte*>(&note), sizeof note);
    auto reading = net::read_all(*stream, into);
    const auto read = co_await std::move(reading);
    if (!read || note.magic != kGroupMagic || note.kind != Note::hello) co_return;
    const HostRank& self = group_.self_;
    uint64_t refusal = 0;
    if (note.value != self.ranks || note.rank >= self.ranks) {
      refusal = kOtherRanks;
      refuse(fail(Errc::usage, "a rank {} of {} (process {}) came to a job of {} ranks", note.rank,
                  note.value, note.pid, self.ranks));
    } else if (note.rank == 0 || peers_.contains(note.rank)) {
      refusal = kTwice;
      refuse(fail(Errc::usage, "rank {} came twice, the second time as process {}", note.rank,
                  note.pid));
    }
    if (refusal != 0) {
      const Note answer{.kind = Note::refused, .rank = note.rank, .value = refusal};
      auto writing = net::write_all(*stream, bytes_of(answer));
      (void)co_await std::move(writing);
      co_return;
    }
    group_.pids_[note.rank] = note.pid;
    add(note.rank, std::move(stream));
    if (peers_.size() + 1 == self.ranks) all_came_.set();
  }
  void refuse(Error error) {
    if (!refusal_) refusal_ = std::move(error);
    all_came_.set();
  }

  // The other ranks.
  Task<Result<void>> follow() {
    std::unique_ptr<net::SocketStream> stream;
    while (stream == nullptr) {
      auto connecting = net::connect_socket(loop_, address());
      auto socket = co_await std::move(connecting);
      if (socket) {
        FF_CO_TRY(stream, net::SocketStream::make(loop_, std::move(*socket)));
      } else {
        if (socket.error().code != Errc::unreachable) co_return std::move(socket).error();
        FF_CO_TRY(co_await after(loop_, kGroupRetryNs));  // rank 0 does not listen yet
      }
    }
    FF_CO_TRY(check_user(*stream));
    const HostRank& self = group_.self_;
    const Note hello{.rank = self.rank, .value = self.ranks, .pid = ::getpid()};
    auto writing = net::write_all(*stream, bytes_of(hello));
    FF_CO_TRY(co_await std::move(writing));
    Peer& first = add(0, std::move(stream));
    for (uint32_t welcomed = 0; welcomed < self.ranks; welcomed++) {
      Note note;
      auto reading = read(first, note);
      FF_CO_TRY(co_await std::move(reading));
      if (note.kind == Note::refused) {
        co_return fail(
            Errc::usage, "rank 0 refused rank {} of {}: {}", self.rank, self.ranks,
            note.value == kTwice ? "it has one already" : "it has another number of ranks");
      }
      if (note.kind != Note::welcome) co_return fail(Errc::corrupt, "rank 0 sent no board");
      group_.pids_[note.rank] = note.pid;
      const auto fd = first.stream->take_descriptor();
      if (!fd) continue;
      if (note.rank == 1) {
        group_.nudge_ = Fd(*fd);
        continue;
      }
      FF_CO_TRY(group_.board_mapped_, Mapped::map(Fd(*fd), note.value));
    }
    if (group_.board_mapped_ == nullptr) co_return fail(Errc::corrupt, "rank 0 sent no board");
    const ByteSpan memory(group_.board_mapped_->base, group_.board_mapped_->size);
    FF_CO_TRY(group_.board_,
              Board::open(memory, {.ranks = self.ranks, .has_neighbours = self.has_neighbours}));
    gate_->spawn(listen(0));
    co_return Result<void>();
  }

  // All from here on.
  Peer& add(uint32_t rank, std::unique_ptr<net::SocketStream> stream) {
    auto& peer = peers_[rank];
    peer = std::make_unique<Peer>();
    peer->stream = std::move(stream);
    peer->written = std::make_unique<Event>(loop_);
    return *peer;
  }
  Task<Result<void>> read(Peer& peer, Note& note) {
    const ByteSpan into(reinterpret_cast<std::byte*>(&note), sizeof note);
    auto reading = net::read_all(*peer.stream, into);
    FF_CO_TRY(co_await std::move(reading));
    if (note.magic != kGroupMagic) co_return fail(Errc::corrupt, "no rank speaks on this socket");
    co_return Result<void>();
  }
  Task<void> listen(uint32_t rank) {
    Peer& peer = *peers_.at(rank);
    for (;;) {
      Note note;
      auto reading = read(peer, note);
      const auto got = co_await std::move(reading);
      const auto took = got ? take(rank, peer, note) : got;
      if (took) continue;
      const bool ends = gate_->cancel().requested();
      if (!ends && !peer.said_bye) lost(rank, took.error());
      co_return;
    }
  }
  Result<void> take(uint32_t from, Peer& peer, const Note& note) {
    if (note.kind == Note::bye) peer.said_bye = true;
    if (note.kind == Note::forget) group_.forget_region(note.rank, note.id);
    std::shared_ptr<const Fd> fd;
    if (note.kind == Note::region) {
      fd = std::make_shared<const Fd>(peer.stream->take_descriptor().value_or(-1));
      FF_TRY(const auto region, Mapped::map(*fd, note.value));
      group_.add_region(note.rank, note.id, {{region->base, region->size}, region});
    }
    if (!is_first() || (note.kind != Note::region && note.kind != Note::forget)) return {};
    for (auto& [rank, other] : peers_) {
      if (rank != from) send(*other, note, fd != nullptr ? fd->get() : -1, fd);
    }
    return {};
  }
  void lost(uint32_t rank, const Error& error) {
    if (error.code == Errc::unreachable) {
      group_.board_->set_lost({.rank = rank});
    } else {  // it is there, but nothing of it can be used here
      const std::string self = group_.name_of(group_.self_.rank);
      group_.board_->set_fault(
          Error(error).within(fmt::format("{}, from {}: ", self, group_.name_of(rank))));
    }
    group_.changed_.notify_all();
    group_.nudge();
  }

  void send(Peer& peer, const Note& note, int fd, std::shared_ptr<const void> held) {
    peer.out.push_back({note, fd, std::move(held)});
    // One writer at a time: a descriptor is of the note that is written next.
    if (!std::exchange(peer.writes, true)) gate_->spawn(write(peer));
  }
  Task<void> write(Peer& peer) {
    while (!peer.out.empty()) {
      Out out = std::move(peer.out.front());
      peer.out.pop_front();
      if (out.fd >= 0) peer.stream->send_descriptor(out.fd);
      auto writing = write(*peer.stream, out.note);
      const auto written = co_await std::move(writing);
      if (!written) peer.out.clear();  // its reader tells that it is gone
    }
    peer.writes = false;
    peer.written->set();
  }
  Task<Result<void>> write(net::SocketStream& stream, const Note& note) {
    for (;;) {
      auto writing = net::write_all(stream, bytes_of(note));
      auto written = co_await std::move(writing);
      // Users but root may have no more descriptors under way than a process may have open.
      if (written || written.error().sys != ETOOMANYREFS) co_return written;
      FF_CO_TRY(co_await after(loop_, kGroupRetryNs));
    }
  }

  Task<void> finish() {
    for (auto& [rank, peer] : peers_) {
      const Note bye{.kind = Note::bye, .rank = group_.self_.rank};
      peer->written->reset();
      send(*peer, bye, -1, nullptr);
    }
    const int64_t until_ns = loop_.now_ns() + kSecond;  // a peer that is stopped reads nothing
    for (auto& [rank, peer] : peers_) (void)co_await peer->written->wait(until_ns);
    for (auto& [rank, peer] : peers_) peer->stream->close();
    gate_->cancel().request(fail(Errc::interrupted, "the group of ranks ends"));
    loop_.stop();
  }

  HostGroup& group_;
  SystemLoop loop_;
  std::optional<Gate> gate_;
  Event all_came_;
  std::unique_ptr<net::SocketListener> listener_;
  std::optional<Error> refusal_;
  std::map<uint32_t, std::unique_ptr<Peer>> peers_;  // rank 0: all others; the others: rank 0
  std::mutex mutex_;
  std::optional<Result<void>> outcome_;  // guarded by it
  std::thread thread_;
};

Result<std::unique_ptr<HostGroup>> HostGroup::join(HostRank self, const Stop& stop,
                                                   int64_t within_ns) {
  if (self.ranks == 0 || self.ranks > kHostRanksMax || self.rank >= self.ranks) {
    return fail(Errc::usage, "rank {} of {}: a host has 1 to {} ranks, from 0", self.rank,
                self.ranks, kHostRanksMax);
  }
  Clock& clock = stop.clock();
  std::unique_ptr<HostGroup> group(new HostGroup(std::move(self), clock));
  if (group->self_.rank == 0) {
    FF_TRY(group->board_region_, group->own_.make(Board::bytes(), net::Region::Kind::sealed));
    group->board_ =
        Board::make(group->board_region_->memory(),
                    {.ranks = group->self_.ranks, .has_neighbours = group->self_.has_neighbours});
    group->nudge_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (group->nudge_.get() < 0) return errno_error(errno, "eventfd");
  }
  group->pids_[group->self_.rank] = ::getpid();
  auto keeper = std::make_unique<Keeper>(*group);
  keeper->start(clock.steady_ns() + within_ns);
  group->keeper_ = std::move(keeper);
  for (;;) {
    if (const auto outcome = group->keeper_->outcome()) {
      if (!*outcome) return outcome->error();
      return group;
    }
    FF_TRY(stop.check());
    clock.sleep_ns(kGroupRetryNs);
  }
}

HostGroup::HostGroup(HostRank self, Clock& clock) : self_(std::move(self)), clock_(clock) {}

HostGroup::~HostGroup() {
  leave();
  if (keeper_ != nullptr) keeper_->stop();
}

std::string HostGroup::name_of(uint32_t rank) const {
  const auto pid = pids_.find(rank);
  if (pid == pids_.end()) return fmt::format("rank {}", rank + self_.first_rank);
  return fmt::format("rank {} (process {})", rank + self_.first_rank, pid->second);
}

void HostGroup::leave() {
  if (!board_) return;
  board_->set_left(self_.rank);
  nudge();
}

void HostGroup::nudge() const {
  if (self_.has_neighbours) (void)::eventfd_write(nudge_.get(), 1);
}

Result<std::shared_ptr<const net::Region>> HostGroup::make_region(uint64_t bytes) {
  using Kind = net::Region::Kind;
  FF_TRY(auto region, bytes < kHugeFrom ? own_.make(bytes, Kind::sealed) : own_.make(bytes));
  const ByteSpan memory = region->memory();
  add_region(self_.rank, region->id(), {memory, region});
  const Note note{
      .kind = Note::region, .rank = self_.rank, .id = region->id(), .value = memory.size()};
  keeper_->tell(note, region->fd(), region);
  return region;
}

void HostGroup::remove_region(const std::shared_ptr<const net::Region>& region) {
  const Note note{.kind = Note::forget, .rank = self_.rank, .id = region->id()};
  keeper_->tell(note, -1, nullptr);
  forget_region(self_.rank, region->id());
  own_.remove(*region);
}

std::optional<Place> HostGroup::place_of(ByteView memory) const {
  const auto region = own_.find(memory);
  if (region == nullptr) return std::nullopt;
  return Place{.offset = static_cast<uint64_t>(memory.data() - region->memory().data()),
               .region = region->id()};
}

Result<std::byte*> HostGroup::reach(uint32_t rank, const Place& place, uint64_t bytes) {
  std::unique_lock lock(mutex_);
  auto found = regions_.find({rank, place.region});
  if (found != regions_.end()) return within(found->second, rank, place, bytes);
  // Whoever has not shared it is at work, and no longer this rank.
  const Board::Works works = board_->hand_over_works(self_.rank, rank);
  const int64_t until_ns = clock_.steady_ns() + self_.reach_ns;
  while (found == regions_.end()) {
    if (const auto lost = board_->lost()) {
      return fail(Errc::unreachable, "{} is gone", name_of(lost->rank));
    }
    if (auto fault = board_->fault()) return std::move(*fault);
    if (clock_.steady_ns() >= until_ns) {
      board_->set_lost({.rank = rank, .is_late = true});
      nudge();
      return fail(Errc::deadline, "{} has not shared its memory", name_of(rank));
    }
    changed_.wait_for(lock, kReachWait);  // it is on its way
    found = regions_.find({rank, place.region});
  }
  board_->take_works_back(self_.rank, rank, works);
  return within(found->second, rank, place, bytes);
}

Result<std::byte*> HostGroup::within(const Reached& region, uint32_t rank, const Place& place,
                                     uint64_t bytes) const {
  const ByteSpan memory = region.memory;
  if (place.offset > memory.size() || bytes > memory.size() - place.offset) {
    return fail(Errc::corrupt, "{} names {} bytes at {} of its region of {}", name_of(rank), bytes,
                place.offset, memory.size());
  }
  return memory.data() + place.offset;
}

void HostGroup::add_region(uint32_t rank, uint32_t id, Reached region) {
  const std::lock_guard lock(mutex_);
  regions_[{rank, id}] = std::move(region);
  changed_.notify_all();
}

void HostGroup::forget_region(uint32_t rank, uint32_t id) {
  Reached last;  // unmapped after the lock
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find({rank, id});
  if (found == regions_.end()) return;
  last = std::move(found->second);
  regions_.erase(found);
}

}  // namespace ff::collective
