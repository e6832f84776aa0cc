// ring_registry_restore.cc: what this process leaves for a successor, and how it continues what a
// predecessor has left. The store has three kinds of descriptors; these are their names:
//
//   usrbio-journal                              ring_journal.h
//   usrbio-wake NUMBER                          the wake socket; NUMBER of the first wake link
//   usrbio-link NUMBER UID PROCESS DIR NAME TARGET    the memory file of a link
//
// The names of links have no spaces; targets may.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/text.h"
#include "storage/mount/ring_registry.h"

namespace ff::mount {

namespace {

using RecordKind = client::RecoveryTable::Kind;

constexpr std::string_view kJournalName = "usrbio-journal";
constexpr std::string_view kWakeName = "usrbio-wake ";
constexpr std::string_view kLinkName = "usrbio-link ";
constexpr int64_t kFormerReadsPollNs = 5 * kMillisecond;

// Removes the first word of the text and returns it.
std::string_view next_word(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

uint64_t next_number(std::string_view& text) { return parse_u64(next_word(text)).value_or(0); }

}  // namespace

std::string RingRegistry::stored_name(const std::string& name, const Link& link) {
  return fmt::format("{}{} {} {} {} {} {}", kLinkName, link.number, link.owner.uid,
                     link.owner.process, link.dir, name, link.target);
}

// Without it, the ring or the memory ends with this process.
void RingRegistry::leave(const std::string& stored, int fd) {
  if (store_ == nullptr) return;
  const auto left = store_->store(stored, fd);
  if (left) return;
  log_warning("a ring or memory of a program would not survive the death of this process",
              {{"cause", left.error().message}});
}

Result<void> RingRegistry::open_journal() {
  std::map<std::string, Fd> left;
  if (store_ != nullptr) left = store_->take_stored(kJournalName);
  if (!left.empty()) {
    auto opened = RingJournal::open(std::move(left.begin()->second));
    if (opened) {
      journal_ = std::move(*opened);
      return {};
    }
    log_warning("the rings of programs end", {{"cause", opened.error().message}});
  }
  FF_TRY(journal_, RingJournal::create());
  leave(std::string(kJournalName), journal_->fd());
  return {};
}

Result<void> RingRegistry::open_wake_socket() {
  std::map<std::string, Fd> left;
  if (store_ != nullptr) left = store_->take_stored(kWakeName);
  for (auto& [name, socket] : left) {
    const auto adopted = adopt_wake_socket(name, std::move(socket));
    if (adopted) return {};
    store_->release(name);
  }
  FF_TRY(make_wake_socket());
  leave(fmt::format("{}{}", kWakeName, wake_number_), wake_socket_.get());
  return {};
}

// Programs are connected to it, and may have woken the predecessor through it.
Result<void> RingRegistry::adopt_wake_socket(std::string_view name, Fd socket) {
  sockaddr_un address = {};
  socklen_t size = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return errno_error(errno, "the wake socket");
  }
  name.remove_prefix(kWakeName.size());
  wake_number_ = next_number(name);
  wake_path_ = address.sun_path;
  wake_socket_ = std::move(socket);
  return {};
}

void RingRegistry::dir_opened(uint64_t dir, uint32_t process, uint64_t origin) {
  OpenDir& open = dirs_[dir];
  open = {.process = process, .origin = origin};
  auto* const recovery = operations_.files().recovery();
  if (recovery == nullptr) return;
  open.record = recovery->add({.kind = RecordKind::iov_dir, .fixed = {dir, process, origin}});
}

std::optional<uint64_t> RingRegistry::dir_of_origin(uint64_t origin) const {
  const auto found = std::ranges::find_if(
      dirs_, [&](const auto& one) { return origin != 0 && one.second.origin == origin; });
  if (found == dirs_.end()) return std::nullopt;
  return found->first;
}

void RingRegistry::restore_dirs() {
  auto* const recovery = operations_.files().recovery();
  if (recovery == nullptr) return;
  for (auto& record : recovery->take(RecordKind::iov_dir)) {
    OpenDir& open = dirs_[record.fixed(0)];
    open.process = static_cast<uint32_t>(record.fixed(1));
    open.origin = record.fixed(2);
    open.record = std::move(record);
  }
}

Result<void> RingRegistry::restore_link(const std::string& stored, Fd fd) {
  std::string_view rest = std::string_view(stored).substr(kLinkName.size());
  Link link;
  link.number = next_number(rest);
  link.owner.uid = static_cast<uint32_t>(next_number(rest));
  link.owner.process = static_cast<uint32_t>(next_number(rest));
  link.dir = next_number(rest);
  const std::string name(next_word(rest));
  link.target = rest;
  const auto parsed = usrbio::parse_iov_link_name(name);
  if (!parsed) return errno_error(EINVAL, printable(stored));
  link.id = parsed->id;
  FF_TRY(auto file, restore_client_memory(std::move(fd), link.target, link.owner.uid));
  if (parsed->ring) {
    FF_TRY(link.ring, RingServer::restore(*this, *parsed, link.owner.uid, file, link.number));
  }
  FF_TRY(insert(name, *parsed, std::move(link), std::move(file)));
  return {};
}

Task<void> RingRegistry::allow_repeats() {
  const auto used = [](const auto& one) {
    const auto& used_before = one.second->memory.used_before;
    return used_before && used_before();
  };
  const int64_t until_ns = loop_.now_ns() + kFormerReadsNs;
  while (std::ranges::any_of(by_id_, used)) {
    if (loop_.now_ns() >= until_ns) {
      log_warning(
          "storage nodes of this host have not ended reads into the memory of programs that they "
          "began for the predecessor; the mount repeats these requests",
          {{"seconds", kFormerReadsNs / kSecond}});
      break;
    }
    const auto waited = co_await sleep_for(loop_, kFormerReadsPollNs);
    if (!waited) co_return;
  }
  repeats_wait_ = false;
  work_.set();
}

void RingRegistry::restore() {
  if (store_ == nullptr || journal_ == nullptr) return;
  size_t ended = 0;
  std::string cause;
  for (auto& [stored, fd] : store_->take_stored(kLinkName)) {
    const auto restored = restore_link(stored, std::move(fd));
    if (restored) continue;
    store_->release(stored);
    cause = restored.error().message;
    ended++;
  }
  journal_->drop_left();
  repeats_wait_ = std::ranges::any_of(rings_, [](const auto& ring) { return ring->repeats(); });
  if (repeats_wait_) gate_.spawn(allow_repeats());
  if (ended > 0) {
    log_warning("rings and memory of programs do not survive the death of the predecessor",
                {{"count", ended}, {"cause", cause}});
  }
  if (!links_.empty())
    log_info("continues rings and memory of programs", {{"count", links_.size()}});
}

}  // namespace ff::mount
