// page.cc: the bytes of the page's files, and the paths they have.
#include "sched/page.h"

#include <string_view>

// FF_PAGE_FOLDER: where the sources lie.
#define FF_PAGE_FILE(name, file)           \
  asm(".pushsection .rodata\n"             \
      ".hidden ff_page_" #name             \
      "\n"                                 \
      ".global ff_page_" #name             \
      "\n"                                 \
      "ff_page_" #name                     \
      ":\n"                                \
      ".incbin \"" FF_PAGE_FOLDER "/" file \
      "\"\n"                               \
      ".byte 0\n"                          \
      ".popsection\n");                    \
  extern "C" const char ff_page_##name[];

FF_PAGE_FILE(html, "index.html")
FF_PAGE_FILE(css, "page.css")
FF_PAGE_FILE(js, "page.js")
FF_PAGE_FILE(icon, "icon.svg")

namespace ff::sched {

rpc::HttpPages pages(Service& service) {
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

}  // namespace ff::sched
