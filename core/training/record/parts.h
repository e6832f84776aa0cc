// Writes many samples into several FFRecord files, in parallel: `ff record pack` from files and tar
// archives, `ff record split` from other FFRecord files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "platform/base/progress.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/base/stop_token.h"
#include "platform/io/disk.h"
#include "training/record/reader.h"
#include "training/record/writer.h"

namespace ff::record {

// The seams and the counters of a long action.
struct RunContext {
  Rng& rng;
  const StopToken& stop;
  Progress& progress;
  unsigned threads = 2;
};

// Where samples come from. Several threads call it at the same time.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual uint64_t samples() const = 0;
  virtual uint64_t bytes_of(uint64_t sample) const = 0;
  // When the sample changed for the last time; ns of the Unix epoch.
  virtual int64_t changed_ns(uint64_t sample) const = 0;
  virtual std::string name(uint64_t sample) const = 0;
  virtual Result<void> copy(uint64_t sample, Writer& to) = 0;
};

// A sample for each file, in the order of the paths and archives. Of a directory, the files below
// it, sorted by name at each level; it follows no symbolic links there.
class FileSource final : public SampleSource {
 public:
  explicit FileSource(io::Disk& disk) : disk_(&disk) {}
  // Errc::not_found: they name no file.
  static Result<FileSource> list(io::Disk& disk, const std::vector<std::string>& paths);

  // The files of a tar archive. Gives the number of links and special files that it leaves out.
  Result<uint64_t> add_tar(std::shared_ptr<io::File> archive, const StopToken& stop);

  uint64_t samples() const override { return files_.size(); }
  uint64_t bytes_of(uint64_t sample) const override { return files_[sample].bytes; }
  int64_t changed_ns(uint64_t sample) const override { return files_[sample].mtime_ns; }
  // Of a file below a directory, the path from there; of an archive, the name in it.
  std::string name(uint64_t sample) const override;
  // Errc::stale: the file, or the archive, has changed since it was listed.
  Result<void> copy(uint64_t sample, Writer& to) override;

 private:
  static constexpr uint32_t kNoArchive = UINT32_MAX;
  struct Listed {
    std::string path;  // or name in the archive
    uint64_t bytes = 0;
    int64_t mtime_ns = 0;
    size_t name_at = 0;  // in the path
    uint32_t archive = kNoArchive;
    uint64_t begin = 0;  // in the archive
  };
  struct Archive {
    std::shared_ptr<io::File> file;
    io::FileInfo info;
  };
  Result<void> add(const std::string& path, size_t name_at);
  Result<void> copy_member(const Listed& listed, Writer& to);

  io::Disk* disk_;
  std::vector<Listed> files_;
  std::vector<Archive> archives_;
};

// The samples of a reader that checks them.
class RecordSource final : public SampleSource {
 public:
  static Result<RecordSource> of(io::Disk& disk, Reader& reader);

  uint64_t samples() const override { return reader_->samples(); }
  uint64_t bytes_of(uint64_t sample) const override;
  int64_t changed_ns(uint64_t) const override { return changed_ns_; }
  std::string name(uint64_t sample) const override { return names_[sample]; }
  Result<void> copy(uint64_t sample, Writer& to) override;
  // Whether all files have names (names.h).
  bool has_names() const { return names_.size() == samples(); }

 private:
  explicit RecordSource(Reader& reader) : reader_(&reader) {}

  Reader* reader_;
  int64_t changed_ns_ = 0;
  std::vector<std::string> names_;
};

// A file to write: `samples` samples of a source, from number `first` on.
struct Part {
  std::string path;
  uint64_t first = 0;
  uint64_t samples = 0;
  uint64_t bytes = 0;  // of the samples
};

struct PartPlan {
  std::string dir;  // of PART_00000.ffr and so on; empty: of one file with another name
  std::vector<Part> parts;
};

// One part with all samples if `out` ends with .ffr. Otherwise `out` is a directory, whose parts
// have at most `part_bytes` bytes of samples; a longer sample gets its own.
PartPlan plan_by_size(const SampleSource& source, std::string out, uint64_t part_bytes);
// `count` parts, or fewer if there are fewer samples, which differ by at most one sample.
PartPlan plan_by_count(const SampleSource& source, std::string dir, uint64_t count);

struct WriteOptions {
  bool replace = false;  // overwrite files
  // Keeps files that have the wanted samples (by their lengths) and are newer than these, and
  // overwrites others.
  bool resume = false;
  bool names = false;  // write the names of samples beside each file (names.h)
};
struct WriteResult {
  uint64_t kept = 0;  // parts that were there
};
// Creates the directory of the parts if it does not exist. Each part appears complete or not at
// all. Counts bytes of samples in `work.progress`. Errc::refused: the directory has another
// FFRecord file than these parts, and readers of the directory would read it, too.
Result<WriteResult> write_parts(RunContext& work, io::Disk& disk, SampleSource& source,
                                const PartPlan& plan, const WriteOptions& options);

}  // namespace ff::record
