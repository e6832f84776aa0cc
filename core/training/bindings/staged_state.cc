// staged_state.cc: the layout of a state, and the copy, for which the training waits.
#include "training/bindings/staged_state.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "platform/base/text.h"
#include "platform/io/memory_file.h"
#include "training/bindings/quiet_thread.h"
#include "training/checkpoint/format/safetensors.h"

namespace ff::bindings {
namespace {

// A few cores use the whole memory bandwidth. Each copies at least this much, so that starting a
// thread costs little in comparison.
constexpr uint64_t kThreadsMax = 8;
constexpr uint64_t kBytesOfThread = 16 * kMiB;

Result<void> check_tensor(const ff_tensor& tensor) {
  const std::string_view name = tensor.name != nullptr ? tensor.name : "";
  const auto wrong = [&](std::string_view what) {
    return fail(Errc::usage, "tensor '{}': {}", printable(name), what);
  };
  if (name.empty() || !valid_utf8(name)) return wrong("its name is empty or not UTF-8");
  const unsigned bits = tensor.dtype != nullptr ? checkpoint::dtype_bits(tensor.dtype) : 0;
  if (bits == 0) return wrong("safetensors has no such type");
  if (tensor.dimensions > 0 && tensor.shape == nullptr) return wrong("its shape is null");
  uint64_t total = bits;
  for (size_t i = 0; i < tensor.dimensions; i++) {
    if (__builtin_mul_overflow(total, tensor.shape[i], &total)) return wrong("its shape overflows");
  }
  if (total % 8 == 0 && total / 8 == tensor.bytes) return {};
  return wrong(fmt::format("{} bytes of data for a shape of {} bits", tensor.bytes, total));
}

Result<checkpoint::SafetensorsMetadata> pairs_of(std::span<const ff_text> metadata) {
  checkpoint::SafetensorsMetadata pairs;
  for (const auto& text : metadata) {
    if (text.key == nullptr || text.value == nullptr || !valid_utf8(text.key) ||
        !valid_utf8(text.value)) {
      return fail(Errc::usage, "a text of the metadata is null or not UTF-8");
    }
    pairs.emplace_back(text.key, text.value);
  }
  return pairs;
}

struct Copy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
};

// Copies bytes [begin, end) of all tensors, as if they were one array.
void copy_range(std::span<const Copy> copies, uint64_t begin, uint64_t end) {
  uint64_t at = 0;
  for (const auto& copy : copies) {
    const uint64_t from = std::max(begin, at);
    const uint64_t to = std::min(end, at + copy.bytes);
    if (from < to) std::memcpy(copy.to + (from - at), copy.from + (from - at), to - from);
    at += copy.bytes;
  }
}

void copy_all(std::span<const Copy> copies) {
  uint64_t total = 0;
  for (const auto& copy : copies) total += copy.bytes;
  const uint64_t threads =
      std::clamp<uint64_t>(std::min<uint64_t>(std::thread::hardware_concurrency(), kThreadsMax), 1,
                           total / kBytesOfThread + 1);
  std::vector<std::thread> others;
  for (uint64_t i = 1; i < threads; i++) {
    others.push_back(quiet_thread([=] {
      copy_range(copies, total / threads * i, i + 1 == threads ? total : total / threads * (i + 1));
    }));
  }
  copy_range(copies, 0, threads == 1 ? total : total / threads);
  for (auto& other : others) other.join();
}

}  // namespace

Result<void> StagedState::make_room(uint64_t bytes, const std::function<void()>& before_free) {
  if (memory_ && memory_->all().size() >= bytes) return {};
  before_free();
  memory_.reset();
  FF_TRY(memory_, io::Buffers::make(1, align_up(std::max<uint64_t>(bytes, 1), io::kDirectAlign)));
  // Not inherited by a fork: copy-on-write would cost a page fault for each page of the next copy.
  ::madvise(memory_->all().data(), memory_->all().size(), MADV_DONTFORK);
  return {};
}

Result<void> StagedState::stage(std::span<const ff_tensor> tensors,
                                std::span<const ff_text> metadata, std::span<void*> places,
                                const std::function<void()>& before_free) {
  header_.clear();
  for (const auto& tensor : tensors) FF_TRY(check_tensor(tensor));
  FF_TRY(const auto pairs, pairs_of(metadata));
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](size_t i) { return checkpoint::dtype_bits(tensors[i].dtype); });
  checkpoint::SafetensorsHeaderWriter writer;
  if (!pairs.empty()) writer.metadata(pairs);
  for (const size_t i : order) {
    const ff_tensor& tensor = tensors[i];
    writer.tensor(tensor.name, tensor.dtype, {tensor.shape, tensor.shape + tensor.dimensions},
                  tensor.bytes);
  }
  bytes_ = writer.data_size();
  FF_TRY(auto header, writer.finish());
  FF_TRY(make_room(bytes_, before_free));
  std::byte* at = memory_->all().data();
  std::vector<Copy> copies;
  for (const size_t i : order) {
    const ff_tensor& tensor = tensors[i];
    places[i] = at;
    if (tensor.data != nullptr) {
      copies.push_back(
          {.to = at, .from = static_cast<const std::byte*>(tensor.data), .bytes = tensor.bytes});
    }
    at += tensor.bytes;
  }
  copy_all(copies);
  header_ = std::move(header);
  return {};
}

std::shared_ptr<io::File> StagedState::file(const std::string& name) {
  const ByteSpan header(reinterpret_cast<std::byte*>(header_.data()), header_.size());
  return std::make_shared<io::MemoryFile>(
      name, std::vector<ByteSpan>{header, memory_->all().first(bytes_)});
}

}  // namespace ff::bindings
