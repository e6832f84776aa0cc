#!/usr/bin/env python3
# The replies of `ff serve-kv` and of a Redis server to the same requests.
"""usage: serve_kv_replies.py FF PART

  replies   the same commands to ff and to redis-server, in both versions of the protocol

Exits with 77 where something that a part needs is not there.
"""
import os
import random
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True  # nothing is left in the tree
from kv_daemon import expect, Raw, serve, skip, STARTED, until, run_part

RANDOM_COMMANDS = 4000


class RedisServer:
    """Debian's redis-server on a Unix socket."""

    def __init__(self, folder):
        if shutil.which("redis-server") is None:
            skip("redis-server is not installed")
        self.path = os.path.join(folder, "redis.sock")
        self.process = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", self.path, "--dir", folder,
             "--save", "", "--proto-max-bulk-len", str(64 << 20)], stdout=subprocess.DEVNULL)
        STARTED.append(self.process)
        until("redis-server answers", self.answers)

    def answers(self):
        try:
            client = Raw(self.path)
            return client.ask("PING") == b"+PONG"
        except OSError:
            return False

    def stop(self):
        self.process.terminate()
        self.process.wait()


# Requests whose replies must be those of a Redis server, in this order.
SCRIPT = """
PING|PING hi|PING a b|ECHO hello|ECHO|SELECT 0|SELECT x|SELECT 99|TIME x|NOSUCH a b c|GET|GET a b
SET k v|GET k|SET k v2 NX|SET k v2 XX|SET k v3 GET|SET k v3 NX GET|SET none v XX GET|EXISTS none
SET k v EX 0|SET k v EX -1|SET k v PX x|SET k v EX|SET k v NX XX|SET k v KEEPTTL EX 1|SET k v FOO
SET k v EX 9223372036854775807|SET k v PX 9223372036854775807|SET k v EXAT 33177117420|EXPIRETIME k
SET k v KEEPTTL|EXPIRETIME k|SET k v|EXPIRETIME k|PEXPIRETIME k|SET k v PXAT 1|GET k|EXISTS k
SETNX n 1|SETNX n 2|SETEX s 100 v|SETEX s 0 v|SETEX s x v|PSETEX s 100000 v|PSETEX s -5 v|SETEX s 1
GET s|MSET a 1 b 2 c|MSET a 1 b 2|MGET a b none|MSET a 3 a 4|GET a|MSETNX {x}1 a {x}2 b
MSETNX {x}2 c {x}3 d|EXISTS {x}3|MSETNX {x}1|GETSET a 9|GETSET newkey 1|GETDEL a|GETDEL a|GETEX b
GETEX b EX 100|PERSIST b|PERSIST b|GETEX b EXAT 33177117420|EXPIRETIME b|GETEX b PERSIST|TTL b
GETEX b PXAT 5|EXISTS b|GETEX b EX|GETEX b FOO|GETEX none EX 5|SET r Hello|GETRANGE r 0 -1
GETRANGE r -3 -1|GETRANGE r 1 3|GETRANGE r 5 1|GETRANGE r -100 100|GETRANGE r -1 -5|GETRANGE r x 1
GETRANGE none 0 1|SETRANGE r 6 Redis|GET r|SETRANGE r 0 J|SETRANGE r -1 x|SETRANGE r x y
SETRANGE none 3 abc|GET none|SETRANGE e 3 ""|EXISTS e|SETRANGE r 67108863 ab|APPEND r !|APPEND ap x
STRLEN r|STRLEN zip|INCR i|INCR i|DECR i|INCRBY i 10|DECRBY i 3|INCRBY i x|INCRBY i 1.5|INCR r
SET i 9223372036854775807|INCR i|INCRBY i 1|DECRBY i -1|DECRBY i -9223372036854775808|SET i -5
INCRBY i " 1"|INCRBY i +1|INCRBY i 007|SET i 007|INCR i|SET i " 1"|INCR i|INCRBYFLOAT f 10.5
INCRBYFLOAT f 0.1|INCRBYFLOAT f -1e2|INCRBYFLOAT f x|INCRBYFLOAT r 1|INCRBYFLOAT f nan
INCRBYFLOAT f inf|SET f 3.0e3|INCRBYFLOAT f 200|SET f 5|INCRBYFLOAT f 1.0|INCRBYFLOAT f 1e-20
DEL a b c none|DEL i i|UNLINK f f|EXISTS r r none|TOUCH r r none|TYPE r|TYPE none|EXPIRE none 10
EXPIRE r 100|EXPIRE r x|EXPIRE r 100 NX|EXPIRE r 100 XX|EXPIRE r 50 GT|EXPIRE r 500 GT
EXPIRE r 400 LT|EXPIRE r 600 LT|EXPIRE r 100 NX XX|EXPIRE r 100 GT LT|EXPIRE r 100 FOO|PERSIST r
EXPIRE r 100 GT|EXPIRE r 100 XX|EXPIRE r 100 LT|TTL none|PTTL none|EXPIRE r 9223372036854775807
EXPIREAT r 33177117420|EXPIRETIME r|PEXPIRETIME r|PEXPIREAT r 33177117420123|EXPIRETIME r
PEXPIRETIME r|PEXPIRE r -1|EXISTS r|SET r v|EXPIREAT r 1|EXISTS r|EXPIRETIME none
SET from v EX 1000|RENAME from to|RENAME from to|RENAME to to|EXISTS from to|TTL to|SET from w
RENAMENX from to|RENAMENX from new|RENAMENX from new|RENAMENX new new|COPY to c2|COPY to c2
COPY new c2 REPLACE|GET c2|COPY c2 c2|COPY none x|COPY c2 x DB 99|COPY c2 x DB a|COPY c2 x FOO
HSET h a 1 b 2|HSET h a 3|HSET h a|HSET h a 1 b|HGET h a|HGET h x|HGET none x|HMGET h a x b
HMGET none a|HGETALL h|HGETALL none|HDEL h a x|HDEL none a|HEXISTS h b|HEXISTS h a|HLEN h|HLEN none
HKEYS h|HVALS h|HSETNX h b 9|HSETNX h c 9|HINCRBY h n 5|HINCRBY h n -7|HINCRBY h n x|HSET h s abc
HINCRBY h s 1|HSET h m 9223372036854775807|HINCRBY h m 1|HSCAN h 0|HSCAN h 0 MATCH [bc]|HSCAN h x
HSCAN h 0 COUNT 0|HSCAN h 0 FOO 1|HSCAN h 0 MATCH|HSCAN none 0|TYPE h|GET h|INCR h|APPEND h x
STRLEN h|GETRANGE h 0 1|SETRANGE h 0 x|GETSET h x|GETDEL h|GETEX h|SET h v GET|MGET h c2|HGET c2 a
HSET c2 a 1|HGETALL c2|HLEN c2|HSCAN c2 0|HINCRBY c2 a 1|HDEL c2 a|INCRBYFLOAT h 1|SETNX h v
EXPIRE h 1000|HSET h z 1|RENAME h h2|HGETALL h2|COPY h2 h3|HGETALL h3|DEL h2 h3|SET h2 str
EXISTS|TTL|KEYS|SCAN|RENAME a|COPY a|HSET|SETEX a 1|GETRANGE a 1|INCRBY a|CLIENT|CLIENT GETNAME
CLIENT SETNAME me|CLIENT GETNAME|CLIENT SETNAME "a b"|CLIENT NOSUCH|CLIENT GETNAME x|CONFIG GET
CONFIG GET nosuch|COMMAND NOSUCH|SCAN x|SCAN 0 COUNT 0|SCAN 0 COUNT x
SCAN 0 FOO 1|SCAN 0 MATCH|DISCARD|EXEC|MULTI|MULTI|SET {t}a 1|INCR {t}a|GET {t}a|INCR|EXEC
EXISTS {t}a|MULTI|SET {t}a 1|INCR {t}a|HSET {t}a f 1|GET {t}a|EXPIRE {t}a 1000|TTL {t}a|PING|EXEC
MULTI|SET {t}a 5|DISCARD|GET {t}a|WATCH {t}a|SET {t}a 7|MULTI|GET {t}a|EXEC|WATCH {t}a|MULTI
WATCH {t}a|GET {t}a|EXEC|WATCH {t}none|UNWATCH|SET {t}none 1|MULTI|DEL {t}none|EXISTS {t}none|EXEC
WATCH {t}gone|SET {t}gone 1|DEL {t}gone|MULTI|SET {t}gone 2|EXEC|GET {t}gone|WATCH {t}gone
DEL {t}gone|MULTI|GET {t}gone|EXEC
MULTI|NOSUCH|SET {t}a 9|EXEC|GET {t}a|MULTI|EXEC|WATCH|FLUSHALL FOO|FLUSHDB ASYNC|DBSIZE|RANDOMKEY
SET only 1|RANDOMKEY|DBSIZE|KEYS *|KEYS o?l*|KEYS x|SCAN 0 COUNT 100|SCAN 0 MATCH x COUNT 100
SCAN 0 TYPE hash COUNT 100|SCAN 0 TYPE string COUNT 100|FLUSHALL SYNC|DBSIZE|RESET|HELLO 9|HELLO x
HELLO 2 FOO|HELLO 2 AUTH a|AUTH x|AUTH default x|AUTH a b c|AUTH nosuch x
"""


