// libff.so: collective operations, checkpoints, records of training data, keys and values, and
// reports of a task to the agent of its node, for C programs and, through the package ff/, for
// Python. They work as `ff allreduce` (collective/communicator.h), `ff checkpoint`
// (checkpoint/save/save.h, checkpoint/load/tensor_memory.h), `ff record` (record/reader.h,
// record/writer.h), `ff serve-kv` (storage/kvstore/store_reader.h) and the files of $FF_TASK_DIR
// (task/task_dir.h).
//
// Only one thread at a time may use an object, except a reader of records, a store of keys and
// values, and ff_wait(). Functions
// with result int return FF_OK or an error, whose message ff_error() returns. No object survives a
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

// Results of a failed call: the exit codes of ff's commands.
typedef enum ff_status {
  FF_OK = 0,
  FF_FAILED = 1,    // a rank is gone, no memory, disk full, no such checkpoint
  FF_USAGE = 2,     // wrong arguments, or ranks that call different operations
  FF_CORRUPT = 3,   // stored bytes differ from the saved ones; a link between hosts changes data
  FF_REFUSED = 5,   // a process or store of another user; a step that exists and differs
  FF_DEADLINE = 6,  // a rank missed a deadline
} ff_status;

typedef struct ff_comm_options {
  size_t size;      // of this struct: sizeof(ff_comm_options)
  uint32_t rank;    // of this process, from 0
  uint32_t ranks;   // of the job; at most 64 on a host
  const char* job;  // same for all ranks, unlike other jobs on this host
  // Time limits; 0: 60 seconds; infinity: none.
  double join_seconds;       // until all ranks have joined
  double operation_seconds;  // for an operation, from the start of the wait
  // For a job on several hosts; the ranks of each host follow one another. FF_NET and
  // FF_NET_SECURITY of the environment apply as to `ff allreduce`.
  uint32_t local_rank;   // of this process, on its host
  uint32_t local_ranks;  // of this host; 0: all ranks are on this host, and the rest is ignored
  const char* master;    // "HOST:PORT": where the host of rank 0 listens
  const char* key_file;  // the job's key: 64 hex digits in a file that other users cannot read;
                         // null only if all hosts are this machine
  uint32_t zone;         // number of the network zone of this host; 0: FF_ZONE of the environment
  // The same on all hosts: the format of partial sums of floats between hosts, "none" (or null),
  // "bf16" or "fp8"; the algorithm, "auto" (or null), "tree" or "ring"; and whether the bits of
  // results depend only on the inputs and on the placement of ranks.
  const char* wire;
  const char* algorithm;
  int deterministic;
} ff_comm_options;

#define FF_RANK_ANY UINT32_MAX
#define FF_COLOR_NONE UINT32_MAX

// "0.1.0"
const char* ff_version(void);

// The message of the last error of this thread. Valid until its next call.
const char* ff_error(void);

// Waits until all ranks have joined. `options` null: uses the environment of torchrun (RANK,
// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and FF_KEY_FILE, FF_PORT,
// FF_ZONE, FF_WIRE, FF_ALGO and FF_DETERMINISTIC. In any case FF_PIN=0 turns off the pinning of
// threads to NUMA nodes.
int ff_comm_init(ff_comm** comm, const ff_comm_options* options);
// Abandons operations in flight; the other ranks see that this one has left. Null: does nothing.
void ff_comm_destroy(ff_comm* comm);

// Every rank calls it, like an operation: ranks with the same color form a communicator of their
// own, in the order of `key`, then of their ranks in `comm`. FF_COLOR_NONE: `made` becomes null.
// The new communicator has the options of `comm`; destroy either of them first.
int ff_comm_split(ff_comm* comm, uint32_t color, uint32_t key, ff_comm** made);

// After an error, goes on without lost ranks (MPI_Comm_shrink of ULFM, ncclCommShrink with
// NCCL_SHRINK_ABORT): every rank that lives calls it, and gets a new communicator of those that do,
// in the order of their ranks. It makes all operations of `comm` fail on all ranks, which may find
// out that way that they have to call it. It waits for each rank whose process lives, at most
// operation_seconds; a rank that comes later gets FF_DEADLINE, and cannot go on. If a rank is lost
// meanwhile, the others go on without it, too. With several hosts, the first rank of one of them
// must live until all have returned; any others may be lost. For a host that has lost its first
// rank the others wait up to 5 s until the next rank of that host reports. If the network is cut in
// two, each part goes on by itself. What failed operations were to write is undefined. The new
// communicator has the options of `comm`; destroy either of them first.
int ff_comm_shrink(ff_comm* comm, ff_comm** made);

