// What both types of the module need of Python: references, buffers, errors, threads.
#pragma once

// The stable ABI of Python 3.11 and later.
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

namespace ff::usrbio::python {

// Owns one reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* object) : object_(object) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  static Ref borrowed(PyObject* object) {
    Py_XINCREF(object);
    return Ref(object);
  }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

inline PyObject* raise_errno(int error) {
  errno = error;
  return PyErr_SetFromErrno(PyExc_OSError);
}

inline PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

// Lets other threads of Python run while it exists.
class Released {
 public:
  Released() : state_(PyEval_SaveThread()) {}
  ~Released() { PyEval_RestoreThread(state_); }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

 private:
  PyThreadState* state_;
};

// Contiguous memory of another object.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { release(); }
  bool get(PyObject* object, int flags) {
    held_ = PyObject_GetBuffer(object, &view_, flags) == 0;
    return held_;
  }
  void release() {
    if (std::exchange(held_, false)) PyBuffer_Release(&view_);
  }
  char* data() const { return static_cast<char*>(view_.buf); }
  size_t size() const { return static_cast<size_t>(view_.len); }

 private:
  Py_buffer view_ = {};
  bool held_ = false;
};

// A number, or None, which leaves the value. False: an exception.
inline bool optional_int(PyObject* object, int& value) {
  if (object == nullptr || object == Py_None) return true;
  const long given = PyLong_AsLong(object);
  if (given == -1 && PyErr_Occurred() != nullptr) return false;
  value = static_cast<int>(std::clamp<long>(given, INT32_MIN, INT32_MAX));
  return true;
}

template <class Function>
void* slot_of(Function* function) {
  return reinterpret_cast<void*>(function);
}
inline PyCFunction with_words(PyCFunctionWithKeywords function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace ff::usrbio::python