# Likewise, of streams. Ids are given, because those that a server makes depend on the time.
STREAMS = """
XADD s 1-1 a 1|XADD s 1-1 a 1|XADD s 1-0 a 1|XADD s 1-2 a 1 b 2|XADD s 1-2|XADD s 1-3 a
XADD s 0-0 a 1|XADD s x a 1|XADD s 1-x a 1|XADD s -1-1 a 1|XADD s 3-* a 1|XADD s 3-* a 1
XADD s 2-* a 1|XADD s 5 a 1|XADD s *x a 1|XADD s - a 1|XADD s + a 1|XADD s|XADD s 6-0
XADD none NOMKSTREAM 1-1 a 1|EXISTS none|XADD t 0-* a 1|XADD t 0-0 a 1|XADD t 007-01 a 1
XADD t " 8-1" a 1|XADD t 9-1- a 1|XADD t 9-18446744073709551615 a 1
XADD t 18446744073709551616-1 a 1|XADD s MAXLEN 3 6-1 a 1|XLEN s|XADD s MAXLEN = 2 6-2 a 1|XLEN s
XADD s MAXLEN ~ 100 6-3 a 1|XADD s MAXLEN ~ 100 LIMIT 5 6-4 a 1|XADD s MAXLEN 100 LIMIT 5 6-5 a 1
XADD s LIMIT 5 6-5 a 1|XADD s MAXLEN -1 6-5 a 1|XADD s MAXLEN x 6-5 a 1
XADD s MAXLEN 3 MINID 1 6-5 a 1|XADD s MINID 6-2 6-5 a 1|XLEN s|XADD s MINID x 6-6 a 1
XADD s MAXLEN ~ 10 LIMIT -1 6-6 a 1|XADD s MAXLEN|XADD s NOMKSTREAM 6-6 a 1|XLEN none|XLEN s|XLEN
XRANGE s - +|XRANGE s - + COUNT 2|XRANGE s - + COUNT 0|XRANGE s - + COUNT -3|XRANGE s - + COUNT x
XRANGE s - +  COUNT|XRANGE s - + FOO 1|XRANGE s (6-2 +|XRANGE s 6-2 (6-4|XRANGE s 6 6|XRANGE s (- +
XRANGE s x +|XRANGE none - +|XRANGE s + -|XRANGE s (18446744073709551615-18446744073709551615 +
XRANGE s - (0-0|XREVRANGE s + -|XREVRANGE s + - COUNT 1|XREVRANGE s 6-4 6-2|XREVRANGE s (6-4 (6-2
XREVRANGE none + -|XREVRANGE s 0 +|XDEL s 6-2|XDEL s 6-2 6-3|XDEL s x|XDEL none x|XDEL s 6|XLEN s
XINFO STREAM s|XINFO STREAM none|XINFO STREAM|XINFO NOSUCH s|XINFO|XTRIM s MAXLEN 1
XTRIM s MINID 100|XTRIM s MAXLEN x|XTRIM s FOO 1|XTRIM s|XTRIM s MAXLEN ~ 0 LIMIT 1 FOO
XTRIM none MAXLEN 1|XTRIM s LIMIT 1|XTRIM s MAXLEN 1 MAXLEN 2|EXISTS s|XLEN s|XINFO STREAM s
XADD s 9-1 a 1|XADD s 9-2 a 2|XADD s 9-3 a 3|XADD s 9-4 a 4|TYPE s|GET s|SET n 1|XADD n 1-1 a 1
XLEN n|XRANGE n - +|XREAD STREAMS n 0|XDEL n 1-1|XTRIM n MAXLEN 1|XACK n g 1-1|XPENDING n g
XCLAIM n g c 0 1-1|XAUTOCLAIM n g c 0 0|XINFO STREAM n|XINFO GROUPS n|XGROUP CREATE n g 0
XGROUP DESTROY n g|XREADGROUP GROUP g c STREAMS n >|XSETID n 1-1|HSET s a 1|APPEND s x|HGETALL s
XREAD STREAMS s 0|XREAD COUNT 2 STREAMS s 0|XREAD STREAMS s 9-3|XREAD STREAMS s 9-4
XREAD STREAMS s $|XREAD STREAMS none 0|XREAD STREAMS s none 9-3 0|XREAD STREAMS none s 0 9-3
XREAD STREAMS s s 9-2 9-3|XREAD STREAMS s|XREAD STREAMS|XREAD COUNT x STREAMS s 0
XREAD COUNT -1 STREAMS s 9-2|XREAD FOO STREAMS s 0|XREAD STREAMS s x|XREAD STREAMS s >
XREAD GROUP g c STREAMS s >|XREAD NOACK STREAMS s 0|XREAD BLOCK x STREAMS s 0
XREAD BLOCK -1 STREAMS s 0|XREAD BLOCK 10 STREAMS s 9-3|XREAD BLOCK 1 STREAMS s $
XREAD BLOCK 1 STREAMS none 0|XREAD BLOCK 9223372036854775807 STREAMS s 0|XREAD streams s 0
XREAD COUNT 1|XREAD BLOCK 1|XREAD BLOCK 1 COUNT 1 STREAMS none s $ $|XGROUP CREATE none g $
XGROUP CREATE none g $ MKSTREAM|XLEN none|TYPE none|XGROUP CREATE none g $|XGROUP CREATE none g x
XINFO GROUPS none|XGROUP CREATE s g 0|XGROUP CREATE s g 0|XGROUP CREATE s h $ ENTRIESREAD 4
XGROUP CREATE s i 9-2 ENTRIESREAD -2|XGROUP CREATE s i 9-2 FOO|XGROUP CREATE s i 9-2 ENTRIESREAD x
XGROUP CREATE s|XGROUP CREATE s g|XGROUP NOSUCH s g|XGROUP|XGROUP SETID s g 9-1
XGROUP SETID s nog 9-1|XGROUP SETID gone g 1|XGROUP SETID s g 0 ENTRIESREAD 0|XGROUP SETID s g
XGROUP SETID s g x|XINFO GROUPS s|XINFO GROUPS nokey|XINFO GROUPS|XREADGROUP GROUP g c STREAMS s >
XREADGROUP GROUP g c STREAMS s >|XREADGROUP GROUP g c STREAMS s 0|XREADGROUP GROUP g d STREAMS s 0
XREADGROUP GROUP nog c STREAMS s >|XREADGROUP GROUP g c STREAMS gone >
XREADGROUP GROUP g c STREAMS s $|XREADGROUP STREAMS s >|XREADGROUP GROUP g c
XREADGROUP GROUP g c STREAMS s x|XREADGROUP GROUP g c STREAMS s
XREADGROUP GROUP g c COUNT 1 STREAMS s 9-1|XREADGROUP GROUP g STREAMS s >
XREADGROUP GROUP g c NOACK BLOCK 1 STREAMS s >|XREADGROUP GROUP h c NOACK STREAMS s 0
XREADGROUP GROUP h c STREAMS s >|XINFO GROUPS s|XPENDING s g|XPENDING s h|XPENDING s nog
XPENDING gone g|XPENDING s g - + 10|XPENDING s g - + 2|XPENDING s g (9-1 + 10|XPENDING s g - + 10 c
XPENDING s g - + 10 nobody|XPENDING s g IDLE 0 - + 10|XPENDING s g IDLE 100000000 - + 10
XPENDING s g IDLE x - + 10|XPENDING s g IDLE 1 -|XPENDING s g - +|XPENDING s g x + 10
XPENDING s g - x 10|XPENDING s g - + x|XPENDING s g - + -1|XPENDING s|XPENDING s g -|XACK s g 9-1
XACK s g 9-1|XACK s g 9-1 9-2 x|XACK s g 9-2 9-3|XACK s nog 9-1|XACK gone g x|XACK s g|XPENDING s g
XINFO GROUPS s|XINFO CONSUMERS s g|XINFO CONSUMERS s nog|XINFO CONSUMERS nokey g|XINFO CONSUMERS s
XADD s 9-5 a 5|XADD s 9-6 a 6|XREADGROUP GROUP g d COUNT 1 STREAMS s >|XCLAIM s g e 0 9-4
XCLAIM s g e 100000000 9-4|XCLAIM s g e 0 9-4 9-5 JUSTID|XCLAIM s g e 0 9-9|XCLAIM s g e 0 9-1
XCLAIM s g e 0 9-1 FORCE|XCLAIM s g e 0 9-1 RETRYCOUNT 7|XPENDING s g - + 10
XCLAIM s g e 0 9-1 TIME 1 LASTID 9-6|XPENDING s g|XINFO GROUPS s|XCLAIM s g e x 9-1|XCLAIM s g e 0 x
XCLAIM s g e 0 9-1 FOO|XCLAIM s g e 0 9-1 IDLE x|XCLAIM s g e 0 9-1 TIME x
XCLAIM s g e 0 9-1 RETRYCOUNT x|XCLAIM s nog e 0 9-1|XCLAIM s g e 0 9-1 IDLE
XCLAIM s g e -5 9-1 IDLE 5|XCLAIM gone g e 0 9-1|XDEL s 9-1|XREADGROUP GROUP g e STREAMS s 0
XCLAIM s g e 0 9-1|XPENDING s g|XAUTOCLAIM s g f 0 0|XAUTOCLAIM s g f 0 - COUNT 1
XAUTOCLAIM s g f 0 (9-4 COUNT 1 JUSTID|XAUTOCLAIM s g f 0 0 COUNT 0|XAUTOCLAIM s g f 0 0 FOO
XAUTOCLAIM s g f x 0|XAUTOCLAIM s g f 0 x|XAUTOCLAIM s nog f 0 0|XAUTOCLAIM gone g f 0 0|XDEL s 9-4
XAUTOCLAIM s g f 0 0|XPENDING s g - + 10|XAUTOCLAIM s g f 100000000 0|XAUTOCLAIM s g
XINFO CONSUMERS s g|XGROUP CREATECONSUMER s g z|XGROUP CREATECONSUMER s g z
XGROUP CREATECONSUMER s nog z|XGROUP CREATECONSUMER gone g z|XGROUP CREATECONSUMER s g
XGROUP DELCONSUMER s g f|XGROUP DELCONSUMER s g f|XGROUP DELCONSUMER s nog f|XPENDING s g
XGROUP DELCONSUMER gone g f|XGROUP DESTROY s g|XGROUP DESTROY s g|XGROUP DESTROY gone g
XINFO GROUPS s|XINFO STREAM s|XSETID s 9-6|XSETID s 1-1|XSETID s x|XSETID gone 1-1
XSETID s 10-1 ENTRIESADDED 100 MAXDELETEDID 2-1|XSETID s 10-1 ENTRIESADDED 1|XSETID s 10-1 FOO
XSETID s 10-1 ENTRIESADDED|XSETID s 10-1 ENTRIESADDED -1|XSETID s 10-1 MAXDELETEDID 11-1
XSETID s 10-1 MAXDELETEDID x|XINFO STREAM s|XGROUP CREATE s g 9-3|XINFO GROUPS s|RENAME s s2
XRANGE s2 - +|XINFO GROUPS s2|COPY s2 s3|XRANGE s3 - +|XINFO STREAM s3|XADD s3 99-1 a 1|XLEN s2
XLEN s3|RENAME s3 {s2}x|XLEN {s2}x|RENAME s2 {s2}x|XLEN {s2}x|EXISTS s2|EXPIRE {s2}x 1000
XADD {s2}x 100-1 a 1|TTL {s2}x|PERSIST {s2}x|SCAN 0 TYPE stream COUNT 100|SET {s2}x v|GET {s2}x
XADD u 1-1 a 1|DEL u|XLEN u|XADD u 1-1 a 1|XLEN u|PEXPIRE u -1|EXISTS u|XADD u 1-1 b 1|XRANGE u - +
FLUSHALL|XLEN u|MULTI|XADD {m}a 1-1 a 1|XGROUP CREATE {m}a g 0
XREADGROUP GROUP g c BLOCK 0 STREAMS {m}a >|XREADGROUP GROUP g c BLOCK 0 STREAMS {m}a >
XACK {m}a g 1-1|XPENDING {m}a g|RENAME {m}a {m}b|XADD {m}b 2-1 a 1|XADD {m}a 5-1 a 1|XLEN {m}b
DEL {m}b|XLEN {m}b|XADD {m}b 1-1 a 1|XDEL {m}b 1-1|XLEN {m}b|EXEC|XRANGE {m}a - +|XINFO STREAM {m}b
WATCH {m}a|XADD {m}a 6-1 a 1|MULTI|XLEN {m}a|EXEC|XADD d 1-1 a 1|XADD d 2-1 a 1|XADD d 3-1 a 1
XADD d 4-1 a 1|XINFO STREAM d FULL|XINFO STREAM none FULL|XGROUP CREATE d g 0|XINFO STREAM d FULL
XINFO STREAM d FULL COUNT 1|XINFO STREAM d FULL COUNT|XINFO STREAM d FULL FOO 1|XINFO STREAM d FOO
XINFO STREAM d FULL COUNT x|XINFO STREAM d FULL COUNT -1|XINFO STREAM d FULL COUNT 1 2
XREADGROUP GROUP g c COUNT 1 STREAMS d >|XDEL d 3-1
XINFO GROUPS d|XREADGROUP GROUP g c COUNT 1 STREAMS d >|XINFO GROUPS d
XREADGROUP GROUP g c STREAMS d >|XINFO GROUPS d|XDEL d 1-1|XINFO GROUPS d|XTRIM d MAXLEN 1
XINFO GROUPS d|XGROUP CREATE d h 2-1|XINFO GROUPS d|XGROUP CREATE d i 0|XINFO GROUPS d|XDEL d 4-1
XINFO GROUPS d|XADD d 5-1 a 1|XINFO GROUPS d|XREADGROUP GROUP i c STREAMS d >|XINFO GROUPS d
XINFO STREAM d|XINFO STREAM d FULL COUNT 0|XREADGROUP GROUP g c STREAMS d 0|XGROUP SETID d g 0
XREADGROUP GROUP g c2 STREAMS d >
XPENDING d g
"""


