// requests_uploads.cc: operations of multipart uploads, from their begin to their end.
#include <algorithm>
#include <utility>

#include "platform/base/text.h"
#include "storage/s3/body_source.h"
#include "storage/s3/copy_source.h"
#include "storage/s3/reply_text.h"
#include "storage/s3/s3_call.h"
#include "storage/s3/s3_error.h"

namespace ff::s3 {

namespace {

constexpr size_t kCompleteBodyMax = 4 * kMiB;
constexpr uint64_t kUploadListMax = 1000;

UploadName upload_name(const S3Call& call) {
  return {call.bucket, call.key, call.parameter("uploadId")};
}

Result<uint32_t> part_number(const S3Call& call) {
  const auto number = parse_u64(call.parameter("partNumber"));
  if (!number || *number == 0 || *number > kPartNumberMax) {
    return s3_error(S3Code::invalid_argument,
                    "Part number must be an integer between 1 and 10000, inclusive");
  }
  return static_cast<uint32_t>(*number);
}

Result<std::vector<Uploads::WantedPart>> parse_parts(std::string_view text) {
  const Error malformed =
      s3_error(S3Code::malformed_xml, "The XML is not a list of parts with numbers and ETags.");
  const auto document = parse_xml(text);
  if (!document || document->name != "CompleteMultipartUpload") return malformed;
  std::vector<Uploads::WantedPart> parts;
  for (const XmlElement& part : document->children) {
    if (part.name != "Part") continue;
    const auto number = parse_u64(part.value("PartNumber"));
    if (!number || *number == 0 || *number > kPartNumberMax) return malformed;
    parts.push_back({static_cast<uint32_t>(*number), std::string(unquoted(part.value("ETag")))});
  }
  return parts;
}

}  // namespace

Task<Result<void>> run_create_multipart_upload(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, call.key));
  FF_CO_TRY(auto fields, object_fields(call.head()));
  FF_CO_TRY(const std::string id,
            co_await call.uploads.create(call.caller(), call.bucket, call.key, std::move(fields)));
  XmlWriter document("InitiateMultipartUploadResult");
  document.element("Bucket", call.bucket);
  document.element("Key", call.key);
  document.element("UploadId", id);
  co_return co_await call.reply_xml(std::move(document));
}

Task<Result<void>> run_upload_part(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, call.key));
  FF_CO_TRY(const uint32_t number, part_number(call));
  FF_CO_TRY(auto body, BodySource::make(call.exchange, call.authentication));
  FF_CO_TRY(const auto part,
            co_await call.uploads.put_part(call.caller(), upload_name(call), number, body));
  http::ReplyHead head = call.reply_head(200);
  head.fields.push_back({"ETag", quoted(part.etag)});
  co_return co_await call.exchange.reply(std::move(head), std::string_view());
}

Task<Result<void>> run_upload_part_copy(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, call.key));
  FF_CO_TRY(const uint32_t number, part_number(call));
  FF_CO_TRY(CopySource from, parse_copy_source(call));
  FF_CO_TRY(const auto source, co_await find_copy_source(call, std::move(from)));
  ByteRange range{0, source.size()};
  const std::string_view wanted = call.head().value("x-amz-copy-source-range");
  if (!wanted.empty()) {
    FF_CO_TRY(const auto parsed, parse_range(wanted, source.size()));
    if (!parsed) {
      co_return s3_error(S3Code::invalid_argument, "The x-amz-copy-source-range is not valid.");
    }
    range = *parsed;
  }
  FF_CO_TRY(auto file, co_await call.store.open_file(call.caller(), source));
  ObjectReader reader(std::move(file), range.begin, range.end - range.begin);
  FF_CO_TRY(const auto part,
            co_await call.uploads.put_part(call.caller(), upload_name(call), number, reader));
  XmlWriter document("CopyPartResult");
  document.element("LastModified", format_xml_time(part.mtime_s));
  document.element("ETag", quoted(part.etag));
  co_return co_await call.reply_xml(std::move(document));
}

