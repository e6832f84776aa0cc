// A client of Redis in C, with the library hiredis. Usage: hiredis_program ADDRESS [PASSWORD],
// where ADDRESS is a port of 127.0.0.1 or the path of a Unix socket. "all is well", or the name of
// what failed with the reply.
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIPELINE = 5000, LARGE = 20 << 20 };

static void check(int good, const char* what, const redisReply* reply) {
  if (good) return;
  printf("%s: type %d, integer %lld, text %s\n", what, reply == NULL ? -1 : reply->type,
         reply == NULL ? -1 : reply->integer,
         reply == NULL || reply->str == NULL ? "-" : reply->str);
  exit(1);
}

static void check_status(redisReply* reply, const char* what, const char* text) {
  check(reply != NULL && reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, text) == 0, what,
        reply);
  freeReplyObject(reply);
}

static void check_error(redisReply* reply, const char* what, const char* begin) {
  check(reply != NULL && reply->type == REDIS_REPLY_ERROR &&
            strncmp(reply->str, begin, strlen(begin)) == 0,
        what, reply);
  freeReplyObject(reply);
}

static void check_integer(redisReply* reply, const char* what, long long number) {
  check(reply != NULL && reply->type == REDIS_REPLY_INTEGER && reply->integer == number, what,
        reply);
  freeReplyObject(reply);
}

static void check_bytes(redisReply* reply, const char* what, const char* bytes, size_t size) {
  check(reply != NULL && reply->type == REDIS_REPLY_STRING && reply->len == size &&
            memcmp(reply->str, bytes, size) == 0,
        what, reply);
  freeReplyObject(reply);
}

static void binary_values(redisContext* client) {
  char bytes[256];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)i;
  check_status(redisCommand(client, "SET %b %b", bytes, sizeof bytes, bytes, sizeof bytes), "SET",
               "OK");
  check_bytes(redisCommand(client, "GET %b", bytes, sizeof bytes), "GET", bytes, sizeof bytes);
  check_status(redisCommand(client, "SET empty %b", bytes, (size_t)0), "SET of nothing", "OK");
  check_bytes(redisCommand(client, "GET empty"), "GET of nothing", "", 0);
  redisReply* none = redisCommand(client, "GET none");
  check(none != NULL && none->type == REDIS_REPLY_NIL, "GET of no key", none);
  freeReplyObject(none);
  char* large = malloc(LARGE);
  for (size_t i = 0; i < LARGE; i++) large[i] = (char)(i * 7 + (i >> 12));
  check_status(redisCommand(client, "SET large %b", large, (size_t)LARGE), "a large SET", "OK");
  check_bytes(redisCommand(client, "GET large"), "a large GET", large, LARGE);
  check_integer(redisCommand(client, "DEL large"), "DEL", 1);
  free(large);
}

// Replies come in the order of the commands.
static void pipelines(redisContext* client) {
  check_integer(redisCommand(client, "DEL counter list"), "DEL of no keys", 0);
  for (int i = 0; i < PIPELINE; i++) {
    redisAppendCommand(client, "INCR counter");
    redisAppendCommand(client, "RPUSH list %d", i);
  }
  redisAppendCommand(client, "LRANGE list 0 -1");
  for (int i = 0; i < 2 * PIPELINE; i++) {
    void* reply = NULL;
    check(redisGetReply(client, &reply) == REDIS_OK, client->errstr, NULL);
    check_integer(reply, "a command of a pipeline", i / 2 + 1);
  }
  void* reply = NULL;
  check(redisGetReply(client, &reply) == REDIS_OK, client->errstr, NULL);
  redisReply* list = reply;
  check(list->type == REDIS_REPLY_ARRAY && list->elements == PIPELINE, "LRANGE", list);
  for (int i = 0; i < PIPELINE; i++) {
    check(atoi(list->element[i]->str) == i, "an element", list->element[i]);
  }
  freeReplyObject(list);
}

static void errors_and_nested_replies(redisContext* client) {
  check_error(redisCommand(client, "INCR list"), "INCR of a list", "WRONGTYPE ");
  check_error(redisCommand(client, "NOSUCH a"), "no command", "ERR unknown command 'NOSUCH'");
  check_status(redisCommand(client, "MULTI"), "MULTI", "OK");
  check_status(redisCommand(client, "XADD {s}tream 1-1 field %b", "a\0b", (size_t)3), "XADD",
               "QUEUED");
  check_status(redisCommand(client, "INCR {s}tream"), "INCR of a stream", "QUEUED");
  check_status(redisCommand(client, "XRANGE {s}tream - +"), "XRANGE", "QUEUED");
  redisReply* all = redisCommand(client, "EXEC");
  check(all != NULL && all->type == REDIS_REPLY_ARRAY && all->elements == 3, "EXEC", all);
  check(strcmp(all->element[0]->str, "1-1") == 0, "the id", all->element[0]);
  check(all->element[1]->type == REDIS_REPLY_ERROR, "an error in EXEC", all->element[1]);
  const redisReply* entries = all->element[2];
  check(entries->elements == 1 && entries->element[0]->elements == 2, "the entries", entries);
  const redisReply* fields = entries->element[0]->element[1];
  check(fields->elements == 2 && fields->element[1]->len == 3 &&
            memcmp(fields->element[1]->str, "a\0b", 3) == 0,
        "the fields", fields);
  freeReplyObject(all);
  check_integer(redisCommand(client, "DEL {s}tream"), "DEL of a stream", 1);
}

static void log_in(redisContext* client, const char* password) {
  if (password == NULL) return;
  check_error(redisCommand(client, "GET a"), "GET before AUTH", "NOAUTH ");
  check_error(redisCommand(client, "AUTH wrong"), "AUTH with a wrong password", "WRONGPASS ");
  check_status(redisCommand(client, "AUTH %s", password), "AUTH", "OK");
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const char* password = argc > 2 ? argv[2] : NULL;
  redisContext* client =
      argv[1][0] == '/' ? redisConnectUnix(argv[1]) : redisConnect("127.0.0.1", atoi(argv[1]));
  check(client != NULL && client->err == 0, client == NULL ? "no memory" : client->errstr, NULL);
  log_in(client, password);
  check_status(redisCommand(client, "PING"), "PING", "PONG");
  binary_values(client);
  pipelines(client);
  errors_and_nested_replies(client);
  // Commands that are under way when the client reconnects are not answered to the next ones.
  redisAppendCommand(client, "GET counter");
  check(redisReconnect(client) == REDIS_OK, client->errstr, NULL);
  log_in(client, password);
  check_bytes(redisCommand(client, "GET empty"), "GET after another connection", "", 0);
  redisFree(client);
  printf("all is well\n");
  return 0;
}
