// names_load.cc: calls, and what their answers and a sync promise.
#include "lab/scenario/names_load.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "platform/base/clock.h"
#include "storage/meta/service.h"

namespace ff::scenario::names_parts {

namespace {

constexpr int64_t kNamesPauseNs = 100 * kMillisecond;
constexpr const char* kNames[] = {"a", "b", "c", "d", "e", "f"};

using meta::Kind;
using meta::Names;
using meta::Seen;

}  // namespace

NamesLoad::NamesLoad(rpc::ClientContext& context, const std::vector<net::Address>& servers,
                     std::string name, NamesTruth& truth)
    : context_(context),
      rng_(context.rng),
      name_(std::move(name)),
      truth_(truth),
      names_(context, servers, [this](meta::InodeId inode, const Error&) { lost_.insert(inode); }),
      gate_(context.loop) {
  gate_.spawn(work());
}

Task<void> NamesLoad::work() {
  auto beginning = begin();
  bool there = co_await std::move(beginning);
  while (there && !ended_) {
    const bool last = !working_;
    if (last || rng_.below(8) == 0) {
      auto syncing = sync();
      const bool synced = co_await std::move(syncing);
      ended_ = last && synced && settled_;
    } else {
      auto changing = change();
      co_await std::move(changing);
    }
    const auto waited =
        co_await after(context_.loop, static_cast<int64_t>(rng_.below(kNamesPauseNs)));
    if (!waited) co_return;
  }
}

Task<bool> NamesLoad::begin() {
  for (;;) {
    Names::Make make{.kind = Kind::directory, .mode = 0755};
    auto making = names_.make({}, meta::root(), name_, std::move(make));
    auto made = co_await std::move(making);
    if (!made && made.error().sys == EEXIST) {
      auto looking = names_.lookup({}, meta::root(), name_);
      made = co_await std::move(looking);
    }
    if (made) {
      dir_ = made->ref();
      auto syncing = names_.sync();
      const auto synced = co_await std::move(syncing);
      const bool whole = synced.ok() && lost_.empty();
      lost_.clear();
      if (whole) co_return true;
    }
    const auto waited = co_await after(context_.loop, kNamesPauseNs);
    if (!waited) co_return false;
  }
}

Task<void> NamesLoad::change() {
  const std::string name = kNames[rng_.below(std::size(kNames))];
  const auto there = files_.find(name);
  truth_.changes++;
  if (there == files_.end()) {
    Names::Make make{.kind = Kind::file, .mode = 0600};
    auto making = names_.make({}, dir_, name, std::move(make));
    const auto made = co_await std::move(making);
    if (!made) co_return note(made.error(), name);
    files_[name] = {.inode = made->inode.id, .mode = 0600};
    co_return;
  }
  File file = there->second;
  switch (rng_.below(4)) {
    case 0: {
      auto removing = names_.unlink({}, dir_, name, std::nullopt);
      const auto removed = co_await std::move(removing);
      if (!removed) co_return note(removed.error(), name);
      files_.erase(name);
      break;
    }
    case 1: {
      const std::string to = kNames[rng_.below(std::size(kNames))];
      auto renaming = rename(name, to);
      const auto renamed = co_await std::move(renaming);
      if (!renamed) {
        note(renamed.error(), name);
        co_return note(renamed.error(), to);
      }
      files_.erase(name);
      files_[to] = file;
      break;
    }
    case 2: {
      file.mode = 0600 + static_cast<uint32_t>(rng_.below(64));
      auto setting = names_.set_attributes({}, {.id = file.inode}, {.mode = file.mode});
      const auto set = co_await std::move(setting);
      if (!set) co_return note(set.error(), name);
      files_[name] = file;
      break;
    }
    default: {
      file.length += 1 + rng_.below(1000);
      auto writing = write(file, file.length);
      const auto written = co_await std::move(writing);
      if (!written) co_return note(written.error(), name);
      files_[name] = file;
    }
  }
}

Task<Result<Seen>> NamesLoad::rename(std::string from, std::string to) {
  return names_.rename(
      {}, {.from_dir = dir_, .from = std::move(from), .to_dir = dir_, .to = std::move(to)});
}

// As a writer tells it whose bytes are in storage.
Task<Result<Seen>> NamesLoad::write(File file, uint64_t length) {
  const meta::SessionId session = names_.new_session();
  auto opening = names_.open({}, {.id = file.inode}, meta::kMayWrite, session);
  FF_CO_TRY(const Seen seen, co_await std::move(opening));
  const Names::Written written{
      .end = length, .truncations = seen.inode.truncations, .mtime_ns = 1, .closed = true};
  auto telling = names_.wrote(file.inode, session, written, seen.capability);
  co_return co_await std::move(telling);
}

void NamesLoad::note(const Error& error, const std::string& name) {
  if (meta::may_pass(error)) {
    unknown_.insert(name);
    return;
  }
  // After a call without an answer a name may be there or not.
  if (unknown_.contains(name) || !settled_) return;
  surprise_ = fmt::format("{}/{}: {}", name_, name, error.message);
}

Task<Result<NamesLoad::Files>> NamesLoad::list() {
  auto listing = names_.list({}, dir_, "", 1000, true);
  FF_CO_TRY(const auto page, co_await std::move(listing));
  Files found;
  for (const auto& entry : page.entries) {
    if (!entry.seen) co_return fail(Errc::busy, "removed meanwhile");
    const meta::Inode& inode = entry.seen->inode;
    found[entry.name] = {.inode = inode.id, .mode = inode.mode & 07777, .length = inode.length};
  }
  co_return found;
}

bool NamesLoad::may_differ(const std::string& name) const {
  if (!settled_ || unknown_.contains(name) || lost_.contains(dir_.id)) return true;
  const auto file = files_.find(name);
  return file != files_.end() && lost_.contains(file->second.inode);
}

void NamesLoad::compare(const Files& found) {
  for (const auto& [name, file] : files_) {
    const auto there = found.find(name);
    if (may_differ(name) || (there != found.end() && there->second == file)) continue;
    if (there == found.end()) {
      truth_.broken(fmt::format("{}/{} was synced, and is gone", name_, name));
    } else {
      truth_.broken(
          fmt::format("{}/{} was synced as inode {}, mode {:o}, {} bytes, and is inode "
                      "{}, mode {:o}, {} bytes",
                      name_, name, file.inode, file.mode, file.length, there->second.inode,
                      there->second.mode, there->second.length));
    }
  }
  for (const auto& [name, file] : found) {
    if (files_.contains(name) || may_differ(name)) continue;
    truth_.broken(fmt::format("the removal of {}/{} was synced, and it is there", name_, name));
  }
}

// Whether it came to its end.
Task<bool> NamesLoad::sync() {
  auto syncing = names_.sync();
  const auto synced = co_await std::move(syncing);
  if (!synced) {
    if (!meta::may_pass(synced.error())) truth_.broken("a sync fails: " + synced.error().message);
    co_return false;
  }
  const uint64_t losses = truth_.losses;
  auto listing = list();
  const auto found = co_await std::move(listing);
  if (!found) {
    if (!meta::may_pass(found.error())) truth_.broken("a list fails: " + found.error().message);
    co_return false;
  }
  truth_.syncs++;
  truth_.told += lost_.size();
  compare(*found);
  if (!surprise_.empty() && lost_.empty()) truth_.broken("nothing was lost, and " + surprise_);
  if (!lost_.empty() && losses == losses_seen_) {
    truth_.broken(fmt::format("{} is told of a loss that was none", name_));
  }
  // What it had no answer to, or has just learnt, may itself be lost until the next sync.
  const bool learnt = *found != files_;
  settled_ = !learnt && losses == truth_.losses;
  files_ = *found;
  losses_seen_ = losses;
  lost_.clear();
  unknown_.clear();
  surprise_.clear();
  co_return true;
}

}  // namespace ff::scenario::names_parts
