// libff.so with arrays of a device: its functions between processes, on the fake driver; and what
// it says where there is no driver, which it does not even look for unless it has to.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "platform/base/rng.h"
#include "training/bindings/ff.h"

namespace ff {
namespace {

constexpr uint32_t kDeviceRanks = 3;
constexpr size_t kCount = 2'500'000;  // of floats: three chunks

// The functions of tests/training/cuda/fake_cuda.h that this test calls.
struct FakeDevice {
  // Loads the fake library in place of NVIDIA's.
  bool load() {
    void* const library = ::dlopen(FF_FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL);
    const auto find = [&](auto& function, const char* name) {
      if (library == nullptr) return false;
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    return find(make_context, "fake_cuda_context") && find(make_stream, "fake_cuda_stream") &&
           find(alloc, "fake_cuda_alloc") && find(store, "fake_cuda_store") &&
           find(load_bytes, "fake_cuda_load") && find(write, "fake_cuda_write") &&
           find(hold, "fake_cuda_hold") && find(release, "fake_cuda_release") &&
           find(synchronize, "fake_cuda_synchronize") && find(fail, "fake_cuda_fail") &&
           find(reports, "fake_cuda_reports") && find(leaks, "fake_cuda_leaks");
  }

  void* (*make_context)() = nullptr;
  void* (*make_stream)(void* context) = nullptr;
  void* (*alloc)(void* context, size_t bytes) = nullptr;
  void (*store)(void* memory, const void* from, size_t bytes) = nullptr;
  void (*load_bytes)(const void* memory, void* to, size_t bytes) = nullptr;
  void (*write)(void* stream, void* memory, const void* from, size_t bytes) = nullptr;
  void (*hold)(void* stream) = nullptr;
  void (*release)(void* stream) = nullptr;
  int (*synchronize)(void* stream) = nullptr;
  void (*fail)(void* context, const char* function, unsigned nth, int code) = nullptr;
  size_t (*reports)(char* text, size_t bytes) = nullptr;
  size_t (*leaks)() = nullptr;
};

// A rank with a device, and arrays on it for all ranks.
struct RankOnDevice {
  ff_comm* comm = nullptr;
  uint32_t rank = 0;
  FakeDevice fake = {};
  void* context = nullptr;
  void* stream = nullptr;
  float *in = nullptr, *out = nullptr;  // of the device

