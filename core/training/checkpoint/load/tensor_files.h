// Writes new safetensors files from selected tensors: `load --tensor`, `--slice`, `--reshard`,
// `export`, and intact tensors of a damaged file in `salvage`. Headers are canonical
// (safetensors.h).
//
// Either each source file becomes one new file (per file), or all tensors are gathered into `parts`
// files: tensors that were split over ranks are joined and split again into equal parts; other
// tensors are written to every part, and objects (TensorRecord) to none.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "training/checkpoint/format/safetensors.h"
#include "training/checkpoint/format/slice_cover.h"
#include "training/checkpoint/load/extent_reader.h"
#include "training/checkpoint/load/read_worker.h"
#include "training/checkpoint/load/restore.h"
#include "training/checkpoint/load/tensor_slice.h"

namespace ff::checkpoint {

struct TensorSelection {
  std::function<bool(const FileRecord&)> file;   // empty: every safetensors file
  std::function<bool(std::string_view)> tensor;  // by name; empty: every tensor
  std::vector<SliceRange> slice;                 // of every selected tensor; empty: all of it
  bool gather = false;
  uint32_t parts = 1;              // with gather
  bool metadata_may_fail = false;  // salvage: go on without metadata that cannot be read
  io::Disk* index_disk = nullptr;  // where the index is; null: the context's disk
  // Called for each file that is not safetensors; may be empty.
  std::function<void(const FileRecord&)> on_skipped_file;
  // Path of a new file: of a source file (per file), or of a part (gather; file is null).
  std::function<std::string(const FileRecord* file, uint32_t part)> path;
};

class TensorFilesSource final : public ReadSource {
 public:
  // Errors: usage (a slice that does not fit), failed (ranks hold different tensors of one name
  // and no split is recorded; a split that does not divide by `parts`, or of which parts are not
  // selected), corrupt.
  // `name` is for messages: an index may claim another one.
  static Result<TensorFilesSource> plan(Context& context, const Store& store, const StepName& name,
                                        const std::string& index_path, TensorSelection selection);
  // Where next() creates the files: a disk that leaves nobody else a way to lead them elsewhere
  // (Disk::beneath). To be called before next(); it outlives this.
  void write_to(io::Disk& target) { target_ = &target; }
  Result<std::optional<ReadJob>> next() override;
  const RestoreCount& count() const { return count_; }

 private:
  // One tensor of the new files.
  struct Entry {
    uint64_t offset = 0;          // in the data section, the same in every part
    std::vector<uint64_t> shape;  // only with slices
    uint64_t bytes = 0;
    int split = -1;       // dimension along which parts differ; -1: the same in all
    LinePosition source;  // the index line, to compare copies of one tensor
    uint64_t file = 0;    // number of the source file in the index
    bool written = false;
    // Of a split tensor, which every slice must have, and the slices so far.
    std::string dtype;
    std::vector<uint64_t> global_shape;
    std::unique_ptr<SliceCover> cover = nullptr;
  };
  // The layout shared by the parts of one output.
  struct Layout {
    SafetensorsHeaderWriter writer;
    std::shared_ptr<const std::string> header;  // length word and JSON
    uint64_t file_bytes = 0;                    // of each part
    std::map<std::string, Entry> entries;
    std::optional<SafetensorsMetadata> metadata;
    std::set<std::string> metadata_keys;  // only in pass one
    std::vector<std::shared_ptr<OutFile>> files;
    bool created = false;
    bool scattered = false;            // OutFile::Spec
    std::optional<FileRecord> source;  // per file
  };

  // Runs of a tensor that are not read jobs yet: there may be billions.
  struct PendingRuns {
    BoxRuns runs;
    JobBuilder::Extents extents;
    std::shared_ptr<const std::vector<uint64_t>> starts;  // of each extent in the tensor
    uint64_t size = 0;                                    // of the tensor
    std::shared_ptr<OutFile> file;
    uint64_t offset = 0;  // of the tensor in the file
  };

  TensorFilesSource(Context& context, const Store& store, StepName name, std::string index_path,
                    TensorSelection selection);
  Result<void> open_reader();
  io::Disk& index_disk() const;
  Result<void> scan();
  Result<bool> scan_file(const FileRecord& file);
  Result<void> scan_metadata(const FileRecord& file, Layout& layout);
  Result<void> scan_tensor(const TensorRecord& tensor, Layout& layout);
  Result<void> finish_layouts();
  static Result<void> check_slices(Layout& layout);
  const std::string& name_of(const TensorRecord& tensor) const;
  Result<Entry> make_entry(const TensorRecord& tensor) const;
  Result<void> make_split(const TensorRecord& tensor, Entry& entry) const;
  Error changed() const;
  Result<void> create_files(Layout& layout);
  Result<void> add_tensor(TensorRecord tensor, Layout& layout);
  Result<bool> same_as(const TensorRecord& tensor, const Entry& entry);
  Result<void> add_slice(TensorRecord tensor, const Entry& entry, const Layout& layout);
  Result<void> add_split(TensorRecord tensor, const Entry& entry, const Layout& layout);
  void add_box(const BoxCopy& box, const PendingRuns& common, const Layout& layout, uint32_t part);
  Result<void> make_jobs(PendingRuns& pending);
  Result<void> end_files();
  std::string layout_key(const FileRecord& file) const;
  Result<bool> is_selected(std::string_view tensor_line) const;

  Context* context_;
  io::Disk* target_ = nullptr;
  const Store* store_;
  StepName name_;
  std::string index_path_;
  TensorSelection selection_;
  std::optional<IndexReader> reader_;
  std::map<std::string, Layout> layouts_;
  Layout* current_ = nullptr;  // of the current file; null: not selected
  std::optional<std::pair<ExtentReader, ExtentReader>> comparing_;
  RestoreCount count_;
  MetadataBudget metadata_budget_;
  std::set<std::string> sources_;  // keys of the source files (per file)
  uint64_t files_seen_ = 0;
  std::deque<PendingRuns> pending_;
  JobBuilder builder_;
  bool ended_ = false;
};

}  // namespace ff::checkpoint
