// ring_journal.cc: the layout of the journal, and what each step stores.
#include "storage/mount/ring_journal.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ff::mount {

namespace {

constexpr uint64_t kJournalMagic = 0x6666'7269'6e67'6a31;
constexpr uint64_t kJournalVersion = 1;

enum class RequestState : uint32_t { free = 0, taken = 1, completed = 2 };

}  // namespace

struct RingJournal::Header {
  std::atomic<uint64_t> magic;  // written last
  uint64_t version;
  uint64_t rings;
  uint64_t requests;
};

struct RingJournal::RingRecord {
  std::atomic<uint64_t> ring;  // 0: free; written last
  uint32_t entries;
  usrbio::Shared32 next_request;
  usrbio::Shared32 released;
  usrbio::Shared32 announced;  // what publish() is about to store in the ring
  usrbio::Shared32 published;  // what it has stored
};

struct RingJournal::RequestRecord {
  std::atomic<RequestState> state;  // written last
  uint32_t number;                  // of the submission entry
  uint64_t ring;
  uint32_t completion;  // number of the completion entry; before `state`
  uint32_t unused;
  usrbio::SubmissionEntry request;
};

namespace {

constexpr uint64_t kHeaderBytes = 64;
constexpr uint64_t kRingBytes = 32;
constexpr uint64_t kRequestBytes = 88;
constexpr uint64_t kJournalBytes =
    kHeaderBytes + RingJournal::kRingsMax * kRingBytes + RingJournal::kRequestsMax * kRequestBytes;

}  // namespace

RingProgress::RingProgress(RingProgress&& other) noexcept { *this = std::move(other); }

RingProgress& RingProgress::operator=(RingProgress&& other) noexcept {
  std::swap(journal_, other.journal_);
  std::swap(index_, other.index_);
  std::swap(finished_, other.finished_);
  std::swap(left_, other.left_);
  return *this;
}

RingProgress::~RingProgress() {
  if (journal_ == nullptr) return;
  for (const uint32_t record : finished_) journal_->free_request(record);
  for (const uint32_t record : left_) journal_->free_request(record);
  journal_->free_ring(index_);
}

uint32_t RingProgress::entries() const { return journal_->ring(index_).entries; }

uint32_t RingProgress::next_request() const { return journal_->ring(index_).next_request.load(); }

uint32_t RingProgress::released() const { return journal_->ring(index_).released.load(); }

void RingProgress::set_released(uint32_t number) {
  journal_->ring(index_).released.store(number, std::memory_order_release);
}

uint32_t RingProgress::completed() const { return journal_->ring(index_).published.load(); }

RingProgress::Taken RingProgress::take(const usrbio::SubmissionEntry& request) {
  RingJournal::RingRecord& ring = journal_->ring(index_);
  const uint32_t index = journal_->free_requests_.back();
  journal_->free_requests_.pop_back();
  RingJournal::RequestRecord& record = journal_->request(index);
  const uint32_t number = ring.next_request.load(std::memory_order_relaxed);
  // The compiler must not write into a record before it is free.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  record.number = number;
  record.ring = ring.ring.load(std::memory_order_relaxed);
  record.request = request;
  record.state.store(RequestState::taken, std::memory_order_release);
  // A successor that finds the record and not this takes the submission entry again.
  ring.next_request.store(number + 1, std::memory_order_release);
  return {.record = index, .request = request};
}

void RingProgress::complete(uint32_t record, uint32_t number) {
  RingJournal::RequestRecord& done = journal_->request(record);
  done.completion = number;
  done.state.store(RequestState::completed, std::memory_order_release);
  finished_.push_back(record);
}

void RingProgress::publish(usrbio::Shared32& completed, uint32_t number) {
  RingJournal::RingRecord& ring = journal_->ring(index_);
  ring.announced.store(number, std::memory_order_release);
  completed.store(number);
  for (const uint32_t record : finished_) journal_->free_request(record);
  finished_.clear();
  ring.published.store(number, std::memory_order_release);
}

Result<std::vector<RingProgress::Taken>> RingProgress::recover(uint32_t completed) {
  RingJournal::RingRecord& ring = journal_->ring(index_);
  if (completed != ring.announced.load() && completed != ring.published.load()) {
    return fail(Errc::refused, "the program has changed the counters of the ring");
  }
  const uint32_t next = ring.next_request.load();
  std::vector<std::pair<uint32_t, Taken>> found;
  for (const uint32_t index : std::exchange(left_, {})) {
    RingJournal::RequestRecord& record = journal_->request(index);
    const bool done = record.state.load() == RequestState::completed;
    const bool has_completion = done && static_cast<int32_t>(record.completion - completed) < 0;
    if (has_completion || record.number == next) {
      journal_->free_request(index);
      continue;
    }
    record.state.store(RequestState::taken);
    found.emplace_back(next - record.number, Taken{index, record.request});
  }
  ring.announced.store(completed);
  ring.published.store(completed);
  std::ranges::sort(found, std::greater(), &std::pair<uint32_t, Taken>::first);
  std::vector<Taken> taken;
  for (auto& [age, one] : found) taken.push_back(one);
  return taken;
}