  bool open() {
    if (!fake.load()) return false;
    rank = ff_comm_rank(comm);
    context = fake.make_context();
    stream = fake.make_stream(context);
    in = static_cast<float*>(fake.alloc(context, kDeviceRanks * kCount * sizeof(float)));
    out = static_cast<float*>(fake.alloc(context, kDeviceRanks * kCount * sizeof(float)));
    return true;
  }
  void fill(float* to, size_t count, float value) const {
    const std::vector<float> values(count, value);
    fake.store(to, values.data(), count * sizeof(float));
  }
  // Whether `count` elements have this value, once the stream is done.
  bool has(const float* from, size_t count, float value) const {
    std::vector<float> values(count);
    if (fake.synchronize(stream) != 0) return false;
    fake.load_bytes(from, values.data(), count * sizeof(float));
    return values == std::vector<float>(count, value);
  }
  bool is_clean() const {
    char text[1 << 12];
    const size_t count = fake.reports(text, sizeof text);
    if (count > 0) std::fputs(text, stderr);
    return count == 0;
  }
};

// Each rank in a process, which `body` may end early with another code than 0. `body` destroys the
// communicator if it likes.
void with_devices(const std::function<int(RankOnDevice&)>& body, bool with_driver = true,
                  const std::function<void(ff_comm_options&)>& change = {}) {
  SeededRng rng(system_seed());
  const std::string job = "device-" + rng.hex_id();
  std::vector<pid_t> pids;
  for (uint32_t rank = 0; rank < kDeviceRanks; rank++) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid > 0) {
      pids.push_back(pid);
      continue;
    }
    ff_comm_options options = {};
    options.size = sizeof options;
    options.rank = rank;
    options.ranks = kDeviceRanks;
    options.job = job.c_str();
    if (change) change(options);
    RankOnDevice one;
    int code = ff_comm_init(&one.comm, &options);
    if (code == FF_OK && with_driver && !one.open()) code = 90;
    if (code == FF_OK) code = body(one);
    if (code != 0) std::fprintf(stderr, "rank %u: %d, %s\n", rank, code, ff_error());
    ff_comm_destroy(one.comm);
    if (code == 0 && with_driver && (!one.is_clean() || one.fake.leaks() != 0)) code = 91;
    ::_exit(code);
  }
  for (const pid_t pid : pids) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
}

bool said_of_device(const char* what) {
  return std::string(ff_error()).find(what) != std::string::npos;
}

TEST(DeviceTest, EveryOperation) {
  with_devices([](RankOnDevice& one) {
    const auto mine = static_cast<float>(one.rank + 1);
    ff_comm* const comm = one.comm;
    one.fill(one.in, kCount, mine);
    if (ff_allreduce_on(comm, one.in, one.out, kCount, FF_FLOAT32, FF_SUM, one.stream) != 0)
      return 10;
    if (!one.has(one.out, kCount, 6)) return 11;
    if (ff_reduce_on(comm, one.in, one.out, kCount, FF_FLOAT32, FF_MAX, 1, one.stream) != 0)
      return 12;
    if (!one.has(one.out, kCount, one.rank == 1 ? 3 : 6)) return 13;
    if (ff_broadcast_on(comm, one.in, one.out, kCount, FF_FLOAT32, 2, one.stream) != 0) return 14;
    if (!one.has(one.out, kCount, 3)) return 15;
    if (ff_allgather_on(comm, one.in, one.out, kCount, FF_FLOAT32, one.stream) != 0) return 16;
    for (uint32_t rank = 0; rank < kDeviceRanks; rank++) {
      if (!one.has(one.out + rank * kCount, kCount, static_cast<float>(rank + 1))) return 17;
    }
    if (ff_reduce_scatter_on(comm, one.out, one.in, kCount, FF_FLOAT32, FF_AVG, one.stream) != 0)
      return 18;
    if (!one.has(one.in, kCount, mine)) return 19;
    return ff_barrier(comm);
  });
}

TEST(DeviceTest, RanksOfTwoHosts) {
  // One of loopback that was free a moment ago.
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &size), 0);
  ::close(socket);
  const std::string master = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  const auto body = [](RankOnDevice& one) {
    one.fill(one.in, kCount, static_cast<float>(one.rank));
    const auto run = [&] {
      return ff_allreduce_on(one.comm, one.in, one.out, kCount, FF_FLOAT32, FF_SUM, one.stream);
    };
    if (run() != FF_OK || !one.has(one.out, kCount, 3)) return 10;
    // An error of the other host's rank.
    if (ff_barrier(one.comm) != FF_OK) return 11;
    if (one.rank == 2) one.fake.fail(one.context, "cuMemcpyHtoDAsync", 1, 700);
    if (run() != FF_FAILED) return 12;
    return said_of_device("rank 2 (") && said_of_device("cuMemcpyHtoDAsync") ? 0 : 13;
  };
  with_devices(body, true, [&](ff_comm_options& options) {
    options.local_ranks = options.rank < 2 ? 2 : 1;
    options.local_rank = options.rank % 2;
    options.master = master.c_str();
  });
}

