// ff.cc: the communicator behind a C interface.
#include "training/bindings/ff.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "platform/io/system_disk.h"
#include "training/bindings/last_error.h"
#include "training/collective/communicator.h"
#include "training/collective/environment.h"
#include "training/cuda/device_operations.h"

using ff::Errc;
using ff::Error;
using ff::Result;
using ff::bindings::failed;
using ff::bindings::outcome;
using ff::collective::Collective;
using ff::collective::Communicator;
using ff::collective::MessageBuffer;
using ff::collective::Operation;
using ff::cuda::DeviceOperations;

struct ff_comm {
  ff::SystemClock clock = {};
  ff::StopToken stop{clock};
  pid_t process = ::getpid();
  std::unique_ptr<Communicator> ranks = {};
  std::unique_ptr<DeviceOperations> device = {};  // null before the first one
};

namespace {

thread_local std::string last_error;

// Errc::usage: null, or made by another process.
Result<void> check_comm(const ff_comm* comm) {
  if (comm == nullptr) return ff::fail(Errc::usage, "the communicator is null");
  if (comm->process == ::getpid()) return {};
  return ff::fail(Errc::usage, "process {} made the communicator: it does not outlive a fork",
                  comm->process);
}

Result<void> check_type(ff::simd::DataType type) {
  if (static_cast<size_t>(type) >= ff::simd::kDataTypes) {
    return ff::fail(Errc::usage, "{} is not an ff_type", static_cast<int>(type));
  }
  return {};
}

Result<void> check_operation(const Operation& operation) {
  FF_TRY(check_type(operation.type));
  if (static_cast<size_t>(operation.op) >= ff::simd::kReduceOps) {
    return ff::fail(Errc::usage, "{} is not an ff_op", static_cast<int>(operation.op));
  }
  return {};
}

Result<uint64_t> start_operation(ff_comm* comm, const Operation& operation) {
  FF_TRY(check_comm(comm));
  FF_TRY(check_operation(operation));
  if (comm->device != nullptr) comm->device->drain();
  return comm->ranks->start(operation);
}

Result<uint64_t> start_on_device(ff_comm* comm, const Operation& operation, void* stream) {
  FF_TRY(check_comm(comm));
  FF_TRY(check_operation(operation));
  if (comm->device == nullptr) {
    const Result<ff::cuda::Driver>& driver = ff::cuda::Driver::of_machine();
    if (!driver) return driver.error();
    comm->device = std::make_unique<DeviceOperations>(*driver, *comm->ranks, comm->stop,
                                                      ff::cuda::DeviceOptions());
  }
  return comm->device->start(operation, static_cast<ff::cuda::CUstream>(stream));
}

int wait_for(ff_comm* comm, const Result<uint64_t>& number) {
  if (!number) return failed(number.error());
  return outcome(comm->ranks->wait(*number));
}
int run(ff_comm* comm, const Operation& operation) {
  return wait_for(comm, start_operation(comm, operation));
}

int run_on_device(ff_comm* comm, const Operation& operation, void* stream) {
  const Result<uint64_t> number = start_on_device(comm, operation, stream);
  if (!number) return failed(number.error());
  return outcome(comm->device->wait(*number));
}

// Starts what `begin` starts, and stores its number.
template <class Begin>
int start_numbered(uint64_t* number, Begin begin) {
  if (number == nullptr) return failed(ff::fail(Errc::usage, "number is null"));
  const Result<uint64_t> started = begin();
  if (!started) return failed(started.error());
  *number = *started;
  return FF_OK;
}
int start_numbered(ff_comm* comm, const Operation& operation, uint64_t* number) {
  return start_numbered(number, [&] { return start_operation(comm, operation); });
}
int start_numbered(ff_comm* comm, const Operation& operation, void* stream, uint64_t* number) {
  return start_numbered(number, [&] { return start_on_device(comm, operation, stream); });
}

// Makes a communicator out of another one; `join` may give a null one.
template <class Join>
int make_from(const ff_comm* comm, ff_comm** made, Join join) {
  if (made == nullptr) return failed(ff::fail(Errc::usage, "made is null"));
  *made = nullptr;
  if (auto checked = check_comm(comm); !checked) return failed(checked.error());
  auto part = std::make_unique<ff_comm>();
  auto joined = join(part->stop);
  if (!joined) return failed(joined.error());
  if (*joined == nullptr) return FF_OK;
  part->ranks = std::move(*joined);
  *made = part.release();
  return FF_OK;
}

Operation operation_of(Collective kind, const void* in, void* out, size_t count, ff_type type) {
  return {.kind = kind,
          .type = static_cast<ff::simd::DataType>(type),
          .count = count,
          .in = in,
          .out = out};
}
Operation with_op(Operation operation, ff_op op) {
  operation.op = static_cast<ff::simd::ReduceOp>(op);
  return operation;
}
Operation with_root(Operation operation, uint32_t root) {
  operation.root = root;
  return operation;
}

// The counts must stay until the operation is started; it copies what it needs of them.
Operation alltoallv_of(const ff_comm* comm, const void* in, const size_t* in_counts, void* out,
                       const size_t* out_counts, ff_type type) {
  Operation operation = operation_of(Collective::alltoall, in, out, 0, type);
  const size_t ranks = ff_comm_ranks(comm);
  if (in_counts != nullptr) operation.in_counts = {in_counts, ranks};
  if (out_counts != nullptr) operation.out_counts = {out_counts, ranks};
  return operation;
}

Result<MessageBuffer> buffer_of(const void* data, size_t count, ff_type type) {
  const auto element = static_cast<ff::simd::DataType>(type);
  FF_TRY(check_type(element));
  const uint64_t size = ff::simd::size_of(element);
  if (count > UINT64_MAX / size) return ff::fail(Errc::usage, "a message: too many elements");
  return MessageBuffer{.memory = const_cast<void*>(data), .bytes = count * size};
}
Result<uint64_t> start_send(ff_comm* comm, const void* data, size_t count, ff_type type,
                            uint32_t to, uint32_t tag) {
  FF_TRY(check_comm(comm));
  FF_TRY(const MessageBuffer buffer, buffer_of(data, count, type));
  return comm->ranks->start_send(buffer, to, tag);
}
Result<uint64_t> start_receive(ff_comm* comm, void* data, size_t count, ff_type type, uint32_t from,
                               uint32_t tag, uint32_t* source) {
  FF_TRY(check_comm(comm));
  FF_TRY(const MessageBuffer buffer, buffer_of(data, count, type));
  return comm->ranks->start_receive(buffer, from, tag, source);
}

// The options as environment variables, for read_job_config().
class OptionVariables {
 public:
  explicit OptionVariables(const ff_comm_options& given) {
    set("RANK", given.rank);
    set("WORLD_SIZE", given.ranks);
    if (given.local_ranks > 0) {
      set("LOCAL_RANK", given.local_rank);
      set("LOCAL_WORLD_SIZE", given.local_ranks);
    }
    const char* const zone = std::getenv("FF_ZONE");
    if (given.zone == 0 && zone != nullptr) {
      values_["FF_ZONE"] = zone;
    } else {
      set("FF_ZONE", given.zone);
    }
    for (const char* const name : {"FF_NET", "FF_NET_SECURITY"}) {
      const char* const value = std::getenv(name);
      if (value != nullptr) values_[name] = value;
    }
    set("FF_DETERMINISTIC", given.deterministic != 0 ? 1 : 0);
    for (const auto& [name, value] :
         {std::pair{"FF_KEY_FILE", given.key_file}, std::pair{"FF_ALGO", given.algorithm},
          std::pair{"FF_WIRE", given.wire}}) {
      if (value != nullptr) values_[name] = value;
    }
  }
  // Where rank 0 listens.
  Result<void> set_master(const char* text) {
    FF_TRY(const ff::net::Address at, ff::net::parse_address(text));
    values_["MASTER_ADDR"] = at.host;
    set("MASTER_PORT", at.port);
    set("FF_PORT", at.port);
    return {};
  }
  const char* operator()(const char* name) const {
    const auto found = values_.find(name);
    return found != values_.end() ? found->second.c_str() : nullptr;
  }

