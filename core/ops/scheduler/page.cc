// page.cc: the embedded files of the page, and their paths.
#include "ops/scheduler/page.h"

#include <string_view>

#include "platform/base/embed.h"

// FF_PAGE_FOLDER: the source folder in the build.
FF_EMBED(ff_page_html, FF_PAGE_FOLDER "/index.html");
FF_EMBED(ff_page_css, FF_PAGE_FOLDER "/page.css");
FF_EMBED(ff_page_js, FF_PAGE_FOLDER "/page.js");
FF_EMBED(ff_page_icon, FF_PAGE_FOLDER "/icon.svg");

namespace ff::scheduler {

rpc::HttpPages pages(SchedulerService& service) {
  const std::string json = "application/json";
  return {
      {"/", {.type = "text/html; charset=utf-8", .text = ff_page_html}},
      {"/page.css", {.type = "text/css; charset=utf-8", .text = ff_page_css}},
      {"/page.js", {.type = "text/javascript; charset=utf-8", .text = ff_page_js}},
      {"/icon.svg", {.type = "image/svg+xml", .text = ff_page_icon}},
      {"/overview.json",
       {.type = json,
        .text = {},
        .json = [&service](std::string_view query) { return service.overview(query); }}},
      {"/nodes.json",
       {.type = json,
        .text = {},
        .json = [&service](std::string_view) { return service.node_map(); }}},
  };
}

}  // namespace ff::scheduler
