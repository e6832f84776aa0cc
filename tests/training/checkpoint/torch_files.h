// Files of torch.save() from opcodes of pickles, for tests and fuzz targets: what PyTorch would
// write, and what it never would.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/bytes.h"
#include "training/checkpoint/import/sources.h"

namespace ff::checkpoint::torch_files {

inline std::string text(std::string_view value) {
  std::string out = "X";
  append_le(out, static_cast<uint32_t>(value.size()));
  return out.append(value);
}

inline std::string integer(int32_t value) {
  std::string out = "J";
  append_le(out, value);
  return out;
}

inline std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}

inline std::string tuple(const std::vector<std::string>& items) {
  std::string out = "(";
  for (const auto& item : items) out += item;
  return out + "t";
}

inline std::string list(const std::vector<std::string>& items) {
  std::string out = "](";
  for (const auto& item : items) out += item;
  return out + "e";
}

inline std::string numbers(const std::vector<uint64_t>& values) {
  std::vector<std::string> items;
  for (const uint64_t value : values) {
    std::string item = "\x8a\x08";
    append_le(item, value);
    items.push_back(item);
  }
  return tuple(items);
}

inline std::string dict(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string out = "}(";
  for (const auto& [key, value] : pairs) out += key + value;
  return out + "u";
}

inline std::string call(const std::string& function, const std::vector<std::string>& arguments) {
  return function + tuple(arguments) + "R";
}

inline std::string object(const std::string& type, const std::string& state) {
  return type + ")\x81" + state + "b";
}

inline std::string storage(std::string_view type, std::string_view key, int32_t elements) {
  return tuple(
             {text("storage"), global("torch", type), text(key), text("cpu"), integer(elements)}) +
         "Q";
}

inline std::string tensor(const std::string& storage, uint64_t first,
                          const std::vector<uint64_t>& shape,
                          const std::vector<uint64_t>& strides) {
  std::string offset = "\x8a\x08";
  append_le(offset, first);
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              {storage, offset, numbers(shape), numbers(strides), "\x89",
               call(global("collections", "OrderedDict"), {})});
}

// A pickle of protocol 2.
inline std::string pickle(const std::string& value) { return "\x80\x02" + value + "."; }

struct ZipFormat {
  uint16_t method = 0;     // of compression, which is only announced
  bool has_zip64 = false;  // sizes and places are in the fields of Zip64
};

inline std::string zip(const std::vector<std::pair<std::string, std::string>>& entries,
                       ZipFormat format = {}) {
  std::string out;
  std::string directory;
  constexpr uint32_t kIn64 = UINT32_MAX;
  for (const auto& [name, content] : entries) {
    const auto size = static_cast<uint32_t>(content.size());
    std::string head;  // what both headers have
    append_le(head, uint16_t{0});
    append_le(head, format.method);
    append_le(head, uint32_t{0});
    append_le(head, zip_crc32(0, as_bytes(content)));
    std::string sizes;
    append_le(sizes, format.has_zip64 ? kIn64 : size);
    append_le(sizes, format.has_zip64 ? kIn64 : size);
    append_le(sizes, static_cast<uint16_t>(name.size()));
    std::string extra;
    if (format.has_zip64) {
      extra = std::string("\x01\x00\x18\x00", 4);
      append_le(extra, uint64_t{size});
      append_le(extra, uint64_t{size});
      append_le(extra, uint64_t{out.size()});
    }
    append_le(sizes, static_cast<uint16_t>(extra.size()));
    directory +=
        std::string("PK\x01\x02\x14\x00\x14\x00", 8) + head + sizes + std::string(10, '\0');
    append_le(directory, format.has_zip64 ? kIn64 : static_cast<uint32_t>(out.size()));
    directory += name + extra;
    out += std::string("PK\x03\x04\x14\x00", 6) + head + sizes + name + extra + content;
  }
  const size_t begin = out.size();
  out += directory;
  if (format.has_zip64) {
    const size_t at = out.size();
    out += std::string("PK\x06\x06", 4) + std::string(20, '\0');
    append_le(out, uint64_t{entries.size()});
    append_le(out, uint64_t{entries.size()});
    append_le(out, uint64_t{directory.size()});
    append_le(out, uint64_t{begin});
    out += std::string("PK\x06\x07\x00\x00\x00\x00", 8);
    append_le(out, uint64_t{at});
    append_le(out, uint32_t{1});
  }
  out += std::string("PK\x05\x06\x00\x00\x00\x00", 8);
  append_le(out, static_cast<uint16_t>(entries.size()));
  append_le(out, static_cast<uint16_t>(entries.size()));
  append_le(out, static_cast<uint32_t>(directory.size()));
  append_le(out, format.has_zip64 ? kIn64 : static_cast<uint32_t>(begin));
  append_le(out, uint16_t{0});
  return out;
}