 private:
  void set(const char* name, uint64_t number) { values_[name] = fmt::format("{}", number); }

  std::map<std::string, std::string> values_;
};

Result<ff::collective::JobConfig> job_config_of(const ff_comm_options& given) {
  if (given.size != sizeof given) {
    return ff::fail(Errc::usage, "ff_comm_options was compiled with another version of ff.h");
  }
  if (given.job == nullptr || *given.job == '\0' || std::strlen(given.job) > 64) {
    return ff::fail(Errc::usage, "the job name must have 1 to 64 characters");
  }
  const bool is_here = given.local_ranks == 0 || given.local_ranks == given.ranks;
  if (is_here) {
    ff::collective::JobConfig config;
    config.self = {.rank = given.rank, .ranks = given.ranks, .job = given.job};
    config.network.ranks = given.ranks;
    return config;
  }
  if (given.master == nullptr) {
    return ff::fail(Errc::usage, "{} of {} ranks are on this host, and master is null",
                    given.local_ranks, given.ranks);
  }
  OptionVariables variables(given);
  FF_TRY(variables.set_master(given.master));
  ff::io::SystemDisk disk;
  FF_TRY(ff::collective::JobConfig config,
         ff::collective::read_job_config(variables, std::nullopt, disk));
  config.self.job = fmt::format("{}-{}", given.job, config.self.first_rank);
  return config;
}

// Nanoseconds of a time limit in seconds; 0: the default. Errc::usage: negative, or not a number.
Result<int64_t> ns_of(const char* name, double seconds) {
  constexpr double kDefault = 60;
  if (std::isnan(seconds) || seconds < 0) {
    return ff::fail(Errc::usage,
                    "{} is {}: expected seconds, 0 for the default, or infinity for none", name,
                    seconds);
  }
  const double ns = (seconds > 0 ? seconds : kDefault) * ff::kSecond;
  constexpr int64_t kLongest = ff::collective::kNoTimeLimit;
  return ns < static_cast<double>(kLongest) ? static_cast<int64_t>(ns) : kLongest;
}

Result<void> init(ff_comm& comm, const ff_comm_options* given) {
  ff::collective::JobConfig config;
  ff::collective::CommunicatorOptions options;
  if (given != nullptr) {
    FF_TRY(config, job_config_of(*given));
    FF_TRY(options.join_ns, ns_of("join_seconds", given->join_seconds));
    FF_TRY(options.operation_ns, ns_of("operation_seconds", given->operation_seconds));
  } else {
    ff::io::SystemDisk disk;
    FF_TRY(config, ff::collective::read_job_config(::getenv, std::nullopt, disk));
  }
  FF_TRY(options.pin, ff::collective::read_pin_threads(::getenv));
  FF_TRY(comm.ranks, Communicator::join(config.self, comm.stop, options, config.network));
  return {};
}

}  // namespace

