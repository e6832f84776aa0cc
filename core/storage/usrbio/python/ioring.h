// ioring: a ring on a mount, and the parts of memory that its operations under way use.
#pragma once

#include "storage/usrbio/python/python_objects.h"

namespace ff::usrbio::python {

bool add_ioring(PyObject* module);

}  // namespace ff::usrbio::python