// 0 for a null communicator.
uint32_t ff_comm_rank(const ff_comm* comm);
uint32_t ff_comm_ranks(const ff_comm* comm);

// Zeroed memory that all ranks map: operations on it need no copies. Operations accept any other
// memory too, and copy it in and out.
int ff_alloc(ff_comm* comm, size_t bytes, void** memory);
// No operation of any rank may use the memory any more.
int ff_free(ff_comm* comm, void* memory);

// Every rank calls the same operations in the same order. `count` is in elements, as in NCCL: the
// input of a rank in an all-gather or gather, its output in a reduce-scatter or scatter. `in` and
// `out` may be the same memory; in place, the input of an all-gather (of the root of a gather) is
// `out` + rank * count, and the output of a reduce-scatter (of the root of a scatter) is
// `in` + rank * count. Any other overlap is refused, and any overlap in an all-to-all. Functions
// that end in _async return at once with a number for ff_wait(); do not touch the memory before
// that returns. An operation that you do not wait for finishes too; its memory must stay until 64
// later operations were started, or the communicator is destroyed. At most 64 may be unfinished.
int ff_allreduce(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, ff_op op);
int ff_allreduce_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                       ff_op op, uint64_t* number);
int ff_reduce(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, ff_op op,
              uint32_t root);
int ff_reduce_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, ff_op op,
                    uint32_t root, uint64_t* number);
int ff_broadcast(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                 uint32_t root);
int ff_broadcast_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                       uint32_t root, uint64_t* number);
int ff_allgather(ff_comm* comm, const void* in, void* out, size_t count, ff_type type);
int ff_allgather_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                       uint64_t* number);
int ff_reduce_scatter(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                      ff_op op);
int ff_reduce_scatter_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                            ff_op op, uint64_t* number);
// The root gets the inputs of all ranks, one after the other; `out` of other ranks is ignored.
int ff_gather(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, uint32_t root);
int ff_gather_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                    uint32_t root, uint64_t* number);
// Each rank gets its block of the root's input; `in` of other ranks is ignored.
int ff_scatter(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, uint32_t root);
int ff_scatter_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                     uint32_t root, uint64_t* number);
// `in` has a block of in_counts[i] elements for each rank i, `out` gets one of out_counts[i] from
// it; the blocks follow one another. FF_USAGE names two ranks that disagree on a block.
int ff_alltoallv(ff_comm* comm, const void* in, const size_t* in_counts, void* out,
                 const size_t* out_counts, ff_type type);
int ff_alltoallv_async(ff_comm* comm, const void* in, const size_t* in_counts, void* out,
                       const size_t* out_counts, ff_type type, uint64_t* number);
int ff_barrier(ff_comm* comm);
int ff_barrier_async(ff_comm* comm, uint64_t* number);

// The same on memory of a CUDA device, in the order of a stream, as in NCCL. The copy engine copies
// chunks into pinned memory of the host, the ranks reduce them there, and it copies results back;
// no kernel runs. All ranks give memory of devices. The context of the device is current in the
// calling thread, and the communicator keeps that of its first such operation. `stream` is a
// CUstream or cudaStream_t, null the default stream; it must not be captured into a graph.
//
// The operation comes after the work that is in the stream at the call, and before what the program
// puts there when the call has returned; of an _async one, when ff_wait() has, which each needs
// (with cudaStreamPerThread in the same thread). These wait until the last copy to the device is
// enqueued; then only the stream waits. Until then no other stream may use the memory, and
// afterwards none may but behind this stream. An operation on host memory begins when those before
// it on devices have no part left on the host. The time limit counts for each chunk of some MiB,
// and for the work of the stream before the first one. FF_FAILED: there is no libcuda.so.1, which
// the first call loads, or it reports an error, which all ranks get with the name of this one.
int ff_allreduce_on(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, ff_op op,
                    void* stream);
int ff_allreduce_on_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                          ff_op op, void* stream, uint64_t* number);
int ff_reduce_on(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, ff_op op,
                 uint32_t root, void* stream);