Task<Result<void>> run_list_parts(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, call.key));
  FF_CO_TRY(const uint64_t max, call.number("max-parts", kUploadListMax, kUploadListMax));
  FF_CO_TRY(const uint64_t after, call.number("part-number-marker", 0, kPartNumberMax));
  FF_CO_TRY(auto parts, co_await call.uploads.list_parts(call.caller(), upload_name(call)));
  std::erase_if(parts, [after](const PartInfo& part) { return part.number <= after; });
  const bool truncated = parts.size() > max;
  if (truncated) parts.resize(max);
  XmlWriter document("ListPartsResult");
  document.element("Bucket", call.bucket);
  document.element("Key", call.key);
  document.element("UploadId", call.parameter("uploadId"));
  document.element("PartNumberMarker", after);
  if (truncated && !parts.empty()) {
    document.element("NextPartNumberMarker", uint64_t{parts.back().number});
  }
  document.element("MaxParts", max);
  document.element("IsTruncated", truncated ? "true" : "false");
  for (const PartInfo& part : parts) {
    document.open("Part");
    document.element("PartNumber", uint64_t{part.number});
    document.element("LastModified", format_xml_time(part.mtime_s));
    document.element("ETag", quoted(part.etag));
    document.element("Size", part.size);
    document.close();
  }
  document.element("StorageClass", "STANDARD");
  co_return co_await call.reply_xml(std::move(document));
}

Task<Result<void>> run_list_multipart_uploads(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, ""));
  FF_CO_TRY(const uint64_t max, call.number("max-uploads", kUploadListMax, kUploadListMax));
  const std::string key_marker = call.parameter("key-marker");
  const std::string id_marker = call.parameter("upload-id-marker");
  FF_CO_TRY(auto uploads,
            co_await call.uploads.list(call.caller(), call.bucket, call.parameter("prefix")));
  std::erase_if(uploads, [&](const ListedUpload& one) {
    return one.key < key_marker ||
           (one.key == key_marker && (id_marker.empty() || one.id <= id_marker));
  });
  const bool truncated = uploads.size() > max;
  if (truncated) uploads.resize(max);
  XmlWriter document("ListMultipartUploadsResult");
  document.element("Bucket", call.bucket);
  document.element("KeyMarker", key_marker);
  document.element("UploadIdMarker", id_marker);
  if (truncated && !uploads.empty()) {
    document.element("NextKeyMarker", uploads.back().key);
    document.element("NextUploadIdMarker", uploads.back().id);
  }
  document.element("MaxUploads", max);
  document.element("IsTruncated", truncated ? "true" : "false");
  for (const ListedUpload& upload : uploads) {
    document.open("Upload");
    document.element("Key", upload.key);
    document.element("UploadId", upload.id);
    document.element("Initiated", format_xml_time(upload.created_s));
    document.element("StorageClass", "STANDARD");
    document.close();
  }
  co_return co_await call.reply_xml(std::move(document));
}

Task<Result<void>> run_complete_multipart_upload(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, call.key));
  FF_CO_TRY(auto body, BodySource::make(call.exchange, call.authentication));
  FF_CO_TRY(const std::string text, co_await body.read_all(kCompleteBodyMax));
  FF_CO_TRY(auto parts, parse_parts(text));
  PutCondition condition;
  condition.must_be_new = call.head().value("if-none-match") == "*";
  condition.must_match = unquoted(call.head().value("if-match"));
  FF_CO_TRY(const auto stored,
            co_await call.uploads.complete(call.caller(), upload_name(call), std::move(parts),
                                           std::move(condition)));
  XmlWriter document("CompleteMultipartUploadResult");
  document.element("Location", fmt::format("/{}/{}", call.bucket, percent_encode(call.key, true)));
  document.element("Bucket", call.bucket);
  document.element("Key", call.key);
  document.element("ETag", quoted(stored.attributes.etag));
  co_return co_await call.reply_xml(std::move(document));
}

Task<Result<void>> run_abort_multipart_upload(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, call.key));
  FF_CO_TRY(co_await call.uploads.abort(call.caller(), upload_name(call)));
  co_return co_await call.reply(204);
}

}  // namespace ff::s3
