// Memory files in /dev/shm, which a program creates and registers with its mount by a link.
#pragma once

#include <cstddef>
#include <string>

#include "storage/usrbio/iov_link_name.h"

namespace ff::usrbio {

IovId random_id();

struct Shm {
  std::string path = {};
  void* base = nullptr;
  size_t size = 0;
};
// Creates a zeroed file and allocates all its pages, so that a lack of memory fails here and not at
// first use. Returns 0 or -errno.
int create_shm(size_t size, int numa, Shm& made);
int open_shm(const std::string& path, size_t size, Shm& opened);
void unmap(Shm& shm);

}  // namespace ff::usrbio
