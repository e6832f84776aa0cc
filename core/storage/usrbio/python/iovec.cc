// iovec.cc: slices, assignment, the buffer protocol, and what wait() has stored.
#include "storage/usrbio/python/iovec.h"

#include <cstring>
#include <new>

#include "storage/usrbio/iov_link_name.h"

namespace ff::usrbio::python {

PyTypeObject* iovec_type = nullptr;

namespace {

int iovec_init(PyObject* self, PyObject* args, PyObject* words) {
  PyObject* base = nullptr;
  const char* id = nullptr;
  const char* point = nullptr;
  Py_ssize_t block_size = 0;
  int numa = -1;
  static const char* names[] = {"base", "id", "hf3fs_mount_point", "block_size", "numa", nullptr};
  if (PyArg_ParseTupleAndKeywords(args, words, "Oss|ni:iovec", const_cast<char**>(names), &base,
                                  &id, &point, &block_size, &numa) == 0) {
    return -1;
  }
  const auto name = ff::usrbio::parse_iov_link_name(id);
  if (!name || name->ring || name->block != 0 || block_size < 0) {
    PyErr_Format(PyExc_ValueError, "'%s' is not a UUID, or block_size is negative", id);
    return -1;
  }
  Iovec& iovec = iovec_of(self);
  if (iovec.memory != nullptr) {
    PyErr_SetString(PyExc_TypeError, "an iovec cannot change its memory");
    return -1;
  }
  auto* const memory = new (std::nothrow) IovecMemory;
  if (memory == nullptr) return PyErr_NoMemory(), -1;
  iovec.memory = memory;
  if (!memory->take(base)) return -1;
  const int error = hf3fs_iovwrap(&memory->iov, memory->data(), name->id.data(), point,
                                  memory->size(), static_cast<size_t>(block_size), numa);
  if (error != 0) return raise_errno(-error), -1;
  iovec.data = memory->data();
  iovec.size = memory->size();
  return 0;
}

// What is told to prepare() may contain the iovec.
int iovec_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(iovec_of(self).root);
  Py_VISIT(iovec_of(self).userdata);
  return 0;
}

int iovec_clear(PyObject* self) {
  Py_CLEAR(iovec_of(self).userdata);
  return 0;
}

void iovec_dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Iovec& iovec = iovec_of(self);
  delete iovec.memory;
  Py_XDECREF(iovec.root);
  Py_XDECREF(iovec.userdata);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyObject* part_of(PyObject* self, size_t begin, size_t size) {
  PyObject* const made = PyType_GenericAlloc(iovec_type, 0);
  if (made == nullptr) return nullptr;
  Iovec& part = iovec_of(made);
  Iovec& iovec = iovec_of(self);
  part.root = iovec.root != nullptr ? iovec.root : self;
  Py_INCREF(part.root);
  part.data = iovec.data + begin;
  part.size = size;
  return made;
}

// Stores where the slice begins and how long it is.
bool bounds(PyObject* self, PyObject* key, size_t& begin, size_t& size) {
  if (!check_open(iovec_of(self))) return false;
  if (!Py_IS_TYPE(key, &PySlice_Type)) {
    PyErr_SetString(PyExc_TypeError, "an iovec takes slices: iov[begin:end]");
    return false;
  }
  Py_ssize_t start = 0, stop = 0, step = 0;
  if (PySlice_Unpack(key, &start, &stop, &step) != 0) return false;
  if (step != 1) {
    PyErr_SetString(PyExc_ValueError, "the step of a slice of an iovec must be 1");
    return false;
  }
  const auto length = static_cast<Py_ssize_t>(iovec_of(self).size);
  size = static_cast<size_t>(PySlice_AdjustIndices(length, &start, &stop, step));
  begin = static_cast<size_t>(start);
  return true;
}

PyObject* iovec_get(PyObject* self, PyObject* key) {
  size_t begin = 0, size = 0;
  return bounds(self, key, begin, size) ? part_of(self, begin, size) : nullptr;
}

int iovec_set(PyObject* self, PyObject* key, PyObject* value) {
  size_t begin = 0, size = 0;
  if (value == nullptr) {
    PyErr_SetString(PyExc_TypeError, "parts of an iovec cannot be deleted");
    return -1;
  }
  if (!bounds(self, key, begin, size)) return -1;
  Buffer from;
  if (!from.get(value, PyBUF_SIMPLE)) return -1;
  if (from.size() != size) {
    PyErr_Format(PyExc_ValueError, "%zu bytes for a slice of %zu bytes", from.size(), size);
    return -1;
  }
  std::memmove(iovec_of(self).data + begin, from.data(), size);
  return 0;
}

Py_ssize_t iovec_length(PyObject* self) { return static_cast<Py_ssize_t>(iovec_of(self).size); }

int iovec_buffer(PyObject* self, Py_buffer* view, int flags) {
  Iovec& iovec = iovec_of(self);
  if (!check_open(iovec)) return -1;
  return PyBuffer_FillInfo(view, self, iovec.data, static_cast<Py_ssize_t>(iovec.size), 0, flags);
}

// The part that a buffer, such as a tensor, lies in.
PyObject* iovec_slice_by(PyObject* self, PyObject* object) {
  Iovec& iovec = iovec_of(self);
  Buffer of;
  if (!check_open(iovec) || !of.get(object, PyBUF_SIMPLE)) return nullptr;
  for (char* const at : {of.data(), whole_of(iovec).memory->translate(of.data())}) {
    const bool inside = at >= iovec.data && at <= iovec.data + iovec.size &&
                        of.size() <= static_cast<size_t>(iovec.data + iovec.size - at);
    if (inside) return part_of(self, static_cast<size_t>(at - iovec.data), of.size());
  }
  PyErr_SetString(PyExc_IndexError, "the buffer lies outside this iovec");
  return nullptr;
}

PyObject* iovec_result(PyObject* self, void*) { return PyLong_FromLongLong(iovec_of(self).result); }

PyObject* iovec_base_off(PyObject* self, void*) {
  Iovec& iovec = iovec_of(self);
  return PyLong_FromSsize_t(iovec.data - whole_of(iovec).data);
}

PyObject* iovec_userdata(PyObject* self, void*) {
  PyObject* const userdata = iovec_of(self).userdata;
  if (userdata == nullptr) return none();
  Py_INCREF(userdata);
  return userdata;
}

}  // namespace

