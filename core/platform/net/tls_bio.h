// Glue to OpenSSL shared by tls.cc and tls_context.cc: error texts, and the BIO callbacks for a
// socket.
#pragma once

#include <string>

#include "platform/net/tls.h"

namespace ff::net {

// Drains this thread's OpenSSL error queue into a text such as "certificate verify failed".
std::string ssl_error_text();

// A BIO for the stream's socket; its data pointer is the TlsStream. OpenSSL's own socket BIO raises
// SIGPIPE and does not use the loop's events.
struct TlsStream::SocketBio {
  static bio_method_st* make_method();
  static int read(bio_st* bio, char* into, size_t size, size_t* got);
  static int write(bio_st* bio, const char* from, size_t size, size_t* wrote);
  static long control(bio_st* bio, int command, long number, void* pointer);
};

}  // namespace ff::net
