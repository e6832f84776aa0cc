// claim.cc: claims, bases and heartbeats.
#include "storage/kvstore/claim.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/simd/crc32c.h"

namespace ff::kvstore {

namespace {

// Claims and heartbeats have a fixed length, so that a reader sees what was written into them
// without a new length.
constexpr size_t kClaimBytes = 4096;
constexpr size_t kMarkAt = 2048;
constexpr size_t kMaxAddress = 400;
constexpr size_t kHostAt = 512;  // in a heartbeat; earlier versions have zeros there
constexpr size_t kMaxHost = 255;
constexpr uint64_t kSettledChanges = 2;    // of a heartbeat that was not known before
constexpr uint64_t kReturnedChanges = 30;  // after the process was taken for dead
constexpr uint64_t kMaxBaseBytes = 256 * kMiB;
constexpr std::string_view kClaimLine = "ff-kv claim 1 ";
constexpr std::string_view kBaseLine = "ff-kv base 1";
constexpr std::string_view kEpochPrefix = "epoch-";
constexpr std::string_view kBasePrefix = "base-";
constexpr std::string_view kTempPrefix = "claim-";

Result<std::string> read_fixed(io::Disk& disk, const std::string& path) {
  FF_TRY(auto bytes, io::read_file(disk, path, kClaimBytes));
  if (bytes.size() != kClaimBytes) {
    return fail(Errc::corrupt, "{}: {} bytes instead of {}", path, bytes.size(), kClaimBytes);
  }
  return bytes;
}

std::string numbered(std::string_view prefix, uint64_t number) {
  return fmt::format("{}{:016x}", prefix, number);
}

}  // namespace

std::string encode_base(const Base& base) {
  std::string text = fmt::format("{}\nepoch {}\nversion {}\nfirst {}\n", kBaseLine, base.epoch,
                                 base.next_version, base.first_number);
  for (const Base::Valid& valid : base.segments) {
    text += fmt::format("segment {} {} {}\n", valid.name.epoch, valid.name.number, valid.end);
  }
  return text + fmt::format("crc {:08x}\n", simd::crc32c(as_bytes(text)));
}

std::optional<Base> parse_base(std::string_view text) {
  const size_t last = text.rfind("crc ");
  if (last == std::string_view::npos) return {};
  const std::string crc = fmt::format("crc {:08x}\n", simd::crc32c(as_bytes(text.substr(0, last))));
  if (text.substr(last) != crc) return {};
  Base base;
  bool valid = text.starts_with(kBaseLine);
  text = text.substr(0, last);
  for (const std::string_view line : split(text, '\n')) {
    const auto words = split(line, ' ');
    std::vector<uint64_t> numbers;
    for (size_t i = 1; i < words.size(); ++i) {
      numbers.push_back(parse_u64(words[i]).value_or(UINT64_MAX));
    }
    if (words[0] == "segment" && numbers.size() == 3) {
      base.segments.push_back({{.epoch = numbers[0], .number = numbers[1]}, numbers[2]});
    } else if (words[0] == "epoch" && numbers.size() == 1) {
      base.epoch = numbers[0];
    } else if (words[0] == "version" && numbers.size() == 1) {
      base.next_version = numbers[0];
    } else if (words[0] == "first" && numbers.size() == 1) {
      base.first_number = numbers[0];
    } else {
      valid = valid && (line.empty() || line == kBaseLine);
    }
  }
  if (!valid || base.epoch == 0) return {};
  return base;
}

ClaimFolder::ClaimFolder(io::Disk& disk, io::AsyncQueue& queue, std::string dir)
    : disk_(disk), queue_(queue), dir_(std::move(dir)) {}

Result<std::vector<uint64_t>> ClaimFolder::numbers_of(std::string_view prefix) {
  FF_TRY(const auto entries, disk_.list(dir_));
  std::vector<uint64_t> numbers;
  for (const io::DirEntry& entry : entries) {
    if (!entry.name.starts_with(prefix)) continue;
    const auto number = parse_hex(std::string_view(entry.name).substr(prefix.size()));
    if (number) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Task<Result<Claim>> ClaimFolder::newest() {
  FF_CO_TRY(const auto epochs, numbers_of(kEpochPrefix));
  if (epochs.empty()) co_return Claim{};
  const std::string path = io::join(dir_, numbered(kEpochPrefix, epochs.back()));
  FF_CO_TRY(const std::string bytes, read_fixed(disk_, path));
  const std::string_view line = std::string_view(bytes).substr(0, bytes.find('\n'));
  if (!line.starts_with(kClaimLine)) co_return fail(Errc::corrupt, "{}: not a claim", path);
  co_return Claim{.epoch = epochs.back(),
                  .member = std::string(line.substr(kClaimLine.size())),
                  .mark = static_cast<ClaimMark>(bytes[kMarkAt])};
}

Task<Result<void>> ClaimFolder::mark(std::string path, ClaimMark mark) {
  const io::OpenOptions options{.access = io::AccessMode::read_write};
  FF_CO_TRY(const auto file, disk_.open(path, options));
  const std::string byte(1, static_cast<char>(mark));
  FF_CO_TRY(co_await queue_.write(*file, as_bytes(byte), kMarkAt));
  co_return co_await queue_.sync(*file);
}

Task<Result<void>> ClaimFolder::claim(const Claim& after, std::string member,
                                      std::string temp_suffix) {
  const uint64_t epoch = after.epoch + 1;
  const std::string path = io::join(dir_, numbered(kEpochPrefix, epoch));
  const std::string temp = io::join(dir_, std::string(kTempPrefix) + temp_suffix);
  std::string bytes = fmt::format("{}{}\n", kClaimLine, member);
  bytes.resize(kClaimBytes, '\0');
  FF_CO_TRY(io::replace_file(disk_, temp, bytes, "new"));
  auto linked = disk_.link(temp, path);
  (void)disk_.remove(temp);
  if (!linked && linked.error().code == Errc::exists) {
    co_return fail(Errc::stale, "{}: another process has claimed the partition", path);
  }
  FF_CO_TRY(std::move(linked));
  FF_CO_TRY(disk_.sync_dir(dir_));
  // Claims before the newest are removed some time: this one may have taken the name of one.
  FF_CO_TRY(const auto epochs, numbers_of(kEpochPrefix));
  if (epochs.empty() || epochs.back() != epoch) {
    (void)disk_.remove(path);
    co_return fail(Errc::stale, "{}: another process has claimed the partition", path);
  }
  for (const uint64_t earlier : epochs) {
    if (earlier == epoch) continue;
    const std::string of_earlier = io::join(dir_, numbered(kEpochPrefix, earlier));
    auto marked = co_await mark(of_earlier, ClaimMark::superseded);
    if (!marked && marked.error().code != Errc::not_found) co_return marked;
    // Attempts that fail again and again leave one file: who has it open sees the mark, or an
    // error.
    if (earlier < after.epoch) (void)disk_.remove(of_earlier);
  }
  const io::OpenOptions options{.access = io::AccessMode::read_write};
  FF_CO_TRY(own_, disk_.open(path, options));
  epoch_ = epoch;
  co_return {};
}

Task<Result<void>> ClaimFolder::check() {
  std::string byte(1, '\0');
  FF_CO_TRY(const size_t got, co_await queue_.read(*own_, writable(byte), kMarkAt));
  if (got == 1 && byte[0] == static_cast<char>(ClaimMark::none)) co_return {};
  co_return fail(Errc::stale, "{}: another process has claimed the partition", own_->path());
}

Task<Result<void>> ClaimFolder::release() {
  FF_CO_TRY(co_await check());
  co_return co_await mark(own_->path(), ClaimMark::released);
}

Result<Base> ClaimFolder::newest_base() {
  FF_TRY(const auto listing, list());
  if (listing.base == 0) return Base{};
  return read_base(listing.base);
}

Result<Base> ClaimFolder::read_base(uint64_t epoch) {
  FF_TRY(OpenBase opened, open_base(epoch));
  return std::move(opened.base);
}

Result<ClaimFolder::OpenBase> ClaimFolder::open_base(uint64_t epoch) {
  const std::string path = io::join(dir_, numbered(kBasePrefix, epoch));
  OpenBase opened;
  const io::OpenOptions options;
  FF_TRY(opened.file, disk_.open(path, options));
  FF_TRY(opened.info, opened.file->info());
  std::string text(std::min(opened.info.size, kMaxBaseBytes), '\0');
  FF_TRY(const size_t got, opened.file->read_at(writable(text), 0));
  text.resize(got);
  auto base = parse_base(text);
  if (!base || base->epoch != epoch) {
    return fail(Errc::corrupt, "{}: damaged; the partition cannot be opened", path);
  }
  opened.base = std::move(*base);
  return opened;
}

Result<bool> ClaimFolder::is_current(const OpenBase& base) {
  FF_TRY(const io::FileInfo now, disk_.info(base.file->path()));
  return now.inode == base.info.inode && now.device == base.info.device;
}

Result<ClaimFolder::Listing> ClaimFolder::list() {
  FF_TRY(const auto entries, disk_.list(dir_));
  Listing listing;
  for (const io::DirEntry& entry : entries) {
    if (const auto name = parse_segment_file(entry.name)) listing.segments.push_back(*name);
    if (!entry.name.starts_with(kBasePrefix)) continue;
    const auto number = parse_hex(std::string_view(entry.name).substr(kBasePrefix.size()));
    listing.base = std::max(listing.base, number.value_or(0));
  }
  std::sort(listing.segments.begin(), listing.segments.end(),
            [](const SegmentName& a, const SegmentName& b) {
              return std::pair(a.number, a.epoch) < std::pair(b.number, b.epoch);
            });
  return listing;
}

Result<std::vector<SegmentName>> ClaimFolder::segments() {
  FF_TRY(auto listing, list());
  return std::move(listing.segments);
}

Result<void> ClaimFolder::write_base(const Base& base) {
  const std::string path = io::join(dir_, numbered(kBasePrefix, base.epoch));
  return io::replace_file(disk_, path, encode_base(base), "new");
}

Result<void> ClaimFolder::remove_older() {
  for (const std::string_view prefix : {kBasePrefix, kEpochPrefix}) {
    FF_TRY(const auto numbers, numbers_of(prefix));
    for (const uint64_t number : numbers) {
      if (number >= epoch_) continue;
      auto removed = disk_.remove(io::join(dir_, numbered(prefix, number)));
      if (!removed && removed.error().code != Errc::not_found) return removed;
    }
  }
  // What claimers that were killed have left; a live one would try again.
  FF_TRY(const auto entries, disk_.list(dir_));
  for (const io::DirEntry& entry : entries) {
    if (entry.name.starts_with(kTempPrefix)) (void)disk_.remove(io::join(dir_, entry.name));
  }
  return {};
}

StoreHeartbeats::StoreHeartbeats(io::Disk& disk, io::AsyncQueue& queue, Loop& loop, std::string dir,
                                 std::string id, const Options& options)
    : disk_(disk),
      queue_(queue),
      loop_(loop),
      dir_(std::move(dir)),
      id_(std::move(id)),
      address_(options.address.substr(0, kMaxAddress)),
      host_(options.host.substr(0, kMaxHost)),
      lease_ns_(options.lease_ns) {}

std::string StoreHeartbeats::path_of(const std::string& id) const { return io::join(dir_, id); }

Task<Result<void>> StoreHeartbeats::beat() {
  std::string bytes;
  append_le(bytes, ++counter_);
  append_le(bytes, static_cast<uint64_t>(address_.size()));
  bytes += address_;
  bytes.resize(kHostAt, '\0');
  append_le(bytes, static_cast<uint64_t>(host_.size()));
  bytes += host_;
  bytes.resize(kClaimBytes, '\0');
  // By name, in case that somebody has taken this process for dead and removed the file.
  const io::OpenOptions options{.access = io::AccessMode::read_write, .create = true, .mode = 0600};
  FF_CO_TRY(const auto file, disk_.open(path_of(id_), options));
  co_return co_await queue_.write(*file, as_bytes(bytes), 0);
}

Result<void> StoreHeartbeats::remove_own() { return disk_.remove(path_of(id_)); }

Task<Result<std::optional<StoreHeartbeats::Peer>>> StoreHeartbeats::observe(std::string id) {
  std::optional<Peer> none;
  auto bytes = io::read_file(disk_, path_of(id), kClaimBytes);
  if (!bytes && bytes.error().code == Errc::not_found) {
    peers_.erase(id);
    co_return none;
  }
  FF_CO_TRY(std::string text, std::move(bytes));
  text.resize(kClaimBytes, '\0');  // a power loss may have shortened the file of a dead process
  const auto counter = load_le<uint64_t>(as_bytes(text).data());
  const auto length = load_le<uint64_t>(as_bytes(text).data() + 8);
  const auto [found, first] = peers_.try_emplace(std::move(id));
  Peer& peer = found->second;
  if (first || peer.counter != counter) {
    peer.changed_ns = loop_.now_ns();
    if (!first) ++peer.changes;
  } else if (!is_live(peer)) {
    peer.changes = 0;
    peer.has_lapsed = true;
  }
  peer.counter = counter;
  peer.address = text.substr(16, std::min<uint64_t>(length, kMaxAddress));
  const auto host_length = load_le<uint64_t>(as_bytes(text).data() + kHostAt);
  peer.host = text.substr(kHostAt + 8, std::min<uint64_t>(host_length, kMaxHost));
  co_return std::optional(peer);
}

Task<Result<void>> StoreHeartbeats::observe_all() {
  FF_CO_TRY(const auto entries, disk_.list(dir_));
  std::erase_if(peers_, [&](const auto& peer) {
    return std::ranges::find(entries, peer.first, &io::DirEntry::name) == entries.end();
  });
  for (const io::DirEntry& entry : entries) {
    // Of one that cannot be read, nothing is known to change.
    if (entry.name != id_) (void)co_await observe(entry.name);
  }
  co_return {};
}

bool StoreHeartbeats::is_settled(const Peer& peer) const {
  return is_live(peer) && peer.changes >= (peer.has_lapsed ? kReturnedChanges : kSettledChanges);
}

void StoreHeartbeats::forget(const std::string& id) {
  peers_.erase(id);
  (void)disk_.remove(path_of(id));
}

}  // namespace ff::kvstore
