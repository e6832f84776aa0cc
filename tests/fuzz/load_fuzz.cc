// A whole store from anywhere, through load, export, salvage, verify and load into memory: no crash
// and no hang, memory stays bounded, nothing outside the destination is written, and errors name
// what they are about.
//
// The input is a byte that says what is done, and then lines:
//   #TEXT   the JSON header of a safetensors file, which becomes the next chunk
//   !TEXT   a damaged line of the index
//   TEXT    an object without its "}": a line of the index
// In lines of the index "@N" stands for the digest of chunk N, and "%N" for its length. All seals
// and CRC32Cs are made right afterwards, or few inputs would get past the checksums.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/check.h"
#include "platform/base/rng.h"
#include "platform/base/stop_token.h"
#include "platform/io/files.h"
#include "platform/sim/sim_clock.h"
#include "platform/sim/sim_disk.h"
#include "platform/simd/crc32c.h"
#include "training/checkpoint/format/chunk_file.h"
#include "training/checkpoint/format/safetensors.h"
#include "training/checkpoint/format/sealed_line.h"
#include "training/checkpoint/load/export.h"
#include "training/checkpoint/load/load.h"
#include "training/checkpoint/load/salvage.h"
#include "training/checkpoint/load/tensor_memory.h"
#include "training/checkpoint/load/verify.h"

// Memory that this program has at the moment, and the most since it was reset.
namespace {
std::atomic<int64_t> held_bytes{0};
std::atomic<int64_t> peak_bytes{0};
}  // namespace

void* operator new(size_t size) {
  void* const memory = std::malloc(std::max<size_t>(size, 1));
  if (memory == nullptr) throw std::bad_alloc();
  const auto usable = static_cast<int64_t>(::malloc_usable_size(memory));
  const int64_t now = held_bytes.fetch_add(usable) + usable;
  if (now > peak_bytes.load()) peak_bytes.store(now);
  return memory;
}
// std::stable_sort() takes this one, which AddressSanitizer replaces by its own.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) held_bytes -= static_cast<int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace {

using namespace ff;
using namespace ff::checkpoint;

constexpr int64_t kMemoryMax = 64 * int64_t{1 << 20};  // buffers of the actions take about 10 MiB
constexpr uint64_t kDiskBytes = 6 * kMiB;              // limits the time that a large result takes
constexpr uint64_t kMemoryRead = kMiB;                 // of tensors that are loaded into memory
constexpr unsigned kActions = 9;
constexpr unsigned kExport = 5;    // the number of this action
constexpr size_t kChunksMax = 10;  // "@9" is the last one
const std::string kStore = "/store";
const std::string kIndex = "/store/runs/default/1/index.jsonl";

struct StoredChunk {
  std::string data;
  simd::Digest digest;
};

StoredChunk chunk_of(std::string data) {
  const auto digest = simd::fingerprint(simd::DigestKind::xxh128, as_bytes(data)).digest;
  return {std::move(data), digest};
}

std::string header_of(std::string_view json) {
  std::string out(kSafetensorsLengthBytes, '\0');
  store_le(reinterpret_cast<std::byte*>(out.data()), uint64_t{json.size()});
  return out.append(json);
}

const std::string kHeaderJson = R"({"__metadata__":{"format":"pt","a":"b"},)"
                                R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                                R"("b":{"dtype":"U8","shape":[8],"data_offsets":[24,32]}})";

// The chunks that every store has.
std::vector<StoredChunk> common_chunks() {
  return {chunk_of(header_of(kHeaderJson)), chunk_of("0123456789abcdef0123456789abcdef"),
          chunk_of(std::string(5000, 'n'))};
}

void put(io::Disk& disk, const std::string& path, std::string_view content) {
  FF_CHECK(io::make_dirs(disk, io::parent(path)).ok());
  const auto file = disk.open(path, {.access = io::AccessMode::write, .create = true});
  FF_CHECK(file.ok() && (*file)->write_at(as_bytes(content), 0).ok());
}

