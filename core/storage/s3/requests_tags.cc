// requests_tags.cc: operations that read and replace the tags of an object.
#include <utility>

#include "storage/s3/body_source.h"
#include "storage/s3/s3_call.h"
#include "storage/s3/tags.h"

namespace ff::s3 {

namespace {

constexpr size_t kTagBodyMax = 64 * kKiB;

Task<Result<void>> replace_tags(S3Call& call, Tags tags) {
  FF_CO_TRY(auto object, co_await call.store.find(call.caller(), call.bucket, call.key));
  object.attributes.tags = std::move(tags);
  co_return co_await call.store.set_attributes(call.caller(), object);
}

}  // namespace

Task<Result<void>> run_get_object_tagging(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, call.key));
  FF_CO_TRY(const auto object, co_await call.store.find(call.caller(), call.bucket, call.key));
  XmlWriter document("Tagging");
  document.open("TagSet");
  for (const auto& [name, value] : object.attributes.tags) {
    document.open("Tag");
    document.element("Key", name);
    document.element("Value", value);
    document.close();
  }
  co_return co_await call.reply_xml(std::move(document));
}

Task<Result<void>> run_put_object_tagging(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, call.key));
  FF_CO_TRY(auto body, BodySource::make(call.exchange, call.authentication));
  FF_CO_TRY(const std::string text, co_await body.read_all(kTagBodyMax));
  FF_CO_TRY(auto tags, parse_tag_document(text));
  FF_CO_TRY(co_await replace_tags(call, std::move(tags)));
  co_return co_await call.reply(200);
}

Task<Result<void>> run_delete_object_tagging(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, call.key));
  FF_CO_TRY(co_await replace_tags(call, Tags()));
  co_return co_await call.reply(204);
}

}  // namespace ff::s3
