// Writes new safetensors files from selected tensors: `load --tensor`, `--slice`, `--reshard`,
// `export`, and intact tensors of a damaged file in `salvage`. Headers are canonical
// (safetensors.h).
//
// Either each source file becomes one new file (per file), or all tensors are gathered into `parts`
// files: tensors that were split over ranks are joined and split again into equal parts; other
// tensors are written to every part.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/format/safetensors.h"
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
  // Called for each file that is not safetensors; may be empty.
  std::function<void(const FileRecord&)> on_skipped_file;
  // Path of a new file: of a source file (per file), or of a part (gather; file is null).
  std::function<std::string(const FileRecord* file, uint32_t part)> path;
};

class TensorFilesSource final : public ReadSource {
 public:
  // Errors: usage (a slice that does not fit), failed (ranks hold different tensors of one name
  // and no split is recorded; a split that does not divide by `parts`), corrupt.
  static Result<TensorFilesSource> plan(Context& context, const Store& store,
                                        const std::string& index_path, TensorSelection selection);
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
    bool written = false;
  };
  // The layout shared by the parts of one output.
  struct Layout {
    SafetensorsHeaderWriter writer;
    std::string header;  // length word and JSON
    std::map<std::string, Entry> entries;
    std::optional<SafetensorsMetadata> metadata;
    std::vector<std::shared_ptr<OutFile>> files;
    bool created = false;
    std::optional<FileRecord> source;  // per file
  };

  TensorFilesSource(Context& context, const Store& store, std::string index_path,
                    TensorSelection selection);
  Result<void> open_reader();
  Result<void> scan();
  Result<void> scan_metadata(const FileRecord& file, Layout& layout);
  Result<std::optional<SafetensorsMetadata>> read_metadata(const FileRecord& file) const;
  Result<void> scan_tensor(const TensorRecord& tensor, Layout& layout);
  Result<void> finish_layouts();
  Result<Entry> make_entry(const TensorRecord& tensor) const;
  Result<void> create_files(Layout& layout);
  Result<void> add_tensor(const TensorRecord& tensor, Layout& layout);
  Result<bool> same_as(const TensorRecord& tensor, const Entry& entry);
  Result<void> add_box(const TensorRecord& tensor, const BoxCopy& box, const Layout& layout,
                       uint32_t part, uint64_t offset);
  Result<void> add_split(const TensorRecord& tensor, const Entry& entry, const Layout& layout);
  Result<void> end_files();
  std::string layout_key(const FileRecord& file) const;
  Result<bool> is_selected(std::string_view tensor_line) const;

  Context* context_;
  const Store* store_;
  std::string index_path_;
  TensorSelection selection_;
  std::optional<IndexReader> reader_;
  std::map<std::string, Layout> layouts_;
  Layout* current_ = nullptr;  // of the current file; null: not selected
  std::optional<std::pair<ExtentReader, ExtentReader>> comparing_;
  RestoreCount count_;
  JobBuilder builder_;
  bool ended_ = false;
};

}  // namespace ff::checkpoint
