// Files that rings may use: a program registers its descriptors, and is free to close them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

namespace ff::usrbio {

struct RegisteredFile {
  ~RegisteredFile();
  int given = -1;  // by the program
  int own = -1;    // keeps the file open on the mount
  dev_t device = 0;
  uint64_t inode = 0;
  bool reads = false;
  bool writes = false;
};

// By either number, or its negative. Null: it is not registered.
std::shared_ptr<const RegisteredFile> registered(int fd);

}  // namespace ff::usrbio