namespace ff::bindings {

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

}  // namespace ff::bindings

const char* ff_version(void) { return FF_VERSION; }
const char* ff_error(void) { return last_error.c_str(); }

int ff_comm_init(ff_comm** comm, const ff_comm_options* options) {
  if (comm == nullptr) return failed(ff::fail(Errc::usage, "comm is null"));
  *comm = nullptr;
  auto made = std::make_unique<ff_comm>();
  if (auto joined = init(*made, options); !joined) return failed(joined.error());
  *comm = made.release();
  return FF_OK;
}

void ff_comm_destroy(ff_comm* comm) {
  if (comm == nullptr) return;
  // A forked child does not have its threads, so it must not destroy it.
  if (comm->process == ::getpid()) delete comm;
}

int ff_comm_split(ff_comm* comm, uint32_t color, uint32_t key, ff_comm** made) {
  return make_from(comm, made, [&](const ff::StopToken& stop) {
    if (comm->device != nullptr) comm->device->drain();
    return comm->ranks->split(color, key, stop);
  });
}

int ff_comm_shrink(ff_comm* comm, ff_comm** made) {
  return make_from(comm, made,
                   [&](const ff::StopToken& stop) { return comm->ranks->shrink(stop); });
}

uint32_t ff_comm_rank(const ff_comm* comm) { return comm != nullptr ? comm->ranks->rank() : 0; }
uint32_t ff_comm_ranks(const ff_comm* comm) { return comm != nullptr ? comm->ranks->ranks() : 0; }

