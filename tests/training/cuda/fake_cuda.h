// A libcuda.so.1 without a device, for tests: it has the functions of the driver that ff calls, and
// those below. What it is meant to find out:
//
//   device memory   is out of reach of the host (PROT_NONE); the copy engine has a second mapping
//   streams         a thread runs their work later, choosing between streams at random: anything
//                   that nothing orders will happen in another order once
//   order           two accesses of which one writes, and that no stream, event or query of the
//                   host orders, are reported, in whichever order they happened (vector clocks)
//   early reads     a copy fills the host's memory with kPoison before it copies; the source of a
//                   copy to the device must not change before it is copied
//   lifetimes       memory, events and streams that are destroyed in use are reported, and leaks
//   errors          any function fails at its n-th call; a copy that fails breaks the context
//
// Its functions have C's types only: tests may load it late (dlopen), and programs in Python too.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FAKE_CUDA __attribute__((visibility("default")))

extern "C" {

// A device with its context, which becomes current in this thread; a rank has one.
FAKE_CUDA void* fake_cuda_context();
FAKE_CUDA void fake_cuda_make_current(void* context);
// Forgets all that a context has, and returns what of it the library under test has left.
FAKE_CUDA size_t fake_cuda_destroy_context(void* context);
// The random order of streams.
FAKE_CUDA void fake_cuda_seed(uint64_t seed);
// Streams that the program makes, unlike those of the library under test.
FAKE_CUDA void* fake_cuda_stream(void* context);

// Memory of a device.
FAKE_CUDA void* fake_cuda_alloc(void* context, size_t bytes);
FAKE_CUDA void fake_cuda_free(void* memory);
// The host reads and writes it, at once: what has not finished before is reported.
FAKE_CUDA void fake_cuda_store(void* memory, const void* from, size_t bytes);
FAKE_CUDA void fake_cuda_load(const void* memory, void* to, size_t bytes);

// Kernels in a stream: one writes bytes that the call copies, the other reads.
FAKE_CUDA void fake_cuda_write(void* stream, void* memory, const void* from, size_t bytes);
FAKE_CUDA void fake_cuda_read(void* stream, const void* memory, void* to, size_t bytes);
// What comes later in the stream waits for a release.
FAKE_CUDA void fake_cuda_hold(void* stream);
FAKE_CUDA void fake_cuda_release(void* stream);
// Waits until the stream is empty, as the host does; 0, or the error of the context.
FAKE_CUDA int fake_cuda_synchronize(void* stream);
// The same for all streams of a context.
FAKE_CUDA int fake_cuda_synchronize_all(void* context);
// CU_STREAM_CAPTURE_STATUS_... of a stream.
FAKE_CUDA void fake_cuda_capture(void* stream, int status);

// The n-th call from now of a function ("cuEventRecord"), or copy that is executed ("execute"),
// fails with this code in this context (null: in any).
FAKE_CUDA void fake_cuda_fail(void* context, const char* function, unsigned nth, int code);
// How many of these errors have occurred; forgets the others.
FAKE_CUDA unsigned fake_cuda_failures();

// What was wrong, one a line, and how many lines; forgets it.
FAKE_CUDA size_t fake_cuda_reports(char* text, size_t bytes);
// Streams, events and pinned memory that the library under test has not destroyed.
FAKE_CUDA size_t fake_cuda_leaks();
// How often a function was called.
FAKE_CUDA uint64_t fake_cuda_calls(const char* function);

}  // extern "C"
