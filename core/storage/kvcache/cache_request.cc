// cache_request.cc: takes the members of a body while the JSON library reads it, without a tree of
// its values.
#include "storage/kvcache/cache_request.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "storage/kvcache/page_pool.h"
#include "storage/kvcache/pool_store.h"

namespace ff::kvcache {

namespace {

using Json = nlohmann::json;

// Gets the values of a body in their order. Depth 1 has the members of the object, depth 2 the
// elements of their arrays, depth 3 what is in an element that is an array of two.
class BodyReader final : public nlohmann::json_sax<Json> {
 public:
  BodyReader(CacheRequest& request, CacheRequest::Keys keys) : request_(request), keys_(keys) {}

  Error error = fail(Errc::usage, "not JSON");

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_float(double, const std::string&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool number_integer(int64_t value) override { return number(value); }
  bool number_unsigned(uint64_t value) override {
    return value <= INT64_MAX ? number(static_cast<int64_t>(value)) : other();
  }
  bool string(std::string& value) override;
  bool start_object(size_t) override;
  bool key(std::string& name) override;
  bool end_object() override { return end(); }
  bool start_array(size_t) override;
  bool end_array() override;
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    return refuse(fail(Errc::usage, "not JSON from byte {} on", position));
  }

 private:
  enum class Member : uint8_t { unknown, name_space, pages, keys, written, released };

  bool refuse(Error why) {
    error = std::move(why);
    return false;
  }
  bool wrong_type() { return refuse(fail(Errc::usage, "{}: a value has a wrong type", name_)); }
  bool other() { return ignored() || wrong_type(); }
  bool ignored() const { return depth_ > 0 && member_ == Member::unknown; }
  bool has_pairs() const {
    return member_ == Member::written ||
           (member_ == Member::keys && keys_ == CacheRequest::Keys::with_prefix);
  }
  bool number(int64_t value);
  bool end() {
    depth_--;
    return true;
  }
  // One more element of an array of the body.
  bool count();

  CacheRequest& request_;
  const CacheRequest::Keys keys_;
  size_t depth_ = 0;
  std::string name_ = "the body";  // of the member
  Member member_ = Member::unknown;
  size_t elements_ = 0;    // of the array, so far
  size_t in_element_ = 0;  // values of the array of two, so far
};

bool BodyReader::start_object(size_t) {
  if (depth_ > 0 && !ignored()) return wrong_type();
  depth_++;
  return true;
}

bool BodyReader::key(std::string& name) {
  if (depth_ != 1) return true;
  constexpr std::pair<std::string_view, Member> kMembers[] = {
      {"namespace", Member::name_space},
      {"num_pages", Member::pages},
      {"keys", Member::keys},
      {"written_keys_to_confirm", Member::written},
      {"pages_to_release", Member::released},
  };
  member_ = Member::unknown;
  for (const auto& [known, member] : kMembers) {
    if (known == name) member_ = member;
  }
  name_ = name;
  return true;
}

bool BodyReader::start_array(size_t) {
  if (depth_ == 0) return wrong_type();
  if (ignored()) {
    depth_++;
    return true;
  }
  if (depth_ == 2 && has_pairs()) {
    if (!count()) return false;
    in_element_ = 0;
  } else if (depth_ == 1 && member_ == Member::keys) {
    request_.keys.emplace();
  } else if (depth_ == 1 && member_ == Member::written) {
    request_.written.clear();
  } else if (depth_ == 1 && member_ == Member::released) {
    request_.released.clear();
  } else {
    return wrong_type();
  }
  if (depth_ == 1) elements_ = 0;
  depth_++;
  return true;
}

bool BodyReader::end_array() {
  if (!ignored() && depth_ == 3 && in_element_ != 2) {
    return refuse(fail(Errc::usage, "{}: an array does not have two elements", name_));
  }
  return end();
}

bool BodyReader::count() {
  if (++elements_ <= kBatchMax) return true;
  return refuse(fail(Errc::usage, "{}: more than {} elements", name_, kBatchMax));
}

bool BodyReader::string(std::string& value) {
  if (ignored()) return true;
  if (depth_ == 1 && member_ == Member::name_space) {
    if (value.empty() || value.size() > kNamespaceMax) {
      return refuse(fail(Errc::usage, "namespace: must have 1 to {} bytes", kNamespaceMax));
    }
    request_.name_space = request_.strings.emplace_back(std::move(value));
    return true;
  }
  const bool is_key =
      depth_ == (has_pairs() ? 3 : 2) && (member_ == Member::keys || member_ == Member::written);
  if (!is_key) return wrong_type();
  if (value.size() > kKeyMax) {
    return refuse(fail(Errc::usage, "a key of {} bytes: the most are {}", value.size(), kKeyMax));
  }
  const size_t place = has_pairs() ? in_element_++ : 0;
  if (place > 0) return member_ == Member::keys || wrong_type();  // the prefix is not used
  if (!has_pairs() && !count()) return false;
  const std::string_view key = request_.strings.emplace_back(std::move(value));
  if (member_ == Member::keys) request_.keys->push_back(key);
  if (member_ == Member::written) request_.written.emplace_back(key, 0);
  return true;
}

bool BodyReader::number(int64_t value) {
  if (ignored()) return true;
  if (depth_ == 1 && member_ == Member::pages) {
    request_.pages = value;
  } else if (depth_ == 2 && member_ == Member::released) {
    if (!count()) return false;
    request_.released.push_back(value);
  } else if (depth_ == 3 && member_ == Member::written && in_element_ == 1) {
    request_.written.back().second = value;
    in_element_++;
  } else {
    return wrong_type();
  }
  return true;
}

}  // namespace

Result<CacheRequest> CacheRequest::parse(std::string_view body, Keys keys) {
  CacheRequest request;
  BodyReader reader(request, keys);
  if (!Json::sax_parse(body, &reader)) return std::move(reader.error);
  return request;
}

}  // namespace ff::kvcache
