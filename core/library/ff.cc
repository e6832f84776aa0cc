// ff.cc: the communicator behind a C interface.
#include "library/ff.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "base/text.h"
#include "library/last_error.h"
#include "reduce/communicator.h"

using ff::Errc;
using ff::Error;
using ff::Result;
using ff::library::failed;
using ff::library::outcome;
using ff::reduce::Collective;
using ff::reduce::Communicator;
using ff::reduce::Operation;

struct ff_comm {
  ff::SystemClock clock = {};
  ff::Stop stop{clock};
  pid_t process = ::getpid();
  std::unique_ptr<Communicator> ranks = {};
};

namespace {

thread_local std::string last_error;

// Whether calls can be made on it.
Result<void> check(const ff_comm* comm) {
  if (comm == nullptr) return ff::fail(Errc::usage, "the communicator is null");
  if (comm->process == ::getpid()) return {};
  return ff::fail(Errc::usage, "the communicator is of process {}: it does not outlive a fork",
                  comm->process);
}

Result<void> check(const Operation& operation) {
  if (static_cast<size_t>(operation.type) >= ff::simd::kDataTypes) {
    return ff::fail(Errc::usage, "{} is no ff_type", static_cast<int>(operation.type));
  }
  if (static_cast<size_t>(operation.op) >= ff::simd::kReduceOps) {
    return ff::fail(Errc::usage, "{} is no ff_op", static_cast<int>(operation.op));
  }
  return {};
}

Result<uint64_t> start(ff_comm* comm, const Operation& operation) {
  FF_TRY(check(comm));
  FF_TRY(check(operation));
  return comm->ranks->start(operation);
}

int run(ff_comm* comm, const Operation& operation) {
  const auto number = start(comm, operation);
  if (!number) return failed(number.error());
  return outcome(comm->ranks->wait(*number));
}

Operation operation_of(Collective kind, const void* in, void* out, size_t count, ff_type type) {
  return {.kind = kind,
          .type = static_cast<ff::simd::DataType>(type),
          .count = count,
          .in = in,
          .out = out};
}

Result<std::string> variable(const char* name) {
  const char* const value = ::getenv(name);
  if (value != nullptr && *value != '\0') return std::string(value);
  Error error = ff::fail(Errc::usage, "{} is not set", name);
  error.hint = "Start it with torchrun, or give ff_comm_init() its options.";
  return error;
}
Result<uint32_t> number_of(const char* name) {
  FF_TRY(const std::string text, variable(name));
  const auto number = ff::parse_u64(text);
  if (number && *number < UINT32_MAX) return static_cast<uint32_t>(*number);
  return ff::fail(Errc::usage, "{}={} is no number of ranks", name, text);
}

// As torchrun sets it.
Result<ff::reduce::HostRank> rank_of_environment() {
  ff::reduce::HostRank self;
  FF_TRY(self.rank, number_of("RANK"));
  FF_TRY(self.ranks, number_of("WORLD_SIZE"));
  if (::getenv("LOCAL_WORLD_SIZE") != nullptr) {
    FF_TRY(const uint32_t local, number_of("LOCAL_WORLD_SIZE"));
    if (local != self.ranks) {
      return ff::fail(Errc::usage, "{} of {} ranks are on this host: all must be", local,
                      self.ranks);
    }
  }
  FF_TRY(const std::string host, variable("MASTER_ADDR"));
  FF_TRY(const std::string port, variable("MASTER_PORT"));
  self.job = host + ":" + port;
  return self;
}

int64_t ns_of(double seconds) {
  constexpr double kDefault = 60;
  return static_cast<int64_t>((seconds > 0 ? seconds : kDefault) * ff::kSecond);
}

Result<void> init(ff_comm& comm, const ff_comm_options* given) {
  ff::reduce::HostRank self;
  ff::reduce::Options options;
  if (given != nullptr) {
    if (given->size != sizeof *given) {
      return ff::fail(Errc::usage, "ff_comm_options is of another version of ff.h");
    }
    if (given->job == nullptr || *given->job == '\0' || std::strlen(given->job) > 64) {
      return ff::fail(Errc::usage, "the job's name has 1 to 64 characters");
    }
    self = {.rank = given->rank, .ranks = given->ranks, .job = given->job};
    options = {.join_ns = ns_of(given->join_seconds),
               .operation_ns = ns_of(given->operation_seconds)};
  } else {
    FF_TRY(self, rank_of_environment());
  }
  FF_TRY(comm.ranks, Communicator::join(self, comm.stop, options));
  return {};
}

}  // namespace

