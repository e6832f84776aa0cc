// dcp_folder.cc: the classes of PyTorch's metadata, and the chunks and objects that it describes.
#include "training/checkpoint/import/dcp_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "training/checkpoint/format/index.h"
#include "training/checkpoint/format/tensor_parts.h"
#include "training/checkpoint/import/pickle.h"
#include "training/checkpoint/import/torch_state.h"

namespace ff::checkpoint {
namespace {

using Id = Pickle::Id;

constexpr auto kDcpModules = std::to_array<std::string_view>(
    {"torch.distributed.checkpoint.", "torch.distributed._shard.checkpoint.",
     "torch.distributed._shard.sharded_tensor."});

// In two parts, as no source has the word that says that files are opened without io::Disk.
constexpr std::string_view kPlaceClass =
    "file"
    "system._StorageInfo";

constexpr auto kDcpClasses = std::to_array<std::string_view>(
    {"metadata.Metadata", "metadata.MetadataIndex", "metadata.TensorStorageMetadata",
     "metadata.BytesStorageMetadata", "metadata.ChunkStorageMetadata", "metadata.StorageMeta",
     "metadata.TensorProperties", "metadata.MEM_FORMAT_ENCODING", "metadata._MEM_FORMAT_ENCODING",
     kPlaceClass});

constexpr auto kDcpOthers = std::to_array<std::string_view>(
    {"torch.serialization._get_layout", "torch.strided", "pathlib.PosixPath",
     "pathlib._local.PosixPath", "pathlib.PurePosixPath", "builtins.getattr",
     "__builtin__.getattr"});

constexpr auto kMemoryFormats =
    std::to_array<std::string_view>({"contiguous_format", "channels_last", "preserve_format"});
constexpr auto kMemoryEncodings = std::to_array<std::string_view>(
    {"TORCH_CONTIGUOUS_FORMAT", "TORCH_CHANNELS_LAST", "TORCH_PRESERVE_FORMAT"});

constexpr size_t kAttributesMax = 64;
constexpr size_t kDcpChunksMax = size_t{1} << 24;

// "metadata.Metadata" of "torch.distributed.checkpoint.metadata.Metadata"; "" for other names.
std::string_view dcp_class(std::string_view global) {
  for (const std::string_view module : kDcpModules) {
    if (!global.starts_with(module)) continue;
    const std::string_view rest = global.substr(module.size());
    if (std::ranges::find(kDcpClasses, rest) != kDcpClasses.end()) return rest;
  }
  return "";
}

bool is_known_to_dcp(std::string_view global) {
  return !dcp_class(global).empty() || is_known_to_torch(global) ||
         std::ranges::find(kDcpOthers, global) != kDcpOthers.end();
}

Error bad_metadata(std::string_view what) {
  return fail(Errc::corrupt, "{} does not describe a checkpoint: {}", kDcpMetadataFile, what);
}

// Where a chunk or an object is.
struct DcpPlace {
  std::string file;
  uint64_t offset = 0;
  uint64_t length = 0;
};

struct DcpChunk {
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> sizes;
};

struct DcpTensor {
  const TorchDtype* dtype = nullptr;
  bool requires_grad = false;
  std::string_view memory_format = kMemoryFormats[0];
  bool pin_memory = false;
  std::vector<uint64_t> size = {};
  std::vector<DcpChunk> chunks = {};  // no two at the same offsets
};

uint64_t elements_of(const std::vector<uint64_t>& sizes) {
  uint64_t count = 1;
  for (const uint64_t size : sizes) {
    if (size == 0) return 0;
    if (__builtin_mul_overflow(count, size, &count)) count = UINT64_MAX;
  }
  return count;
}

std::string place_key(std::string_view name, const std::vector<uint64_t>* offsets) {
  if (offsets == nullptr) return std::string(name);
  return fmt::format("{}{}[{}]", name, '\0', fmt::join(*offsets, ","));
}

// Reads the objects of the pickle `.metadata`.
class DcpMetadata {
 public:
  static Result<DcpMetadata> parse(std::string pickled) {
    DcpMetadata made;
    FF_TRY(made.pickle_, Pickle::parse(std::move(pickled), is_known_to_dcp));
    FF_TRY(made.read());
    return made;
  }

