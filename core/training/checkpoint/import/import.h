// Checkpoints of PyTorch into a store: a file of torch.save() as a state that ff.load() gives back,
// a folder of torch.distributed.checkpoint as one that ff.torch.dcp loads. Nothing that such files
// say is executed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/save/save_request.h"

namespace ff::checkpoint {

struct ImportOptions {
  std::string path;           // a file, or a folder
  SaveOptions save;           // of world 1
  bool skip_unknown = false;  // leave out values of classes that ff does not know
  bool skip_crc = false;      // do not compare tensors with the CRC-32 of the file
};

struct ImportReport {
  SaveReport save;
  bool is_folder = false;
  uint64_t tensors = 0;  // or chunks of them
  uint64_t values = 0;   // numbers, texts, ...; of a folder: objects
  uint64_t left_out = 0;
  std::vector<std::string> left_out_paths;  // the first ones
};

// Errors of save(), and: corrupt (a file is damaged), refused (a value of a class that ff does not
// know, without `skip_unknown`), failed (no checkpoint of PyTorch, or one that ff does not read).
Result<ImportReport> import_torch(Context& context, const std::string& store_path,
                                  const ImportOptions& options);

}  // namespace ff::checkpoint
