// Rings: reads and writes of files on an `ff mount` from memory that a program shares with the
// mount, many at once and without a system call each. The interface is that of 3FS's USRBIO: names,
// order of arguments and layouts are the same, so that programs built for one run on the other.
//
//   hf3fs_iovcreate()   memory for data, which the mount and storage nodes of this host reach
//   hf3fs_iorcreate4()  a ring, for reads alone or for writes alone
//   hf3fs_reg_fd()      a file that is open here and lies on the mount
//   hf3fs_prep_io()     one read or write; hf3fs_submit_ios() sends off what was prepared
//   hf3fs_wait_for_ios()  what has come of them
//
// Where nothing else is said 0 is success and a negative number an errno.
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

// Memory for data.
struct hf3fs_iov {
  uint8_t* base;
  hf3fs_iov_handle iovh;  // of the process that has made or opened it
  uint8_t id[16];         // by which other processes open it
  char mount_point[HF3FS_MOUNT_POINT_BYTES];
  size_t size;
  size_t block_size;  // no read or write crosses a multiple of it; 0: there are none
  int numa;           // node of its pages, negative: any
};
HF3FS_ASSERT(sizeof(struct hf3fs_iov) == 312);
HF3FS_ASSERT(offsetof(struct hf3fs_iov, iovh) == 8);
HF3FS_ASSERT(offsetof(struct hf3fs_iov, id) == 16);
HF3FS_ASSERT(offsetof(struct hf3fs_iov, mount_point) == 32);
HF3FS_ASSERT(offsetof(struct hf3fs_iov, size) == 288);
HF3FS_ASSERT(offsetof(struct hf3fs_iov, block_size) == 296);
HF3FS_ASSERT(offsetof(struct hf3fs_iov, numa) == 304);

// A ring.
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

// What has come of one read or write.
struct hf3fs_cqe {
  int32_t index;     // as hf3fs_prep_io() has returned it
  int32_t reserved;  // 0
  int64_t result;    // bytes, fewer than asked for at the end of the file; or -errno
  const void* userdata;
};
HF3FS_ASSERT(sizeof(struct hf3fs_cqe) == 24);
HF3FS_ASSERT(offsetof(struct hf3fs_cqe, result) == 8);
HF3FS_ASSERT(offsetof(struct hf3fs_cqe, userdata) == 16);

// Flags of rings.
#define HF3FS_IOR_ALLOW_READ_UNCOMMITTED 1ull  // taken, and of no effect: no read ever waits for it
#define HF3FS_IOR_FORBID_READ_HOLES 2ull       // a read of what was never written gives ENODATA

#pragma GCC visibility push(default)

// Whether it is open on a mount of this kind.
bool hf3fs_is_hf3fs(int fd);
// The mount point that PATH is below: its length and one more, or -1. It is only stored where it
// fits into SIZE bytes with the zero behind it.
int hf3fs_extract_mount_point(char* mount_point, int size, const char* path);

int hf3fs_iovcreate(struct hf3fs_iov* iov, const char* mount_point, size_t size, size_t block_size,
                    int numa);
// Memory that another process of the same user has made.
int hf3fs_iovopen(struct hf3fs_iov* iov, const uint8_t id[16], const char* mount_point, size_t size,
                  size_t block_size, int numa);
// The same where BASE has it mapped here already.
int hf3fs_iovwrap(struct hf3fs_iov* iov, void* base, const uint8_t id[16], const char* mount_point,
                  size_t size, size_t block_size, int numa);
// Nobody can open it any more, and no ring uses it; it stays mapped here.
void hf3fs_iovunlink(struct hf3fs_iov* iov);
// The same, and not mapped any more. One that was opened or wrapped stays with who has made it.
void hf3fs_iovdestroy(struct hf3fs_iov* iov);

// Bytes that a ring takes.
size_t hf3fs_ior_size(int entries);
// At most ENTRIES reads or writes are under way at once. IO_DEPTH: the mount begins with so many at
// once; 0: with any; negative: with at most so many, and with fewer when TIMEOUT ms have passed.
int hf3fs_iorcreate(struct hf3fs_ior* ior, const char* mount_point, int entries, bool for_read,
                    int io_depth, int numa);
// PRIORITY: negative: before others, positive: behind them.
int hf3fs_iorcreate2(struct hf3fs_ior* ior, const char* mount_point, int entries, bool for_read,
                     int io_depth, int priority, int numa);
int hf3fs_iorcreate3(struct hf3fs_ior* ior, const char* mount_point, int entries, bool for_read,
                     int io_depth, int priority, int timeout, int numa);
int hf3fs_iorcreate4(struct hf3fs_ior* ior, const char* mount_point, int entries, bool for_read,
                     int io_depth, int timeout, int numa, uint64_t flags);
void hf3fs_iordestroy(struct hf3fs_ior* ior);

// 0 or a negative number is success: rings take FD from then on, and that number as well. Else an
// errno: EBADF for what lies on no such mount, EINVAL for what was registered already.
int hf3fs_reg_fd(int fd, uint64_t flags);
void hf3fs_dereg_fd(int fd);

int hf3fs_io_entries(const struct hf3fs_ior* ior);
// Returns its number in the ring, or -EINVAL, -EBADF (FD is not registered), -EACCES (nor open for
// that), -EAGAIN (the ring is full). One thread at a time.
int hf3fs_prep_io(const struct hf3fs_ior* ior, const struct hf3fs_iov* iov, bool read, void* ptr,
                  int fd, size_t off, uint64_t len, const void* userdata);
int hf3fs_submit_ios(const struct hf3fs_ior* ior);
// How many of at most CQEC results it has stored; at least MIN_RESULTS, unless it is
// ABS_TIMEOUT by CLOCK_REALTIME before (NULL: it never is).
int hf3fs_wait_for_ios(const struct hf3fs_ior* ior, struct hf3fs_cqe* cqes, int cqec,
                       int min_results, const struct timespec* abs_timeout);

// These two return an errno.
int hf3fs_hardlink(const char* target, const char* link_name);
// What lies in [START[i], END[i]) reads as zeros from then on. FLAGS: 0.
int hf3fs_punchhole(int fd, int n, const size_t* start, const size_t* end, size_t flags);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