bool add_iovec(PyObject* module) {
  static PyMethodDef methods[] = {
      {"slice_by", iovec_slice_by, METH_O, "slice_by(buf): the part that this buffer lies in"},
      {nullptr, nullptr, 0, nullptr}};
  static PyGetSetDef values[] = {
      {"result", iovec_result, nullptr,
       "Of the last operation: bytes, fewer than wanted at the end of the file; or -errno",
       nullptr},
      {"base_off", iovec_base_off, nullptr, "Where the part begins in the memory", nullptr},
      {"userdata", iovec_userdata, nullptr, "What prepare() got", nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("iovec(base, id, hf3fs_mount_point, block_size=0, numa=-1)\n\n"
                                    "Memory that is registered with a mount as `id`; hf3fs_fuse.io "
                                    ".make_iovec() registers it. iov[begin:end] is a part.")},
      {Py_tp_init, slot_of(iovec_init)},
      {Py_tp_traverse, slot_of(iovec_traverse)},
      {Py_tp_clear, slot_of(iovec_clear)},
      {Py_tp_dealloc, slot_of(iovec_dealloc)},
      {Py_tp_methods, methods},
      {Py_tp_getset, values},
      {Py_mp_length, slot_of(iovec_length)},
      {Py_mp_subscript, slot_of(iovec_get)},
      {Py_mp_ass_subscript, slot_of(iovec_set)},
      {Py_bf_getbuffer, slot_of(iovec_buffer)},
      {0, nullptr}};
  static PyType_Spec spec = {"hf3fs_py_usrbio.iovec", sizeof(Iovec), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
  PyObject* const made = PyType_FromSpec(&spec);
  if (made == nullptr) return false;
  iovec_type = reinterpret_cast<PyTypeObject*>(made);
  return PyModule_AddObjectRef(module, "iovec", made) == 0;
}

}  // namespace ff::usrbio::python
