// ff_gpu_lines.c: builds one line of JSON, and writes it at once.
#include <stdio.h>
#include <string.h>

#include "ops/validate/ff_gpu.h"

void add(struct line* line, const char* text) {
  const size_t length = strlen(text);
  if (line->used + length >= sizeof line->bytes) return;
  memcpy(line->bytes + line->used, text, length + 1);
  line->used += length;
}

// The line is ASCII, whatever the bytes are.
static void add_string(struct line* line, const char* text) {
  add(line, "\"");
  for (; *text != '\0'; text++) {
    const unsigned char byte = (unsigned char)*text;
    const int plain = byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\' && byte != '<';
    char escaped[8];
    snprintf(escaped, sizeof escaped, plain ? "%c" : "\\u%04x", byte);
    add(line, escaped);
  }
  add(line, "\"");
}

void add_name(struct line* line, const char* name) {
  const char last = line->used > 0 ? line->bytes[line->used - 1] : '\0';
  if (last != '\0' && last != '{' && last != '[') add(line, ",");
  if (name == NULL) return;
  add_string(line, name);
  add(line, ":");
}

void add_text(struct line* line, const char* name, const char* text) {
  add_name(line, name);
  add_string(line, text);
}

void add_number(struct line* line, const char* name, unsigned long long number) {
  char digits[24];
  snprintf(digits, sizeof digits, "%llu", number);
  add_name(line, name);
  add(line, digits);
}

void begin_object(struct line* line, const char* name) {
  add_name(line, name);
  add(line, "{");
}

void begin_line(struct line* line, const char* event, int gpu) {
  line->used = 0;
  begin_object(line, NULL);
  add_text(line, "event", event);
  if (gpu >= 0) add_number(line, "gpu", (unsigned)gpu);
}

void end_line(struct line* line) {
  add(line, "}\n");
  fputs(line->bytes, stdout);
  fflush(stdout);
}

void write_event(const char* event, int gpu) {
  static struct line line;
  begin_line(&line, event, gpu);
  end_line(&line);
}

void write_error(int gpu, const char* call, nvmlReturn_t code, const char* text) {
  static struct line line;
  begin_line(&line, "error", gpu);
  add_text(&line, "call", call);
  add_number(&line, "code", (unsigned)code);
  add_text(&line, "text", text);
  end_line(&line);
}
