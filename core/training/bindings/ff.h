// libff.so: collective operations, checkpoints, and what a task tells the agent of its node, for
// programs in C, and through the package ff/ for Python. The meaning of everything is that of `ff
// allreduce` (collective/communicator.h), of `ff checkpoint` (checkpoint/save/save.h,
// checkpoint/load/tensor_memory.h) and of the files of $FF_TASK_DIR (task/task_dir.h).
//
// One thread of a process uses a communicator, a saver or a loading at a time. Functions that
// return int return FF_OK or an error, which ff_error() then explains. None of the three outlives a
// fork: in the child every call on it is an error.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct ff_comm ff_comm;

typedef enum ff_type {
  FF_FLOAT32,
  FF_FLOAT64,
  FF_FLOAT16,
  FF_BFLOAT16,
  FF_FLOAT8_E4M3,
  FF_FLOAT8_E5M2,
  FF_INT32,
  FF_INT64,
  FF_UINT8
} ff_type;

typedef enum ff_op { FF_SUM, FF_PROD, FF_MAX, FF_MIN, FF_AVG } ff_op;

// What a call that failed returns: the exit codes of ff's commands.
typedef enum ff_status {
  FF_OK = 0,
  FF_FAILED = 1,    // a rank is gone, no memory, a disk is full, no such checkpoint
  FF_USAGE = 2,     // wrong arguments, or ranks that ask for different things
  FF_CORRUPT = 3,   // stored bytes are not those that were saved
  FF_REFUSED = 5,   // another user's process or store; a step that exists and differs
  FF_DEADLINE = 6,  // a rank has let its time pass
} ff_status;

typedef struct ff_comm_options {
  size_t size;               // of this struct: sizeof(ff_comm_options)
  uint32_t rank;             // of this process, from 0
  uint32_t ranks;            // of the job; at most 64 on a host
  const char* job;           // the same for all ranks, and no other job's on this host
  double join_seconds;       // until all ranks have come; 0: 60
  double operation_seconds;  // for an operation, from when it is waited for; 0: 60
  // Of a job on several hosts, whose ranks on each follow one another.
  uint32_t local_rank;   // of this process, on its host
  uint32_t local_ranks;  // of this host; 0: all are here, and the rest means nothing
  const char* master;    // "HOST:PORT": where the host of rank 0 listens
  const char* key_file;  // the job's key: 64 hex digits in a file that others cannot read; null
                         // only where all hosts are this machine
  uint32_t zone;         // the part of the network that this host is in
  // The same on all hosts: what sums of floats are rounded to in between, "none" (or null), "bf16"
  // or "fp8"; "auto" (or null), "tree" or "ring"; and whether bits are to depend on the inputs and
  // on which host has which ranks alone.
  const char* wire;
  const char* algorithm;
  int deterministic;
} ff_comm_options;

// "0.1.0"
const char* ff_version(void);

// Why the last call of this thread failed. Valid until its next call.
const char* ff_error(void);

// Waits until all ranks have come. `options` null: as torchrun's environment has it (RANK,
// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), and FF_KEY_FILE, FF_PORT,
// FF_ZONE, FF_WIRE, FF_ALGO and FF_DETERMINISTIC for what torchrun knows nothing of. In any case,
// FF_PIN=0 keeps threads of ranks from being bound to NUMA nodes.
int ff_comm_init(ff_comm** comm, const ff_comm_options* options);
// What is in flight is given up; the other ranks see that this one has left. Null: nothing.
void ff_comm_destroy(ff_comm* comm);

// Of a null communicator, 0.
uint32_t ff_comm_rank(const ff_comm* comm);
uint32_t ff_comm_ranks(const ff_comm* comm);

// Memory that all ranks reach, in zeros: operations on it copy nothing. Any other memory may be
// given to operations, too, and is copied in and out.
int ff_alloc(ff_comm* comm, size_t bytes, void** memory);
// When no operation uses it any more, on any rank.
int ff_free(ff_comm* comm, void* memory);

// Every rank calls the same operations in the same order. `count` is of elements, and means what it
// means to NCCL: what a rank gives to an all-gather, and gets of a reduce-scatter. `out` may be
// `in`. Those that end in _async return at once with a number for ff_wait(); until that has
// returned, the memory is the operation's. At most 64 may be in flight.
int ff_allreduce(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, ff_op op);
int ff_allreduce_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                       ff_op op, uint64_t* number);
int ff_reduce(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, ff_op op,
              uint32_t root);
int ff_broadcast(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                 uint32_t root);
int ff_allgather(ff_comm* comm, const void* in, void* out, size_t count, ff_type type);
int ff_reduce_scatter(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                      ff_op op);
int ff_barrier(ff_comm* comm);
// Until the operation of this number has ended: once for each, in any order.
int ff_wait(ff_comm* comm, uint64_t number);

// Checkpoints. A saver copies a state into memory of its own, which it keeps for the next one, and
// writes it into a store while the program goes on: an ordinary checkpoint of one safetensors file,
// for `ff checkpoint` and everything below. Whatever happens to the process meanwhile, the store
// has the old or the new checkpoint. One save at a time.
typedef struct ff_saver ff_saver;

typedef struct ff_tensor {
  const char* name;   // UTF-8; unlike that of any other
  const char* dtype;  // as safetensors has it: "F32", "BF16", "U8", ...
  const uint64_t* shape;
  size_t dimensions;
  uint64_t bytes;    // of its data
  const void* data;  // row-major, without gaps
} ff_tensor;

typedef struct ff_text {  // of the file's __metadata__; UTF-8
  const char* key;
  const char* value;
} ff_text;

