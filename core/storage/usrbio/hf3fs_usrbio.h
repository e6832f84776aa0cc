// USRBIO: asynchronous reads and writes of files on an `ff mount`, from memory that a program
// shares with the mount, in batches and without a system call for each. The interface of 3FS
// USRBIO: names, argument order and layouts are the same, so that programs run on both.
//
//   hf3fs_iovcreate()   memory for data, shared with the mount and local storage nodes
//   hf3fs_iorcreate4()  a ring, either for reads or for writes
//   hf3fs_reg_fd()      registers an open file of the mount
//   hf3fs_prep_io()     prepares a read or write; hf3fs_submit_ios() submits
//   hf3fs_wait_for_ios()  returns completions
//
// Functions return 0 on success or a negative errno, unless noted.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#define HF3FS_ASSERT(condition) static_assert(condition, #condition)
#else
#define HF3FS_ASSERT(condition) _Static_assert(condition, #condition)
#endif

#define HF3FS_SUPER_MAGIC 0x8f3f5fffu
#define HF3FS_MOUNT_POINT_BYTES 256

typedef void* hf3fs_iov_handle;
typedef void* hf3fs_ior_handle;

// Memory for data (Iov).
struct hf3fs_iov {
  uint8_t* base;
  hf3fs_iov_handle iovh;  // only in the process that created or opened it
  uint8_t id[16];         // other processes open it by this id
  char mount_point[HF3FS_MOUNT_POINT_BYTES];
  size_t size;
  size_t block_size;  // I/O must not cross a multiple of it; 0: no limit
  int numa;           // NUMA node of its pages; negative: any
};
HF3FS_ASSERT(sizeof(struct hf3fs_iov) == 312);
HF3FS_ASSERT(offsetof(struct hf3fs_iov, iovh) == 8);
HF3FS_ASSERT(offsetof(struct hf3fs_iov, id) == 16);
HF3FS_ASSERT(offsetof(struct hf3fs_iov, mount_point) == 32);
HF3FS_ASSERT(offsetof(struct hf3fs_iov, size) == 288);
HF3FS_ASSERT(offsetof(struct hf3fs_iov, block_size) == 296);
HF3FS_ASSERT(offsetof(struct hf3fs_iov, numa) == 304);

// A ring (Ior).
struct hf3fs_ior {
  struct hf3fs_iov iov;  // the memory of the ring itself
  hf3fs_ior_handle iorh;
  char mount_point[HF3FS_MOUNT_POINT_BYTES];
  bool for_read;
  int io_depth;
  int priority;
  int timeout;  // ms
  uint64_t flags;
};
HF3FS_ASSERT(sizeof(struct hf3fs_ior) == 600);
HF3FS_ASSERT(offsetof(struct hf3fs_ior, iorh) == 312);
HF3FS_ASSERT(offsetof(struct hf3fs_ior, mount_point) == 320);
HF3FS_ASSERT(offsetof(struct hf3fs_ior, for_read) == 576);
HF3FS_ASSERT(offsetof(struct hf3fs_ior, io_depth) == 580);
HF3FS_ASSERT(offsetof(struct hf3fs_ior, priority) == 584);
HF3FS_ASSERT(offsetof(struct hf3fs_ior, timeout) == 588);
HF3FS_ASSERT(offsetof(struct hf3fs_ior, flags) == 592);

// A completion.
struct hf3fs_cqe {
  int32_t index;     // the return value of hf3fs_prep_io()
  int32_t reserved;  // 0
  int64_t result;    // bytes, fewer than requested at the end of the file; or -errno
  const void* userdata;
};
HF3FS_ASSERT(sizeof(struct hf3fs_cqe) == 24);
HF3FS_ASSERT(offsetof(struct hf3fs_cqe, result) == 8);
HF3FS_ASSERT(offsetof(struct hf3fs_cqe, userdata) == 16);

// Flags of rings.
// accepted without effect: no read ever waits for commits
#define HF3FS_IOR_ALLOW_READ_UNCOMMITTED 1ull
#define HF3FS_IOR_FORBID_READ_HOLES 2ull  // reading a hole returns ENODATA

