// task.cc: what becomes of an exception that leaves a task.
#include "platform/base/task.h"

#include <exception>
#include <new>

namespace ff::task_detail {

Error exception_error() noexcept {
  bool lacks_memory = false;
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    lacks_memory = true;
  } catch (...) {
  }
  FF_CHECK(lacks_memory || !"an exception left a task");
  return fail(Errc::busy, "there is not enough memory");
}

}  // namespace ff::task_detail