#define FF_STEP_NEXT UINT64_MAX  // of a save: the run's last plus one
#define FF_STEP_LAST UINT64_MAX  // of a load: the one saved last
#define FF_STEP_NONE UINT64_MAX  // nothing was saved yet
#define FF_RANK_ANY UINT32_MAX

typedef struct ff_save_options {
  size_t size;          // of this struct: sizeof(ff_save_options)
  const char* store;    // a directory, which becomes a store when it is absent or empty
  const char* run;      // null: "default"
  uint64_t step;        // or FF_STEP_NEXT
  const char* file;     // name of the file in the checkpoint; null: "state.safetensors"
  uint32_t rank;        // of `world` ranks that save shards of one checkpoint together
  uint32_t world;       // 0: 1
  const char* attempt;  // equal on all ranks of one try; null: FF_ATTEMPT, else torchrun's
  uint32_t threads;     // that write; 0: one a processor, at most 8
  int replace;          // swap the step when it exists with other content
  int compress;         // pack chunks with zstd where that saves a tenth
} ff_save_options;

typedef enum ff_outcome {
  FF_COMMITTED,      // the checkpoint exists now
  FF_ALREADY_THERE,  // it existed, byte-identical
  FF_WAITING,        // this rank's shard is stored; others are missing
} ff_outcome;

typedef struct ff_saved {
  uint64_t step;
  uint64_t missing_ranks;  // FF_WAITING
  uint64_t bytes;          // of the state
  uint64_t bytes_written;  // of chunks that the store did not have yet
  double seconds;          // from the end of the copy to the commit
  ff_outcome outcome;
} ff_saved;

int ff_saver_open(ff_saver** saver);
// Waits for the save under way, or gives it up, which leaves the store as it was. Null: nothing. A
// process that exits without it gives it up, too.
void ff_saver_close(ff_saver* saver, int give_up);

// Once the save before has ended, well or not: makes room for the tensors and copies those whose
// `data` is given. places[i] is then where tensor i lies, until ff_save_start(); those without
// data are the caller's to fill. Nothing of the arguments is needed after it returns.
int ff_save_begin(ff_saver* saver, const ff_save_options* options, const ff_tensor* tensors,
                  size_t count, const ff_text* metadata, size_t texts, void** places);
// Starts to write what ff_save_begin() has prepared, and returns.
int ff_save_start(ff_saver* saver);
// Whether one is being written.
int ff_save_busy(const ff_saver* saver, int* busy);
// Until the save started last has ended: its outcome, or its error, as often as it is asked for.
int ff_save_wait(ff_saver* saver, ff_saved* saved);

// Tensors of a checkpoint into memory, every byte checked: ff_load_begin() reads the index,
// ff_load_read() the data, ff_load_end() gives it back.
typedef struct ff_loading ff_loading;

typedef struct ff_load_options {
  size_t size;  // of this struct: sizeof(ff_load_options)
  const char* store;
  const char* run;             // null: "default"
  uint64_t step;               // or FF_STEP_LAST
  const char* const* tensors;  // globs of the names wanted
  size_t globs;                // how many of them; 0: all tensors
  uint32_t rank;               // only files of this rank, or FF_RANK_ANY
  uint32_t threads;            // that read; 0: one a processor, at most 8
} ff_load_options;

typedef struct ff_file {  // a safetensors file of the checkpoint
  const char* name;
  uint32_t rank;
  size_t first;    // of its tensors
  size_t tensors;  // how many
  size_t texts;    // of its __metadata__
} ff_file;

int ff_load_begin(ff_loading** loading, const ff_load_options* options);
// Null: nothing.
void ff_load_end(ff_loading* loading);
// What there is; of a null loading, 0. What the other three tell is valid until ff_load_end().
uint64_t ff_load_step(const ff_loading* loading);
size_t ff_load_files(const ff_loading* loading);
size_t ff_load_tensors(const ff_loading* loading);
int ff_load_file(const ff_loading* loading, size_t index, ff_file* file);
int ff_load_text(const ff_loading* loading, size_t file, size_t index, ff_text* text);
int ff_load_tensor(const ff_loading* loading, size_t index, ff_tensor* tensor);  // data: null
// Fills places[i] with tensor i, for all of them. FF_CORRUPT names tensor and chunk.
int ff_load_read(ff_loading* loading, void* const* places);

// The step of a run that was saved last; FF_STEP_NONE when there is no such run, or no store yet.
int ff_latest_step(const char* store, const char* run, uint64_t* step);

// Tasks. What the process and the agent of its node tell one another, by small files in
// $FF_TASK_DIR. Where that is not set, the process is in no task: nobody asks it to stop, and the
// others succeed and do nothing. Any thread may call these, and so may children.
typedef struct ff_stop {
  char reason[32];   // "preempted", "drained", "stopped", ...
  int64_t deadline;  // Unix seconds; by then the process is to have exited
} ff_stop;

// 1: the task is asked to save and to exit, as `stop` (unless it is null) then tells; else 0. No
// error: one system call, for every step. The first call that finds the request tells the agent.
int ff_task_should_stop(ff_stop* stop);
// The whole task, not this rank alone, can go on from `step`. Saves of ff_save_start() say it
// themselves.
int ff_task_saved(uint64_t step);
// This rank is at `step`, now.
int ff_task_heartbeat(uint32_t rank, uint64_t step);
// A word that outlives the task's restarts; 0 before it is set. FF_CORRUPT: something else is
// there.
int ff_task_life_state(uint32_t* word);
int ff_task_set_life_state(uint32_t word);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