int ff_alloc(ff_comm* comm, size_t bytes, void** memory) {
  if (auto checked = check_comm(comm); !checked) return failed(checked.error());
  if (memory == nullptr) return failed(ff::fail(Errc::usage, "memory is null"));
  auto made = comm->ranks->allocate(bytes);
  if (!made) return failed(made.error());
  *memory = made->data();
  return FF_OK;
}

int ff_free(ff_comm* comm, void* memory) {
  if (auto checked = check_comm(comm); !checked) return failed(checked.error());
  return outcome(comm->ranks->free(memory));
}

int ff_allreduce(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, ff_op op) {
  return run(comm, with_op(operation_of(Collective::allreduce, in, out, count, type), op));
}
int ff_allreduce_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                       ff_op op, uint64_t* number) {
  return start_numbered(
      comm, with_op(operation_of(Collective::allreduce, in, out, count, type), op), number);
}

int ff_reduce(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, ff_op op,
              uint32_t root) {
  return run(comm,
             with_root(with_op(operation_of(Collective::reduce, in, out, count, type), op), root));
}
int ff_reduce_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, ff_op op,
                    uint32_t root, uint64_t* number) {
  return start_numbered(
      comm, with_root(with_op(operation_of(Collective::reduce, in, out, count, type), op), root),
      number);
}

int ff_broadcast(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                 uint32_t root) {
  return run(comm, with_root(operation_of(Collective::broadcast, in, out, count, type), root));
}
int ff_broadcast_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                       uint32_t root, uint64_t* number) {
  return start_numbered(
      comm, with_root(operation_of(Collective::broadcast, in, out, count, type), root), number);
}

int ff_allgather(ff_comm* comm, const void* in, void* out, size_t count, ff_type type) {
  return run(comm, operation_of(Collective::allgather, in, out, count, type));
}
int ff_allgather_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                       uint64_t* number) {
  return start_numbered(comm, operation_of(Collective::allgather, in, out, count, type), number);
}

int ff_reduce_scatter(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                      ff_op op) {
  return run(comm, with_op(operation_of(Collective::reduce_scatter, in, out, count, type), op));
}
int ff_reduce_scatter_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                            ff_op op, uint64_t* number) {
  return start_numbered(
      comm, with_op(operation_of(Collective::reduce_scatter, in, out, count, type), op), number);
}

int ff_gather(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, uint32_t root) {
  return run(comm, with_root(operation_of(Collective::gather, in, out, count, type), root));
}
int ff_gather_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                    uint32_t root, uint64_t* number) {
  return start_numbered(
      comm, with_root(operation_of(Collective::gather, in, out, count, type), root), number);
}

int ff_scatter(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
               uint32_t root) {
  return run(comm, with_root(operation_of(Collective::scatter, in, out, count, type), root));
}
int ff_scatter_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                     uint32_t root, uint64_t* number) {
  return start_numbered(
      comm, with_root(operation_of(Collective::scatter, in, out, count, type), root), number);
}

int ff_alltoallv(ff_comm* comm, const void* in, const size_t* in_counts, void* out,
                 const size_t* out_counts, ff_type type) {
  return run(comm, alltoallv_of(comm, in, in_counts, out, out_counts, type));
}
int ff_alltoallv_async(ff_comm* comm, const void* in, const size_t* in_counts, void* out,
                       const size_t* out_counts, ff_type type, uint64_t* number) {
  return start_numbered(comm, alltoallv_of(comm, in, in_counts, out, out_counts, type), number);
}

