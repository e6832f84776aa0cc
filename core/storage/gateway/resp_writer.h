// Writes replies of the Redis protocol in version 2 or 3 (RESP2, RESP3). Types that only version 3
// has become what Redis sends to clients of version 2: a map its pairs as an array, a set an array,
// a verbatim text a bulk string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ff::gateway {

class RespWriter {
 public:
  // Appends to `out`, which outlives the writer. `version`: 2 or 3.
  RespWriter(std::string& out, int version) : out_(out), version_(version) {}

  std::string& out() { return out_; }

  // "+OK". Texts of simple strings and errors are one line: line ends become spaces.
  void simple(std::string_view text);
  void ok() { out_ += "+OK\r\n"; }
  // "-ERR ...": begins with the code of the error.
  void error(std::string_view text);
  void integer(int64_t value);
  void bulk(std::string_view bytes);
  // No value: a null bulk string, in version 3 a null.
  void null();
  // No array: of an EXEC that a watched key has ended.
  void null_array();
  // The caller writes the elements next; of a map, keys and values in turn.
  void array(size_t elements);
  void set(size_t elements);
  void map(size_t pairs);
  // Replies that are written already: elements of an array.
  void append(std::string_view replies) { out_ += replies; }
  // Text for people.
  void verbatim(std::string_view text);

 private:
  void head(char type, int64_t number);

  std::string& out_;
  const int version_;
};

}  // namespace ff::gateway
