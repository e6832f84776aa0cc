// torch_state.cc: the walk through a value.
#include "training/checkpoint/import/torch_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "platform/base/text.h"

namespace ff::checkpoint {
namespace {

constexpr size_t kPathShown = 200;
constexpr size_t kStateValuesMax = size_t{1} << 24;
constexpr std::string_view kBuiltinModules[] = {"builtins.", "__builtin__."};

// "set" of "builtins.set"; "" for other modules.
std::string_view builtin_of(std::string_view global) {
  for (const std::string_view module : kBuiltinModules) {
    if (!global.starts_with(module)) continue;
    const std::string_view name = global.substr(module.size());
    return name == "xrange" ? "range" : name;
  }
  return "";
}

// Appends JSON; each function of a value says whether the state has it.
class StateWriter {
 public:
  using Id = Pickle::Id;

  StateWriter(const Pickle& pickle, const TorchFile* file, bool skip_unknown)
      : pickle_(pickle), file_(file), skip_unknown_(skip_unknown) {}

  Result<TorchState> run(Id id) {
    FF_TRY(put_or_none(id, ""));
    std::string document = R"({"state":)" + std::move(out_);
    if (!flags_.empty()) document += R"(,"tensors":[)" + flags_ + "]";
    if (!attributes_.empty()) document += R"(,"attributes":[)" + attributes_ + "]";
    document += '}';
    state_.document = std::move(document);
    return std::move(state_);
  }

 private:
  Result<bool> put(Id id, const std::string& path);
  Result<void> put_or_none(Id id, const std::string& path);
  Result<bool> put_number(Id id);
  Result<bool> put_call(Id id, const std::string& path);
  Result<bool> put_container(Id id, const std::string& path);
  Result<bool> put_builtin(Id id, std::string_view name, const std::string& path);
  Result<bool> put_mapping(Id id, const std::string& path);
  Result<bool> put_tensor(Id id, const std::string& path);
  Result<bool> put_torch(Id id, std::string_view function);
  Result<bool> put_set(std::string_view name, const std::vector<Id>& items,
                       const std::string& path);
  Result<bool> put_bytes(std::string_view kind, std::string_view bytes, const std::string& path);
  Result<void> put_list(const std::vector<Id>& items, const std::string& path);
  Result<void> put_pairs(const std::vector<Id>& pairs, const std::string& path, bool as_object);
  Result<std::string> key_of(Id id, const std::string& path);
  Result<bool> left_out(std::string_view what, const std::string& path);
  Result<void> check_size();
  void note_left_out(const std::string& path, std::string_view what = "") {
    if (state_.left_out++ >= kLeftOutPathsMax) return;
    state_.left_out_paths.push_back(fmt::format("{}{}", shown(path), what));
  }
  std::string add(ImportedTensor tensor, const std::string& path);
  std::string below(const std::string& path, std::string_view key) const {
    return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
  }
  void count_value() { state_.values += in_key_ ? 0 : 1; }
  bool all_texts(const std::vector<Id>& pairs) const;
  std::optional<std::string> bytes_of(Id id) const;
  static std::string shown(const std::string& path) {
    return printable(path.empty() ? "the value" : std::string_view(path).substr(0, kPathShown));
  }

