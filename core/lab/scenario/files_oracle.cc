// files_oracle.cc: creates the directories of the programs, and checks their results at the end.
#include <fmt/format.h>

#include <utility>

#include "lab/scenario/files_load.h"

namespace ff::scenario::files_parts {

namespace {

constexpr uint64_t kChunkSize = 64 * kKiB;

Task<Result<meta::InodeView>> make_dir(meta::MetaClient& names, meta::InodeRef above,
                                       std::string name) {
  meta::Namespace::CreateOptions make{.kind = meta::InodeType::directory, .mode = 0755};
  auto making = names.create({}, std::move(above), std::move(name), std::move(make));
  co_return co_await std::move(making);
}

}  // namespace

Task<Result<void>> make_dirs(client::FileSystem& files, FilesOracle& oracle, std::string below) {
  FF_CO_TRY(co_await files.start(INT64_MAX));
  meta::MetaClient& names = files.metadata();
  meta::InodeRef top = meta::root();
  if (!below.empty()) {
    FF_CO_TRY(const auto made, co_await make_dir(names, top, below));
    top = made.ref();
  }
  FF_CO_TRY(const auto names_dir, co_await make_dir(names, top, "names"));
  FF_CO_TRY(const auto data_dir, co_await make_dir(names, top, "data"));
  const meta::Layout layout{.table = 1, .chunk_size = kChunkSize, .stripe = 2};
  auto setting = names.set_layout({}, data_dir.ref(), layout);
  FF_CO_TRY(co_await std::move(setting));
  meta::Namespace::CreateOptions make{.kind = meta::InodeType::file, .mode = 0644};
  auto making_log = names.create({}, data_dir.ref(), "log", std::move(make));
  FF_CO_TRY(const auto log, co_await std::move(making_log));
  oracle.names_dir = names_dir.inode;
  oracle.data_dir = data_dir.inode;
  oracle.log = log.inode;
  oracle.dirs.insert(names_dir.inode.id);
  co_return Result<void>();
}

Task<Result<std::string>> read_log(client::FileSystem& files, const FilesOracle& oracle) {
  auto opening = files.open({}, {.id = oracle.log.id}, meta::kMayRead);
  FF_CO_TRY(const auto open, co_await std::move(opening));
  std::string bytes(open->inode().length, '\0');
  auto reading = open->read(0, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
  FF_CO_TRY(const uint64_t got, co_await std::move(reading));
  bytes.resize(got);
  co_return bytes;
}

namespace {

// Each record slot of the log must hold one complete record, or zeros.
std::optional<std::string> contradiction_of_log(const FilesOracle& oracle, const std::string& log) {
  std::set<uint64_t> found;
  // Cleared records may be partly gone.
  for (size_t at = oracle.cleared_to; at < log.size(); at += kRecordBytes) {
    const std::string record = log.substr(at, kRecordBytes);
    if (record.find_first_not_of('\0') == record.npos) continue;
    const auto number = load_le<uint64_t>(as_bytes(record).data());
    const bool written = oracle.logged.contains(number) || oracle.perhaps_logged.contains(number);
    if (record != record_bytes(number) || !written || !found.insert(number).second) {
      return fmt::format("the log has bytes at offset {} that nobody wrote there", at);
    }
  }
  for (const auto& [number, at] : oracle.logged) {
    if (at >= oracle.cleared_to && !found.contains(number))
      return fmt::format("record {} of the log is lost", number);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> contradiction(const FilesOracle& oracle, const std::string& log) {
  if (auto wrong = find_contradiction(oracle.steps, oracle.names_dir.id)) return wrong;
  return contradiction_of_log(oracle, log);
}

}  // namespace ff::scenario::files_parts
