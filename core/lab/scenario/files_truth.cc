// files_truth.cc: where programs work, and whether what they were told can be true.
#include <fmt/format.h>

#include <utility>

#include "lab/scenario/files_load.h"

namespace ff::scenario::files_parts {

namespace {

constexpr uint64_t kChunkSize = 64 * kKiB;

Task<Result<meta::Seen>> make_dir(meta::MetaClient& names, meta::Ref above, std::string name) {
  meta::Names::Make make{.kind = meta::Kind::directory, .mode = 0755};
  auto making = names.make({}, std::move(above), std::move(name), std::move(make));
  co_return co_await std::move(making);
}

}  // namespace

Task<Result<void>> make_dirs(client::FileSystem& files, FilesTruth& truth, std::string below) {
  auto starting = files.start(INT64_MAX);
  FF_CO_TRY(co_await std::move(starting));
  meta::MetaClient& names = files.names();
  meta::Ref top = meta::root();
  if (!below.empty()) {
    auto making = make_dir(names, top, below);
    FF_CO_TRY(const auto made, co_await std::move(making));
    top = made.ref();
  }
  auto making_names = make_dir(names, top, "names");
  FF_CO_TRY(const auto names_dir, co_await std::move(making_names));
  auto making_data = make_dir(names, top, "data");
  FF_CO_TRY(const auto data_dir, co_await std::move(making_data));
  const meta::Layout layout{.table = 1, .chunk_size = kChunkSize, .stripe = 2};
  auto setting = names.set_layout({}, data_dir.ref(), layout);
  FF_CO_TRY(co_await std::move(setting));
  meta::Names::Make make{.kind = meta::Kind::file, .mode = 0644};
  auto making_log = names.make({}, data_dir.ref(), "log", std::move(make));
  FF_CO_TRY(const auto log, co_await std::move(making_log));
  truth.names_dir = names_dir.inode;
  truth.data_dir = data_dir.inode;
  truth.log = log.inode;
  truth.dirs.insert(names_dir.inode.id);
  co_return Result<void>();
}

Task<Result<std::string>> read_log(client::FileSystem& files, const FilesTruth& truth) {
  auto opening = files.open({}, {.id = truth.log.id}, meta::kMayRead);
  FF_CO_TRY(const auto open, co_await std::move(opening));
  std::string bytes(open->inode().length, '\0');
  auto reading = open->read(0, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
  FF_CO_TRY(const uint64_t got, co_await std::move(reading));
  bytes.resize(got);
  co_return bytes;
}

namespace {

// Each place of the log holds one whole record, or nothing.
std::optional<std::string> contradiction_of_log(const FilesTruth& truth, const std::string& log) {
  std::set<uint64_t> found;
  // What was cleared may have been cleared in part.
  for (size_t at = truth.cleared_to; at < log.size(); at += kRecordBytes) {
    const std::string record = log.substr(at, kRecordBytes);
    if (record.find_first_not_of('\0') == record.npos) continue;
    const auto number = load_le<uint64_t>(as_bytes(record).data());
    const bool written = truth.logged.contains(number) || truth.perhaps_logged.contains(number);
    if (record != record_bytes(number) || !written || !found.insert(number).second) {
      return fmt::format("the log holds at {} what nobody wrote there", at);
    }
  }
  for (const auto& [number, at] : truth.logged) {
    if (at >= truth.cleared_to && !found.contains(number))
      return fmt::format("record {} of the log is lost", number);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> contradiction(const FilesTruth& truth, const std::string& log) {
  if (auto wrong = find_contradiction(truth.steps, truth.names_dir.id)) return wrong;
  return contradiction_of_log(truth, log);
}

}  // namespace ff::scenario::files_parts