void put_chunk(io::Disk& disk, const StoredChunk& chunk) {
  if (chunk.data.empty() || chunk.data.size() > kChunkBytes) return;
  const uint32_t crc = simd::crc32c(as_bytes(chunk.data));
  const ChunkHead head{.codec = Codec::raw,
                       .raw_length = chunk.data.size(),
                       .stored_length = chunk.data.size(),
                       .raw_crc = crc,
                       .stored_crc = crc,
                       .digest = chunk.digest};
  std::string file(kHeadBytes, '\0');
  encode_head(head, reinterpret_cast<std::byte*>(file.data()));
  file += chunk.data;
  file.resize(head.file_length(), '\0');
  const std::string hex = chunk.digest.hex();
  put(disk, kStore + "/chunks/" + hex.substr(0, 2) + "/" + hex, file);
}

// Replaces @N and %N.
std::string with_chunks(std::string_view line, const std::vector<StoredChunk>& chunks) {
  std::string out;
  for (size_t i = 0; i < line.size(); i++) {
    const bool token = (line[i] == '@' || line[i] == '%') && i + 1 < line.size();
    const size_t number = token ? static_cast<size_t>(line[i + 1] - '0') : chunks.size();
    if (number >= chunks.size()) {
      out += line[i];
      continue;
    }
    out +=
        line[i] == '@' ? chunks[number].digest.hex() : std::to_string(chunks[number].data.size());
    i++;
  }
  return out;
}

// A number at `at`, which moves behind it and the text that must follow.
bool read_number(std::string_view line, size_t& at, std::string_view then, uint64_t& number) {
  const char* const begin = line.data() + at;
  const auto [end, error] = std::from_chars(begin, line.data() + line.size(), number);
  if (error != std::errc()) return false;
  at += static_cast<size_t>(end - begin);
  if (!line.substr(at).starts_with(then)) return false;
  at += then.size();
  return true;
}

// Gives each extent the CRC32C of its bytes, if they exist.
void mend_crcs(std::string& line, const std::vector<StoredChunk>& chunks) {
  for (const StoredChunk& chunk : chunks) {
    const std::string start = "[\"" + chunk.digest.hex() + "\",";
    for (size_t found = line.find(start); found != line.npos; found = line.find(start, found + 1)) {
      size_t at = found + start.size();
      uint64_t offset = 0;
      uint64_t length = 0;
      if (!read_number(line, at, ",", offset) || !read_number(line, at, ",\"", length)) continue;
      if (offset > chunk.data.size() || length > chunk.data.size() - offset) continue;
      if (line.size() < at + 8) continue;
      const auto bytes = as_bytes(chunk.data).subspan(offset, length);
      line.replace(at, 8, fmt::format("{:08x}", simd::crc32c(bytes)));
    }
  }
}

void make_store(io::Disk& disk, std::string_view input) {
  put(disk, kStore + "/ff-store.json",
      seal_line(R"({"ff_store":1,"id":"0123456789abcdef","digest":"xxh128")"));
  put(disk, "/outside/file", "kept");
  FF_CHECK(io::make_dirs(disk, kStore + "/tmp").ok());
  auto chunks = common_chunks();
  std::vector<std::string_view> lines;
  while (!input.empty()) {
    const size_t end = std::min(input.find('\n'), input.size());
    const auto line = input.substr(0, end);
    input.remove_prefix(std::min(end + 1, input.size()));
    if (line.starts_with('#')) {
      if (chunks.size() == kChunksMax) continue;
      chunks.push_back(chunk_of(header_of(line.substr(1))));
    } else {
      lines.push_back(line);
    }
  }
  for (const auto& chunk : chunks) put_chunk(disk, chunk);
  std::string index;
  for (const auto line : lines) {
    if (line.starts_with('!')) {
      index += with_chunks(line.substr(1), chunks) + "\n";
      continue;
    }
    std::string text = with_chunks(line, chunks);
    mend_crcs(text, chunks);
    index += seal_line(std::move(text));
  }
  const auto digest = simd::fingerprint(simd::DigestKind::xxh128, as_bytes(index)).digest.hex();
  index += seal_line(
      fmt::format(R"({{"end":true,"files":0,"tensors":0,"size":0,"content":"{}","index":"{}")",
                  digest, digest));
  put(disk, kIndex, index);
}