int ff_reduce_on_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                       ff_op op, uint32_t root, void* stream, uint64_t* number);
int ff_broadcast_on(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                    uint32_t root, void* stream);
int ff_broadcast_on_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                          uint32_t root, void* stream, uint64_t* number);
int ff_allgather_on(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                    void* stream);
int ff_allgather_on_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                          void* stream, uint64_t* number);
int ff_reduce_scatter_on(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                         ff_op op, void* stream);
int ff_reduce_scatter_on_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                               ff_op op, void* stream, uint64_t* number);

// Messages from one rank to another: a send and a receive match if rank and tag agree, those with
// the same ranks and tag in order. A send is complete when its bytes are received. Both ends name
// the same number of bytes, else both get FF_USAGE, which names both ranks. `from` may be
// FF_RANK_ANY; unless null, `source` gets the rank of the sender (of ff_recv_async() in ff_wait()).
// Wait for each message that you start. The ranks of a host need its rank 0 to exchange messages:
// ff_comm_destroy() there waits up to five seconds for the others to destroy theirs.
int ff_send(ff_comm* comm, const void* data, size_t count, ff_type type, uint32_t to, uint32_t tag);
int ff_send_async(ff_comm* comm, const void* data, size_t count, ff_type type, uint32_t to,
                  uint32_t tag, uint64_t* number);
int ff_recv(ff_comm* comm, void* data, size_t count, ff_type type, uint32_t from, uint32_t tag,
            uint32_t* source);
int ff_recv_async(ff_comm* comm, void* data, size_t count, ff_type type, uint32_t from,
                  uint32_t tag, uint32_t* source, uint64_t* number);

// Waits until the operation or message is complete; at most once for each number, in any order.
// Unlike all else, it may run in several threads at a time, and while another thread starts
// operations.
int ff_wait(ff_comm* comm, uint64_t number);

// Checkpoints. A saver copies a state into its own memory, which it reuses for the next save, and
// writes it into a store while the program continues: an ordinary checkpoint of one safetensors
// file, which `ff checkpoint` and the functions below can read. After a crash at any time the store
// has the old or the new checkpoint. One save at a time.
typedef struct ff_saver ff_saver;

typedef struct ff_tensor {
  const char* name;   // UTF-8; unique
  const char* dtype;  // as safetensors has it: "F32", "BF16", "U8", ...
  const uint64_t* shape;
  size_t dimensions;
  uint64_t bytes;    // of its data
  const void* data;  // row-major, without gaps
} ff_tensor;

typedef struct ff_text {  // an entry of the file's __metadata__; UTF-8
  const char* key;
  const char* value;
} ff_text;

#define FF_STEP_NEXT UINT64_MAX  // of a save: the last step of the run plus one
#define FF_STEP_LAST UINT64_MAX  // of a load: the highest step
#define FF_STEP_NONE UINT64_MAX  // no step was saved yet

typedef struct ff_save_options {
  size_t size;  // of this struct: sizeof(ff_save_options)
  // A directory; an absent or empty one becomes a store. In a cluster: ff://HOST:PORT/PATH, or
  // ff:///PATH of the cluster of FF_META. The environment and ff.toml authenticate, as they do for
  // `ff checkpoint`.
  const char* store;
  const char* run;      // null: "default"
  uint64_t step;        // or FF_STEP_NEXT
  const char* file;     // name of the file in the checkpoint; null: "state.safetensors"
  uint32_t rank;        // of `world` ranks, each of which saves a shard of the checkpoint
  uint32_t world;       // 0: 1
  const char* attempt;  // same on all ranks, new for each start; null: FF_ATTEMPT, else that
                        // of the task, and torchrun's --rdzv-id and restart
  uint32_t threads;     // writers; 0: one per processor, at most 8
  int replace;          // replace the step if it exists with other content
  int compress;         // compress chunks with zstd where that saves a tenth
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
  uint64_t bytes_written;  // of chunks that were new in the store
  double seconds;          // from the end of the copy to the commit
  ff_outcome outcome;
} ff_saved;

int ff_saver_open(ff_saver** saver);
// Waits for the running save or, with `give_up`, abandons it, which leaves the store unchanged.
// Null: does nothing. A process that exits without this call abandons the save too.
void ff_saver_close(ff_saver* saver, int give_up);

// After the end of the previous save: allocates memory for the tensors and copies those whose
// `data` is not null. places[i] is then the address of tensor i until ff_save_start(); the caller
// fills tensors without data. The arguments are not used after the call.
int ff_save_begin(ff_saver* saver, const ff_save_options* options, const ff_tensor* tensors,
                  size_t count, const ff_text* metadata, size_t texts, void** places);