LISTS = """
RPUSH l a b c|LPUSH l z y|LRANGE l 0 -1|LRANGE l 1 2|LRANGE l -2 -1|LRANGE l 5 9|LRANGE l -100 100
LRANGE l 3 1|LRANGE l x 1|LRANGE l 0|LRANGE none 0 -1|LLEN l|LLEN none|LINDEX l 0|LINDEX l -1
LINDEX l 9|LINDEX l -9|LINDEX l x|LINDEX none x|LSET l 1 Y|LSET l -1 C|LSET l 9 x|LSET l x y
LSET none 0 a|LINSERT l BEFORE a 1|LINSERT l after C 2|LINSERT l before none 3
LINSERT none before a 3|LINSERT l FOO a 3|LRANGE l 0 -1|LPUSHX none a|RPUSHX none a|LPUSHX l a
RPUSHX l a a|LREM l 1 a|LREM l -1 a|LREM l 0 a|LREM l x a|LREM none 1 a
LREM l -9223372036854775808 a|LRANGE l 0 -1|RPUSH p a b a c a b|LPOS p a|LPOS p a RANK 2
LPOS p a RANK -1|LPOS p a RANK 0|LPOS p a COUNT 0|LPOS p a COUNT 2 RANK -2|LPOS p a COUNT -1
LPOS p a MAXLEN 1 COUNT 0|LPOS p b MAXLEN 1|LPOS p a MAXLEN -1|LPOS p a FOO 1|LPOS p a RANK
LPOS p a RANK x|LPOS none a|LPOS none a COUNT 1|LPOS p x|LPOS p x COUNT 1|LPOS p a COUNT x
LTRIM l 1 -2|LRANGE l 0 -1|LTRIM l x 1|LTRIM none 0 1|LTRIM l 5 1|EXISTS l|RPUSH l 1 2 3 4 5|LPOP l
RPOP l|LPOP l 2|RPOP l 0|LPOP l -1|LPOP l x|LPOP l 1 2|RPOP l 9|EXISTS l|LPOP l|LPOP l 1|LPOP none 0
RPUSH {q}a 1 2 3|LMOVE {q}a {q}b LEFT RIGHT|LMOVE {q}a {q}b RIGHT LEFT|LRANGE {q}b 0 -1
LMOVE {q}a {q}a LEFT RIGHT|LMOVE {q}b {q}b right left|LRANGE {q}b 0 -1|LMOVE {q}a {q}b UP LEFT
LMOVE none {q}b LEFT LEFT|RPOPLPUSH {q}b {q}a|RPOPLPUSH {q}a {q}a|LRANGE {q}a 0 -1
RPOPLPUSH none {q}a|BLPOP {q}a 0|BLPOP none {q}a {q}b 1|BRPOP {q}b none 0.5|BLPOP {q}a x
BLPOP {q}a -1|BLPOP {q}a nan|BLPOP none 0.01|BRPOP none other 0.01|BLPOP 0
BLMOVE {q}a {q}b LEFT LEFT 1|BLMOVE none {q}b LEFT LEFT 0.01|BLMOVE {q}a {q}b UP LEFT 1
BLMOVE {q}a {q}b LEFT LEFT x|BRPOPLPUSH {q}b {q}c 1|BRPOPLPUSH none {q}c 0.01
BLMOVE {q}a {q}b LEFT LEFT|RPUSH {q}c 1|TYPE {q}c|GET {q}c|SET s v|RPUSH s a|LPOP s|LLEN s
LRANGE s 0 1|LINDEX s 0|LSET s 0 a|LREM s 0 a|LTRIM s 0 1|LPOS s a|LINSERT s BEFORE a b
LMOVE s {q}c LEFT LEFT|SET {q}s v|LMOVE {q}c {q}s LEFT LEFT|BLPOP s 1|BLPOP none s 1
BLMOVE {q}s {q}c LEFT LEFT 1|RPOPLPUSH s s|LPUSHX s a|XADD {q}c * a 1|HSET {q}c a 1|SADD {q}c a
RPUSH|RPUSH l|LPOP|LLEN|LINDEX l|BLPOP l|LMOVE a b LEFT|RENAME {q}c {q}d|LRANGE {q}d 0 -1
COPY {q}d {q}e|RPUSH {q}e 2|LRANGE {q}d 0 -1|LRANGE {q}e 0 -1|EXPIRE {q}e 1000|RPUSH {q}e 3|TTL {q}e
SCAN 0 TYPE list COUNT 100|DEL {q}e {q}d|LLEN {q}e|MULTI|RPUSH {q}m 1 2|BLPOP {q}m 0|BLPOP {q}m 0
BLPOP {q}m 0|BLMOVE {q}m {q}n LEFT LEFT 0|RPUSH {q}m 3|DEL {q}m|RPUSH {q}m 4|LRANGE {q}m 0 -1|EXEC
LRANGE {q}m 0 -1|WATCH {q}m|LPUSH {q}m 1|MULTI|LLEN {q}m|EXEC
RPUSH {p}a 1 2 3 4 5|RPUSH {p}b 6|LMPOP 2 {p}n {p}a LEFT|LMPOP 1 {p}a RIGHT COUNT 2
LMPOP 1 {p}n LEFT
LMPOP 2 {p}a {p}b right count 9|LMPOP 2 {p}a {p}b LEFT COUNT 9|EXISTS {p}a {p}b|LMPOP 0 {p}a LEFT
LMPOP -1 {p}a LEFT|LMPOP x {p}a LEFT|LMPOP 2 {p}a LEFT|LMPOP 1 {p}a UP|LMPOP 1 {p}a LEFT COUNT
LMPOP 1 {p}a LEFT COUNT 0|LMPOP 1 {p}a LEFT COUNT x|LMPOP 1 {p}a LEFT FOO 1|LMPOP 1 {p}a
LMPOP 1 {p}a LEFT COUNT 1 COUNT 1|LMPOP 9223372036854775807 {p}a LEFT|SET {p}s v|RPUSH {p}a 1 2 3
LMPOP 2 {p}s {p}a LEFT|LMPOP 2 {p}a {p}s LEFT|BLMPOP 0 2 {p}n {p}a LEFT
BLMPOP 1 1 {p}a RIGHT COUNT 5
BLMPOP 0.01 1 {p}a LEFT|BLMPOP 0.01 2 {p}n {p}s LEFT|BLMPOP x 1 {p}a LEFT|BLMPOP -1 1 {p}a LEFT
BLMPOP 0 0 {p}a LEFT|BLMPOP 0 1 {p}a UP|BLMPOP x 0 {p}a LEFT|BLMPOP x 1 {p}a LEFT COUNT 0|BLMPOP 0 1
BLMPOP 0 1 {p}a|MULTI|BLMPOP 0 1 {p}n LEFT|LMPOP 1 {p}n LEFT|RPUSH {p}n 1|BLMPOP 0 1 {p}n LEFT|EXEC
COMMAND GETKEYS LMPOP 2 a b LEFT|COMMAND GETKEYS BLMPOP 0 1 a LEFT|FLUSHALL
SADD a 1 2 3 2|SADD a 3
SADD a|SCARD a|SCARD none|SMEMBERS a|SMEMBERS none|SISMEMBER a 1|SISMEMBER a 9|SISMEMBER none 1
SMISMEMBER a 1 9 2|SMISMEMBER none 1|SREM a 1 9|SREM none 1|SREM a|SMEMBERS a|SADD {t}a 1 2 3 4
SADD {t}b 3 4 5|SADD {t}c 4 5 6|SINTER {t}a {t}b|SINTER {t}a {t}b {t}c|SINTER {t}a none
SUNION {t}a {t}b none|SDIFF {t}a {t}b|SDIFF {t}a {t}b {t}c none|SDIFF none {t}a|SINTER|SUNION {t}a
SINTERSTORE {t}d {t}a {t}b|SMEMBERS {t}d|SUNIONSTORE {t}d {t}a {t}c|SMEMBERS {t}d
SDIFFSTORE {t}a {t}a {t}b|SMEMBERS {t}a|SINTERSTORE {t}d {t}a {t}n|EXISTS {t}d|SDIFFSTORE {t}d {t}n
SUNIONSTORE {t}d|SADD {t}e 3 4 5 6|SINTERCARD 2 {t}b {t}e|SINTERCARD 2 {t}b {t}e LIMIT 2
SINTERCARD 2 {t}b {t}e LIMIT 0|SINTERCARD 1 {t}b LIMIT 1|SINTERCARD 1 {t}none
SINTERCARD 2 {t}b {t}none
SINTERCARD 0 {t}b|SINTERCARD x {t}b|SINTERCARD 3 {t}b {t}e|SINTERCARD 2 {t}b {t}e LIMIT -1
SINTERCARD 2 {t}b {t}e LIMIT|SINTERCARD 2 {t}b {t}e FOO 1|SINTERCARD 2 {t}b {t}e LIMIT 1 LIMIT 3
SINTERCARD 1|SINTERCARD 9223372036854775807 {t}b|COMMAND GETKEYS SINTERCARD 2 a b|DEL {t}e
SMOVE {t}a {t}b 1|SMOVE {t}a {t}b 9|SMOVE {t}a {t}a 2|SMOVE none {t}b 1
SMOVE {t}a {t}new 2|EXISTS {t}a|SMEMBERS {t}b|SMEMBERS {t}new|SET {t}s v|SADD {t}s 1|SREM {t}s 1
SMEMBERS {t}s|SISMEMBER {t}s 1|SMISMEMBER {t}s 1|SCARD {t}s|SPOP {t}s|SRANDMEMBER {t}s
SMOVE {t}s {t}b 1|SMOVE {t}b {t}s 3|SMOVE none {t}s 3|SINTER {t}b {t}s|SINTER none {t}s|SUNION {t}s
SDIFF {t}b {t}s|SINTERCARD 2 {t}b {t}s|SINTERCARD 2 none {t}s|SSCAN {t}s 0|SINTERSTORE {t}s {t}b
TYPE {t}s|SMEMBERS {t}s|SPOP none|SPOP none 2
SPOP {t}b 0|SPOP {t}b -1|SPOP {t}b x|SPOP {t}b 1 2|SPOP {t}b 99|EXISTS {t}b|SRANDMEMBER none
SRANDMEMBER none 2|SRANDMEMBER {t}c 99|SRANDMEMBER {t}c x|SRANDMEMBER {t}c 0|SRANDMEMBER {t}c 1 2
SADD one 1|SPOP one|EXISTS one|SADD one 1|SRANDMEMBER one|SRANDMEMBER one -3|SSCAN {t}c 0
SSCAN {t}c 0 MATCH [45]|SSCAN {t}c x|SSCAN {t}c 0 COUNT 0|SSCAN none 0|SSCAN {t}c 0 TYPE x
RENAME {t}c {t}x|COPY {t}x {t}y|SADD {t}y 9|SMEMBERS {t}x|SMEMBERS {t}y|SCAN 0 TYPE set COUNT 100
FLUSHALL
"""


