// Ranks as threads, each with a device of the fake driver, and arrays in the memory of devices.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "training/collective/checks.h"
#include "training/collective/ranks.h"
#include "training/cuda/device_operations.h"
#include "training/cuda/fake_cuda.h"

namespace ff::cuda {

using collective::Bytes;
using collective::Collective;
using collective::CollectiveRequest;
using collective::Communicator;
using collective::CommunicatorOptions;
using collective::Operation;
using simd::DataType;
using simd::ReduceOp;

// The test program is linked with the fake library, which has the name of the driver's.
inline const Driver& fake_driver() {
  static const Driver driver = Driver::load("libcuda.so.1").value();
  return driver;
}

// Small, so that arrays have many chunks.
constexpr DeviceOptions kSmallChunks{.chunk_bytes = 4096, .slots = 3};

struct DeviceRank {
  Communicator& ranks;
  DeviceOperations& device;
  void* context = nullptr;
  void* stream = nullptr;  // of the program

  CUstream handle() const { return static_cast<CUstream>(stream); }
  // start() and wait().
  Result<void> run(const Operation& operation) {
    FF_TRY(const uint64_t number, device.start(operation, handle()));
    return device.wait(number);
  }
};

// What the fake driver has found since the last call.
inline std::string fake_reports() {
  std::string text(1 << 16, '\0');
  (void)fake_cuda_reports(text.data(), text.size());
  text.resize(text.find('\0'));
  return text;
}

// What may remain when calls of the driver fail.
enum class Remains { nothing, anything };

// `body` on each rank. After it the fake driver has nothing to report, and nothing is left.
inline void with_device_ranks(uint32_t ranks, const std::function<void(DeviceRank&)>& body,
                              const CommunicatorOptions& options = {},
                              Remains remains = Remains::nothing) {
  const std::string job = collective::new_job();
  const Driver& driver = fake_driver();
  (void)fake_reports();
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    threads.emplace_back([&, rank] {
      SystemClock clock;
      StopToken stop(clock);
      auto joined = Communicator::join({.rank = rank, .ranks = ranks, .job = job}, stop, options);
      ASSERT_TRUE(joined.ok()) << joined.error().message;
      void* const context = fake_cuda_context();
      {
        DeviceOperations device(driver, **joined, stop, kSmallChunks);
        DeviceRank one{.ranks = **joined, .device = device, .context = context};
        one.stream = fake_cuda_stream(context);
        body(one);
      }
      EXPECT_TRUE(fake_cuda_destroy_context(context) == 0 || remains == Remains::anything);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string reports = fake_reports();
  EXPECT_TRUE(reports.empty() || remains == Remains::anything) << reports;
}

// An array of a device.
class DeviceArray {
 public:
  DeviceArray(void* context, size_t bytes)
      : memory_(static_cast<std::byte*>(fake_cuda_alloc(context, bytes))), bytes_(bytes) {}
  ~DeviceArray() { fake_cuda_free(memory_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  std::byte* at(uint64_t offset = 0) const { return memory_ + offset; }
  Bytes load() const {
    Bytes bytes(bytes_);
    fake_cuda_load(memory_, bytes.data(), bytes_);
    return bytes;
  }

 private:
  std::byte* const memory_;
  const size_t bytes_;
};

// An operation on arrays of the rank: a kernel writes the input when the operation has been started
// already, and another kernel reads the output after it.
inline void check_on_device(DeviceRank& rank, const CollectiveRequest& request, uint64_t test,
                            bool in_place) {
  const uint32_t self = rank.ranks.rank(), count = rank.ranks.ranks();
  const auto any = collective::Values::any;
  const Bytes input = input_of(request, self, count, test, any);
  const Bytes expected = expected_of(request, self, count, test, any);
  const size_t larger = std::max(input.size(), expected.size());
  const DeviceArray first(rank.context, in_place ? larger : input.size());
  const DeviceArray second(rank.context, in_place ? 0 : expected.size());
  std::byte* in = first.at();
  std::byte* out = in_place ? first.at() : second.at();
  const uint64_t offset = in_place ? in_place_offset(request, self) : 0;
  (request.kind == Collective::allgather ? in : out) += offset;
  fake_cuda_hold(rank.stream);
  fake_cuda_write(rank.stream, in, input.data(), input.size());
  const auto started = rank.device.start({.kind = request.kind,
                                          .type = request.type,
                                          .op = request.op,
                                          .root = request.root,
                                          .count = request.count,
                                          .in = in,
                                          .out = out},
                                         rank.handle());
  fake_cuda_release(rank.stream);
  ASSERT_TRUE(started.ok()) << started.error().message;
  const auto waited = rank.device.wait(*started);
  ASSERT_TRUE(waited.ok()) << waited.error().message;
  Bytes got(expected.size());
  fake_cuda_read(rank.stream, out, got.data(), got.size());
  ASSERT_EQ(fake_cuda_synchronize(rank.stream), 0);
  EXPECT_EQ(got, expected) << text_of(request) << " on rank " << self << " of " << count
                           << (in_place ? ", in place" : "");
}

// An array of `count` floats, and the operation that sums it over all ranks, in place.
struct FloatSum {
  FloatSum(DeviceRank& rank, uint64_t count, float value)
      : array(rank.context, count * sizeof(float)),
        operation{.count = count, .in = array.at(), .out = array.at()} {
    const std::vector<float> values(count, value);
    fake_cuda_store(array.at(), values.data(), count * sizeof(float));
  }
  std::vector<float> load() const {
    const Bytes bytes = array.load();
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  DeviceArray array;
  Operation operation;
};

}  // namespace ff::cuda
