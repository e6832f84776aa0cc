// The chunked coding: of transfers (RFC 9112, 7.1), and of bodies with signed chunks, which S3 has
// within a transfer ("aws-chunked"): pieces with their sizes in front, then trailers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/http/request_head.h"

namespace ff::http {

class ChunkParser {
 public:
  enum class Event : uint8_t {
    need_more,    // all input is consumed
    chunk_begin,  // size() and extension() are those of a new chunk; 0: the last one
    data,         // Step::data belongs to the chunk
    chunk_end,    // of a chunk with data
    end,          // trailers() are complete; the rest of the input belongs to somebody else
  };
  struct Step {
    Event event = Event::need_more;
    size_t consumed = 0;  // bytes of the input, with those of `data`
    ByteView data = {};
  };
  static constexpr size_t kLineMax = 4 * kKiB;       // of a size with its extension, of a trailer
  static constexpr size_t kTrailersMax = 16 * kKiB;  // bytes of all trailers

  // The next step of the input, which begins where the last step has ended. Errc::corrupt: no
  // chunk.
  Result<Step> next(ByteView input);

  uint64_t size() const { return size_; }
  // What stands behind the size and a semicolon: "chunk-signature=...".
  const std::string& extension() const { return extension_; }
  const std::vector<Field>& trailers() const { return trailers_; }

 private:
  enum class State : uint8_t { size_line, data, data_end, trailer, ended };

  // Takes bytes up to the end of the line. False: the line goes on.
  Result<bool> take_line(ByteView input, Step& step);
  Result<void> begin_chunk();
  Result<Step> next_line(ByteView input);

  State state_ = State::size_line;
  std::string line_;
  uint64_t size_ = 0;
  uint64_t left_ = 0;  // of the chunk's data
  std::string extension_;
  std::vector<Field> trailers_;
  size_t trailer_bytes_ = 0;
};

}  // namespace ff::http
