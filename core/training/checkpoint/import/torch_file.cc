// torch_file.cc: the names of PyTorch, and tensors from the calls of its functions.
#include "training/checkpoint/import/torch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "platform/base/text.h"

namespace ff::checkpoint {
namespace {

constexpr std::string_view kPickleName = "data.pkl";
constexpr std::string_view kMakesTensor = "torch._utils._rebuild_tensor";
constexpr std::string_view kMakesTensor2 = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kMakesTensor3 = "torch._utils._rebuild_tensor_v3";
constexpr std::string_view kMakesParameter = "torch._utils._rebuild_parameter";
constexpr std::string_view kMakesParameter2 = "torch._utils._rebuild_parameter_with_state";
constexpr std::string_view kMakesOfType = "torch._tensor._rebuild_from_type_v2";
constexpr int kNestedMakers = 4;  // a parameter of a tensor of a type

constexpr auto kTorchDtypes = std::to_array<TorchDtype>({
    {"float64", "DoubleStorage", "F64"},
    {"float32", "FloatStorage", "F32"},
    {"float16", "HalfStorage", "F16"},
    {"bfloat16", "BFloat16Storage", "BF16"},
    {"int64", "LongStorage", "I64"},
    {"int32", "IntStorage", "I32"},
    {"int16", "ShortStorage", "I16"},
    {"int8", "CharStorage", "I8"},
    {"uint8", "ByteStorage", "U8"},
    {"bool", "BoolStorage", "BOOL"},
    {"complex64", "ComplexFloatStorage", "C64"},
    {"complex128", "ComplexDoubleStorage", "C128"},
    {"float8_e4m3fn", "", "F8_E4M3"},
    {"float8_e5m2", "", "F8_E5M2"},
    {"float8_e4m3fnuz", "", "F8_E4M3FNUZ"},
    {"float8_e5m2fnuz", "", "F8_E5M2FNUZ"},
    {"float8_e8m0fnu", "", "F8_E8M0"},
    {"uint64", "", "U64"},
    {"uint32", "", "U32"},
    {"uint16", "", "U16"},
});

// Of bytes, whose type the tensor tells.
constexpr auto kUntypedStorages = std::to_array<std::string_view>(
    {"torch.storage.UntypedStorage", "torch.storage._UntypedStorage", "torch.UntypedStorage"});

constexpr auto kKnownNames = std::to_array<std::string_view>({
    kMakesTensor,
    kMakesTensor2,
    kMakesTensor3,
    kMakesParameter,
    kMakesParameter2,
    kMakesOfType,
    "torch.Size",
    "torch.Tensor",
    "torch.device",
    "torch.nn.parameter.Buffer",
    "torch.nn.parameter.Parameter",
    "collections.Counter",
    "collections.OrderedDict",
    "collections.defaultdict",
    "collections.deque",
    "_codecs.encode",
});

// Classes of Python's builtins, whose calls make a value of theirs.
constexpr auto kBuiltins = std::to_array<std::string_view>(
    {"bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "range",
     "set", "slice", "str", "tuple", "xrange"});  // of Python 2, as protocol 2 has it: range

template <class List>
bool is_in(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// "torch.FloatStorage", or that of another device.
const TorchDtype* dtype_of_storage(std::string_view global) {
  for (const std::string_view module : {"torch.", "torch.cuda."}) {
    if (!global.starts_with(module)) continue;
    for (const auto& dtype : kTorchDtypes) {
      if (!dtype.storage.empty() && global.substr(module.size()) == dtype.storage) return &dtype;
    }
  }
  return nullptr;
}

bool makes_tensor(std::string_view function) {
  return function == kMakesTensor || function == kMakesTensor2 || function == kMakesTensor3 ||
         function == kMakesParameter || function == kMakesParameter2 || function == kMakesOfType;
}

Error no_tensor(std::string_view why) {
  return fail(Errc::corrupt, "the pickle describes a tensor that cannot be: {}", why);
}

// Bytes from the first to the end of the last element; nothing: more than 2^62.
std::optional<uint64_t> span_of_view(const std::vector<uint64_t>& shape,
                                     const std::vector<uint64_t>& strides, uint64_t item) {
  uint64_t span = item;
  for (size_t i = 0; i < shape.size(); i++) {
    uint64_t step = 0;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &step) ||
        __builtin_add_overflow(span, step, &span)) {
      return std::nullopt;
    }
  }
  if (span > kSafetensorsDimensionMax) return std::nullopt;
  return span;
}

// How a file begins that is no ZIP archive.
Error no_archive(std::string_view begin) {
  constexpr std::string_view kOldMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
  constexpr std::string_view kHdf5 = "\x89HDF";
  if (begin.size() > 2 && begin.substr(2).starts_with(kOldMagic)) {
    return Error{Errc::failed, "the file has the format of PyTorch before 1.6",
                 "Write it again with a later PyTorch: torch.save(torch.load(OLD, "
                 "map_location='cpu'), NEW). That load runs what the file says."};
  }
  if (begin.starts_with(kHdf5)) return fail(Errc::failed, "the file is HDF5, not of torch.save()");
  if (begin.size() > 9 && begin[8] == '{') {
    return Error{Errc::failed, "the file seems to be a safetensors file, not one of torch.save()",
                 "Save it as it is: ff checkpoint save."};
  }
  if (begin.starts_with('\x80')) {
    return Error{Errc::failed, "the file is a plain pickle, not one of torch.save()",
                 "Write it with torch.save() of PyTorch 1.6 or later."};
  }
  return Error{Errc::failed, "the file is no ZIP archive, as torch.save() writes it",
               "Give a file of torch.save() (PyTorch 1.6 or later), or a folder of "
               "torch.distributed.checkpoint."};
}

}  // namespace