def words_of(request):
    """Words as redis-cli takes them: double quotes keep spaces."""
    parts = request.split('"')
    words = []
    for i, part in enumerate(parts):
        words += [part] if i % 2 else part.split()
    return words


def random_request(rng):
    """A command on one of few keys, whose reply does not depend on the time."""
    key, other = (f"{{r}}{rng.randrange(6)}" for _ in range(2))
    field, number = f"f{rng.randrange(5)}", rng.choice(["0", "1", "-7", "x", "100", "3.5", ""])
    value = rng.choice([number, "v" * rng.randrange(60), "\r\n", "\0ff-kv\0h", "é"])
    option = rng.choice(["NX", "XX", "GET", "KEEPTTL", "EXAT 33177117420",
                         "PXAT 33177117420123", "PX 0"])
    requests = [
        ("GET", key), ("SET", key, value), ("SET", key, value, *option.split()),
        ("SETNX", key, value), ("GETSET", key, value), ("GETDEL", key), ("APPEND", key, value),
        ("STRLEN", key), ("GETRANGE", key, number, rng.randrange(-9, 9)),
        ("SETRANGE", key, rng.randrange(40), value), ("INCR", key), ("DECRBY", key, number),
        ("INCRBYFLOAT", key, number), ("MGET", key, other), ("MSET", key, value, other, number),
        ("MSETNX", key, value, other, number), ("DEL", key), ("EXISTS", key, other),
        ("TYPE", key), ("PERSIST", key), ("PEXPIREAT", key, "33177117420123"),
        ("PEXPIRETIME", key), ("RENAME", key, other), ("RENAMENX", key, other),
        ("COPY", key, other), ("COPY", key, other, "REPLACE"), ("HSET", key, field, value),
        ("HGET", key, field), ("HGETALL", key), ("HDEL", key, field), ("HLEN", key),
        ("HINCRBY", key, field, number), ("HSETNX", key, field, value), ("HMGET", key, field, "f0"),
        ("HEXISTS", key, field), ("HKEYS", key), ("HVALS", key), ("MULTI",),
        ("XADD", key, f"{rng.randrange(1, 99)}-1", field, value), ("XLEN", key),
        ("XRANGE", key, "-", "+"), ("XTRIM", key, "MAXLEN", "3"), ("XDEL", key, "50-1"),
        ("EXEC",), ("DISCARD",), ("WATCH", key),
    ]
    return rng.choice(requests)