void RingProgress::drop(uint32_t record) { journal_->free_request(record); }

RingJournal::RingJournal(Fd fd, ByteSpan memory) : fd_(std::move(fd)), memory_(memory) {}

RingJournal::~RingJournal() {
  drop_left();
  ::munmap(memory_.data(), memory_.size());
}

RingJournal::RingRecord& RingJournal::ring(size_t index) const {
  static_assert(sizeof(Header) <= kHeaderBytes && sizeof(RingRecord) == kRingBytes);
  return reinterpret_cast<RingRecord*>(memory_.data() + kHeaderBytes)[index];
}

RingJournal::RequestRecord& RingJournal::request(size_t index) const {
  static_assert(sizeof(RequestRecord) == kRequestBytes);
  std::byte* const first = memory_.data() + kHeaderBytes + kRingsMax * kRingBytes;
  return reinterpret_cast<RequestRecord*>(first)[index];
}

Result<std::unique_ptr<RingJournal>> RingJournal::map(Fd file) {
  void* const base =
      ::mmap(nullptr, kJournalBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED) return errno_error(errno, "the journal of rings");
  const ByteSpan memory(static_cast<std::byte*>(base), kJournalBytes);
  return std::unique_ptr<RingJournal>(new RingJournal(std::move(file), memory));
}

Result<std::unique_ptr<RingJournal>> RingJournal::create() {
  Fd file(::memfd_create("ff-mount-rings", MFD_CLOEXEC));
  if (file.get() < 0 || ::ftruncate(file.get(), kJournalBytes) != 0) {
    return errno_error(errno, "the journal of rings");
  }
  FF_TRY(auto journal, map(std::move(file)));
  auto& header = *reinterpret_cast<Header*>(journal->memory_.data());
  header.version = kJournalVersion;
  header.rings = kRingsMax;
  header.requests = kRequestsMax;
  header.magic.store(kJournalMagic, std::memory_order_release);
  journal->scan();
  return journal;
}

Result<std::unique_ptr<RingJournal>> RingJournal::open(Fd file) {
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return errno_error(errno, "the journal of rings");
  const bool fits = static_cast<uint64_t>(info.st_size) == kJournalBytes;
  const Error other = fail(Errc::unsupported, "another version of ff wrote the journal of rings");
  if (!fits) return other;
  FF_TRY(auto journal, map(std::move(file)));
  const auto& header = *reinterpret_cast<const Header*>(journal->memory_.data());
  if (header.magic.load() != kJournalMagic || header.version != kJournalVersion ||
      header.rings != kRingsMax || header.requests != kRequestsMax) {
    return other;
  }
  journal->scan();
  return journal;
}

// Finds what a predecessor left. The first indices are used first, so that others cost no memory.
void RingJournal::scan() {
  for (size_t i = kRingsMax; i > 0; i--) {
    const auto index = static_cast<uint32_t>(i - 1);
    const uint64_t number = ring(index).ring.load();
    if (number == 0) {
      free_rings_.push_back(index);
    } else {
      left_.emplace(number, RingProgress(*this, index));
    }
  }
  for (size_t i = kRequestsMax; i > 0; i--) {
    const auto index = static_cast<uint32_t>(i - 1);
    RequestRecord& record = request(index);
    const bool used = record.state.load() != RequestState::free;
    const auto of = used ? left_.find(record.ring) : left_.end();
    if (of != left_.end()) {
      of->second.left_.push_back(index);
    } else {
      if (used) record.state.store(RequestState::free);
      free_requests_.push_back(index);
    }
  }
}

void RingJournal::free_request(uint32_t index) {
  request(index).state.store(RequestState::free, std::memory_order_release);
  free_requests_.push_back(index);
}

void RingJournal::free_ring(uint32_t index) {
  ring(index).ring.store(0, std::memory_order_release);
  free_rings_.push_back(index);
}

Result<RingProgress> RingJournal::add(uint64_t ring, uint32_t entries) {
  if (free_rings_.empty()) return fail(Errc::busy, "more than {} rings", kRingsMax);
  const uint32_t index = free_rings_.back();
  free_rings_.pop_back();
  RingRecord& record = this->ring(index);
  record.entries = entries;
  record.next_request.store(0);
  record.released.store(0);
  record.announced.store(0);
  record.published.store(0);
  record.ring.store(ring, std::memory_order_release);
  return RingProgress(*this, index);
}

std::optional<RingProgress> RingJournal::take_left(uint64_t ring) {
  const auto found = left_.find(ring);
  if (found == left_.end()) return std::nullopt;
  RingProgress progress = std::move(found->second);
  left_.erase(found);
  return progress;
}

void RingJournal::drop_left() { left_.clear(); }

}  // namespace ff::mount
