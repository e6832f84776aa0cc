// Tags of objects: names with values, at most ten.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "platform/base/result.h"

namespace ff::s3 {

using Tags = std::map<std::string, std::string>;

// "name=value&name=value", as x-amz-tagging has them. Errors are S3's InvalidTag.
Result<Tags> parse_tag_field(std::string_view text);
// <Tagging><TagSet><Tag><Key/><Value/></Tag></TagSet></Tagging>. Errors are S3's.
Result<Tags> parse_tag_document(std::string_view text);

}  // namespace ff::s3
