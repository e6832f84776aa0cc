// body_source.cc: removes the framing of signed chunks, and compares digests at the end.
#include "storage/s3/body_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "platform/base/text.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

namespace {

constexpr size_t kChunkBufferBytes = 256 * kKiB;
// A read ends early behind so many pieces of chunks, so that tiny chunks need no more memory.
constexpr size_t kChunkPiecesMax = 4096;
constexpr std::string_view kChunkSignature = "chunk-signature=";
constexpr std::string_view kTrailerSignature = "x-amz-trailer-signature";

struct ChecksumName {
  std::string_view field;
  HashKind kind;
};
constexpr std::array<ChecksumName, 5> kChecksums = {{
    {"x-amz-checksum-crc32", HashKind::crc32},
    {"x-amz-checksum-crc32c", HashKind::crc32c},
    {"x-amz-checksum-crc64nvme", HashKind::crc64nvme},
    {"x-amz-checksum-sha1", HashKind::sha1},
    {"x-amz-checksum-sha256", HashKind::sha256},
}};

Error malformed_body(const Error& error) {
  if (error.code == Errc::corrupt) {
    return s3_error(S3Code::incomplete_body, "The body of the request is not valid: {}.",
                    error.message);
  }
  if (error.code == Errc::deadline) {
    return s3_error(S3Code::request_timeout, "The body of the request came too slowly.");
  }
  return error;
}

Error wrong_chunk() {
  return s3_error(S3Code::signature_does_not_match,
                  "The signature of a chunk of the body does not match.");
}

}  // namespace

void ChunkSignatures::check(const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    hasher_.update(piece.bytes);
    if (!piece.ends) continue;
    const std::string digest = hex(as_bytes(hasher_.finish()));
    if (authentication_.key) {
      const std::string right =
          sign(*authentication_.key, chunk_string_to_sign(authentication_.claim, last_, digest));
      if (!auth::constant_time_equal(as_bytes(right), as_bytes(piece.signature))) failed_ = true;
    }
    last_ = piece.signature;
  }
}

Result<BodySource> BodySource::make(http::Exchange& exchange,
                                    const Authentication& authentication) {
  BodySource source(exchange, authentication);
  FF_TRY(source.begin());
  return source;
}

Result<void> BodySource::begin() {
  const http::RequestHead& head = exchange_.head();
  size_ = exchange_.body_size();
  ended_ = exchange_.body_done();
  const std::string& payload = authentication_.claim.payload;
  if (payload.starts_with("STREAMING-")) {
    FF_TRY(begin_chunks(payload));
  } else if (payload != kUnsignedPayload) {
    const auto digest = parse_hex(payload);
    if (!digest || digest->size() != auth::kKeyBytes) {
      return s3_error(S3Code::invalid_argument,
                      "x-amz-content-sha256 is neither a SHA-256 in hex digits nor a word that is "
                      "known here.");
    }
    checks_.push_back({Hasher(HashKind::sha256), S3Code::content_sha256_mismatch, *digest});
  }
  const std::string_view encoding = head.value("content-encoding");
  if (framing_ == Framing::plain && encoding.starts_with("aws-chunked")) {
    return s3_error(S3Code::invalid_request,
                    "The body is aws-chunked, but x-amz-content-sha256 does not say so.");
  }
  return add_checks();
}

Result<void> BodySource::begin_chunks(const std::string& payload) {
  framing_ = payload == kUnsignedChunksTrailer ? Framing::unsigned_chunks : Framing::signed_chunks;
  trailers_signed_ = payload == kSignedChunksTrailer;
  if (payload != kUnsignedChunksTrailer && payload != kSignedChunks && !trailers_signed_) {
    return s3_error(S3Code::not_implemented, "The signature of chunks {} is not known here.",
                    payload);
  }
  const auto size = parse_u64(exchange_.head().value("x-amz-decoded-content-length"));
  if (!size) {
    return s3_error(S3Code::missing_content_length,
                    "The request has no x-amz-decoded-content-length.");
  }
  size_ = size;
  ended_ = false;
  last_signature_ = authentication_.claim.signature;
  if (framing_ == Framing::signed_chunks) {
    signatures_ = std::make_unique<ChunkSignatures>(authentication_);
  }
  buffer_.resize(kChunkBufferBytes);
  return {};
}

