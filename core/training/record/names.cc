// names.cc: lines of names.
#include "training/record/names.h"

#include <fmt/format.h>

#include <utility>

#include "platform/io/atomic_file.h"
#include "platform/io/files.h"

namespace ff::record {
namespace {

constexpr uint64_t kNamesBytesMax = 16 * kGiB;  // of a file

}  // namespace

std::string encode_names(const std::vector<std::string>& names) {
  std::string content;
  for (const auto& name : names) {
    for (const char c : name) {
      if (c == '\\' || c == '\n') content += '\\';
      content += c == '\n' ? 'n' : c;
    }
    content += '\n';
  }
  return content;
}

std::optional<std::vector<std::string>> decode_names(std::string_view content, uint64_t samples) {
  std::vector<std::string> names;
  std::string name;
  for (size_t i = 0; i < content.size(); i++) {
    char c = content[i];
    if (c == '\n') {
      if (names.size() == samples) return std::nullopt;
      names.push_back(std::exchange(name, {}));
      continue;
    }
    if (c == '\\') {
      if (++i == content.size() || (content[i] != 'n' && content[i] != '\\')) return std::nullopt;
      c = content[i] == 'n' ? '\n' : '\\';
    }
    name += c;
  }
  if (!name.empty() || names.size() != samples) return std::nullopt;
  return names;
}

Result<void> write_names(io::Disk& disk, Rng& rng, const std::string& path,
                         const std::vector<std::string>& names) {
  io::AtomicFile file(disk, rng, path + std::string(kNamesSuffix));
  FF_TRY(const auto open,
         disk.open(file.temp_path(),
                   {.access = io::AccessMode::write, .create = true, .exclusive = true}));
  FF_TRY(open->write_at(as_bytes(encode_names(names)), 0));
  FF_TRY(open->sync());
  return file.commit(true);
}

Result<void> remove_names(io::Disk& disk, const std::string& path) {
  auto removed = disk.remove(path + std::string(kNamesSuffix));
  if (removed || removed.error().code == Errc::not_found) return {};
  return std::move(removed).error();
}

Result<std::optional<std::vector<std::string>>> read_names(io::Disk& disk, const std::string& path,
                                                           uint64_t samples) {
  const std::string beside = path + std::string(kNamesSuffix);
  FF_TRY(const bool there, io::exists(disk, beside));
  if (!there) return std::optional<std::vector<std::string>>();
  FF_TRY(const auto content, io::read_file(disk, beside, kNamesBytesMax));
  auto names = decode_names(content, samples);
  if (names) return names;
  return Error{
      Errc::corrupt,
      fmt::format("{}: it does not have a name for each of the {} samples", beside, samples),
      "Remove it; the samples themselves are not affected."};
}

}  // namespace ff::record