  const Pickle& pickle_;
  const TorchFile* file_;  // null: there are no tensors
  const bool skip_unknown_;
  TorchState state_;
  std::string out_;
  std::string flags_;       // of tensors: [NAME,[...]],...
  std::string attributes_;  // of OrderedDicts: [NUMBER,{...}],...
  uint64_t mappings_ = 0;   // OrderedDicts and Counters so far
  size_t visits_ = 0;
  int depth_ = 0;
  bool in_key_ = false;
  std::unordered_set<std::string> names_;
  std::set<std::pair<size_t, uint64_t>> storages_;
};

// A value may be in many places, so that a small pickle may have a huge structure.
Result<void> StateWriter::check_size() {
  if (++visits_ > kStateValuesMax) {
    return fail(Errc::failed, "the structure around the tensors has more than {} million values",
                kStateValuesMax >> 20);
  }
  const size_t size = out_.size() + flags_.size() + attributes_.size();
  if (size <= kSafetensorsHeaderMax) return {};
  return fail(Errc::failed, "the structure around the tensors is longer than {} bytes as JSON",
              kSafetensorsHeaderMax);
}

// What a state cannot have.
Result<bool> StateWriter::left_out(std::string_view what, const std::string& path) {
  if (!skip_unknown_) {
    return Error{Errc::refused,
                 fmt::format("{}: {} cannot be imported", shown(path), printable(what)),
                 "Save tensors, numbers, texts and containers of them (state_dict()), or import "
                 "without such values: --skip-unknown."};
  }
  note_left_out(path);
  return false;
}

Result<void> StateWriter::put_or_none(Id id, const std::string& path) {
  FF_TRY(const bool there, put(id, path));
  if (!there) out_ += "null";
  return {};
}

Result<bool> StateWriter::put(Id id, const std::string& path) {
  FF_TRY(check_size());
  switch (pickle_.kind(id)) {
    case PickleKind::none:
    case PickleKind::boolean:
    case PickleKind::integer:
    case PickleKind::big_integer:
    case PickleKind::real: return put_number(id);
    case PickleKind::text:
      count_value();
      append_json_string(out_, pickle_.text(id));
      return true;
    case PickleKind::bytes: return put_bytes("bytes", pickle_.bytes(id), path);
    case PickleKind::bytearray: return put_bytes("bytearray", pickle_.bytes(id), path);
    case PickleKind::global: {
      const TorchDtype* dtype = torch_dtype_of_global(pickle_.global(id));
      if (dtype == nullptr) return left_out(pickle_.global(id), path);
      out_ += fmt::format(R"({{"torch.dtype":"{}"}})", dtype->name);
      return true;
    }
    case PickleKind::persistent: return left_out("a storage without a tensor", path);
    default: break;
  }
  if (depth_ == kStateDepthMax) {
    return fail(Errc::failed, "{}: it nests deeper than {} levels", shown(path), kStateDepthMax);
  }
  depth_++;
  auto there = pickle_.is(id, PickleKind::call) ? put_call(id, path) : put_container(id, path);
  depth_--;
  return there;
}

Result<bool> StateWriter::put_number(Id id) {
  count_value();
  switch (pickle_.kind(id)) {
    case PickleKind::none: out_ += "null"; break;
    case PickleKind::boolean: out_ += pickle_.boolean(id) ? "true" : "false"; break;
    case PickleKind::integer: out_ += std::to_string(pickle_.integer(id)); break;
    case PickleKind::big_integer: {
      std::string bytes(pickle_.bytes(id));
      const bool negative = (static_cast<uint8_t>(bytes.back()) & 0x80) != 0;
      unsigned carry = negative ? 1 : 0;  // its magnitude
      for (char& byte : bytes) {
        const unsigned sum =
            (negative ? 0xff & ~static_cast<uint8_t>(byte) : static_cast<uint8_t>(byte)) + carry;
        byte = static_cast<char>(sum);
        carry = sum >> 8;
      }
      std::reverse(bytes.begin(), bytes.end());
      out_ += fmt::format(R"({{"int":"{}0x{}{}"}})", negative ? "-" : "", carry != 0 ? "1" : "",
                          hex(as_bytes(bytes)));
      break;
    }
    default: {
      const double value = pickle_.real(id);
      if (!std::isfinite(value)) {
        out_ += fmt::format(R"({{"float":"{:016x}"}})", std::bit_cast<uint64_t>(value));
        break;
      }
      const std::string digits = fmt::format("{}", value);
      out_ += digits;
      if (digits.find_first_of(".e") == std::string::npos) out_ += ".0";
    }
  }
  return true;
}

Result<bool> StateWriter::put_bytes(std::string_view kind, std::string_view bytes,
                                    const std::string& path) {
  count_value();
  if (in_key_ && kind == "bytes") {
    out_ += fmt::format(R"({{"hex":"{}"}})", hex(as_bytes(bytes)));
    return true;
  }
  if (in_key_ || file_ == nullptr) return left_out(kind, path);
  const std::string name = add({.name = {},
                                .dtype = "U8",
                                .shape = {bytes.size()},
                                .bytes = bytes.size(),
                                .memory = std::make_shared<const std::string>(bytes)},
                               path);
  out_ += fmt::format(R"({{"{}":)", kind);
  append_json_string(out_, name);
  out_ += '}';
  return true;
}

// Gives the name under which the tensor is stored.
std::string StateWriter::add(ImportedTensor tensor, const std::string& path) {
  const std::string wanted = storable_name(path.empty() ? "state" : path);
  std::string name = wanted;
  for (int again = 2; name == "__metadata__" || !names_.insert(name).second; again++) {
    name = fmt::format("{}~{}", wanted, again);
  }
  tensor.name = name;
  state_.tensors.push_back(std::move(tensor));
  return name;
}

Result<bool> StateWriter::put_tensor(Id id, const std::string& path) {
  auto found = file_->tensor(id);
  if (!found) {
    if (found.error().code == Errc::failed && skip_unknown_) return left_out("", path);
    return std::move(found).error().with_context(shown(path) + ": ");
  }
  if (found->has_attributes) note_left_out(path, " (attributes)");
  if (found->data.bytes > 0 &&
      storages_.emplace(found->storage.source, found->storage.begin).second) {
    state_.storages.push_back(found->storage);
  }
  const std::string name = add(std::move(found->data), path);
  std::string json;
  append_json_string(json, name);
  out_ += fmt::format(R"({{"tensor":{}}})", json);
  if (found->is_parameter || found->requires_grad) {
    flags_ += fmt::format(R"({}[{},[{}{}{}]])", flags_.empty() ? "" : ",", json,
                          found->is_parameter ? R"("parameter")" : "",
                          found->is_parameter && found->requires_grad ? "," : "",
                          found->requires_grad ? R"("requires_grad")" : "");
  }
  return true;
}

Result<void> StateWriter::put_list(const std::vector<Id>& items, const std::string& path) {
  out_ += '[';
  for (size_t i = 0; i < items.size(); i++) {
    if (i > 0) out_ += ',';
    FF_TRY(put_or_none(items[i], below(path, std::to_string(i))));
  }
  out_ += ']';
  return {};
}

Result<bool> StateWriter::put_container(Id id, const std::string& path) {
  const std::vector<Id>& items = pickle_.items(id);
  const PickleKind kind = pickle_.kind(id);
  if (in_key_ && kind != PickleKind::tuple && kind != PickleKind::frozenset) {
    return left_out("a key that Python does not allow", path);
  }
  switch (kind) {
    case PickleKind::list: FF_TRY(put_list(items, path)); return true;
    case PickleKind::tuple:
      out_ += R"({"tuple":)";
      FF_TRY(put_list(items, path));
      out_ += '}';
      return true;
    case PickleKind::set: return put_set("set", items, path);
    case PickleKind::frozenset: return put_set("frozenset", items, path);
    default: break;
  }
  const bool as_object = all_texts(items);
  out_ += as_object ? R"({"dict":{)" : R"({"pairs":[)";
  FF_TRY(put_pairs(items, path, as_object));
  out_ += as_object ? "}}" : "]}";
  return true;
}

bool StateWriter::all_texts(const std::vector<Id>& pairs) const {
  for (size_t i = 0; i < pairs.size(); i += 2) {
    if (!pickle_.is(pairs[i], PickleKind::text)) return false;
  }
  return true;
}

// The JSON of a key; "": a state cannot have it.
Result<std::string> StateWriter::key_of(Id id, const std::string& path) {
  const bool outside = std::exchange(in_key_, true);
  std::string before = std::exchange(out_, {});
  auto there = put(id, path);
  std::string key = std::exchange(out_, std::move(before));
  in_key_ = outside;
  if (!there) return std::move(there).error();
  return *there ? key : std::string();
}

// KEY:VALUE,... or [KEY,VALUE],... of entries whose keys do not come again.
Result<void> StateWriter::put_pairs(const std::vector<Id>& pairs, const std::string& path,
                                    bool as_object) {
  std::vector<std::string> keys;
  std::unordered_map<std::string_view, size_t> last;
  keys.reserve(pairs.size() / 2);
  for (size_t i = 0; i < pairs.size(); i += 2) {
    FF_TRY(keys.emplace_back(), key_of(pairs[i], path));
  }
  for (size_t i = 0; i < keys.size(); i++) last[keys[i]] = i;
  bool first = true;
  for (size_t i = 0; i < keys.size(); i++) {
    if (keys[i].empty() || last[keys[i]] != i) continue;
    const Id key = pairs[2 * i];
    const size_t begin = out_.size();
    if (!first) out_ += ',';
    if (!as_object) out_ += '[';
    out_ += keys[i];
    out_ += as_object ? ':' : ',';
    const auto name =
        pickle_.is(key, PickleKind::text) ? pickle_.text(key) : std::string_view(keys[i]);
    FF_TRY(const bool there, put(pairs[2 * i + 1], below(path, name)));
    if (!there) {
      out_.resize(begin);
      continue;
    }
    if (!as_object) out_ += ']';
    first = false;
  }
  return {};
}

// In an order that does not depend on that of the pickle.
Result<bool> StateWriter::put_set(std::string_view name, const std::vector<Id>& items,
                                  const std::string& path) {
  std::set<std::string> elements;
  for (const Id id : items) {
    FF_TRY(auto element, key_of(id, path));
    if (!element.empty()) elements.insert(std::move(element));
  }
  out_ += fmt::format(R"({{"{}":[{}]}})", name, fmt::join(elements, ","));
  return true;
}

Result<bool> StateWriter::put_call(Id id, const std::string& path) {
  const std::string_view function = pickle_.function(id);
  if (file_ != nullptr && file_->is_tensor(id)) {
    if (in_key_) return left_out("a tensor as a key", path);
    return put_tensor(id, path);
  }
  if (function.starts_with("torch.")) {
    FF_TRY(const bool there, put_torch(id, function));
    return there ? Result<bool>(true) : left_out(function, path);
  }
  if (!builtin_of(function).empty()) return put_builtin(id, builtin_of(function), path);
  if (const auto bytes = bytes_of(id)) return put_bytes("bytes", *bytes, path);
  if (function.starts_with("collections.") && !in_key_) return put_mapping(id, path);
  return left_out(function, path);
}

// Of bytes; in protocol 2 they are _codecs.encode(TEXT, "latin1"), a character for each byte.
std::optional<std::string> StateWriter::bytes_of(Id id) const {
  if (pickle_.is(id, PickleKind::bytes)) return std::string(pickle_.bytes(id));
  if (pickle_.function(id) != "_codecs.encode") return std::nullopt;
  const auto& arguments = pickle_.items(pickle_.call(id).arguments);
  if (arguments.size() != 2 || !pickle_.is(arguments[0], PickleKind::text)) return std::nullopt;
  std::string bytes;
  const std::string_view text = pickle_.text(arguments[0]);  // UTF-8
  for (size_t i = 0; i < text.size(); i++) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < 0x80) {
      bytes += text[i];
    } else if ((byte & 0xfc) == 0xc0) {
      bytes += static_cast<char>((byte << 6) | (static_cast<uint8_t>(text[++i]) & 0x3f));
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

// torch.Size((...)) and torch.device("cuda", 0). False: it is neither.
Result<bool> StateWriter::put_torch(Id id, std::string_view function) {
  const auto& arguments = pickle_.items(pickle_.call(id).arguments);
  if (function == "torch.Size" && arguments.size() == 1 &&
      pickle_.is(arguments[0], PickleKind::tuple)) {
    const auto& lengths = pickle_.items(arguments[0]);
    const bool are_numbers =
        std::ranges::all_of(lengths, [&](Id one) { return pickle_.is(one, PickleKind::integer); });
    if (!are_numbers) return false;
    out_ += R"({"torch.Size":)";
    FF_TRY(put_list(lengths, ""));
    out_ += '}';
    return true;
  }
  if (function == "torch.device" && !arguments.empty() &&
      pickle_.is(arguments[0], PickleKind::text)) {
    std::string device(pickle_.text(arguments[0]));
    if (arguments.size() == 2 && pickle_.is(arguments[1], PickleKind::integer)) {
      device += fmt::format(":{}", pickle_.integer(arguments[1]));
    }
    out_ += R"({"torch.device":)";
    append_json_string(out_, device);
    out_ += '}';
    return true;
  }
  return false;
}

// What classes of Python return that have no opcode of their own.
Result<bool> StateWriter::put_builtin(Id id, std::string_view name, const std::string& path) {
  const auto& call = pickle_.call(id);
  const auto& arguments = pickle_.items(call.arguments);
  const auto are_numbers = [&](PickleKind kind, size_t least, size_t most) {
    return arguments.size() >= least && arguments.size() <= most &&
           std::ranges::all_of(arguments, [&](Id one) { return pickle_.is(one, kind); });
  };
  const bool is_set = name == "set" || name == "frozenset";
  if (is_set && !(in_key_ && name == "set") && arguments.size() == 1 &&
      pickle_.is(arguments[0], PickleKind::list)) {
    return put_set(name, pickle_.items(arguments[0]), path);
  }
  if (is_set && !(in_key_ && name == "set") && arguments.empty()) {
    return put_set(name, call.items, path);
  }
  if (name == "bytearray" && arguments.size() == 1) {
    const auto bytes = bytes_of(arguments[0]);
    return bytes ? put_bytes(name, *bytes, path) : left_out(name, path);
  }
  if ((name == "bytes" || name == "bytearray") && arguments.empty())
    return put_bytes(name, "", path);
  const bool is_plain = (name == "complex" && are_numbers(PickleKind::real, 2, 2)) ||
                        (name == "range" && are_numbers(PickleKind::integer, 3, 3)) ||
                        (name == "slice" && arguments.size() == 3 && !in_key_);
  if (!is_plain) return left_out(name, path);
  out_ += fmt::format(R"({{"{}":)", name);
  FF_TRY(put_list(arguments, path));
  out_ += '}';
  return true;
}

// OrderedDict, Counter, defaultdict and deque.
Result<bool> StateWriter::put_mapping(Id id, const std::string& path) {
  const std::string_view function = pickle_.function(id);
  const auto& call = pickle_.call(id);
  const auto& arguments = pickle_.items(call.arguments);
  const bool is_counter = function == "collections.Counter";
  if (function == "collections.OrderedDict" || is_counter) {
    const bool has_dict = arguments.size() == 1 && pickle_.is(arguments[0], PickleKind::dict);
    if (!arguments.empty() && !has_dict) return left_out(function, path);
    const uint64_t number = mappings_++;
    out_ += is_counter ? R"({"counter":[)" : R"({"ordered":[)";
    FF_TRY(put_pairs(has_dict ? pickle_.items(arguments[0]) : call.pairs, path, false));
    out_ += "]}";
    if (call.state == 0 || !pickle_.is(call.state, PickleKind::dict) ||
        pickle_.items(call.state).empty()) {
      return true;
    }
    std::string before = std::exchange(out_, {});
    FF_TRY(put_or_none(call.state, below(path, "__dict__")));
    const std::string said = std::exchange(out_, std::move(before));
    attributes_ += fmt::format("{}[{},{}]", attributes_.empty() ? "" : ",", number, said);
    return true;
  }
  if (function == "collections.defaultdict" && arguments.size() <= 1) {
    const bool has_factory = !arguments.empty() && pickle_.is(arguments[0], PickleKind::global);
    const auto factory =
        has_factory ? builtin_of(pickle_.global(arguments[0])) : std::string_view();
    if (has_factory && factory.empty()) return left_out(pickle_.global(arguments[0]), path);
    out_ += fmt::format(R"({{"defaultdict":[{},[)",
                        has_factory ? fmt::format("\"{}\"", factory) : "null");
    FF_TRY(put_pairs(call.pairs, path, false));
    out_ += "]]}";
    return true;
  }
  const bool is_bounded = arguments.size() == 2 && pickle_.is(arguments[1], PickleKind::integer);
  if (function != "collections.deque" || (!arguments.empty() && !is_bounded)) {
    return left_out(function, path);
  }
  out_ += fmt::format(R"({{"deque":[{},)",
                      is_bounded ? std::to_string(pickle_.integer(arguments[1])) : "null");
  FF_TRY(put_list(call.items, path));
  out_ += "]}";
  return true;
}

}  // namespace

std::string storable_name(std::string_view name) {
  std::string made;
  for (const char c : name) {
    if (c == '\0') {
      made += "\\0";
    } else {
      made += c;
    }
  }
  return made;
}

Result<TorchState> torch_state(const TorchFile& file, bool skip_unknown) {
  StateWriter writer(file.pickle(), &file, skip_unknown);
  return writer.run(file.pickle().top());
}

Result<std::string> structure_of(const Pickle& pickle, Pickle::Id id) {
  StateWriter writer(pickle, nullptr, false);
  FF_TRY(auto state, writer.run(id));
  return std::move(state.document);
}

}  // namespace ff::checkpoint
