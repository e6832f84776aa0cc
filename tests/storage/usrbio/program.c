// A program that knows rings by their header alone. Usage: program work|hang MOUNT FILE SEED.
// work: writes a file of its own through rings, reads it in many ways, compares; "all is well".
// hang: reads and writes until somebody kills it, after it has said "working". A failure ends it
// with the name of the function and what it returned.
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hf3fs_usrbio.h"

enum { RINGS = 3, ENTRIES = 32, BLOCK = 65536, BLOCKS = 64, ROUNDS = 40 };

static uint64_t state;
static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

static void check(int good, const char* what, long got) {
  if (good) return;
  printf("%s: %ld\n", what, got);
  exit(1);
}

/* What the file holds at a place. */
static uint8_t byte_at(uint64_t seed, uint64_t at) {
  return (uint8_t)(seed * 31 + at * 7 + (at >> 12));
}

static void write_file(const char* mount, int fd, uint64_t seed, struct hf3fs_iov* iov) {
  struct hf3fs_ior ring;
  int i;
  long done = hf3fs_iorcreate4(&ring, mount, ENTRIES, false, 0, 0, -1, 0);
  check(done == 0, "iorcreate4", done);
  for (i = 0; i < BLOCKS; i++) {
    uint64_t at;
    uint8_t* block = iov->base + (size_t)i % ENTRIES * BLOCK;
    struct hf3fs_cqe cqe;
    for (at = 0; at < BLOCK; at++) block[at] = byte_at(seed, (uint64_t)i * BLOCK + at);
    done = hf3fs_prep_io(&ring, iov, false, block, fd, (size_t)i * BLOCK, BLOCK, block);
    check(done >= 0, "prep_io of a write", done);
    done = hf3fs_submit_ios(&ring);
    check(done == 0, "submit_ios", done);
    done = hf3fs_wait_for_ios(&ring, &cqe, 1, 1, NULL);
    check(done == 1 && cqe.result == BLOCK && cqe.userdata == block, "a write", cqe.result);
  }
  hf3fs_iordestroy(&ring);
}

/* Programs with odd seeds wait a moment at a time. */
static int wait_some(struct hf3fs_ior* ring, struct hf3fs_cqe* cqes, uint64_t seed) {
  int got = 0;
  if (seed % 2 == 0) return hf3fs_wait_for_ios(ring, cqes, ENTRIES, 1, NULL);
  while (got == 0) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    got = hf3fs_wait_for_ios(ring, cqes, ENTRIES, 1, &until);
  }
  return got;
}

struct read {
  uint64_t at;
  uint64_t size;
  uint8_t* into;
};

static void read_some(struct hf3fs_ior* ring, struct hf3fs_iov* iov, int fd, uint64_t seed) {
  static struct read reads[ENTRIES];
  static struct hf3fs_cqe cqes[ENTRIES];
  int left = 0;
  int sent;
  int i;
  for (i = 0; i < ENTRIES; i++) {
    struct read* one = &reads[i];
    long slot;
    one->size = 1 + next() % BLOCK;
    one->at = next() % ((uint64_t)BLOCKS * BLOCK - one->size);
    one->into = iov->base + (size_t)i * BLOCK;
    slot = hf3fs_prep_io(ring, iov, true, one->into, fd, one->at, one->size, one);
    check(slot >= 0, "prep_io of a read", slot);
    left++;
  }
  sent = hf3fs_submit_ios(ring);
  check(sent == 0, "submit_ios", sent);
  while (left > 0) {
    int got = wait_some(ring, cqes, seed);
    check(got > 0, "wait_for_ios", got);
    left -= got;
    for (i = 0; i < got; i++) {
      const struct read* one = cqes[i].userdata;
      uint64_t at;
      check(cqes[i].result == (int64_t)one->size, "a read", (long)cqes[i].result);
      for (at = 0; at < one->size; at++) {
        check(one->into[at] == byte_at(seed, one->at + at), "a byte", (long)(one->at + at));
      }
    }
  }
}

int main(int argc, char** argv) {
  struct hf3fs_iov iov;
  struct hf3fs_ior rings[RINGS];
  uint64_t seed;
  long done;
  int fd;
  int i;
  if (argc != 5) return 2;
  seed = strtoull(argv[4], NULL, 10);
  state = seed * 2 + 1;
  fd = open(argv[3], O_RDWR | O_CREAT, 0644);
  check(fd >= 0, "open", errno);
  check(hf3fs_is_hf3fs(fd), "is_hf3fs", 0);
  done = hf3fs_reg_fd(fd, 0);
  check(done <= 0, "reg_fd", done);
  done = hf3fs_iovcreate(&iov, argv[2], (size_t)ENTRIES * BLOCK, 0, -1);
  check(done == 0, "iovcreate", done);
  write_file(argv[2], fd, seed, &iov);
  for (i = 0; i < RINGS; i++) {
    done = hf3fs_iorcreate3(&rings[i], argv[2], ENTRIES, true, 0, i - 1, 0, -1);
    check(done == 0, "iorcreate3", done);
  }
  if (strcmp(argv[1], "hang") == 0) {
    puts("working");
    fflush(stdout);
    for (;;) read_some(&rings[next() % RINGS], &iov, fd, seed);
  }
  for (i = 0; i < ROUNDS; i++) read_some(&rings[i % RINGS], &iov, fd, seed);
  for (i = 0; i < RINGS; i++) hf3fs_iordestroy(&rings[i]);
  hf3fs_dereg_fd(fd);
  hf3fs_iovdestroy(&iov);
  puts("all is well");
  return 0;
}
