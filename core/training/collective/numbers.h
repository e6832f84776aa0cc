// Little-endian numbers off a message of another node, one after the other. A message that is too
// short gives zeros, and is not good any more.
#pragma once

#include "platform/base/bytes.h"

namespace ff::collective {

class Numbers {
 public:
  explicit Numbers(ByteView message) : left_(message) {}
  template <class T>
  T next() {
    const ByteView bytes = take(sizeof(T));
    return good_ ? load_le<T>(bytes.data()) : T{0};
  }
  // So many bytes as they are; none when there are fewer.
  ByteView take(size_t bytes) {
    if (bytes > left_.size()) good_ = false;
    if (!good_) return {};
    const ByteView part = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return part;
  }
  void spoil() { good_ = false; }  // what was read is nothing that may come
  size_t left() const { return left_.size(); }
  bool good() const { return good_; }
  bool more() const { return good_ && !left_.empty(); }
  bool at_end() const { return good_ && left_.empty(); }

 private:
  ByteView left_;
  bool good_ = true;
};

}  // namespace ff::collective