const TorchDtype* torch_dtype(std::string_view name) {
  const auto found = std::find_if(kTorchDtypes.begin(), kTorchDtypes.end(),
                                  [&](const auto& dtype) { return dtype.name == name; });
  return found == kTorchDtypes.end() ? nullptr : &*found;
}

const TorchDtype* torch_dtype_of_global(std::string_view global) {
  constexpr std::string_view kModule = "torch.";
  return global.starts_with(kModule) ? torch_dtype(global.substr(kModule.size())) : nullptr;
}

bool is_known_to_torch(std::string_view global) {
  for (const std::string_view module : {"builtins.", "__builtin__."}) {
    if (global.starts_with(module) && is_in(kBuiltins, global.substr(module.size()))) return true;
  }
  return is_in(kKnownNames, global) || is_in(kUntypedStorages, global) ||
         torch_dtype_of_global(global) != nullptr || dtype_of_storage(global) != nullptr;
}

ZipArchive::Read TorchFile::reader() const {
  return [&sources = sources_, source = source_, begin = begin_](ByteSpan into, uint64_t offset) {
    return sources.read(source, into, begin + offset);
  };
}

Result<TorchFile> TorchFile::open(ImportSources& sources, size_t source, uint64_t begin,
                                  uint64_t length, bool skip_unknown) {
  std::string first(std::min<uint64_t>(length, 16), '\0');
  FF_TRY(sources.read(source, {reinterpret_cast<std::byte*>(first.data()), first.size()}, begin));
  if (!first.starts_with("PK")) return no_archive(first);
  const ZipArchive::Read read = [&](ByteSpan into, uint64_t offset) {
    return sources.read(source, into, begin + offset);
  };
  FF_TRY(auto zip, ZipArchive::open(read, length));
  TorchFile file(sources, source, begin, std::move(zip));
  FF_TRY(file.find_prefix());
  if (file.zip_.find(file.prefix_ + "byteorder") != nullptr) {
    FF_TRY(const auto order, file.record("byteorder"));
    if (order != "little") {
      return Error{Errc::failed, "the tensors are in the byte order of another machine",
                   "Save them on a machine with a little-endian processor."};
    }
  }
  FF_TRY(auto pickled, file.record(kPickleName));
  FF_TRY(file.pickle_, Pickle::parse(std::move(pickled), [&](std::string_view name) {
           return skip_unknown || is_known_to_torch(name);
         }));
  return file;
}

// All entries have the name of the file in front, or "archive".
Result<void> TorchFile::find_prefix() {
  for (const auto& [name, entry] : zip_.entries()) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos || name.substr(slash + 1) != kPickleName) continue;
    prefix_ = name.substr(0, slash + 1);
    if (zip_.find(prefix_ + "constants.pkl") == nullptr) return {};
    return Error{Errc::failed, "the file is a program (TorchScript)",
                 "Save its tensors: torch.save(torch.jit.load(FILE).state_dict(), NEW)."};
  }
  return Error{Errc::failed, "the ZIP archive has no data.pkl, as those of torch.save() have",
               "Give a file of torch.save(), or a folder of torch.distributed.checkpoint."};
}