// Storage I is in the entry "data/I".
inline std::string file(const std::string& value, const std::vector<std::string>& storages,
                        ZipFormat format = {}) {
  std::vector<std::pair<std::string, std::string>> entries = {{"a/data.pkl", pickle(value)}};
  for (size_t i = 0; i < storages.size(); i++) {
    entries.emplace_back("a/data/" + std::to_string(i), storages[i]);
  }
  entries.emplace_back("a/version", "3\n");
  return zip(entries, format);
}

// The metadata of a folder of torch.distributed.checkpoint with the tensor "w" (F32, 4 x 2) in two
// chunks, and the object "step", in one file: bytes [0, chunk), [chunk, 2 chunk), [2 chunk, ...).
inline std::string dcp_metadata(uint64_t chunk, uint64_t object_bytes,
                                const std::string& package = "torch.distributed.checkpoint",
                                const std::string& name = "__0_0.distcp") {
  const std::string metadata = package + ".metadata";
  const auto size = [](const std::vector<uint64_t>& values) {
    return call(global("torch", "Size"), {numbers(values)});
  };
  const auto place = [&](uint64_t offset, uint64_t length) {
    std::string state = dict({{text("relative_path"), text(name)},
                              {text("offset"), integer(static_cast<int32_t>(offset))},
                              {text("length"), integer(static_cast<int32_t>(length))}});
    return object(global(package + ".filesystem", "_StorageInfo"), state);
  };
  const auto index = [&](const std::string& fqn, const std::string& offset) {
    return object(global(metadata, "MetadataIndex"),
                  dict({{text("fqn"), text(fqn)}, {text("offset"), offset}, {text("index"), "N"}}));
  };
  const auto part = [&](uint64_t row) {
    return object(global(metadata, "ChunkStorageMetadata"),
                  dict({{text("offsets"), size({row, 0})}, {text("sizes"), size({2, 2})}}));
  };
  const std::string properties =
      object(global(metadata, "TensorProperties"),
             tuple({global("torch", "float32"),
                    call(global("torch.serialization", "_get_layout"), {text("torch.strided")}),
                    "\x89", call(global(metadata, "_MEM_FORMAT_ENCODING"), {integer(0)}), "\x89"}));
  const std::string w = object(global(metadata, "TensorStorageMetadata"),
                               dict({{text("properties"), properties},
                                     {text("size"), size({4, 2})},
                                     {text("chunks"), list({part(0), part(2)})}}));
  const std::string step = object(global(metadata, "BytesStorageMetadata"), "}");
  return pickle(object(
      global(metadata, "Metadata"),
      dict(
          {{text("state_dict_metadata"), dict({{text("w"), w}, {text("step"), step}})},
           {text("planner_data"), dict({{text("w"), tuple({text("model"), text("w")})},
                                        {text("step"), tuple({text("step")})}})},
           {text("storage_data"), dict({{index("w", size({0, 0})), place(0, chunk)},
                                        {index("w", size({2, 0})), place(chunk, chunk)},
                                        {index("step", "N"), place(2 * chunk, object_bytes)}})}})));
}

}  // namespace ff::checkpoint::torch_files