Result<void> BodySource::add_checks() {
  const std::string* const md5 = exchange_.head().find("content-md5");
  if (md5 != nullptr) {
    const auto digest = parse_base64(*md5);
    if (!digest || digest->size() != 16) {
      return s3_error(S3Code::invalid_digest, "The Content-MD5 is not valid.");
    }
    checks_.push_back({Hasher(HashKind::md5), S3Code::bad_digest, *digest});
    md5_ = *digest;
  }
  return add_checksums();
}

Result<void> BodySource::add_checksums() {
  const http::RequestHead& head = exchange_.head();
  const std::string trailer(head.value("x-amz-trailer"));
  for (const ChecksumName& one : kChecksums) {
    const std::string* const field = head.find(one.field);
    if (field == nullptr && trailer != one.field) continue;
    Check check{Hasher(one.kind), S3Code::bad_digest, {}};
    if (field == nullptr) {
      check.trailer = one.field;
    } else {
      const auto digest = parse_base64(*field);
      if (!digest || digest->empty()) {
        return s3_error(S3Code::invalid_request, "The value of {} is not valid.", one.field);
      }
      check.expected = *digest;
    }
    checks_.push_back(std::move(check));
  }
  for (const http::Field& field : head.fields) {
    const bool known =
        std::ranges::find(kChecksums, field.name, &ChecksumName::field) != kChecksums.end();
    const bool is_value =
        field.name.starts_with("x-amz-checksum-") && field.name != "x-amz-checksum-mode" &&
        field.name != "x-amz-checksum-algorithm" && field.name != "x-amz-checksum-type";
    if (is_value && !known) {
      return s3_error(
          S3Code::invalid_request,
          "The checksum {} is not known here; CRC32, CRC32C, CRC64NVME, SHA1 and SHA256 are.",
          field.name);
    }
  }
  if (!trailer.empty() &&
      std::ranges::find(kChecksums, trailer, &ChecksumName::field) == kChecksums.end()) {
    return s3_error(
        S3Code::invalid_request,
        "The trailer {} is not known here; checksums CRC32, CRC32C, CRC64NVME, SHA1 and SHA256 "
        "are.",
        printable(trailer));
  }
  return {};
}

Result<void> BodySource::end_chunk() {
  if (signatures_ == nullptr) return {};
  const std::string& extension = chunks_.extension();
  if (!extension.starts_with(kChunkSignature)) {
    return s3_error(S3Code::incomplete_body, "A chunk of the body has no signature.");
  }
  last_signature_ = extension.substr(kChunkSignature.size());
  pieces_.push_back({.ends = true, .signature = last_signature_});
  return {};
}

Result<void> BodySource::check_trailer_signature() const {
  if (!trailers_signed_ || !authentication_.key) return {};
  std::string lines;
  for (const http::Field& field : chunks_.trailers()) {
    if (field.name != kTrailerSignature) lines += fmt::format("{}:{}\n", field.name, field.value);
  }
  const std::string* const shown = http::find_field(chunks_.trailers(), kTrailerSignature);
  const std::string right = sign(
      *authentication_.key, trailer_string_to_sign(authentication_.claim, last_signature_, lines));
  if (shown == nullptr || !auth::constant_time_equal(as_bytes(right), as_bytes(*shown))) {
    return s3_error(S3Code::signature_does_not_match,
                    "The signature of the trailers does not match.");
  }
  return {};
}

Result<void> BodySource::on_event(const http::ChunkParser::Step& step) {
  using Event = http::ChunkParser::Event;
  if (step.event == Event::chunk_begin && chunks_.size() == 0) return end_chunk();
  if (step.event == Event::chunk_end) return end_chunk();
  if (step.event != Event::end) return {};
  ended_ = true;
  return check_trailer_signature();
}