int ff_allreduce_on(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, ff_op op,
                    void* stream) {
  return run_on_device(comm, with_op(operation_of(Collective::allreduce, in, out, count, type), op),
                       stream);
}
int ff_allreduce_on_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                          ff_op op, void* stream, uint64_t* number) {
  return start_numbered(
      comm, with_op(operation_of(Collective::allreduce, in, out, count, type), op), stream, number);
}

int ff_reduce_on(ff_comm* comm, const void* in, void* out, size_t count, ff_type type, ff_op op,
                 uint32_t root, void* stream) {
  const Operation whole = operation_of(Collective::reduce, in, out, count, type);
  return run_on_device(comm, with_root(with_op(whole, op), root), stream);
}
int ff_reduce_on_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                       ff_op op, uint32_t root, void* stream, uint64_t* number) {
  const Operation whole = operation_of(Collective::reduce, in, out, count, type);
  return start_numbered(comm, with_root(with_op(whole, op), root), stream, number);
}

int ff_broadcast_on(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                    uint32_t root, void* stream) {
  return run_on_device(
      comm, with_root(operation_of(Collective::broadcast, in, out, count, type), root), stream);
}
int ff_broadcast_on_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                          uint32_t root, void* stream, uint64_t* number) {
  return start_numbered(comm,
                        with_root(operation_of(Collective::broadcast, in, out, count, type), root),
                        stream, number);
}

int ff_allgather_on(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                    void* stream) {
  return run_on_device(comm, operation_of(Collective::allgather, in, out, count, type), stream);
}
int ff_allgather_on_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                          void* stream, uint64_t* number) {
  return start_numbered(comm, operation_of(Collective::allgather, in, out, count, type), stream,
                        number);
}

int ff_reduce_scatter_on(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                         ff_op op, void* stream) {
  return run_on_device(
      comm, with_op(operation_of(Collective::reduce_scatter, in, out, count, type), op), stream);
}
int ff_reduce_scatter_on_async(ff_comm* comm, const void* in, void* out, size_t count, ff_type type,
                               ff_op op, void* stream, uint64_t* number) {
  return start_numbered(comm,
                        with_op(operation_of(Collective::reduce_scatter, in, out, count, type), op),
                        stream, number);
}

int ff_barrier(ff_comm* comm) { return run(comm, {.kind = Collective::barrier}); }
int ff_barrier_async(ff_comm* comm, uint64_t* number) {
  return start_numbered(comm, {.kind = Collective::barrier}, number);
}

int ff_send(ff_comm* comm, const void* data, size_t count, ff_type type, uint32_t to,
            uint32_t tag) {
  return wait_for(comm, start_send(comm, data, count, type, to, tag));
}
int ff_send_async(ff_comm* comm, const void* data, size_t count, ff_type type, uint32_t to,
                  uint32_t tag, uint64_t* number) {
  return start_numbered(number, [&] { return start_send(comm, data, count, type, to, tag); });
}

int ff_recv(ff_comm* comm, void* data, size_t count, ff_type type, uint32_t from, uint32_t tag,
            uint32_t* source) {
  return wait_for(comm, start_receive(comm, data, count, type, from, tag, source));
}
int ff_recv_async(ff_comm* comm, void* data, size_t count, ff_type type, uint32_t from,
                  uint32_t tag, uint32_t* source, uint64_t* number) {
  return start_numbered(number,
                        [&] { return start_receive(comm, data, count, type, from, tag, source); });
}

int ff_wait(ff_comm* comm, uint64_t number) {
  if (auto checked = check_comm(comm); !checked) return failed(checked.error());
  const bool on_device =
      number >= DeviceOperations::kFirst && number < 2 * DeviceOperations::kFirst;
  if (on_device && comm->device != nullptr) return outcome(comm->device->wait(number));
  return outcome(comm->ranks->wait(number));
}
