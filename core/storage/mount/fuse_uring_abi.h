// What linux/fuse.h of Linux 6.14 and later defines for FUSE over io_uring (protocol version 7.42),
// for builds with older headers. Documentation/filesystems/fuse/fuse-io-uring.rst describes the
// use.
#pragma once

#include <cstdint>

namespace ff::mount::uring_abi {

// A flag of FUSE_INIT: FUSE_OVER_IO_URING.
constexpr uint64_t kOverIoUring = uint64_t{1} << 41;

// enum fuse_uring_cmd: `cmd_op` of an IORING_OP_URING_CMD on /dev/fuse.
constexpr uint32_t kRegister = 1;        // gives the buffers of an entry and fetches a request
constexpr uint32_t kCommitAndFetch = 2;  // replies to a request and fetches the next

// struct fuse_uring_ent_in_out.
struct EntryInOut {
  uint64_t flags;
  uint64_t commit_id;     // of the request; a reply repeats it in its command
  uint32_t payload_size;  // bytes in the payload buffer
  uint32_t padding;
  uint64_t reserved;
};

// struct fuse_uring_req_header.
struct Headers {
  char in_out[128];  // fuse_in_header of a request, fuse_out_header of a reply
  char op_in[128];   // the first argument of a request, such as fuse_write_in; may be empty
  EntryInOut entry;
};
static_assert(sizeof(Headers) == 288);

// struct fuse_uring_cmd_req: the command area of the submission entry (80 bytes with SQE128).
struct Command {
  uint64_t flags;
  uint64_t commit_id;
  uint16_t queue;  // the number of a CPU
  uint8_t padding[6];
};
static_assert(sizeof(Command) == 24);

}  // namespace ff::mount::uring_abi