// Between the two calls: starts a copy of `bytes` from memory of a CUDA device to a place, or into
// it, behind the work that is in `stream` now; what the program puts into the stream later waits
// for it. The save waits for all copies, and fails if one does. The first call, and the first after
// a larger state, pins the memory of the saver, which takes time. All calls have the context of the
// first one. FF_FAILED: no driver, or one that reports an error; then the caller may fill the place
// itself.
int ff_save_copy_on(ff_saver* saver, void* place, const void* device, uint64_t bytes, void* stream);
// Starts to write the prepared state, and returns.
int ff_save_start(ff_saver* saver);
// Whether a save is running.
int ff_save_busy(const ff_saver* saver, int* busy);
// Waits for the last save and returns its outcome or its error; may be called again.
int ff_save_wait(ff_saver* saver, ff_saved* saved);

// Loads tensors of a checkpoint into memory and checks every byte: ff_load_begin() reads the index,
// ff_load_read() the data, ff_load_end() releases the loading.
typedef struct ff_loading ff_loading;

typedef struct ff_load_options {
  size_t size;  // of this struct: sizeof(ff_load_options)
  const char* store;
  const char* run;             // null: "default"
  uint64_t step;               // or FF_STEP_LAST
  const char* const* tensors;  // globs of tensor names
  size_t globs;                // their number; 0: all tensors
  uint32_t rank;               // load only files of this rank, or FF_RANK_ANY
  uint32_t threads;            // readers; 0: one per processor, at most 8
} ff_load_options;

typedef struct ff_file {  // a safetensors file of the checkpoint
  const char* name;
  uint32_t rank;
  size_t first;    // index of its first tensor
  size_t tensors;  // number of its tensors
  size_t texts;    // entries of its __metadata__
} ff_file;

int ff_load_begin(ff_loading** loading, const ff_load_options* options);
// Null: does nothing.
void ff_load_end(ff_loading* loading);
// The content; 0 for a null loading. Results of the last three functions are valid until
// ff_load_end().
uint64_t ff_load_step(const ff_loading* loading);
size_t ff_load_files(const ff_loading* loading);
size_t ff_load_tensors(const ff_loading* loading);
int ff_load_file(const ff_loading* loading, size_t index, ff_file* file);
int ff_load_text(const ff_loading* loading, size_t file, size_t index, ff_text* text);
int ff_load_tensor(const ff_loading* loading, size_t index, ff_tensor* tensor);  // data: null
// Reads tensor i into places[i], for all tensors. FF_CORRUPT names tensor and chunk.
int ff_load_read(ff_loading* loading, void* const* places);

// The highest step of a run; FF_STEP_NONE if the run or the store does not exist.
int ff_latest_step(const char* store, const char* run, uint64_t* step);

// Records: samples of training data in FFRecord files, *.ffr (record/format.h). Paths are local, or
// ff://HOST:PORT[,HOST:PORT]/PATH in a cluster (ff:///PATH in that of FF_META), all in the same
// one.
typedef struct ff_record_reader ff_record_reader;
typedef struct ff_record_writer ff_record_writer;

// Opens files as one list of samples, numbered from 0; a directory means its files *.ffr, sorted by
// name. `check` 1: ff_record_read() compares samples with their CRC-32.
int ff_record_open(ff_record_reader** reader, const char* const* paths, size_t count, int check);
// Null is allowed; a forked child of the opener frees nothing.
void ff_record_close(ff_record_reader* reader);
uint64_t ff_record_samples(const ff_record_reader* reader);  // 0 for a null reader
// Fills sizes[i] with the bytes of samples[i].
int ff_record_sizes(const ff_record_reader* reader, const uint64_t* samples, size_t count,
                    uint64_t* sizes);
// Reads samples[i] into places[i], which has room for its bytes, with all reads in flight at once.
// Several threads may call it at the same time. FF_CORRUPT names a damaged sample.
int ff_record_read(ff_record_reader* reader, const uint64_t* samples, size_t count,
                   void* const* places);
