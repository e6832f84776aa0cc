// The Python module hf3fs_py_usrbio: rings and their memory (hf3fs_usrbio.h) with the names and the
// behaviour of 3FS's module, on which serving engines build. It needs only the stable ABI of Python
// 3.11 and later, and nothing else: the code of libhf3fs_api_shared.so is in it.
//
// Errors are OSError with the errno of the C function.
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "storage/usrbio/hf3fs_usrbio.h"
#include "storage/usrbio/iov_link_name.h"

namespace {

PyTypeObject* iovec_type = nullptr;

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

PyObject* raise_errno(int error) {
  errno = error;
  return PyErr_SetFromErrno(PyExc_OSError);
}

PyObject* none() {
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

// Memory that is registered with a mount. A program may unmap its own view of it at any time, as
// SharedMemory.close() does, so it is mapped once more; memory that is not shared is held instead.
class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  ~RegisteredMemory() {
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
  PyObject* root;            // of a part: the whole, which it keeps; else null
  RegisteredMemory* memory;  // of the whole
  char* data;
  size_t size;
  int64_t result;
  PyObject* userdata;
};

Iovec& iovec_of(PyObject* object) { return *reinterpret_cast<Iovec*>(object); }
Iovec& whole_of(Iovec& part) { return part.root != nullptr ? iovec_of(part.root) : part; }

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
  auto* const memory = new (std::nothrow) RegisteredMemory;
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

bool check_open(const Iovec& iovec) {
  if (iovec.data != nullptr) return true;
  PyErr_SetString(PyExc_ValueError, "this iovec has no memory");
  return false;
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

// ioring: a ring, and the parts of memory that its operations under way use.
struct RingState {
  hf3fs_ior ior = {};
  struct Operation {
    Ref iovec;
    Ref userdata;
  };
  std::vector<Operation> under_way;  // by slot
  std::vector<hf3fs_cqe> ready;      // of a wait that a signal has ended
  int waiting = 0;                   // threads
  ~RingState() { hf3fs_iordestroy(&ior); }
};
struct Ioring {
  PyObject object;
  RingState* state;
};

// Null, with an exception: it was destroyed.
RingState* ring_of(PyObject* self) {
  RingState* const state = reinterpret_cast<Ioring*>(self)->state;
  if (state == nullptr) PyErr_SetString(PyExc_ValueError, "this ring was destroyed");
  return state;
}

bool optional_int(PyObject* object, int& value) {
  if (object == nullptr || object == Py_None) return true;
  const long given = PyLong_AsLong(object);
  if (given == -1 && PyErr_Occurred() != nullptr) return false;
  value = static_cast<int>(std::clamp<long>(given, INT32_MIN, INT32_MAX));
  return true;
}

int ioring_init(PyObject* self, PyObject* args, PyObject* words) {
  const char* point = nullptr;
  int entries = 0, for_read = 1, io_depth = 0, numa = -1, priority = 0, timeout = 0;
  PyObject* given_priority = nullptr;
  PyObject* given_timeout = nullptr;
  unsigned long long flags = 0;
  static const char* names[] = {"hf3fs_mount_point", "entries", "for_read", "io_depth", "priority",
                                "timeout",           "numa",    "flags",    nullptr};
  if (PyArg_ParseTupleAndKeywords(args, words, "si|piOOiK:ioring", const_cast<char**>(names),
                                  &point, &entries, &for_read, &io_depth, &given_priority,
                                  &given_timeout, &numa, &flags) == 0 ||
      !optional_int(given_priority, priority) || !optional_int(given_timeout, timeout)) {
    return -1;
  }
  auto& ring = *reinterpret_cast<Ioring*>(self);
  if (ring.state != nullptr) {
    PyErr_SetString(PyExc_TypeError, "this ring exists already");
    return -1;
  }
  if (flags != 0 && priority != 0) {
    PyErr_SetString(PyExc_ValueError, "a ring has a priority or flags, not both");
    return -1;
  }
  auto* const state = new (std::nothrow) RingState;
  if (state == nullptr) return PyErr_NoMemory(), -1;
  const bool read = for_read != 0;
  const int error =
      flags != 0
          ? hf3fs_iorcreate4(&state->ior, point, entries, read, io_depth, timeout, numa, flags)
          : hf3fs_iorcreate3(&state->ior, point, entries, read, io_depth, priority, timeout, numa);
  if (error != 0) {
    delete state;
    return raise_errno(-error), -1;
  }
  state->under_way.resize(static_cast<size_t>(entries));
  ring.state = state;
  return 0;
}

void destroy(PyObject* self) {
  delete std::exchange(reinterpret_cast<Ioring*>(self)->state, nullptr);
}

int ioring_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const RingState* const state = reinterpret_cast<Ioring*>(self)->state;
  if (state == nullptr) return 0;
  for (const auto& operation : state->under_way) {
    Py_VISIT(operation.iovec.get());
    Py_VISIT(operation.userdata.get());
  }
  return 0;
}

int ioring_clear(PyObject* self) {
  destroy(self);
  return 0;
}

void ioring_dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  destroy(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyObject* ioring_destroy(PyObject* self, PyObject*) {
  const RingState* const state = reinterpret_cast<Ioring*>(self)->state;
  if (state != nullptr && state->waiting > 0) return raise_errno(EBUSY);
  destroy(self);
  return none();
}

PyObject* ioring_size_for_entries(PyObject*, PyObject* entries) {
  const long count = PyLong_AsLong(entries);
  if (count == -1 && PyErr_Occurred() != nullptr) return nullptr;
  return PyLong_FromSize_t(hf3fs_ior_size(static_cast<int>(std::min<long>(count, INT32_MAX))));
}

PyObject* ioring_entries(PyObject* self, void*) {
  RingState* const state = ring_of(self);
  return state == nullptr ? nullptr : PyLong_FromSize_t(state->under_way.size());
}

PyObject* ioring_prepare(PyObject* self, PyObject* args, PyObject* words) {
  PyObject* given = nullptr;
  PyObject* userdata = Py_None;
  int read = 0, fd = -1;
  long long offset = 0;
  static const char* names[] = {"iov", "read", "fd", "off", "userdata", nullptr};
  if (PyArg_ParseTupleAndKeywords(args, words, "O!piL|O:prepare", const_cast<char**>(names),
                                  iovec_type, &given, &read, &fd, &offset, &userdata) == 0) {
    return nullptr;
  }
  RingState* const state = ring_of(self);
  Iovec& iovec = iovec_of(given);
  if (state == nullptr || !check_open(iovec)) return nullptr;
  const int slot = hf3fs_prep_io(&state->ior, &whole_of(iovec).memory->iov, read != 0, iovec.data,
                                 fd, static_cast<size_t>(offset), iovec.size, nullptr);
  if (slot < 0) return raise_errno(-slot);
  state->under_way[static_cast<size_t>(slot)] = {Ref::borrowed(given), Ref::borrowed(userdata)};
  Py_INCREF(self);
  return self;
}

PyObject* ioring_submit(PyObject* self, PyObject*) {
  RingState* const state = ring_of(self);
  if (state == nullptr) return nullptr;
  const int error = hf3fs_submit_ios(&state->ior);
  if (error != 0) return raise_errno(-error);
  Py_INCREF(self);
  return self;
}

constexpr int64_t kNsPerSecond = 1'000'000'000;

int64_t wall_ns() {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

// A timedelta, or seconds. False: an exception.
bool deadline_of(PyObject* timeout, int64_t& until_ns) {
  if (timeout == nullptr || timeout == Py_None) return true;
  Ref seconds = PyObject_HasAttrString(timeout, "total_seconds") != 0
                    ? Ref(PyObject_CallMethod(timeout, "total_seconds", nullptr))
                    : Ref::borrowed(timeout);
  if (!seconds) return false;
  const double given = PyFloat_AsDouble(seconds.get());
  if (given == -1.0 && PyErr_Occurred() != nullptr) return false;
  constexpr double kMost = 1e9;
  until_ns = wall_ns() + static_cast<int64_t>(std::clamp(given, 0.0, kMost) * 1e9);
  return true;
}

// Waits for `least` completions, but not for long, so that Python can handle signals, and puts all
// behind the first `got`. Returns 0, EAGAIN (to be called again), or the errno of the ring.
int collect(RingState& state, int least, int64_t until_ns, std::vector<hf3fs_cqe>& into,
            size_t& got) {
  constexpr int64_t kTurnNs = kNsPerSecond / 5;
  const int64_t turn_ns = std::min(until_ns, wall_ns() + kTurnNs);
  const timespec until = {turn_ns / kNsPerSecond, turn_ns % kNsPerSecond};
  const int wanted = std::max(0, least - static_cast<int>(got));
  const int count = hf3fs_wait_for_ios(&state.ior, into.data() + got,
                                       static_cast<int>(into.size() - got), wanted, &until);
  if (count < 0) return -count;
  got += static_cast<size_t>(count);
  return count >= wanted || wall_ns() >= until_ns ? 0 : EAGAIN;
}

PyObject* list_of(RingState& state, const std::vector<hf3fs_cqe>& done, size_t count) {
  Ref list(PyList_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; list && i < count; i++) {
    auto& operation = state.under_way[static_cast<size_t>(done[i].index)];
    Iovec& iovec = iovec_of(operation.iovec.get());
    iovec.result = done[i].result;
    Ref before(std::exchange(iovec.userdata, operation.userdata.release()));
    PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), operation.iovec.release());
  }
  return list.release();
}

PyObject* ioring_wait(PyObject* self, PyObject* args, PyObject* words) {
  int most = 0, least = 0;
  PyObject* timeout = nullptr;
  static const char* names[] = {"max_results", "min_results", "timeout", nullptr};
  if (PyArg_ParseTupleAndKeywords(args, words, "|$iiO:wait", const_cast<char**>(names), &most,
                                  &least, &timeout) == 0) {
    return nullptr;
  }
  RingState* const state = ring_of(self);
  int64_t until_ns = INT64_MAX;
  if (state == nullptr || !deadline_of(timeout, until_ns)) return nullptr;
  const auto entries = static_cast<int>(state->under_way.size());
  least = std::clamp(least, 0, entries);
  // Without a maximum: as many as are wanted at least, or all that are there.
  if (most <= 0) most = least > 0 ? least : entries;
  std::vector<hf3fs_cqe> done(static_cast<size_t>(std::clamp(most, std::max(least, 1), entries)));
  size_t got = std::min(done.size(), state->ready.size());
  std::copy_n(state->ready.begin(), got, done.begin());
  state->ready.erase(state->ready.begin(), state->ready.begin() + static_cast<ptrdiff_t>(got));
  for (int error = EAGAIN; error == EAGAIN && got < done.size();) {
    state->waiting++;
    {
      const Released others;
      error = collect(*state, least, until_ns, done, got);
    }
    state->waiting--;
    if (error == EAGAIN && PyErr_CheckSignals() != 0) {
      done.resize(got);
      state->ready.insert(state->ready.end(), done.begin(), done.end());
      return nullptr;
    }
    // What has arrived is returned; the ring reports its error again.
    if (error != 0 && error != EAGAIN && got == 0) return raise_errno(error);
  }
  return list_of(*state, done, got);
}

// Functions of the module.
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

template <class Function>
void* slot_of(Function* function) {
  return reinterpret_cast<void*>(function);
}
PyCFunction with_words(PyCFunctionWithKeywords function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

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

bool add_ioring(PyObject* module) {
  static PyMethodDef methods[] = {
      {"size_for_entries", ioring_size_for_entries, METH_O | METH_STATIC,
       "size_for_entries(entries): the bytes of a ring"},
      {"prepare", with_words(ioring_prepare), METH_VARARGS | METH_KEYWORDS,
       "prepare(iov, read, fd, off, userdata=None): the next operation, of the length of `iov`"},
      {"submit", ioring_submit, METH_NOARGS, "submit(): starts what was prepared"},
      {"wait", with_words(ioring_wait), METH_VARARGS | METH_KEYWORDS,
       "wait(*, max_results=0, min_results=0, timeout=None): the iovecs of operations that are "
       "done"},
      {"destroy", ioring_destroy, METH_NOARGS, "destroy(): ends the ring"},
      {nullptr, nullptr, 0, nullptr}};
  static PyGetSetDef values[] = {
      {"entries", ioring_entries, nullptr, "Operations under way at most", nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyType_Slot slots[] = {
      {Py_tp_doc,
       const_cast<char*>("ioring(hf3fs_mount_point, entries, for_read=True, io_depth=0, "
                         "priority=None, timeout=None, numa=-1, flags=0)\n\n"
                         "Operations on files of a mount; hf3fs_usrbio.h describes all numbers.")},
      {Py_tp_init, slot_of(ioring_init)},
      {Py_tp_traverse, slot_of(ioring_traverse)},
      {Py_tp_clear, slot_of(ioring_clear)},
      {Py_tp_dealloc, slot_of(ioring_dealloc)},
      {Py_tp_methods, methods},
      {Py_tp_getset, values},
      {0, nullptr}};
  static PyType_Spec spec = {"hf3fs_py_usrbio.ioring", sizeof(Ioring), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
  const Ref made(PyType_FromSpec(&spec));
  return made && PyModule_AddObjectRef(module, "ioring", made.get()) == 0;
}

}  // namespace

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
