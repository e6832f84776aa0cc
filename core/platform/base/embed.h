// Embeds a file of the source tree in the binary: FF_EMBED(page_html, FOLDER "/index.html")
// declares `const char page_html[]`, zero-terminated. The name must be unique in the program.
// CMake makes the object depend on the file (OBJECT_DEPENDS).
#pragma once

#define FF_EMBED(name, path)      \
  asm(".pushsection .rodata\n"    \
      ".hidden " #name            \
      "\n"                        \
      ".global " #name "\n" #name \
      ":\n"                       \
      ".incbin \"" path           \
      "\"\n"                      \
      ".byte 0\n"                 \
      ".popsection\n");           \
  extern "C" const char name[]