// A small entry, as a whole, compared with its CRC-32.
Result<std::string> TorchFile::record(std::string_view name) const {
  const std::string whole = prefix_ + std::string(name);
  const ZipArchive::Entry* entry = zip_.find(whole);
  FF_CHECK(entry != nullptr);
  FF_TRY(const uint64_t at, zip_.data_of(reader(), whole, *entry));
  if (entry->size > kPickleBytesMax) {
    return fail(Errc::failed, "{} has {} bytes; ff reads {}", printable(whole), entry->size,
                kPickleBytesMax);
  }
  std::string content(entry->size, '\0');
  FF_TRY(reader()({reinterpret_cast<std::byte*>(content.data()), content.size()}, at));
  if (zip_crc32(0, as_bytes(content)) == entry->crc) return content;
  return fail(Errc::corrupt, "{} does not match its CRC-32", printable(whole));
}

bool TorchFile::is_tensor(Pickle::Id id) const { return makes_tensor(pickle_.function(id)); }

std::optional<uint64_t> TorchFile::number(Pickle::Id id) const {
  if (!pickle_.is(id, PickleKind::integer) || pickle_.integer(id) < 0) return std::nullopt;
  return static_cast<uint64_t>(pickle_.integer(id));
}

// Of a tuple, or a torch.Size of one.
std::optional<std::vector<uint64_t>> TorchFile::numbers(Pickle::Id id) const {
  if (pickle_.function(id) == "torch.Size") {
    const auto& arguments = pickle_.items(pickle_.call(id).arguments);
    if (arguments.size() != 1) return std::nullopt;
    id = arguments[0];
  }
  if (!pickle_.is(id, PickleKind::tuple) && !pickle_.is(id, PickleKind::list)) return std::nullopt;
  std::vector<uint64_t> found;
  for (const Pickle::Id one : pickle_.items(id)) {
    const auto value = number(one);
    if (!value || found.size() == kSafetensorsDimensionsMax) return std::nullopt;
    found.push_back(*value);
  }
  return found;
}

Result<TorchTensor> TorchFile::tensor(Pickle::Id id) const {
  const auto& call = pickle_.call(id);
  FF_TRY(auto made, rebuilt(pickle_.global(call.function), pickle_.items(call.arguments), 0));
  made.has_attributes = made.has_attributes || call.state != 0;
  return made;
}

Result<TorchTensor> TorchFile::rebuilt(std::string_view function,
                                       const std::vector<Pickle::Id>& arguments, int depth) const {
  if (depth == kNestedMakers) return no_tensor("it is nested too deeply");
  if (function == kMakesParameter || function == kMakesParameter2) {
    return parameter(arguments, depth);
  }
  if (function == kMakesOfType) return of_type(arguments, depth);
  if (!makes_tensor(function)) return no_tensor(fmt::format("{} makes none", printable(function)));
  return view(arguments, function == kMakesTensor3);
}

// data, requires_grad, hooks, and the attributes of the parameter
Result<TorchTensor> TorchFile::parameter(const std::vector<Pickle::Id>& arguments,
                                         int depth) const {
  if (arguments.size() < 2 || !pickle_.is(arguments[0], PickleKind::call) ||
      !pickle_.is(arguments[1], PickleKind::boolean)) {
    return no_tensor("wrong arguments of a parameter");
  }
  const auto& data = pickle_.call(arguments[0]);
  FF_TRY(auto made,
         rebuilt(pickle_.global(data.function), pickle_.items(data.arguments), depth + 1));
  made.is_parameter = true;
  made.requires_grad = pickle_.boolean(arguments[1]);
  made.has_attributes = made.has_attributes || arguments.size() > 3;
  return made;
}

// the function, the type of its result, its arguments, the attributes
Result<TorchTensor> TorchFile::of_type(const std::vector<Pickle::Id>& arguments, int depth) const {
  if (arguments.size() != 4 || !pickle_.is(arguments[0], PickleKind::global) ||
      !pickle_.is(arguments[1], PickleKind::global) ||
      !pickle_.is(arguments[2], PickleKind::tuple)) {
    return no_tensor("wrong arguments of a tensor with a type");
  }
  const std::string_view type = pickle_.global(arguments[1]);
  if (type != "torch.Tensor" && !type.starts_with("torch.nn.parameter.")) {
    return Error{Errc::failed,
                 fmt::format("a tensor is a {}, a subclass of torch.Tensor", printable(type)),
                 "Save a plain tensor."};
  }
  FF_TRY(auto made, rebuilt(pickle_.global(arguments[0]), pickle_.items(arguments[2]), depth + 1));
  made.is_parameter = made.is_parameter || type == "torch.nn.parameter.Parameter";
  made.has_attributes = true;
  return made;
}