// Reads tensors into memory, if they are small.
Result<void> load_memory(Context& context) {
  FF_TRY(const auto found,
         TensorMemory::plan(context, kStore, {.name = "@1", .rank = {}, .tensors = {}}));
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> into;
  uint64_t left = kMemoryRead;
  for (const auto& tensor : found->tensors()) {
    if (tensor.bytes > left) return {};
    left -= tensor.bytes;
    memory.emplace_back(tensor.bytes);
    into.push_back(memory.back().data());
  }
  return found->read(into);
}

Result<void> act(Context& context, unsigned action) {
  LoadOptions options;
  options.name = "@1";
  options.dest = "/dest";
  ExportOptions to_file;
  to_file.name = "@1";
  to_file.out = "/dest";
  VerifyOptions only;
  only.names = {"@1"};
  const auto outcome = [](const auto& result) {
    return result.ok() ? Result<void>() : Result<void>(result.error());
  };
  if (action == kExport) return outcome(export_safetensors(context, kStore, to_file));
  if (action == 6) return outcome(salvage(context, kStore, {.name = "@1", .dest = "/dest"}));
  if (action == 7) return load_memory(context);
  if (action == 8) return outcome(verify(context, kStore, only));
  if (action == 1) options.rank = 1;
  if (action == 2 || action == 3) options.tensors = {"*"};
  if (action == 3) options.slice = {{0, 1}, {1, 2}};
  if (action == 4) options.reshard = 2;
  return outcome(load(context, kStore, options));
}

// All names below a directory, and what they are; links are not followed.
void list_tree(io::Disk& disk, const std::string& dir, std::map<std::string, std::string>& out) {
  const auto entries = disk.list(dir);
  FF_CHECK(entries.ok());
  for (const auto& entry : *entries) {
    const std::string path = io::join(dir, entry.name);
    const auto info = disk.info(path);
    FF_CHECK(info.ok());
    out[path] = fmt::format("{} {} {:o}", static_cast<int>(info->kind), info->size, info->mode);
    if (entry.kind == io::FileKind::directory) list_tree(disk, path, out);
  }
}

// What is not the destination. The mark of verify may be there or not.
std::map<std::string, std::string> outside(io::Disk& disk) {
  std::map<std::string, std::string> all;
  list_tree(disk, "/", all);
  std::erase_if(all, [](const auto& one) {
    return one.first == "/dest" || one.first.starts_with("/dest/") ||
           one.first.ends_with("/1/verified");
  });
  return all;
}