TEST(DeviceTest, AsynchronousOperationsInOrder) {
  with_devices([](RankOnDevice& one) {
    ff_comm* const comm = one.comm;
    uint64_t numbers[5] = {};
    one.fill(one.out, kCount, 0);
    one.fake.hold(one.stream);
    const std::vector<float> late(kCount, static_cast<float>(one.rank));
    one.fake.write(one.stream, one.in, late.data(), kCount * sizeof(float));
    void* const stream = one.stream;
    if (ff_allreduce_on_async(comm, one.in, one.in, kCount, FF_FLOAT32, FF_SUM, stream,
                              &numbers[0]) != 0 ||
        ff_broadcast_on_async(comm, one.in, one.in, kCount, FF_FLOAT32, 1, stream, &numbers[1]) !=
            0 ||
        ff_reduce_on_async(comm, one.in, one.in, kCount, FF_FLOAT32, FF_SUM, 2, stream,
                           &numbers[2]) != 0 ||
        ff_allgather_on_async(comm, one.in, one.out, 1000, FF_FLOAT32, stream, &numbers[3]) != 0 ||
        ff_reduce_scatter_on_async(comm, one.out, one.out + one.rank * 1000, 1000, FF_FLOAT32,
                                   FF_MAX, stream, &numbers[4]) != 0) {
      return 10;
    }
    one.fake.release(one.stream);
    uint64_t host = 0;  // starts when those have ended
    if (ff_barrier_async(comm, &host) != 0) return 11;
    for (int i = 4; i >= 0; i--) {
      if (ff_wait(comm, numbers[i]) != 0) return 12;
    }
    if (ff_wait(comm, host) != 0) return 13;
    if (ff_wait(comm, numbers[0]) != FF_USAGE || !said_of_device("was waited for")) return 14;
    const float sum = one.rank == 2 ? 9 : 3;  // 0 + 1 + 2, and that of three ranks
    if (!one.has(one.in, kCount, sum)) return 15;
    return one.has(one.out + one.rank * 1000, 1000, one.rank == 2 ? 9 : 3) ? 0 : 16;
  });
}

TEST(DeviceTest, AnErrorOfOneDeviceIsThatOfAllRanks) {
  with_devices([](RankOnDevice& one) {
    one.fill(one.in, kCount, 1);
    const auto run = [&] {
      return ff_allreduce_on(one.comm, one.in, one.in, kCount, FF_FLOAT32, FF_SUM, one.stream);
    };
    if (run() != FF_OK || ff_barrier(one.comm) != FF_OK) return 10;
    if (one.rank == 1) one.fake.fail(one.context, "cuMemcpyDtoHAsync", 2, 700);
    if (run() != FF_FAILED) return 11;
    if (!said_of_device("rank 1 (process") || !said_of_device("CUDA_ERROR_ILLEGAL_ADDRESS"))
      return 12;
    // The others go on.
    ff_comm* rest = nullptr;
    if (one.rank == 1) return 0;
    if (ff_comm_shrink(one.comm, &rest) != FF_OK) return 13;
    const int code = ff_allreduce_on(rest, one.in, one.out, 1000, FF_FLOAT32, FF_MIN, one.stream);
    ff_comm_destroy(rest);
    return code;
  });
}

TEST(DeviceTest, OperationsInFlightAreAbandoned) {
  with_devices([](RankOnDevice& one) {
    one.fill(one.in, kCount, 1);
    // Others may have left already.
    for (int i = 0; i < 5; i++) {
      uint64_t number = 0;
      (void)ff_allreduce_on_async(one.comm, one.in, one.in, kCount, FF_FLOAT32, FF_SUM, one.stream,
                                  &number);
    }
    return 0;
  });
}

// Whether a library of that name is in this process.
bool is_loaded(const char* name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(name) != std::string::npos) return true;
  }
  return false;
}

TEST(DeviceTest, ADriverThatIsNotThere) {
  if (::dlopen("libcuda.so.1", RTLD_NOW) != nullptr) GTEST_SKIP() << "this machine has a driver";
  with_devices(
      [](RankOnDevice& one) {
        float value = 1;
        if (ff_allreduce_on(one.comm, &value, &value, 1, FF_FLOAT32, FF_SUM, nullptr) != FF_FAILED)
          return 10;
        if (!said_of_device("libcuda.so.1") || !said_of_device("Install NVIDIA's driver"))
          return 11;
        // Arrays of the host are as before.
        if (ff_allreduce(one.comm, &value, &value, 1, FF_FLOAT32, FF_SUM) != FF_OK) return 12;
        return value == 3 ? 0 : 13;
      },
      false);
}

TEST(DeviceTest, NobodyLooksForADriverWithoutNeed) {
  with_devices(
      [](RankOnDevice& one) {
        float value = 1;
        if (ff_allreduce(one.comm, &value, &value, 1, FF_FLOAT32, FF_SUM) != FF_OK) return 10;
        return is_loaded("libcuda") ? 11 : 0;
      },
      false);
}

}  // namespace
}  // namespace ff