#pragma GCC visibility push(default)

// Whether FD is open on a mount of this type.
bool hf3fs_is_hf3fs(int fd);
// Finds the mount point above PATH. Returns its length plus one, or -1. Stores it only if it fits
// into SIZE bytes with the terminating zero.
int hf3fs_extract_mount_point(char* mount_point, int size, const char* path);

int hf3fs_iovcreate(struct hf3fs_iov* iov, const char* mount_point, size_t size, size_t block_size,
                    int numa);
// Opens memory that another process of the same user has created.
int hf3fs_iovopen(struct hf3fs_iov* iov, const uint8_t id[16], const char* mount_point, size_t size,
                  size_t block_size, int numa);
// The same if the memory is already mapped at BASE.
int hf3fs_iovwrap(struct hf3fs_iov* iov, void* base, const uint8_t id[16], const char* mount_point,
                  size_t size, size_t block_size, int numa);
// Unregisters the memory: no process can open it and no ring can use it any more. It stays mapped.
void hf3fs_iovunlink(struct hf3fs_iov* iov);
// The same, and unmaps it. Memory that was opened or wrapped stays registered by its creator.
void hf3fs_iovdestroy(struct hf3fs_iov* iov);

// Size of a ring in bytes.
size_t hf3fs_ior_size(int entries);
// At most ENTRIES operations are in flight. IO_DEPTH > 0: the mount starts batches of exactly this
// size; 0: any number; < 0: at most this many, fewer after TIMEOUT ms.
int hf3fs_iorcreate(struct hf3fs_ior* ior, const char* mount_point, int entries, bool for_read,
                    int io_depth, int numa);
// PRIORITY: negative is high, positive is low.
int hf3fs_iorcreate2(struct hf3fs_ior* ior, const char* mount_point, int entries, bool for_read,
                     int io_depth, int priority, int numa);
int hf3fs_iorcreate3(struct hf3fs_ior* ior, const char* mount_point, int entries, bool for_read,
                     int io_depth, int priority, int timeout, int numa);
int hf3fs_iorcreate4(struct hf3fs_ior* ior, const char* mount_point, int entries, bool for_read,
                     int io_depth, int timeout, int numa, uint64_t flags);
void hf3fs_iordestroy(struct hf3fs_ior* ior);

// Returns <= 0 on success: rings accept FD, and the negated return value, from then on. Else an
// errno: EBADF: not a file on such a mount, EINVAL: already registered.
int hf3fs_reg_fd(int fd, uint64_t flags);
void hf3fs_dereg_fd(int fd);

int hf3fs_io_entries(const struct hf3fs_ior* ior);
// Returns the index in the ring, or -EINVAL, -EBADF (FD is not registered), -EACCES (not open for
// this), -EAGAIN (the ring is full). For one thread at a time.
int hf3fs_prep_io(const struct hf3fs_ior* ior, const struct hf3fs_iov* iov, bool read, void* ptr,
                  int fd, size_t off, uint64_t len, const void* userdata);
// If the process that serves the mount dies or is replaced, another one continues the ring: a wait
// takes longer, and each request still gets one completion. Do not change the memory of a write
// before its completion: the write may be done again.
// This, and hf3fs_wait_for_ios() after two seconds, also of several calls, return -ECONNRESET if no
// process can continue the ring (ff-storage(7)). Destroy the ring and the memory, and create them
// again. What was submitted may or may not have been done.
int hf3fs_submit_ios(const struct hf3fs_ior* ior);
// Returns how many of at most CQEC completions it has stored: at least MIN_RESULTS, unless
// ABS_TIMEOUT (CLOCK_REALTIME; NULL: none) passes first.
int hf3fs_wait_for_ios(const struct hf3fs_ior* ior, struct hf3fs_cqe* cqes, int cqec,
                       int min_results, const struct timespec* abs_timeout);

// These two functions return an errno.
int hf3fs_hardlink(const char* target, const char* link_name);
// Makes [START[i], END[i]) read as zeros. FLAGS: 0.
int hf3fs_punchhole(int fd, int n, const size_t* start, const size_t* end, size_t flags);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
