// Memory files in /dev/shm, which a program makes and hands to its mount by a link.
#pragma once

#include <cstddef>
#include <string>

#include "storage/usrbio/link_name.h"

namespace ff::usrbio {

Id random_id();

struct Shm {
  std::string path = {};
  void* base = nullptr;
  size_t size = 0;
};
// Zeros, of which all pages are there: where they cannot be had this fails, not their first use.
// 0, or -errno.
int make_shm(size_t size, int numa, Shm& made);
int open_shm(const std::string& path, size_t size, Shm& opened);
void unmap(Shm& shm);

}  // namespace ff::usrbio
