// Reads all samples of FFRecord files and compares them with their CRC-32.
#pragma once

#include <functional>
#include <string>

#include "training/record/parts.h"
#include "training/record/reader.h"

namespace ff::record {

struct Damage {
  std::string path;     // of the file
  uint64_t sample = 0;  // in this file
  std::string cause;    // "its CRC-32 is ..."
};

// Calls `found` for each damaged sample, in order. An error: the work was stopped. `reader` checks
// what it reads. Counts bytes of samples in `work.progress`.
Result<void> verify(RunContext& work, Reader& reader,
                    const std::function<void(const Damage&)>& found);

}  // namespace ff::record