  const std::map<std::string, DcpTensor>& tensors() const { return tensors_; }
  const std::set<std::string>& objects() const { return objects_; }
  // Of a chunk, or without `offsets` of an object; null: it has none.
  const DcpPlace* place(std::string_view name, const std::vector<uint64_t>* offsets) const {
    const auto found = places_.find(place_key(name, offsets));
    return found == places_.end() ? nullptr : &found->second;
  }
  // What the planner has stored, as JSON; nothing if it has stored nothing.
  const std::optional<std::string>& planner() const { return planner_; }

 private:
  Result<void> read();
  Result<void> read_item(std::string name, Id described);
  Result<void> read_place(Id index, Id info);
  Result<DcpTensor> tensor(Id described);
  Result<void> read_properties(Id properties, DcpTensor& tensor) const;
  std::optional<uint64_t> memory_format(Id id) const;

  // An attribute of an object; 0, which is None, if it has none of that name.
  Id attribute(Id object, std::string_view name) const;
  bool is_class(Id id, std::string_view name) const {
    return dcp_class(pickle_.function(id)) == name;
  }
  const std::vector<Id>* pairs(Id id) const;
  std::optional<std::vector<uint64_t>> sizes(Id id) const;
  std::optional<uint64_t> number(Id id) const;

  Pickle pickle_;
  size_t chunks_ = 0;
  std::map<std::string, DcpTensor> tensors_;
  std::set<std::string> objects_;
  std::unordered_map<std::string, DcpPlace> places_;
  std::optional<std::string> planner_;
};

const std::vector<Id>* DcpMetadata::pairs(Id id) const {
  if (pickle_.is(id, PickleKind::dict)) return &pickle_.items(id);
  if (pickle_.function(id) == "collections.OrderedDict") return &pickle_.call(id).pairs;
  return nullptr;
}

Id DcpMetadata::attribute(Id object, std::string_view name) const {
  if (!pickle_.is(object, PickleKind::call)) return 0;
  const Id state = pickle_.call(object).state;
  if (!pickle_.is(state, PickleKind::dict)) return 0;
  const auto& items = pickle_.items(state);
  if (items.size() > kAttributesMax) return 0;
  Id found = 0;
  for (size_t i = 0; i < items.size(); i += 2) {
    if (pickle_.is(items[i], PickleKind::text) && pickle_.text(items[i]) == name) {
      found = items[i + 1];
    }
  }
  return found;
}

std::optional<uint64_t> DcpMetadata::number(Id id) const {
  if (!pickle_.is(id, PickleKind::integer) || pickle_.integer(id) < 0) return std::nullopt;
  return static_cast<uint64_t>(pickle_.integer(id));
}

// Of a torch.Size, or a tuple.
std::optional<std::vector<uint64_t>> DcpMetadata::sizes(Id id) const {
  if (pickle_.function(id) == "torch.Size") {
    const auto& arguments = pickle_.items(pickle_.call(id).arguments);
    if (arguments.size() != 1) return std::nullopt;
    id = arguments[0];
  }
  if (!pickle_.is(id, PickleKind::tuple) && !pickle_.is(id, PickleKind::list)) return std::nullopt;
  std::vector<uint64_t> found;
  for (const Id one : pickle_.items(id)) {
    const auto value = number(one);
    if (!value || *value > kSafetensorsDimensionMax || found.size() == kSafetensorsDimensionsMax) {
      return std::nullopt;
    }
    found.push_back(*value);
  }
  return found;
}

Result<void> DcpMetadata::read() {
  const Id top = pickle_.top();
  if (!is_class(top, "metadata.Metadata")) return bad_metadata("its value is no Metadata");
  const auto* items = pairs(attribute(top, "state_dict_metadata"));
  const auto* places = pairs(attribute(top, "storage_data"));
  if (items == nullptr || places == nullptr) {
    return bad_metadata("state_dict_metadata or storage_data is missing");
  }
  for (size_t i = 0; i < items->size(); i += 2) {
    if (!pickle_.is((*items)[i], PickleKind::text)) return bad_metadata("a name is no text");
    FF_TRY(read_item(std::string(pickle_.text((*items)[i])), (*items)[i + 1]));
  }
  for (size_t i = 0; i < places->size(); i += 2) {
    FF_TRY(read_place((*places)[i], (*places)[i + 1]));
  }
  const Id planner = attribute(top, "planner_data");
  if (!pickle_.is(planner, PickleKind::none)) {
    FF_TRY(planner_, structure_of(pickle_, planner));
  }
  return {};
}

Result<void> DcpMetadata::read_item(std::string name, Id described) {
  if (is_class(described, "metadata.BytesStorageMetadata")) {
    objects_.insert(std::move(name));
    return {};
  }
  if (!is_class(described, "metadata.TensorStorageMetadata")) {
    return bad_metadata(fmt::format("'{}' is neither a tensor nor bytes", printable(name)));
  }
  auto made = tensor(described);
  if (!made) return std::move(made).error().with_context(fmt::format("'{}': ", printable(name)));
  tensors_.insert_or_assign(std::move(name), std::move(*made));
  return {};
}

Result<DcpTensor> DcpMetadata::tensor(Id described) {
  DcpTensor made;
  FF_TRY(read_properties(attribute(described, "properties"), made));
  const auto size = sizes(attribute(described, "size"));
  const Id chunks = attribute(described, "chunks");
  if (!size || !pickle_.is(chunks, PickleKind::list)) return bad_metadata("its size or chunks");
  made.size = *size;
  std::set<std::vector<uint64_t>> seen;
  for (const Id chunk : pickle_.items(chunks)) {
    if (++chunks_ > kDcpChunksMax) {  // a list may be that of many tensors
      return fail(Errc::failed, "it has more than {} million chunks", kDcpChunksMax >> 20);
    }
    auto offsets = sizes(attribute(chunk, "offsets"));
    auto lengths = sizes(attribute(chunk, "sizes"));
    if (!is_class(chunk, "metadata.ChunkStorageMetadata") || !offsets || !lengths ||
        offsets->size() != size->size() || lengths->size() != size->size()) {
      return bad_metadata("a chunk has no offsets or sizes");
    }
    for (size_t i = 0; i < size->size(); i++) {
      if ((*offsets)[i] > (*size)[i] || (*lengths)[i] > (*size)[i] - (*offsets)[i]) {
        return bad_metadata("a chunk is outside of its tensor");
      }
    }
    if (!seen.insert(*offsets).second) continue;  // several ranks have it, and one has saved it
    made.chunks.push_back({std::move(*offsets), std::move(*lengths)});
  }
  return made;
}

// A member of an Enum: MEM_FORMAT_ENCODING(0), or from Python 3.11 on getattr(MEM_FORMAT_ENCODING,
// "TORCH_CONTIGUOUS_FORMAT").
std::optional<uint64_t> DcpMetadata::memory_format(Id id) const {
  const auto& arguments = pickle_.items(pickle_.call(id).arguments);
  if (arguments.size() == 1) return number(arguments[0]);
  if (arguments.size() != 2 || !pickle_.is(arguments[1], PickleKind::text)) return std::nullopt;
  const auto found = std::ranges::find(kMemoryEncodings, pickle_.text(arguments[1]));
  return static_cast<uint64_t>(found - kMemoryEncodings.begin());
}

// (dtype, layout, requires_grad, memory format, pin_memory)
Result<void> DcpMetadata::read_properties(Id properties, DcpTensor& tensor) const {
  if (!is_class(properties, "metadata.TensorProperties")) return bad_metadata("its properties");
  const Id state = pickle_.call(properties).state;
  if (!pickle_.is(state, PickleKind::tuple) || pickle_.items(state).size() != 5) {
    return bad_metadata("its properties");
  }
  const auto& said = pickle_.items(state);
  const auto is_true = [&](Id id) {
    return pickle_.is(id, PickleKind::boolean) && pickle_.boolean(id);
  };
  if (!pickle_.is(said[0], PickleKind::global)) return bad_metadata("its type");
  tensor.dtype = torch_dtype_of_global(pickle_.global(said[0]));
  if (tensor.dtype == nullptr) {
    return fail(Errc::failed, "ff does not import tensors of {}",
                printable(pickle_.global(said[0])));
  }
  bool is_strided =
      pickle_.is(said[1], PickleKind::global) && pickle_.global(said[1]) == "torch.strided";
  if (pickle_.function(said[1]) == "torch.serialization._get_layout") {
    const auto& arguments = pickle_.items(pickle_.call(said[1]).arguments);
    is_strided = arguments.size() == 1 && pickle_.is(arguments[0], PickleKind::text) &&
                 pickle_.text(arguments[0]) == "torch.strided";
  }
  if (!is_strided) return fail(Errc::failed, "ff does not import sparse tensors");
  tensor.requires_grad = is_true(said[2]);
  if (pickle_.is(said[3], PickleKind::call)) {
    const auto format = memory_format(said[3]);
    if (!format || *format >= kMemoryFormats.size()) return bad_metadata("its memory format");
    tensor.memory_format = kMemoryFormats[*format];
  }
  tensor.pin_memory = is_true(said[4]);
  return {};
}

Result<void> DcpMetadata::read_place(Id index, Id info) {
  const Id name = attribute(index, "fqn");
  const Id offset = attribute(index, "offset");
  const Id file = attribute(info, "relative_path");
  const auto begin = number(attribute(info, "offset"));
  const auto length = number(attribute(info, "length"));
  if (!is_class(index, "metadata.MetadataIndex") || !is_class(info, kPlaceClass) ||
      !pickle_.is(name, PickleKind::text) || !pickle_.is(file, PickleKind::text) || !begin ||
      !length) {
    return bad_metadata("an entry of storage_data");
  }
  const Id transforms = attribute(info, "transform_descriptors");
  if (!pickle_.is(transforms, PickleKind::none) &&
      !(pickle_.is(transforms, PickleKind::list) && pickle_.items(transforms).empty())) {
    return Error{Errc::failed,
                 fmt::format("'{}' was written through an extension (a compression)",
                             printable(pickle_.text(name))),
                 "Save it again without extensions of the FileSystemWriter."};
  }
  if (!safe_name(pickle_.text(file))) {
    return fail(Errc::refused, "{} names the file '{}', which may be outside of the folder",
                kDcpMetadataFile, printable(pickle_.text(file)));
  }
  const auto offsets = sizes(offset);
  if (!offsets && !pickle_.is(offset, PickleKind::none)) return bad_metadata("an offset");
  places_.insert_or_assign(
      place_key(pickle_.text(name), offsets ? &*offsets : nullptr),
      DcpPlace{.file = std::string(pickle_.text(file)), .offset = *begin, .length = *length});
  return {};
}

// Makes the parts of the file and the JSON that describes them.
class DcpFolderReader {
 public:
  DcpFolderReader(ImportSources& sources, const std::string& folder, const DcpMetadata& metadata,
                  bool skip_unknown)
      : sources_(sources), folder_(folder), metadata_(metadata), skip_unknown_(skip_unknown) {
    for (const auto& [name, tensor] : metadata.tensors()) wanted_.insert(name);
    for (const auto& name : metadata.objects()) wanted_.insert(name);
  }