// At least one byte; 0: the end, or enough pieces of chunks.
Task<Result<size_t>> BodySource::read_chunks(ByteSpan into) {
  while (!ended_ && pieces_.size() < kChunkPiecesMax) {
    const ByteView left = ByteView(buffer_).subspan(buffer_begin_, buffer_end_ - buffer_begin_);
    FF_CO_TRY(const auto step, chunks_.next(left.first(std::min(left.size(), into.size()))));
    FF_CO_TRY(on_event(step));
    const size_t got = step.data.size();
    buffer_begin_ += step.consumed;
    if (got > 0) {
      std::memcpy(into.data(), step.data.data(), got);
      if (signatures_ != nullptr) pieces_.push_back({.bytes = ByteView(into).first(got)});
      co_return got;
    }
    if (ended_ || buffer_begin_ < buffer_end_) continue;
    FF_CO_TRY(buffer_end_, co_await exchange_.read(buffer_));
    buffer_begin_ = 0;
    if (buffer_end_ == 0) co_return fail(Errc::corrupt, "it ends within a chunk");
  }
  co_return size_t{0};
}

Task<Result<size_t>> BodySource::read_some(ByteSpan into) {
  if (framing_ != Framing::plain) co_return co_await read_chunks(into);
  FF_CO_TRY(const size_t got, co_await exchange_.read(into));
  ended_ = exchange_.body_done();
  co_return got;
}

Result<void> BodySource::check() {
  if (size_ && bytes_ != *size_) {
    return s3_error(S3Code::incomplete_body, "The body has {} bytes, not {}.", bytes_, *size_);
  }
  if (signatures_ != nullptr && signatures_->failed()) return wrong_chunk();
  for (Check& check : checks_) {
    if (!check.trailer.empty()) {
      const std::string* const field = http::find_field(chunks_.trailers(), check.trailer);
      const auto digest = field != nullptr ? parse_base64(*field) : std::nullopt;
      if (!digest || digest->empty()) {
        return s3_error(S3Code::incomplete_body, "The trailer {} is missing.", check.trailer);
      }
      check.expected = *digest;
    }
    if (check.hasher.finish() != check.expected) {
      return s3_error(check.mismatch, "The body does not have the digest that the request names.");
    }
  }
  return {};
}

std::vector<HashJob> BodySource::take_jobs(ByteView bytes) {
  std::vector<HashJob> jobs;
  for (Check& check : checks_) {
    if (!bytes.empty()) jobs.push_back({.hasher = &check.hasher, .bytes = bytes});
  }
  if (pieces_.empty()) return jobs;
  // A job can be copied; its pieces are not.
  const auto pieces =
      std::make_shared<const std::vector<ChunkSignatures::Piece>>(std::exchange(pieces_, {}));
  jobs.push_back(
      {.bytes = bytes, .work = [of = signatures_.get(), pieces] { of->check(*pieces); }});
  return jobs;
}

Task<Result<size_t>> BodySource::read(ByteSpan into) {
  size_t all = 0;
  // Tells a client whose first chunks are wrong before it has sent all.
  if (signatures_ != nullptr && signatures_->failed()) co_return wrong_chunk();
  while (all < into.size() && !ended_) {
    const auto got = co_await read_some(into.subspan(all));
    if (!got) co_return malformed_body(got.error());
    all += *got;
    bytes_ += *got;
    if (size_ && bytes_ > *size_) {
      co_return s3_error(S3Code::incomplete_body, "The body has more than {} bytes.", *size_);
    }
    if (pieces_.size() >= kChunkPiecesMax && all > 0) break;
  }
  co_return all;
}

Task<Result<std::string>> BodySource::read_all(size_t bytes_max) {
  std::string text;
  std::string piece(std::min<size_t>(bytes_max + 1, kChunkBufferBytes), '\0');
  for (;;) {
    const ByteSpan space = {reinterpret_cast<std::byte*>(piece.data()), piece.size()};
    FF_CO_TRY(const size_t got, co_await read(space));
    run_jobs(take_jobs(ByteView(space).first(got)));
    if (got == 0) break;
    text.append(piece, 0, got);
    if (text.size() > bytes_max) {
      co_return s3_error(S3Code::malformed_xml, "The body has more than {} bytes.", bytes_max);
    }
  }
  FF_CO_TRY(check());
  co_return text;
}

}  // namespace ff::s3
