// iovec: memory that is registered with a mount, and parts of it.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "storage/usrbio/hf3fs_usrbio.h"
#include "storage/usrbio/python/python_objects.h"

namespace ff::usrbio::python {

// Memory that is registered with a mount. A program may unmap its own view of it at any time, as
// SharedMemory.close() does, so it is mapped once more; memory that is not shared is held instead.
class IovecMemory {
 public:
  IovecMemory() = default;
  IovecMemory(const IovecMemory&) = delete;
  IovecMemory& operator=(const IovecMemory&) = delete;
  ~IovecMemory() {
    if (mapped_ != nullptr) ::munmap(mapped_, size_);
  }
  // False: an exception.
  bool take(PyObject* base) {
    if (!buffer_.get(base, PyBUF_WRITABLE)) return false;
    given_ = data_ = buffer_.data();
    size_ = buffer_.size();
    void* const again = ::mremap(given_, 0, size_, MREMAP_MAYMOVE);
    if (again == MAP_FAILED) return true;
    mapped_ = again;
    data_ = static_cast<char*>(again);
    buffer_.release();
    return true;
  }
  char* data() const { return data_; }
  size_t size() const { return size_; }
  // Where an address of the program's view lies here.
  char* translate(char* at) const { return at - given_ < 0 ? at : data_ + (at - given_); }

  hf3fs_iov iov = {};

 private:
  Buffer buffer_;
  void* mapped_ = nullptr;
  char* given_ = nullptr;
  char* data_ = nullptr;
  size_t size_ = 0;
};

// iovec: registered memory, or a part of it.
struct Iovec {
  PyObject object;
  PyObject* root;       // of a part: the whole, which it keeps; else null
  IovecMemory* memory;  // of the whole
  char* data;
  size_t size;
  int64_t result;
  PyObject* userdata;
};

inline Iovec& iovec_of(PyObject* object) { return *reinterpret_cast<Iovec*>(object); }
inline Iovec& whole_of(Iovec& part) { return part.root != nullptr ? iovec_of(part.root) : part; }

// False, with an exception: it has no memory.
inline bool check_open(const Iovec& iovec) {
  if (iovec.data != nullptr) return true;
  PyErr_SetString(PyExc_ValueError, "this iovec has no memory");
  return false;
}

// The type. Null before add_iovec().
extern PyTypeObject* iovec_type;
bool add_iovec(PyObject* module);

}  // namespace ff::usrbio::python
