// Reads little-endian numbers from a message of another node, front to back. After a message that
// is too short or malformed, reads return zeros and good() is false.
#pragma once

#include "platform/base/bytes.h"

namespace ff::collective {

class MessageReader {
 public:
  explicit MessageReader(ByteView message) : rest_(message) {}
  template <class T>
  T read() {
    const ByteView bytes = read_bytes(sizeof(T));
    return good_ ? load_le<T>(bytes.data()) : T{0};
  }
  // Empty when fewer bytes remain.
  ByteView read_bytes(size_t bytes) {
    if (bytes > rest_.size()) good_ = false;
    if (!good_) return {};
    const ByteView part = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return part;
  }
  void set_malformed() { good_ = false; }  // a value that was read is not allowed
  size_t remaining() const { return rest_.size(); }
  bool good() const { return good_; }
  bool more() const { return good_ && !rest_.empty(); }
  bool at_end() const { return good_ && rest_.empty(); }

 private:
  ByteView rest_;
  bool good_ = true;
};

}  // namespace ff::collective
