// What both halves of TLS (tls.cc, tls_context.cc) need of OpenSSL: its errors, and how it calls
// back for the bytes of a socket.
#pragma once

#include <string>

#include "platform/net/tls.h"

namespace ff::net {

// Everything in this thread's queue of errors, which is empty then: "certificate verify failed".
std::string ssl_error_text();

// The socket as a BIO, whose data is the TlsStream. Not OpenSSL's own socket BIO: that one raises
// SIGPIPE, and knows nothing of the events that tell when to go on.
struct TlsStream::Calls {
  static bio_method_st* make_method();
  static int read(bio_st* bio, char* into, size_t size, size_t* got);
  static int write(bio_st* bio, const char* from, size_t size, size_t* wrote);
  static long control(bio_st* bio, int command, long number, void* pointer);
};

}  // namespace ff::net