namespace ff::library {

int failed(const Error& error) {
  last_error = error.message;
  if (!error.hint.empty()) last_error += ". " + error.hint;
  switch (const int code = exit_code(error.code); code) {
    case FF_USAGE:
    case FF_CORRUPT:
    case FF_REFUSED:
    case FF_DEADLINE: return code;
    default: return FF_FAILED;
  }
}

int outcome(const Result<void>& result) { return result ? FF_OK : failed(result.error()); }

}  // namespace ff::library

const char* ff_version(void) { return FF_VERSION; }
const char* ff_error(void) { return last_error.c_str(); }

int ff_comm_init(ff_comm** comm, const ff_comm_options* options) {
  if (comm == nullptr) return failed(ff::fail(Errc::usage, "no place for the communicator"));
  *comm = nullptr;
  auto made = std::make_unique<ff_comm>();
  if (auto joined = init(*made, options); !joined) return failed(joined.error());
  *comm = made.release();
  return FF_OK;
}

void ff_comm_destroy(ff_comm* comm) {
  if (comm == nullptr) return;
  // In a child its threads are not there: it is left as it is.
  if (comm->process == ::getpid()) delete comm;
}

uint32_t ff_comm_rank(const ff_comm* comm) { return comm != nullptr ? comm->ranks->rank() : 0; }
uint32_t ff_comm_ranks(const ff_comm* comm) { return comm != nullptr ? comm->ranks->ranks() : 0; }

int ff_alloc(ff_comm* comm, size_t bytes, void** memory) {
  if (auto checked = check(comm); !checked) return failed(checked.error());
  if (memory == nullptr) return failed(ff::fail(Errc::usage, "no place for the address"));
  auto made = comm->ranks->allocate(bytes);
  if (!made) return failed(made.error());
  *memory = made->data();
  return FF_OK;
}

int ff_free(ff_comm* comm, void* memory) {
  if (auto checked = check(comm); !checked) return failed(checked.error());
  return outcome(comm->ranks->free(memory));
}

int ff_allreduce(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, ff_op op) {
  Operation operation = operation_of(Collective::allreduce, in, out, count, type);
  operation.op = static_cast<ff::simd::ReduceOp>(op);
  return run(comm, operation);
}

int ff_allreduce_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                       ff_op op, uint64_t* number) {
  if (number == nullptr) return failed(ff::fail(Errc::usage, "no place for the number"));
  Operation operation = operation_of(Collective::allreduce, in, out, count, type);
  operation.op = static_cast<ff::simd::ReduceOp>(op);
  const auto started = start(comm, operation);
  if (!started) return failed(started.error());
  *number = *started;
  return FF_OK;
}

int ff_reduce(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, ff_op op,
              uint32_t root) {
  Operation operation = operation_of(Collective::reduce, in, out, count, type);
  operation.op = static_cast<ff::simd::ReduceOp>(op);
  operation.root = root;
  return run(comm, operation);
}

int ff_broadcast(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                 uint32_t root) {
  Operation operation = operation_of(Collective::broadcast, in, out, count, type);
  operation.root = root;
  return run(comm, operation);
}

int ff_allgather(ff_comm* comm, const void* in, void* out, size_t count, ff_type type) {
  return run(comm, operation_of(Collective::allgather, in, out, count, type));
}

int ff_reduce_scatter(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                      ff_op op) {
  Operation operation = operation_of(Collective::reduce_scatter, in, out, count, type);
  operation.op = static_cast<ff::simd::ReduceOp>(op);
  return run(comm, operation);
}

int ff_barrier(ff_comm* comm) { return run(comm, {.kind = Collective::barrier}); }

int ff_wait(ff_comm* comm, uint64_t number) {
  if (auto checked = check(comm); !checked) return failed(checked.error());
  return outcome(comm->ranks->wait(number));
}