  Result<DcpCheckpoint> run();

 private:
  Result<void> add_tensor(const std::string& name, const DcpTensor& tensor);
  Result<void> add_chunk(const std::string& name, const DcpTensor& tensor, const DcpChunk& chunk);
  Result<void> add_object(const std::string& name);
  Result<size_t> source_of(const DcpPlace& place, const std::string& name);
  Result<TorchFile> open(const DcpPlace& place, const std::string& name, size_t source,
                         bool skip_unknown);
  std::string free_name(const std::string& name);
  static void comma(std::string& json) {
    if (!json.empty()) json += ',';
  }

  ImportSources& sources_;
  const std::string& folder_;
  const DcpMetadata& metadata_;
  const bool skip_unknown_;
  DcpCheckpoint made_;
  std::set<std::string> wanted_;
  std::set<std::string> names_;
  std::map<std::string, size_t> files_;
  // JSON without its brackets.
  std::string tensors_;
  std::string objects_;
  std::string slices_;
  std::string object_names_;
};

// Chunks of one tensor get different names, which no other tensor has.
std::string DcpFolderReader::free_name(const std::string& name) {
  const std::string wanted = storable_name(name);
  std::string free = wanted;
  const auto is_taken = [&](int again) {
    return free.empty() || free == "__metadata__" || free == kDcpDescription ||
           (again > 1 && wanted_.contains(free)) || names_.contains(free);
  };
  for (int again = 1; is_taken(again);) free = fmt::format("{}~{}", wanted, ++again);
  names_.insert(free);
  return free;
}

Result<size_t> DcpFolderReader::source_of(const DcpPlace& place, const std::string& name) {
  const auto [found, is_new] = files_.try_emplace(place.file, 0);
  if (is_new) {
    FF_TRY(found->second, sources_.add(io::join(folder_, place.file)));
  }
  const uint64_t size = sources_.size(found->second);
  if (place.offset <= size && place.length <= size - place.offset) return found->second;
  return fail(Errc::corrupt, "{}: it ends before the bytes of '{}'", sources_.path(found->second),
              printable(name));
}

Result<TorchFile> DcpFolderReader::open(const DcpPlace& place, const std::string& name,
                                        size_t source, bool skip_unknown) {
  auto file = TorchFile::open(sources_, source, place.offset, place.length, skip_unknown);
  if (file) return file;
  return std::move(file).error().with_context(
      fmt::format("{}: '{}': ", sources_.path(source), printable(name)));
}

Result<void> DcpFolderReader::add_chunk(const std::string& name, const DcpTensor& tensor,
                                        const DcpChunk& chunk) {
  tensors_ += fmt::format("[[{}],[{}]", fmt::join(chunk.offsets, ","), fmt::join(chunk.sizes, ","));
  // A chunk without elements has no bytes, unless it is all that there is of the tensor.
  if (elements_of(chunk.sizes) == 0 && elements_of(tensor.size) > 0) {
    tensors_ += ']';
    return {};
  }
  const DcpPlace* place = metadata_.place(name, &chunk.offsets);
  if (place == nullptr) {
    return fail(Errc::corrupt, "{} does not say where '{}' at [{}] is", kDcpMetadataFile,
                printable(name), fmt::join(chunk.offsets, ","));
  }
  FF_TRY(const size_t source, source_of(*place, name));
  FF_TRY(const auto file, open(*place, name, source, false));
  if (!file.is_tensor(file.pickle().top())) {
    return fail(Errc::corrupt, "{}: '{}' is no tensor", sources_.path(source), printable(name));
  }
  FF_TRY(auto found, file.tensor(file.pickle().top()));
  if (found.data.shape != chunk.sizes || found.data.dtype != tensor.dtype->safetensors) {
    return fail(Errc::corrupt, "{}: '{}' has another shape or type than in {}",
                sources_.path(source), printable(name), kDcpMetadataFile);
  }
  found.data.name = free_name(name);
  std::string json;
  append_json_string(json, found.data.name);
  tensors_ += fmt::format(",0,{}]", json);
  if (chunk.sizes != tensor.size) {
    comma(slices_);
    slices_ += fmt::format(R"({}:{{"tensor":)", json);
    append_json_string(slices_, storable_name(name));
    slices_ += fmt::format(R"(,"shape":[{}],"start":[{}]}})", fmt::join(tensor.size, ","),
                           fmt::join(chunk.offsets, ","));
  }
  if (found.data.bytes > 0) made_.storages.push_back(std::move(found.storage));
  made_.tensors.push_back(std::move(found.data));
  return {};
}

Result<void> DcpFolderReader::add_tensor(const std::string& name, const DcpTensor& tensor) {
  comma(tensors_);
  append_json_string(tensors_, name);
  tensors_ +=
      fmt::format(R"(:{{"dtype":"{}","layout":"strided","requires_grad":{},"memory_format":"{}",)"
                  R"("pin_memory":{},"size":[{}],"chunks":[)",
                  tensor.dtype->name, tensor.requires_grad, tensor.memory_format, tensor.pin_memory,
                  fmt::join(tensor.size, ","));
  for (size_t i = 0; i < tensor.chunks.size(); i++) {
    if (i > 0) tensors_ += ',';
    FF_TRY(add_chunk(name, tensor, tensor.chunks[i]));
  }
  tensors_ += "]}";
  return {};
}

// Its bytes stay as they are, and PyTorch unpickles them when it loads them.
Result<void> DcpFolderReader::add_object(const std::string& name) {
  const DcpPlace* place = metadata_.place(name, nullptr);
  if (place == nullptr) {
    return fail(Errc::corrupt, "{} does not say where '{}' is", kDcpMetadataFile, printable(name));
  }
  FF_TRY(const size_t source, source_of(*place, name));
  const auto file = open(*place, name, source, false);
  if (!file) {
    const bool is_damaged = file.error().code == Errc::corrupt;
    if (!skip_unknown_ || is_damaged) return file.error();
    if (made_.left_out++ < kLeftOutPathsMax) made_.left_out_names.push_back(printable(name));
    return {};
  }
  FF_TRY(auto storages, file->storages());
  std::ranges::move(storages, std::back_inserter(made_.storages));
  ImportedTensor object{.name = free_name(name),
                        .dtype = "U8",
                        .shape = {place->length},
                        .bytes = place->length,
                        .source = source,
                        .begin = place->offset,
                        .strides = {1}};
  comma(objects_);
  append_json_string(objects_, name);
  objects_ += ":[0,";
  append_json_string(objects_, object.name);
  objects_ += ']';
  comma(object_names_);
  append_json_string(object_names_, object.name);
  made_.tensors.push_back(std::move(object));
  made_.objects++;
  return {};
}

Result<DcpCheckpoint> DcpFolderReader::run() {
  for (const auto& [name, tensor] : metadata_.tensors()) FF_TRY(add_tensor(name, tensor));
  for (const auto& name : metadata_.objects()) FF_TRY(add_object(name));
  made_.parts = fmt::format(R"({{"slices":{{{}}},"objects":[{}]}})", slices_, object_names_);
  made_.description =
      fmt::format(R"({{"version":1,"ranks":1,"tensors":{{{}}},"bytes":{{{}}})", tensors_, objects_);
  if (metadata_.planner()) {
    made_.description += R"(,"planner":)";
    append_json_string(made_.description, *metadata_.planner());
  }
  made_.description += '}';
  return std::move(made_);
}

}  // namespace

Result<DcpCheckpoint> read_dcp_folder(ImportSources& sources, const std::string& folder,
                                      bool skip_unknown) {
  const std::string path = io::join(folder, std::string(kDcpMetadataFile));
  FF_TRY(const size_t source, sources.add(path));
  if (sources.size(source) > kPickleBytesMax) {
    return fail(Errc::failed, "{} has {} bytes; ff reads {}", path, sources.size(source),
                kPickleBytesMax);
  }
  std::string pickled(sources.size(source), '\0');
  FF_TRY(sources.read(source, {reinterpret_cast<std::byte*>(pickled.data()), pickled.size()}, 0));
  auto metadata = DcpMetadata::parse(std::move(pickled));
  if (!metadata) return std::move(metadata).error().with_context(path + ": ");
  return DcpFolderReader(sources, folder, *metadata, skip_unknown).run();
}

}  // namespace ff::checkpoint
