// names_load.cc: the random operations, and the comparison after each sync.
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

using meta::InodeType;
using meta::InodeView;
using meta::Namespace;

}  // namespace

NamesLoad::NamesLoad(rpc::ClientContext& context, const std::vector<net::Address>& servers,
                     std::string name, NamesOracle& oracle)
    : context_(context),
      rng_(context.rng),
      name_(std::move(name)),
      oracle_(oracle),
      names_(context, servers, [this](meta::InodeId inode, const Error&) { lost_.insert(inode); }),
      gate_(context.loop) {
  gate_.spawn(work());
}

Task<void> NamesLoad::work() {
  bool there = co_await make_dir();
  while (there && !ended_) {
    const bool last = !working_;
    if (last || rng_.below(8) == 0) {
      const bool synced = co_await sync();
      ended_ = last && synced && settled_;
    } else {
      co_await change();
    }
    const auto waited =
        co_await sleep_for(context_.loop, static_cast<int64_t>(rng_.below(kNamesPauseNs)));
    if (!waited) co_return;
  }
}

Task<bool> NamesLoad::make_dir() {
  for (;;) {
    Namespace::CreateOptions make{.kind = InodeType::directory, .mode = 0755};
    auto making = names_.create({}, meta::root(), name_, std::move(make));
    auto made = co_await std::move(making);
    if (!made && made.error().sys == EEXIST) {
      auto looking = names_.lookup({}, meta::root(), name_);
      made = co_await std::move(looking);
    }
    if (made) {
      dir_ = made->ref();
      const auto synced = co_await names_.sync();
      const bool whole = synced.ok() && lost_.empty();
      lost_.clear();
      if (whole) co_return true;
    }
    const auto waited = co_await sleep_for(context_.loop, kNamesPauseNs);
    if (!waited) co_return false;
  }
}

Task<void> NamesLoad::change() {
  const std::string name = kNames[rng_.below(std::size(kNames))];
  const auto there = files_.find(name);
  oracle_.changes++;
  if (there == files_.end()) {
    Namespace::CreateOptions make{.kind = InodeType::file, .mode = 0600};
    auto making = names_.create({}, dir_, name, std::move(make));
    const auto made = co_await std::move(making);
    if (!made) co_return record_failure(made.error(), name);
    files_[name] = {.inode = made->inode.id, .mode = 0600};
    co_return;
  }
  File file = there->second;
  switch (rng_.below(4)) {
    case 0: {
      auto removing = names_.unlink({}, dir_, name, std::nullopt);
      const auto removed = co_await std::move(removing);
      if (!removed) co_return record_failure(removed.error(), name);
      files_.erase(name);
      break;
    }
    case 1: {
      const std::string to = kNames[rng_.below(std::size(kNames))];
      const auto renamed = co_await rename(name, to);
      if (!renamed) {
        record_failure(renamed.error(), name);
        co_return record_failure(renamed.error(), to);
      }
      files_.erase(name);
      files_[to] = file;
      break;
    }
    case 2: {
      file.mode = 0600 + static_cast<uint32_t>(rng_.below(64));
      auto setting = names_.set_attributes({}, {.id = file.inode}, {.mode = file.mode});
      const auto set = co_await std::move(setting);
      if (!set) co_return record_failure(set.error(), name);
      files_[name] = file;
      break;
    }
    default: {
      file.length += 1 + rng_.below(1000);
      const auto written = co_await write(file, file.length);
      if (!written) co_return record_failure(written.error(), name);
      files_[name] = file;
    }
  }
}

Task<Result<InodeView>> NamesLoad::rename(std::string from, std::string to) {
  return names_.rename(
      {}, {.from_dir = dir_, .from = std::move(from), .to_dir = dir_, .to = std::move(to)});
}

// Reports a length as a writer does whose bytes are in storage.
Task<Result<InodeView>> NamesLoad::write(File file, uint64_t length) {
  const meta::SessionId session = names_.new_session();
  auto opening = names_.open({}, {.id = file.inode}, meta::kMayWrite, session);
  FF_CO_TRY(const InodeView seen, co_await std::move(opening));
  const Namespace::LengthReport written{
      .min_length = length, .truncate_seq = seen.inode.truncate_seq, .mtime_ns = 1, .closed = true};
  co_return co_await names_.report_length(file.inode, session, written, seen.capability);
}

void NamesLoad::record_failure(const Error& error, const std::string& name) {
  if (meta::is_retryable(error)) {
    unknown_.insert(name);
    return;
  }
  // After an unanswered call the name may exist or not.
  if (unknown_.contains(name) || !settled_) return;
  unexplained_ = fmt::format("{}/{}: {}", name_, name, error.message);
}

Task<Result<NamesLoad::Files>> NamesLoad::list() {
  auto listing = names_.list({}, dir_, "", 1000, true);
  FF_CO_TRY(const auto page, co_await std::move(listing));
  Files found;
  for (const auto& entry : page.entries) {
    if (!entry.view) co_return fail(Errc::busy, "removed meanwhile");
    const meta::Inode& inode = entry.view->inode;
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
      oracle_.report_violation(fmt::format("{}/{} was synced, but is gone", name_, name));
    } else {
      oracle_.report_violation(
          fmt::format("{}/{} was synced as inode {}, mode {:o}, {} bytes, but is inode "
                      "{}, mode {:o}, {} bytes",
                      name_, name, file.inode, file.mode, file.length, there->second.inode,
                      there->second.mode, there->second.length));
    }
  }
  for (const auto& [name, file] : found) {
    if (files_.contains(name) || may_differ(name)) continue;
    oracle_.report_violation(
        fmt::format("the removal of {}/{} was synced, but it exists", name_, name));
  }
}

// Returns whether the sync and the comparison were completed.
Task<bool> NamesLoad::sync() {
  const auto synced = co_await names_.sync();
  if (!synced) {
    if (!meta::is_retryable(synced.error()))
      oracle_.report_violation("a sync fails: " + synced.error().message);
    co_return false;
  }
  const uint64_t losses = oracle_.losses;
  const auto found = co_await list();
  if (!found) {
    if (!meta::is_retryable(found.error()))
      oracle_.report_violation("a list fails: " + found.error().message);
    co_return false;
  }
  oracle_.syncs++;
  oracle_.told += lost_.size();
  compare(*found);
  if (!unexplained_.empty() && lost_.empty())
    oracle_.report_violation("no loss was reported, but " + unexplained_);
  if (!lost_.empty() && losses == losses_seen_) {
    oracle_.report_violation(fmt::format("{} got a report of a loss, but nothing was lost", name_));
  }
  // Unanswered changes that the list has just shown may still be lost until the next sync.
  const bool learnt = *found != files_;
  settled_ = !learnt && losses == oracle_.losses;
  files_ = *found;
  losses_seen_ = losses;
  lost_.clear();
  unknown_.clear();
  unexplained_.clear();
  co_return true;
}

}  // namespace ff::scenario::names_parts