// A message says which file, directory, checkpoint or tensor it is about.
bool names_something(const Error& error) {
  for (const std::string_view name : {"/store", "/dest", "@1", "tensor '"}) {
    if (error.message.find(name) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  sim::SimClock clock;
  sim::SimDisk disk(1, clock);
  disk.set_capacity(kDiskBytes);
  make_store(disk, input.substr(1));
  if (data[0] % 2 == 0) FF_CHECK(disk.make_dir("/dest", 0755).ok());
  if (data[0] % kActions == kExport) (void)disk.remove_dir("/dest");  // export makes a file
  const auto before = outside(disk);
  SeededRng rng(1);
  StopToken stop(clock);
  Progress progress;
  Context context{
      .disk = disk, .clock = clock, .rng = rng, .stop = stop, .progress = progress, .threads = 1};
  const int64_t held = held_bytes.load();
  peak_bytes.store(held);
  const auto done = act(context, data[0] % kActions);
  FF_CHECK(peak_bytes.load() - held < kMemoryMax);
  if (!done && !names_something(done.error())) {
    std::fprintf(stderr, "action %d: %s\n", data[0] % kActions, done.error().message.c_str());
    FF_CHECK(!"an error that names nothing");
  }
  FF_CHECK(outside(disk) == before);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const std::string header =
      R"({"ff_checkpoint":1,"run":"default","step":1,"world":1,"attempt":"","digest":"xxh128")";
  const auto safetensors = [](const std::string& name, unsigned rank, unsigned chunk,
                              size_t header_bytes) {
    return fmt::format(R"({{"file":"{}","rank":{},"kind":"safetensors","size":{},"mode":420,)"
                       R"("mtime_ns":5,"extents":[["@{}",0,%{},"00000000"]])",
                       name, rank, header_bytes + 32, chunk, chunk);
  };
  const std::string tensors =
      "\n"
      R"({"tensor":"w","dtype":"F32","shape":[2,3],"offset":0,"size":24,)"
      R"("extents":[["@1",0,24,"00000000"]])"
      "\n"
      R"({"tensor":"b","dtype":"U8","shape":[8],"offset":24,"size":8,"extents":[[8]])";
  const std::string slices =
      "\n"
      R"({"tensor":"w","dtype":"F32","shape":[2,3],"offset":0,"size":24,"global_shape":[2,6],)"
      R"("slice_start":[0,SLICE],"extents":[["@1",0,24,"00000000"]])"
      "\n"
      R"({"tensor":"b","dtype":"U8","shape":[8],"offset":24,"size":8,"extents":[[8]])";
  const std::string boxes =  // two of one tensor
      "\n"
      R"({"tensor":"w","dtype":"F32","shape":[2,3],"offset":0,"size":24,"global_shape":[2,4],)"
      R"("slice_start":[0,0],"extents":[["@1",0,24,"00000000"]])"
      "\n"
      R"({"tensor":"w~2","dtype":"F32","shape":[2,1],"offset":24,"size":8,"global_shape":[2,4],)"
      R"("slice_start":[0,3],"slice_of":"w","extents":[[8]])";
  const std::string object =
      "\n"
      R"({"tensor":"w","dtype":"F32","shape":[2,3],"offset":0,"size":24,)"
      R"("extents":[["@1",0,24,"00000000"]])"
      "\n"
      R"({"tensor":"b","dtype":"U8","shape":[8],"offset":24,"size":8,"object":1,"extents":[[8]])";
  const auto slice = [&](const std::string& start) {
    std::string text = slices;
    return text.replace(text.find("SLICE"), 5, start);
  };
  const std::string others =
      "\n"
      R"({"file":"sub","rank":0,"kind":"directory","size":0,"mode":488,"mtime_ns":5,"extents":[])"
      "\n"
      R"({"file":"sub/notes","rank":0,"kind":"opaque","size":9000,"mode":2541,"mtime_ns":-1,)"
      R"("extents":[["@2",0,5000,"00000000"],[4000]])"
      "\n"
      R"({"file":"out","rank":0,"kind":"symlink","size":0,"mode":511,"mtime_ns":0,)"
      R"("target":"../outside","extents":[])";
  const size_t bytes = kSafetensorsLengthBytes + kHeaderJson.size();
  const std::string file = header + "\n" + safetensors("m.safetensors", 0, 0, bytes);
  const std::string one = file + tensors;
  const std::string two = header + "\n" + safetensors("a.safetensors", 0, 0, bytes) + slice("0") +
                          "\n" + safetensors("a.safetensors", 1, 0, bytes) + slice("3");
  const std::string own = "#" + kHeaderJson + "\n" + header + "\n" +
                          safetensors("m.safetensors", 0, 3, bytes) + "\n!{damaged" + tensors;
  std::vector<std::string> seeds;
  for (char action = 0; action < 18; action++) {
    seeds.push_back(action + one + others);
    seeds.push_back(action + two);
    seeds.push_back(action + own + others);
    seeds.push_back(action + file + boxes);
    seeds.push_back(action + file + object);
  }
  return seeds;
}
