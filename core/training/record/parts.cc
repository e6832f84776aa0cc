// parts.cc: the two sources of samples, the plan of the parts, and the threads that write them.
#include "training/record/parts.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "platform/io/files.h"
#include "training/record/names.h"
#include "training/record/tar.h"

namespace ff::record {

namespace {

constexpr uint64_t kCopyBytes = 4 * kMiB;

std::string part_path(const std::string& dir, size_t number) {
  return fmt::format("{}/PART_{:05d}{}", dir, number, kSuffix);
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::vector<std::string> names_of(const SampleSource& source, const Part& part) {
  std::vector<std::string> names;
  names.reserve(part.samples);
  for (uint64_t i = 0; i < part.samples; i++) names.push_back(source.name(part.first + i));
  return names;
}

// Whether `part` exists with the samples of `source`, and their names if they are wanted.
bool is_complete(io::Disk& disk, const SampleSource& source, const Part& part, bool names) {
  const auto file = disk.open(part.path, {});
  if (!file) return false;
  const auto info = (*file)->info();
  const auto index = read_index(**file);
  if (!info || !index || index->samples() != part.samples) return false;
  for (uint64_t i = 0; i < part.samples; i++) {
    if (index->bytes_of(i) != source.bytes_of(part.first + i)) return false;
    if (info->mtime_ns < source.changed_ns(part.first + i)) return false;
  }
  if (!names) return true;
  const auto found = read_names(disk, part.path, part.samples);
  return found && *found == names_of(source, part);
}

Result<void> prepare_dir(io::Disk& disk, const PartPlan& plan) {
  if (plan.dir.empty()) return {};
  FF_TRY(io::make_dirs(disk, plan.dir));
  FF_TRY(const auto entries, disk.list(plan.dir));
  for (const io::DirEntry& entry : entries) {
    const auto is_it = [&](const Part& part) { return part.path == plan.dir + "/" + entry.name; };
    if (!entry.name.ends_with(kSuffix) || std::ranges::any_of(plan.parts, is_it)) continue;
    return Error{Errc::refused,
                 fmt::format("{}/{}: is none of the {} files that would be written, and readers of "
                             "the directory would read it, too",
                             plan.dir, entry.name, plan.parts.size()),
                 "Name an empty directory, or remove the file."};
  }
  return {};
}

Error changed(const std::string& path) {
  return Error{Errc::stale, fmt::format("{}: its size changed while it was packed", path),
               "Run the command again when nobody writes to the file."};
}

// The state that the threads of write_parts() share.
class PartWriters {
 public:
  PartWriters(RunContext& work, io::Disk& disk, SampleSource& source,
              const std::vector<Part>& parts, const WriteOptions& options)
      : work_(work), disk_(disk), source_(source), parts_(parts), options_(options) {}

  Result<WriteResult> run() {
    const size_t count = std::clamp<size_t>(work_.threads, 1, parts_.size());
    std::vector<std::thread> threads;
    std::vector<SeededRng> rngs;
    for (size_t i = 0; i < count; i++) rngs.emplace_back(work_.rng.next());
    for (size_t i = 1; i < count; i++) threads.emplace_back([this, &rngs, i] { work(rngs[i]); });
    work(rngs[0]);
    for (std::thread& thread : threads) thread.join();
    if (error_) return *std::move(error_);
    return WriteResult{.kept = kept_};
  }

 private:
  void work(Rng& rng) {
    while (!failed_) {
      const size_t mine = next_++;
      if (mine >= parts_.size()) return;
      const auto written = write(rng, parts_[mine]);
      if (written) continue;
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = written.error();
      failed_ = true;
    }
  }

  Result<void> write(Rng& rng, const Part& part) {
    if (options_.resume && is_complete(disk_, source_, part, options_.names)) {
      work_.progress.done += part.bytes;
      kept_++;
      return {};
    }
    FF_TRY(auto writer, Writer::create(disk_, rng, part.path, part.samples,
                                       options_.replace || options_.resume));
    for (uint64_t i = part.first; i < part.first + part.samples; i++) {
      FF_TRY(work_.stop.check());
      if (failed_) return {};  // without finish(), nothing remains of it
      FF_TRY(source_.copy(i, *writer));
      work_.progress.done += source_.bytes_of(i);
    }
    // First, so that no file appears without its names.
    if (options_.names) {
      FF_TRY(write_names(disk_, rng, part.path, names_of(source_, part)));
    } else {
      FF_TRY(remove_names(disk_, part.path));  // those of a file that is replaced
    }
    return writer->finish();
  }

  RunContext& work_;
  io::Disk& disk_;
  SampleSource& source_;
  const std::vector<Part>& parts_;
  const WriteOptions options_;
  std::atomic<size_t> next_ = 0;
  std::atomic<uint64_t> kept_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::optional<Error> error_;  // the first one
};

}  // namespace

Result<FileSource> FileSource::list(io::Disk& disk, const std::vector<std::string>& paths) {
  FileSource source(disk);
  for (const std::string& path : paths) {
    FF_TRY(source.add(path, std::string::npos));
  }
  if (source.files_.empty()) {
    return fail(Errc::not_found, "{}: no file is there", fmt::join(paths, ", "));
  }
  return source;
}

// `name_at` is where the name of the sample begins; npos: of a path that the caller names.
Result<void> FileSource::add(const std::string& path, size_t name_at) {
  FF_TRY(auto info, disk_->info(path));
  const bool is_named = name_at == std::string::npos;
  if (is_named && info.kind == io::FileKind::symlink) {
    FF_TRY(const auto file, disk_->open(path, {}));
    FF_TRY(info, file->info());
  }
  if (info.kind == io::FileKind::regular) {
    files_.push_back({.path = path,
                      .bytes = info.size,
                      .mtime_ns = info.mtime_ns,
                      .name_at = is_named ? path.rfind('/') + 1 : name_at});
    return {};
  }
  if (info.kind != io::FileKind::directory) {
    return fail(Errc::usage, "{}: is neither a file nor a directory", path);
  }
  FF_TRY(const auto entries, disk_->list(path));
  for (const io::DirEntry& entry : entries) {
    if (entry.kind != io::FileKind::regular && entry.kind != io::FileKind::directory) continue;
    FF_TRY(add(path + "/" + entry.name, is_named ? path.size() + 1 : name_at));
  }
  return {};
}

Result<uint64_t> FileSource::add_tar(std::shared_ptr<io::File> archive, const StopToken& stop) {
  FF_TRY(const auto info, archive->info());
  FF_TRY(auto members, read_tar(*archive, stop));
  const auto number = static_cast<uint32_t>(archives_.size());
  for (auto& member : members.files) {
    files_.push_back({.path = std::move(member.name),
                      .bytes = member.bytes,
                      .mtime_ns = info.mtime_ns,
                      .archive = number,
                      .begin = member.begin});
  }
  archives_.push_back({std::move(archive), info});
  return members.left_out;
}

std::string FileSource::name(uint64_t sample) const {
  return files_[sample].path.substr(files_[sample].name_at);
}

Result<void> FileSource::copy(uint64_t sample, Writer& to) {
  const Listed& listed = files_[sample];
  if (listed.archive != kNoArchive) return copy_member(listed, to);
  FF_TRY(const auto file, disk_->open(listed.path, {}));
  std::vector<std::byte> buffer(std::min(kCopyBytes, listed.bytes + 1));
  uint64_t at = 0;
  for (;;) {
    FF_TRY(const size_t got, file->read_at(buffer, at));
    at += got;
    if (at > listed.bytes || (got < buffer.size() && at < listed.bytes)) {
      return changed(listed.path);
    }
    FF_TRY(to.append(ByteView(buffer).first(got)));
    if (got < buffer.size()) return to.end_sample();
  }
}

Result<void> FileSource::copy_member(const Listed& listed, Writer& to) {
  const Archive& archive = archives_[listed.archive];
  std::vector<std::byte> buffer(std::min(kCopyBytes, listed.bytes));
  for (uint64_t at = 0; at < listed.bytes;) {
    const auto part = ByteSpan(buffer).first(std::min<uint64_t>(buffer.size(), listed.bytes - at));
    FF_TRY(const size_t got, archive.file->read_at(part, listed.begin + at));
    if (got < part.size()) return changed(archive.file->path());
    FF_TRY(to.append(part));
    at += part.size();
  }
  FF_TRY(const auto now, archive.file->info());
  if (now.size != archive.info.size || now.mtime_ns != archive.info.mtime_ns) {
    return changed(archive.file->path());
  }
  return to.end_sample();
}

Result<RecordSource> RecordSource::of(io::Disk& disk, Reader& reader) {
  RecordSource source(reader);
  for (const Reader::File& file : reader.files()) {
    FF_TRY(const auto info, file.open->info());
    source.changed_ns_ = std::max(source.changed_ns_, info.mtime_ns);
    FF_TRY(auto names, read_names(disk, file.open->path(), file.index.samples()));
    if (names) std::ranges::move(*names, std::back_inserter(source.names_));
  }
  return source;
}

uint64_t RecordSource::bytes_of(uint64_t sample) const { return *reader_->bytes_of(sample); }

Result<void> RecordSource::copy(uint64_t sample, Writer& to) {
  std::vector<std::byte> bytes(bytes_of(sample));
  std::byte* const place = bytes.data();
  FF_TRY(reader_->read({&sample, 1}, {&place, 1}));
  return to.add(bytes);
}

PartPlan plan_by_size(const SampleSource& source, std::string out, uint64_t part_bytes) {
  PartPlan plan;
  const bool single = out.ends_with(kSuffix);
  if (!single) plan.dir = without_slashes(std::move(out));
  std::vector<Part>& parts = plan.parts;
  parts.push_back({.path = single ? out : part_path(plan.dir, 0)});
  for (uint64_t i = 0; i < source.samples(); i++) {
    const uint64_t bytes = source.bytes_of(i);
    if (!single && parts.back().samples > 0 && parts.back().bytes + bytes > part_bytes) {
      parts.push_back({.path = part_path(plan.dir, parts.size()), .first = i});
    }
    parts.back().samples++;
    parts.back().bytes += bytes;
  }
  return plan;
}

PartPlan plan_by_count(const SampleSource& source, std::string dir, uint64_t count) {
  PartPlan plan{.dir = without_slashes(std::move(dir)), .parts = {}};
  const uint64_t samples = source.samples();
  count = std::clamp<uint64_t>(count, 1, std::max<uint64_t>(samples, 1));
  for (uint64_t i = 0, first = 0; i < count; i++) {
    Part& part = plan.parts.emplace_back(Part{.path = part_path(plan.dir, i), .first = first});
    part.samples = samples / count + (i < samples % count ? 1 : 0);
    first += part.samples;
    for (uint64_t s = part.first; s < first; s++) part.bytes += source.bytes_of(s);
  }
  return plan;
}

Result<WriteResult> write_parts(RunContext& work, io::Disk& disk, SampleSource& source,
                                const PartPlan& plan, const WriteOptions& options) {
  FF_TRY(prepare_dir(disk, plan));
  work.progress.total = 0;
  for (const Part& part : plan.parts) work.progress.total += part.bytes;
  return PartWriters(work, disk, source, plan.parts, options).run();
}

}  // namespace ff::record
