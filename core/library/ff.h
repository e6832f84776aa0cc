// libff.so: collective operations for programs in C, and through ff.py for Python. The meaning of
// everything is that of `ff allreduce` (reduce/communicator.h).
//
// One thread of a process uses a communicator at a time. Functions that return int return FF_OK or
// an error, which ff_error() then explains. A communicator does not outlive a fork: in the child
// every call on it is an error.
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
  FF_FAILED = 1,    // a rank is gone, no memory
  FF_USAGE = 2,     // wrong arguments, or ranks that ask for different things
  FF_REFUSED = 5,   // another user's process
  FF_DEADLINE = 6,  // a rank has let its time pass
} ff_status;

typedef struct ff_comm_options {
  size_t size;               // of this struct: sizeof(ff_comm_options)
  uint32_t rank;             // of this process, from 0
  uint32_t ranks;            // of the job, all on this host; at most 64
  const char* job;           // the same for all ranks, and no other job's on this host
  double join_seconds;       // until all ranks have come; 0: 60
  double operation_seconds;  // for an operation, from when it is waited for; 0: 60
} ff_comm_options;

// "0.1.0"
const char* ff_version(void);

// Why the last call of this thread failed. Valid until its next call.
const char* ff_error(void);

// Waits until all ranks have come. `options` null: as torchrun's environment has it (RANK,
// WORLD_SIZE, and MASTER_ADDR and MASTER_PORT for the job).
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

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