class StreamRequests:
    """Random commands on few streams with few groups and consumers, whose replies do not depend on
    the time, as comparable() shows them."""

    def __init__(self, rng):
        self.rng, self.top = rng, 1

    def some_id(self):
        rng = self.rng
        return rng.choice([f"{rng.randrange(max(1, self.top - 12), self.top + 1)}-1", "0", "-", "+",
                           f"({rng.randrange(1, self.top + 1)}-1", "x"])

    def entry_id(self):
        return f"{self.rng.randrange(max(1, self.top - 12), self.top + 1)}-1"

    def new_id(self):
        self.top += self.rng.randrange(2)
        return f"{self.top}-1"

    def request(self):
        rng = self.rng
        key, other = (f"{{x}}{rng.randrange(3)}" for _ in range(2))
        group, consumer, count = f"g{rng.randrange(2)}", f"c{rng.randrange(3)}", rng.randrange(5)
        idle = rng.choice(["0", "0", "100000000"])
        add = ("XADD", key, self.new_id(), "f", "v" * rng.choice([1, 30, 900]))
        read = ("XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", key, ">")
        requests = [
            add, add, add, add, read, read, read, ("XLEN", key),
            ("XADD", key, "MAXLEN", rng.randrange(200), self.new_id(), "f", "v"),
            ("XADD", key, "MINID", self.entry_id(), self.new_id(), "f", "v", "g", ""),
            ("XRANGE", key, self.some_id(), self.some_id()),
            ("XREVRANGE", key, self.some_id(), self.some_id(), "COUNT", count),
            ("XDEL", key, self.entry_id(), self.entry_id()), ("XDEL", key, self.entry_id()),
            ("XTRIM", key, "MAXLEN", rng.randrange(200)), ("XTRIM", key, "MINID", self.entry_id()),
            ("XREAD", "COUNT", count, "STREAMS", key, other, self.entry_id(), self.entry_id()),
            ("XGROUP", "CREATE", key, group, rng.choice(["0", "$", self.entry_id()])),
            ("XGROUP", "CREATE", key, group, "$", "MKSTREAM", "ENTRIESREAD", count),
            ("XGROUP", "SETID", key, group, self.entry_id()),
            ("XGROUP", "CREATECONSUMER", key, group, consumer),
            read[:-1] + (self.entry_id(),), read[:4] + ("NOACK",) + read[4:],
            ("XREADGROUP", "GROUP", group, consumer, "STREAMS", key, other, ">", "0"),
            ("XACK", key, group, self.entry_id(), self.entry_id()),
            ("XACK", key, group, *(f"{i}-1" for i in range(max(1, self.top - 40), self.top))),
            ("XPENDING", key, group),
            ("XPENDING", key, group, "IDLE", idle, self.some_id(), "+", count, consumer),
            ("XPENDING", key, group, "-", self.some_id(), "10"),
            ("XCLAIM", key, group, consumer, idle, self.entry_id(), self.entry_id()),
            ("XCLAIM", key, group, consumer, "0", self.entry_id(), "FORCE", "RETRYCOUNT", count),
            ("XCLAIM", key, group, consumer, "0", self.entry_id(), "JUSTID", "LASTID",
             self.entry_id()),
            ("XAUTOCLAIM", key, group, consumer, idle, self.some_id(), "COUNT", count),
            ("XAUTOCLAIM", key, group, consumer, "0", "0", "JUSTID"),
            ("XINFO", "STREAM", key), ("XINFO", "STREAM", key, "FULL", "COUNT", count),
            ("XINFO", "GROUPS", key), ("XINFO", "CONSUMERS", key, group),
        ]
        rare = [
            ("XGROUP", "DELCONSUMER", key, group, consumer), ("XGROUP", "DESTROY", key, group),
            ("XSETID", key, self.entry_id()), ("COPY", key, other, "REPLACE"),
            ("RENAME", key, other), ("DEL", key), ("SET", key, "v"), ("XTRIM", key, "MAXLEN", 0),
            ("EXPIRE", key, "1000"), ("TYPE", key),
        ]
        return rng.choice(rare if rng.randrange(40) == 0 else requests)


