// Files registered for rings. A program may close its descriptor after registering it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

namespace ff::usrbio {

struct RegisteredFile {
  ~RegisteredFile();
  int fd = -1;      // the descriptor of the program
  int dup_fd = -1;  // a duplicate that keeps the file open
  dev_t device = 0;
  uint64_t inode = 0;
  bool reads = false;
  bool writes = false;
};

// Finds a file by either descriptor, or the negated one. Null: not registered.
std::shared_ptr<const RegisteredFile> find_registered(int fd);

}  // namespace ff::usrbio
