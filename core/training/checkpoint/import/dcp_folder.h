// Folders of PyTorch's distributed checkpoint (torch.distributed.checkpoint.FileSystemWriter; in
// PyTorch 1.13 torch.distributed._shard.checkpoint): `.metadata`, a pickle that describes tensors,
// their chunks and where each is, and the files *.distcp, which have a stream of torch.save() for
// each chunk and each object. The result is what ff.torch.dcp saves
// (bindings/ff/torch/dcp/metadata.py describes its JSON).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/checkpoint/import/sources.h"
#include "training/checkpoint/import/tensor_file.h"
#include "training/checkpoint/import/torch_file.h"

namespace ff::checkpoint {

inline constexpr std::string_view kDcpMetadataFile = ".metadata";
inline constexpr std::string_view kDcpDescription = "ff.dcp";

struct DcpCheckpoint {
  std::vector<ImportedTensor> tensors;  // chunks and objects
  std::vector<CheckedBytes> storages;   // of chunks and objects
  std::string parts;                    // JSON: which of them are slices, and which objects
  std::string description;              // JSON: all of it, as saved by one rank
  uint64_t objects = 0;
  uint64_t left_out = 0;  // objects with classes that ff does not know
  std::vector<std::string> left_out_names;
};

// Objects stay pickles, but only those that have nothing but tensors, numbers, texts and containers
// of them; others are refused, or with `skip_unknown` left out. Errc::corrupt: a file is damaged,
// or does not fit the metadata; refused: a name that is not known; not_found: a file is missing.
Result<DcpCheckpoint> read_dcp_folder(ImportSources& sources, const std::string& folder,
                                      bool skip_unknown);

}  // namespace ff::checkpoint