// Begins the file `path`, whose name ends with .ffr, for `samples` samples. It gets its name in
// ff_record_finish(). FF_REFUSED: it exists, and `replace` is 0.
int ff_record_create(ff_record_writer** writer, const char* path, uint64_t samples, int replace);
// Writes the next sample.
int ff_record_write(ff_record_writer* writer, const void* data, size_t bytes);
// Makes the file complete and durable. FF_USAGE: samples are missing.
int ff_record_finish(ff_record_writer* writer);
// Removes what is written if ff_record_finish() did not succeed. Null is allowed.
void ff_record_free(ff_record_writer* writer);
// Fills samples[i] with the sample at position `first` + i of a random order of `total` samples
// (record/shuffle.h), which depends on nothing but total, seed and epoch.
int ff_record_shuffle(uint64_t total, uint64_t seed, uint64_t epoch, uint64_t first, size_t count,
                      uint64_t* samples);

// Keys and values: the store of `ff serve-kv`, such as a cache of KV blocks. Reads and look-ups are
// done in this process, from the files of the store, whether a gateway runs or not; changes go to
// the gateways. Values are strings as Redis knows them. A call sees the store as it was at most
// max_age_seconds before it began, with all that this object has changed; ff_kv_refresh() makes the
// next call see everything that was acknowledged before. Several threads may use one object.
typedef struct ff_kv ff_kv;

typedef struct ff_kv_options {
  size_t size;        // of this struct: sizeof(ff_kv_options)
  const char* store;  // the FOLDER of `ff serve-kv`, a directory or ff://...; see ff_save_options
  double max_age_seconds;  // 0: each call looks for changes first
  double write_seconds;    // how long a change waits for a gateway, which may have died; 0: not
} ff_kv_options;

#define FF_KV_NONE UINT64_MAX  // there is no such key

// FF_FAILED: there is no store. A program of the same user as the gateways may read it.
int ff_kv_open(ff_kv** kv, const ff_kv_options* options);
// Null is allowed; a forked child of the opener frees nothing.
void ff_kv_close(ff_kv* kv);
int ff_kv_refresh(ff_kv* kv);
// Keys lie one behind the other; key i has key_bytes[i] bytes. Fills sizes[i] with the bytes of its
// value, or FF_KV_NONE. Reads no value, so that a hash, stream, list or set counts, too.
int ff_kv_exists_many(ff_kv* kv, const void* keys, const size_t* key_bytes, size_t count,
                      uint64_t* sizes);
// Reads the value of key i into places[i], which has rooms[i] bytes, with all reads in flight at
// once. sizes[i] becomes its bytes, or FF_KV_NONE; if they are more than rooms[i], the value was
// not read. FF_CORRUPT names a damaged key; FF_USAGE: it has no string.
int ff_kv_get_many(ff_kv* kv, const void* keys, const size_t* key_bytes, size_t count,
                   void* const* places, const size_t* rooms, uint64_t* sizes);
// Sets keys, with all changes in flight at once; each by itself is atomic. They expire after
// ttl_seconds, a thousandth at least; 0: never. FF_REFUSED: this user may not.
int ff_kv_put_many(ff_kv* kv, const void* keys, const size_t* key_bytes, const void* const* values,
                   const size_t* value_bytes, size_t count, double ttl_seconds);
// Removes keys; `deleted`, unless null, becomes how many there were.
int ff_kv_delete_many(ff_kv* kv, const void* keys, const size_t* key_bytes, size_t count,
                      uint64_t* deleted);

// Tasks. The process and the agent of its node communicate by small files in $FF_TASK_DIR. If that
// is not set, the process belongs to no task: ff_task_should_stop() returns 0, and the other
// functions do nothing and succeed. Any thread and any child process may call these functions.
typedef struct ff_stop {
  char reason[32];   // "preempted", "drained", "stopped", ...
  int64_t deadline;  // Unix seconds; the process must exit before
} ff_stop;

// 1: the agent asks the task to save and exit, and `stop` (unless null) is filled; else 0. Never
// fails; one system call, cheap enough for every step. The first call that finds the request
// acknowledges it.
int ff_task_should_stop(ff_stop* stop);
// Reports that the whole task, not only this rank, can resume from `step`. Saves of ff_save_start()
// do so automatically.
int ff_task_saved(uint64_t step);
// Reports that this rank is at `step` now.
int ff_task_heartbeat(uint32_t rank, uint64_t step);
// A number that is kept when the task restarts; 0 before it is set. FF_CORRUPT: the file is
// malformed.
int ff_task_life_state(uint32_t* word);
int ff_task_set_life_state(uint32_t word);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
