// ioring.cc: prepares and submits operations, and waits for them while other threads run.
#include "storage/usrbio/python/ioring.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <new>
#include <utility>
#include <vector>

#include "storage/usrbio/hf3fs_usrbio.h"
#include "storage/usrbio/python/iovec.h"

namespace ff::usrbio::python {

namespace {

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

}  // namespace

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

}  // namespace ff::usrbio::python