def random_list_request(rng):
    key, other = (f"{{l}}{rng.randrange(3)}" for _ in range(2))
    value, index = rng.choice(["a", "b", "c", "d" * 700]), rng.randrange(-80, 80)
    many = [str(rng.randrange(50)) for _ in range(rng.randrange(1, 30))]
    push = rng.choice(["LPUSH", "RPUSH", "LPUSHX", "RPUSHX"])
    ends = rng.choice(["LEFT", "RIGHT"]), rng.choice(["LEFT", "RIGHT"])
    pop = rng.choice(["LPOP", "RPOP"])
    return rng.choice([
        (push, key, value), (push, key, value), (push, key, *many), ("LLEN", key), (pop, key),
        (pop, key, rng.randrange(12)), ("LRANGE", key, index, rng.randrange(-80, 80)),
        ("LINDEX", key, index), ("LSET", key, index, value), ("LREM", key, index % 7 - 3, value),
        ("LTRIM", key, rng.randrange(3), rng.randrange(-4, 0)), ("LPOS", key, value),
        ("LPOS", key, value, "RANK", index % 7 - 3, "COUNT", abs(index) % 5),
        ("LPOS", key, value, "MAXLEN", abs(index), "COUNT", 0),
        ("LINSERT", key, rng.choice(["BEFORE", "AFTER"]), value, "x"), ("LMOVE", key, other, *ends),
        ("RPOPLPUSH", key, other), (f"B{pop}", key, other, "0.001"),
        ("LMPOP", 2, key, other, ends[0], "COUNT", rng.randrange(1, 12)),
        ("BLMPOP", "0.001", 2, key, other, ends[0]),
        ("BLMOVE", key, other, *ends, "0.001"), ("LRANGE", key, 0, -1),
        ("RENAME", key, other) if index == 7 else ("LLEN", key),
        ("SET", key, value) if index == 8 else ("LLEN", key), ("MULTI",) if index == 9 else
        ("LLEN", other), ("EXEC",), ("DEL", key) if index % 20 == 1 else ("LLEN", other),
    ])


