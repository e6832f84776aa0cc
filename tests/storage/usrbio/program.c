// A program that knows rings by their header alone. Usage: program work|hang|load MOUNT FILE SEED.
// work: writes a file of its own through rings, reads it in many ways, compares; "all is well".
// hang: reads and writes until somebody kills it, after it has said "working". load: overwrites and
// reads until SIGTERM, and says "round N"; each request must complete once, with the right bytes.
// A failure ends it with the name of the function and what it returned.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
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

static volatile sig_atomic_t over;
static void end(int number) {
  (void)number;
  over = 1;
}

/* Its memory has no name any more, as that of programs that use SharedMemory. */
static void unlink_memory(const char* mount, const struct hf3fs_iov* iov) {
  char link[512];
  char target[512];
  int size = snprintf(link, sizeof link, "%s/3fs-virt/iovs/", mount);
  int i;
  for (i = 0; i < 16; i++) size += snprintf(link + size, 3, "%02x", iov->id[i]);
  size = (int)readlink(link, target, sizeof target - 1);
  check(size > 0, "readlink", errno);
  target[size] = 0;
  check(unlink(target) == 0, "unlink", errno);
}

struct block {
  uint64_t number;
  uint64_t version;
  uint8_t* bytes;
  int pending;
};

static uint8_t byte_of(uint64_t seed, uint64_t number, uint64_t version, uint64_t at) {
  return byte_at(seed + version * 37, number * BLOCK + at);
}

static void submit(struct hf3fs_ior* ring) {
  int sent = -EAGAIN;
  while (sent == -EAGAIN) sent = hf3fs_submit_ios(ring);
  check(sent == 0, "submit_ios", sent);
}

static void wait_for_all(struct hf3fs_ior* ring, int left, uint64_t seed) {
  static struct hf3fs_cqe cqes[ENTRIES];
  int i;
  while (left > 0) {
    int got = wait_some(ring, cqes, seed);
    check(got > 0, "wait_for_ios", got);
    left -= got;
    for (i = 0; i < got; i++) {
      struct block* one = (struct block*)cqes[i].userdata;
      check(one->pending, "a second completion", (long)one->number);
      check(cqes[i].result == BLOCK, "a result", (long)cqes[i].result);
      one->pending = 0;
    }
  }
  check(left == 0, "more completions than requests", left);
}

/* Overwrites some blocks and reads others at the same time. */
static void load(const char* mount, int fd, uint64_t seed, struct hf3fs_iov* iov,
                 struct hf3fs_ior* reads) {
  static struct block blocks[BLOCKS];
  static int order[BLOCKS];
  struct hf3fs_ior writes;
  struct hf3fs_cqe more;
  long round;
  int i;
  long done = hf3fs_iorcreate4(&writes, mount, ENTRIES, false, 0, 0, -1, 0);
  check(done == 0, "iorcreate4", done);
  unlink_memory(mount, iov);
  for (i = 0; i < BLOCKS; i++) {
    blocks[i].number = (uint64_t)i;
    order[i] = i;
  }
  for (round = 1; !over; round++) {
    uint64_t at;
    for (i = 0; i < ENTRIES; i++) {
      const int other = i + (int)(next() % (uint64_t)(BLOCKS - i));
      const int number = order[other];
      struct block* one = &blocks[number];
      struct hf3fs_ior* ring = i % 2 == 0 ? &writes : reads;
      order[other] = order[i];
      order[i] = number;
      one->bytes = iov->base + (size_t)i * BLOCK;
      one->pending = 1;
      if (i % 2 == 0) one->version++;
      for (at = 0; at < BLOCK; at++) {
        one->bytes[at] = i % 2 == 0 ? byte_of(seed, one->number, one->version, at) : 0;
      }
      done =
          hf3fs_prep_io(ring, iov, i % 2 != 0, one->bytes, fd, (size_t)number * BLOCK, BLOCK, one);
      check(done >= 0, "prep_io", done);
      if (i % 8 > 5) submit(ring);
    }
    wait_for_all(&writes, ENTRIES / 2, seed);
    wait_for_all(reads, ENTRIES / 2, seed);
    for (i = 1; i < ENTRIES; i += 2) {
      const struct block* one = &blocks[order[i]];
      for (at = 0; at < BLOCK; at++) {
        check(one->bytes[at] == byte_of(seed, one->number, one->version, at), "a byte",
              (long)(one->number * BLOCK + at));
      }
    }
    check(hf3fs_wait_for_ios(reads, &more, 1, 0, NULL) == 0, "one completion too many", 0);
    check(hf3fs_wait_for_ios(&writes, &more, 1, 0, NULL) == 0, "one completion too many", 1);
    printf("round %ld\n", round);
    fflush(stdout);
  }
  hf3fs_iordestroy(&writes);
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
  if (strcmp(argv[1], "load") == 0) {
    struct sigaction ends = {0};
    ends.sa_handler = end;
    ends.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &ends, NULL);
    load(argv[2], fd, seed, &iov, &rings[1]);
  }
  for (i = 0; i < ROUNDS && strcmp(argv[1], "work") == 0; i++)
    read_some(&rings[i % RINGS], &iov, fd, seed);
  for (i = 0; i < RINGS; i++) hf3fs_iordestroy(&rings[i]);
  hf3fs_dereg_fd(fd);
  hf3fs_iovdestroy(&iov);
  puts("all is well");
  return 0;
}
