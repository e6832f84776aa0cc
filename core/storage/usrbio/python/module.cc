// The Python module hf3fs_py_usrbio: rings and their memory (hf3fs_usrbio.h) with the names and the
// behaviour of 3FS's module, on which serving engines build. It needs only the stable ABI of Python
// 3.11 and later, and nothing else: the code of libhf3fs_api_shared.so is in it.
//
// Errors are OSError with the errno of the C function.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "storage/usrbio/hf3fs_usrbio.h"
#include "storage/usrbio/python/ioring.h"
#include "storage/usrbio/python/iovec.h"

namespace ff::usrbio::python {
namespace {

PyObject* extract_mount_point(PyObject*, PyObject* args, PyObject* words) {
  const char* path = nullptr;
  static const char* names[] = {"path", nullptr};
  if (PyArg_ParseTupleAndKeywords(args, words, "s:extract_mount_point", const_cast<char**>(names),
                                  &path) == 0) {
    return nullptr;
  }
  char point[HF3FS_MOUNT_POINT_BYTES];
  const int size = hf3fs_extract_mount_point(point, sizeof point, path);
  if (size < 0) return none();
  if (static_cast<size_t>(size) > sizeof point) return raise_errno(ENAMETOOLONG);
  return PyUnicode_DecodeFSDefault(point);
}

PyObject* register_fd(PyObject*, PyObject* args, PyObject* words) {
  int fd = -1;
  unsigned long long flags = 0;
  static const char* names[] = {"fd", "flags", nullptr};
  if (PyArg_ParseTupleAndKeywords(args, words, "i|K:register_fd", const_cast<char**>(names), &fd,
                                  &flags) == 0) {
    return nullptr;
  }
  const int error = hf3fs_reg_fd(fd, flags);
  return error > 0 ? raise_errno(error) : none();
}

PyObject* deregister_fd(PyObject*, PyObject* args, PyObject* words) {
  int fd = -1;
  static const char* names[] = {"fd", nullptr};
  if (PyArg_ParseTupleAndKeywords(args, words, "i:deregister_fd", const_cast<char**>(names), &fd) ==
      0) {
    return nullptr;
  }
  hf3fs_dereg_fd(fd);
  return none();
}

PyObject* force_fsync(PyObject*, PyObject* args, PyObject* words) {
  int fd = -1;
  static const char* names[] = {"fd", nullptr};
  if (PyArg_ParseTupleAndKeywords(args, words, "i:force_fsync", const_cast<char**>(names), &fd) ==
      0) {
    return nullptr;
  }
  int error = 0;
  {
    const Released others;
    error = ::fsync(fd) == 0 ? 0 : errno;
  }
  return error != 0 ? raise_errno(error) : PyLong_FromLong(0);
}

PyObject* hardlink(PyObject*, PyObject* args, PyObject* words) {
  const char* target = nullptr;
  const char* name = nullptr;
  static const char* names[] = {"target", "link_name", nullptr};
  if (PyArg_ParseTupleAndKeywords(args, words, "ss:hardlink", const_cast<char**>(names), &target,
                                  &name) == 0) {
    return nullptr;
  }
  const int error = hf3fs_hardlink(target, name);
  return error != 0 ? raise_errno(error) : none();
}

bool sizes_of(PyObject* given, std::vector<size_t>& into) {
  const Py_ssize_t count = PySequence_Size(given);
  for (Py_ssize_t i = 0; i < count; i++) {
    const Ref item(PySequence_GetItem(given, i));
    if (!item) return false;
    into.push_back(PyLong_AsSize_t(item.get()));
    if (PyErr_Occurred() != nullptr) return false;
  }
  return count >= 0;
}

// Of a file descriptor or a path.
PyObject* punch_hole(PyObject*, PyObject* args, PyObject* words) {
  PyObject* file = nullptr;
  PyObject* given_start = nullptr;
  PyObject* given_end = nullptr;
  Py_ssize_t flags = 0;
  static const char* names[] = {"fd", "start", "end", "flags", nullptr};
  if (PyArg_ParseTupleAndKeywords(args, words, "OOO|n:punch_hole", const_cast<char**>(names), &file,
                                  &given_start, &given_end, &flags) == 0) {
    return nullptr;
  }
  std::vector<size_t> start, end;
  if (!sizes_of(given_start, start) || !sizes_of(given_end, end)) return nullptr;
  if (start.size() != end.size()) {
    PyErr_SetString(PyExc_ValueError, "'start' and 'end' must have as many numbers");
    return nullptr;
  }
  int fd = -1, opened = -1;
  if (PyLong_Check(file) != 0) {
    if (!optional_int(file, fd)) return nullptr;
  } else {
    PyObject* bytes = nullptr;
    if (PyUnicode_FSConverter(file, &bytes) == 0) return nullptr;
    const Ref path(bytes);
    fd = opened = ::open(PyBytes_AsString(bytes), O_RDWR | O_CLOEXEC);
    if (fd < 0) return raise_errno(errno);
  }
  const int error = hf3fs_punchhole(fd, static_cast<int>(start.size()), start.data(), end.data(),
                                    static_cast<size_t>(flags));
  if (opened >= 0) ::close(opened);
  return error != 0 ? raise_errno(error) : none();
}

}  // namespace

}  // namespace ff::usrbio::python

using namespace ff::usrbio::python;

PyMODINIT_FUNC PyInit_hf3fs_py_usrbio() {
  static PyMethodDef functions[] = {
      {"extract_mount_point", with_words(extract_mount_point), METH_VARARGS | METH_KEYWORDS,
       "extract_mount_point(path): of the mount that the path is on; None: it is on none"},
      {"register_fd", with_words(register_fd), METH_VARARGS | METH_KEYWORDS,
       "register_fd(fd, flags=0): rings take the file from now on"},
      {"deregister_fd", with_words(deregister_fd), METH_VARARGS | METH_KEYWORDS,
       "deregister_fd(fd): call it before close(fd)"},
      {"force_fsync", with_words(force_fsync), METH_VARARGS | METH_KEYWORDS,
       "force_fsync(fd): stores the file, so that its length is known to all"},
      {"hardlink", with_words(hardlink), METH_VARARGS | METH_KEYWORDS,
       "hardlink(target, link_name)"},
      {"punch_hole", with_words(punch_hole), METH_VARARGS | METH_KEYWORDS,
       "punch_hole(fd, start, end, flags=0): [start[i], end[i]) read as zeros and free their "
       "space"},
      {nullptr, nullptr, 0, nullptr}};
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                   "hf3fs_py_usrbio",
                                   "Rings on a mount (USRBIO); see hf3fs_fuse.io.",
                                   -1,
                                   functions,
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr};
  Ref module(PyModule_Create(&definition));
  if (!module || !add_iovec(module.get()) || !add_ioring(module.get())) return nullptr;
  const Ref magic(PyLong_FromUnsignedLong(HF3FS_SUPER_MAGIC));
  if (!magic || PyModule_AddObjectRef(module.get(), "HF3FS_SUPER_MAGIC", magic.get()) != 0) {
    return nullptr;
  }
  return module.release();
}