def random_set_request(rng):
    key, other, third = (f"{{t}}{rng.randrange(4)}" for _ in range(3))
    member = rng.choice([str(rng.randrange(300)), "long" * 300 + str(rng.randrange(4)), ""])
    many = [str(rng.randrange(300)) for _ in range(rng.randrange(1, 40))]
    operation = rng.choice(["SINTER", "SUNION", "SDIFF"])
    return rng.choice([
        ("SADD", key, member), ("SADD", key, *many), ("SREM", key, member), ("SREM", key, *many),
        ("SCARD", key), ("SISMEMBER", key, member), ("SMISMEMBER", key, *many), ("SMEMBERS", key),
        (operation, key, other, third), (operation, key, other),
        (operation + "STORE", key, other, third), ("SMOVE", key, other, member),
        ("SPOP", key, 1000) if rng.randrange(20) == 0 else ("SCARD", key),
        ("SINTERCARD", 3, key, other, third, "LIMIT", rng.randrange(20)),
        ("SRANDMEMBER", key, 1000), ("SSCAN", key, 0, "COUNT", 1000), ("COPY", key, other),
        ("SET", key, "v") if rng.randrange(20) == 0 else ("SCARD", key),
        ("DEL", key) if rng.randrange(5) == 0 else ("SCARD", key), ("TYPE", key),
    ])