// storage, its first element, size, stride; then requires_grad, hooks, and of version 3 the type
Result<TorchTensor> TorchFile::view(const std::vector<Pickle::Id>& arguments,
                                    bool has_dtype) const {
  if (arguments.size() < (has_dtype ? 7 : 4)) return no_tensor("it lacks arguments");
  const auto first = number(arguments[1]);
  const auto shape = numbers(arguments[2]);
  const auto strides = numbers(arguments[3]);
  if (!first || !shape || !strides || shape->size() != strides->size()) {
    return no_tensor("its size or stride");
  }
  const TorchDtype* dtype = nullptr;
  TorchTensor made;
  FF_TRY(made.storage, storage(arguments[0], dtype));
  if (has_dtype) {
    const bool is_global = pickle_.is(arguments[6], PickleKind::global);
    dtype = is_global ? torch_dtype_of_global(pickle_.global(arguments[6])) : nullptr;
    if (dtype == nullptr) return no_tensor("its type");
  }
  const size_t metadata = has_dtype ? 7 : 6;
  if (arguments.size() > metadata && pickle_.is(arguments[metadata], PickleKind::dict) &&
      !pickle_.items(arguments[metadata]).empty()) {
    return Error{Errc::failed, "a tensor is conjugated or negated when it is read",
                 "Save resolve_conj() or resolve_neg() of it."};
  }
  if (arguments.size() > 4 && pickle_.is(arguments[4], PickleKind::boolean)) {
    made.requires_grad = pickle_.boolean(arguments[4]);
  }
  const auto bytes = tensor_bytes(dtype->safetensors, *shape);
  if (!bytes) return no_tensor("it is too large");
  const uint64_t item = dtype_bits(dtype->safetensors) / 8;
  made.data = {.name = {},
               .dtype = std::string(dtype->safetensors),
               .shape = *shape,
               .bytes = *bytes,
               .source = source_,
               .begin = made.storage.begin};
  if (*bytes == 0) return made;
  uint64_t before = 0;
  for (const uint64_t stride : *strides) {
    made.data.strides.push_back(0);
    if (__builtin_mul_overflow(stride, item, &made.data.strides.back())) {
      return no_tensor("its stride");
    }
  }
  const auto span = span_of_view(*shape, made.data.strides, item);
  if (!span || __builtin_mul_overflow(*first, item, &before) || before > made.storage.size ||
      *span > made.storage.size - before) {
    return no_tensor("its elements are outside of its storage");
  }
  made.data.begin += before;
  return made;
}

// ('storage', its class, the name of its entry, the device, the number of elements)
Result<CheckedBytes> TorchFile::storage(Pickle::Id id, const TorchDtype*& dtype) const {
  if (!pickle_.is(id, PickleKind::persistent)) return no_tensor("it has no storage");
  const Pickle::Id said = pickle_.persistent(id);
  if (!pickle_.is(said, PickleKind::tuple) || pickle_.items(said).size() != 5) {
    return no_tensor("its storage");
  }
  const auto& parts = pickle_.items(said);
  const auto elements = number(parts[4]);
  if (!pickle_.is(parts[0], PickleKind::text) || pickle_.text(parts[0]) != "storage" ||
      !pickle_.is(parts[1], PickleKind::global) || !pickle_.is(parts[2], PickleKind::text) ||
      !elements) {
    return no_tensor("its storage");
  }
  const std::string_view type = pickle_.global(parts[1]);
  dtype = is_in(kUntypedStorages, type) ? torch_dtype("uint8") : dtype_of_storage(type);
  if (dtype == nullptr) {
    return fail(Errc::failed, "ff does not import tensors of a {}", printable(type));
  }
  const std::string name = fmt::format("{}data/{}", prefix_, pickle_.text(parts[2]));
  const ZipArchive::Entry* entry = zip_.find(name);
  if (entry == nullptr) {
    return fail(Errc::corrupt, "the bytes of a tensor, {}, are not in the file", printable(name));
  }
  uint64_t size = 0;
  if (__builtin_mul_overflow(*elements, dtype_bits(dtype->safetensors) / 8, &size) ||
      size > entry->size) {
    return no_tensor("its storage is larger than its bytes");
  }
  return bytes_of(name, *entry);
}

Result<CheckedBytes> TorchFile::bytes_of(const std::string& name,
                                         const ZipArchive::Entry& entry) const {
  FF_TRY(const uint64_t at, zip_.data_of(reader(), name, entry));
  return CheckedBytes{
      .source = source_, .begin = begin_ + at, .size = entry.size, .crc = entry.crc, .name = name};
}

Result<std::vector<CheckedBytes>> TorchFile::storages() const {
  std::vector<CheckedBytes> found;
  for (const auto& [name, entry] : zip_.entries()) {
    if (!std::string_view(name).starts_with(prefix_ + "data/")) continue;
    FF_TRY(found.emplace_back(), bytes_of(name, entry));
  }
  return found;
}

}  // namespace ff::checkpoint
