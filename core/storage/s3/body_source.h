// The body of a request as a source of bytes, with the checks that the client has asked for: the
// digest or the signatures that its signature covers, Content-MD5, and x-amz-checksum-* in the
// header or behind the body.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/http/chunk_parser.h"
#include "platform/http/exchange.h"
#include "storage/s3/authenticator.h"
#include "storage/s3/hash.h"
#include "storage/s3/object_source.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

// The signatures of the chunks of a body, each of which covers the one before.
class ChunkSignatures {
 public:
  // `authentication` outlives it.
  explicit ChunkSignatures(const Authentication& authentication)
      : authentication_(authentication), last_(authentication.claim.signature) {}

  // Bytes of a chunk; `ends`: with them it ends, and it has this signature.
  struct Piece {
    ByteView bytes = {};
    bool ends = false;
    std::string signature = {};
  };
  // The next pieces, in any thread.
  void check(const std::vector<Piece>& pieces);
  // Whether a signature was wrong.
  bool failed() const { return failed_; }

 private:
  const Authentication& authentication_;
  std::string last_;
  Hasher hasher_{HashKind::sha256};
  std::atomic<bool> failed_ = false;
};

class BodySource final : public ObjectSource {
 public:
  // Both outlive it. Errors are S3's.
  static Result<BodySource> make(http::Exchange& exchange, const Authentication& authentication);

  std::optional<uint64_t> size() const override { return size_; }
  Task<Result<size_t>> read(ByteSpan into) override;
  std::vector<HashJob> take_jobs(ByteView bytes) override;
  Result<void> check() override;
  std::string checked_md5() const override { return md5_; }
  // The whole body, checked. Errors are S3's: MalformedXML if it has more bytes.
  Task<Result<std::string>> read_all(size_t bytes_max);

 private:
  enum class Framing : uint8_t { plain, signed_chunks, unsigned_chunks };
  // A digest of the body, and what it must be: as bytes, or later in a trailer.
  struct Check {
    Hasher hasher;
    S3Code mismatch;
    std::string expected;      // empty: in `trailer`
    std::string trailer = {};  // the name of the field
  };

  BodySource(http::Exchange& exchange, const Authentication& authentication)
      : exchange_(exchange), authentication_(authentication) {}
  Result<void> begin();
  Result<void> begin_chunks(const std::string& payload);
  Result<void> add_checks();
  Result<void> add_checksums();
  Task<Result<size_t>> read_some(ByteSpan into);
  Task<Result<size_t>> read_chunks(ByteSpan into);
  Result<void> on_event(const http::ChunkParser::Step& step);
  Result<void> end_chunk();
  Result<void> check_trailer_signature() const;

  http::Exchange& exchange_;
  const Authentication& authentication_;
  Framing framing_ = Framing::plain;
  bool trailers_signed_ = false;
  std::optional<uint64_t> size_;
  uint64_t bytes_ = 0;
  bool ended_ = false;
  std::vector<Check> checks_;
  std::string md5_;  // of Content-MD5
  // Of chunks.
  http::ChunkParser chunks_;
  std::vector<std::byte> buffer_;
  size_t buffer_begin_ = 0, buffer_end_ = 0;
  std::string last_signature_;
  std::unique_ptr<ChunkSignatures> signatures_;  // null: chunks have none
  std::vector<ChunkSignatures::Piece> pieces_;   // of the last read()
};

}  // namespace ff::s3