# Whose elements have no order.
SET_REPLIES = ("SMEMBERS", "SINTER", "SUNION", "SDIFF", "SPOP", "SRANDMEMBER")


def without_times(groups):
    """The groups of XINFO STREAM ... FULL: deliveries and consumers have times."""
    def pairs(item):
        return dict(zip(item[1::2], item[2::2]))
    shown = []
    for group in groups[1:]:
        group = pairs(group)
        group[b"$pending"] = [row[:3] + row[4:] for row in group[b"$pending"][1:]]
        consumers = [pairs(one) for one in group[b"$consumers"][1:]]
        for one in consumers:
            del one[b"$seen-time"]
            one[b"$pending"] = [row[:2] + row[3:] for row in one[b"$pending"][1:]]
        group[b"$consumers"] = consumers
        shown.append(group)
    return shown


def comparable(words, reply):
    """A reply without what depends on the time, and what Redis alone tells."""
    words = [str(word).upper() for word in words]
    if words and words[0] in ("SCAN", "SSCAN") and isinstance(reply, list):
        return [reply[1], sorted(reply[2])]
    if words and words[0] in SET_REPLIES and isinstance(reply, list):
        return reply[:1] + sorted(reply[1:])
    if words[:1] == ["XPENDING"] and len(words) > 3 and isinstance(reply, list):
        return [row[:3] + row[4:] if isinstance(row, list) else row for row in reply]
    if words[:2] == ["XINFO", "CONSUMERS"] and isinstance(reply, list):
        return [row[:-1] if isinstance(row, list) else row for row in reply]
    if words[:2] == ["XINFO", "STREAM"] and isinstance(reply, list):
        pairs = list(zip(reply[1::2], reply[2::2]))
        own = (b"$radix-tree-keys", b"$radix-tree-nodes")
        pairs = [pair for pair in pairs if pair[0] not in own]
        if len(words) > 3:
            pairs = [(name, without_times(value) if name == b"$groups" else value)
                     for name, value in pairs]
        return pairs
    return reply


def compare(ours, theirs, requests):
    differences = []
    for words in requests:
        mine = comparable(words, ours.ask(*words))
        redis_reply = comparable(words, theirs.ask(*words))
        ttl = words and str(words[0]).upper() in ("TTL", "PTTL") and mine[:1] == b":"
        if ttl and abs(int(mine[1:]) - int(redis_reply[1:])) <= 1:
            continue
        if mine == redis_reply:
            continue
        differences.append(f"{words}: {mine!r}, not {redis_reply!r}")
        if words[0] == "EXEC" and len(mine) == len(redis_reply):
            differences += [f"  element {i}: {one!r}, not {other!r}" for i, (one, other)
                            in enumerate(zip(mine, redis_reply)) if one != other]
    assert not differences, "\n".join(differences[:50])


def replies(folder):
    server = RedisServer(folder)
    daemon = serve(f"{folder}/kv")
    script = SCRIPT + STREAMS + LISTS
    requests = [words_of(one) for line in script.split("\n") for one in line.split("|") if one]
    assert len(requests) > 600
    for version in (2, 3):
        ours, theirs = Raw(("127.0.0.1", daemon.port)), Raw(server.path)
        for client in (ours, theirs):
            expect(client.ask("HELLO", version)[1], b"$server")
            client.ask("FLUSHALL")
        compare(ours, theirs, requests)
        for client in (ours, theirs):
            client.ask("RESET")
            client.ask("HELLO", version)
        seed = random.randrange(1 << 32)
        print("seed", seed)
        rng = random.Random(seed)
        compare(ours, theirs, (random_request(rng) for _ in range(RANDOM_COMMANDS)))
        for client in (ours, theirs):
            client.ask("DISCARD")
        streams = StreamRequests(rng)
        compare(ours, theirs, (streams.request() for _ in range(RANDOM_COMMANDS)))
        compare(ours, theirs, (random_list_request(rng) for _ in range(RANDOM_COMMANDS)))
        for client in (ours, theirs):
            client.ask("DISCARD")
        compare(ours, theirs, (random_set_request(rng) for _ in range(RANDOM_COMMANDS)))
    for text in (b"*1\r\n$a\r\n", b"*x\r\n", b"*1\r\n!\r\n", b"GET \"a\r\n", b"*-5\r\nPING\r\n"):
        ours, theirs = Raw(("127.0.0.1", daemon.port)), Raw(server.path)
        for client in (ours, theirs):
            client.socket.sendall(text)
        expect(ours.reply(), theirs.reply(), f"{text}")
    daemon.stop()
    server.stop()


PARTS = {part.__name__: part for part in (replies,)}

if __name__ == "__main__":
    run_part(PARTS)
