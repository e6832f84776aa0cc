// The request and the report of a save: options, inputs, outcome.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/io/disk.h"
#include "platform/simd/digest.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {

// An attempt of a task under a scheduler, which numbers the attempts.
struct TaskAttempt {
  std::string scheduler;
  uint64_t task = 0;
  uint64_t number = 0;
};

// The saving user and host, which the index records; and the task, which it does not.
struct SaverIdentity {
  std::string user;
  std::string host;
  uint32_t uid = 0;
  std::string ff_version;
  std::optional<TaskAttempt> task = {};
};

// Tensors whose name matches are equal slices along `dimension` of a tensor spread over all ranks.
struct SplitRule {
  std::string pattern;  // glob
  uint32_t dimension = 0;
};

struct SaveOptions {
  std::string run = "default";
  std::optional<uint64_t> step;  // default: the highest committed step plus one
  uint32_t rank = 0;
  uint32_t world = 1;
  std::string attempt;              // required when world > 1: equal on all ranks of one attempt
  bool replace = false;             // swap an already committed step
  bool compress = false;            // zstd-1 where it saves a tenth
  std::vector<std::string> opaque;  // globs of files that are not parsed as safetensors
  std::vector<SplitRule> splits;
  std::optional<simd::DigestKind> digest;  // of a store made by this save
  SaverIdentity identity;
};

// A stream of unknown length, saved as the file `name`. `read` fills the span and returns the
// number of bytes, 0 at the end; nothing when there was no data for a while (so that the lease is
// renewed).
struct StreamInput {
  std::string name;
  std::function<Result<std::optional<size_t>>(ByteSpan)> read;
};

// An open file, mostly memory (io/memory_file.h), saved as the file `name`. read_cached() can read
// every byte of it, and it does not change until the save has ended.
struct OpenInput {
  std::string name;
  std::shared_ptr<io::File> file;
};

struct SaveInputs {
  std::vector<std::string> paths;
  std::optional<StreamInput> stream;
  std::vector<OpenInput> open = {};
};

enum class SaveOutcome : uint8_t {
  committed,      // the checkpoint exists now
  already_there,  // it existed, byte-identical
  waiting,        // this rank's shard is stored; others are missing
};

struct SaveReport {
  StepName name;
  SaveOutcome outcome = SaveOutcome::committed;
  uint64_t files = 0;
  uint64_t tensors = 0;
  uint64_t bytes = 0;       // logical bytes of this rank's inputs
  uint64_t zero_bytes = 0;  // of these, whole chunks of zeros, which are not stored
  uint64_t chunks_new = 0;
  uint64_t chunks_reused = 0;
  uint64_t bytes_written = 0;  // chunk files, heads and padding included
  uint64_t missing_ranks = 0;  // outcome waiting
  int64_t elapsed_ns = 0;
  std::vector<std::string> warnings;
};

}  // namespace ff::checkpoint
