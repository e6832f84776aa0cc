// The handlers of all commands, by the file that has them. command_table.cc has the rows.
#pragma once

#include "storage/gateway/command.h"

namespace ff::gateway {

// commands_strings.cc
Task<Result<void>> run_get(CommandCall& call);
Task<Result<void>> run_set(CommandCall& call);
Task<Result<void>> run_setnx(CommandCall& call);
Task<Result<void>> run_setex(CommandCall& call);
Task<Result<void>> run_psetex(CommandCall& call);
Task<Result<void>> run_mget(CommandCall& call);
Task<Result<void>> run_mset(CommandCall& call);
Task<Result<void>> run_msetnx(CommandCall& call);
Task<Result<void>> run_getset(CommandCall& call);
Task<Result<void>> run_getdel(CommandCall& call);
Task<Result<void>> run_getex(CommandCall& call);
Task<Result<void>> run_getrange(CommandCall& call);
Task<Result<void>> run_setrange(CommandCall& call);
Task<Result<void>> run_append(CommandCall& call);
Task<Result<void>> run_strlen(CommandCall& call);
Task<Result<void>> run_incr(CommandCall& call);
Task<Result<void>> run_decr(CommandCall& call);
Task<Result<void>> run_incrby(CommandCall& call);
Task<Result<void>> run_decrby(CommandCall& call);
Task<Result<void>> run_incrbyfloat(CommandCall& call);

// commands_reservations.cc
Task<Result<void>> run_ff_reserve(CommandCall& call);
Task<Result<void>> run_ff_confirm(CommandCall& call);

// commands_keys.cc
Task<Result<void>> run_del(CommandCall& call);
Task<Result<void>> run_exists(CommandCall& call);
Task<Result<void>> run_expire(CommandCall& call);
Task<Result<void>> run_ttl(CommandCall& call);
Task<Result<void>> run_persist(CommandCall& call);
Task<Result<void>> run_type(CommandCall& call);
Task<Result<void>> run_rename(CommandCall& call);
Task<Result<void>> run_renamenx(CommandCall& call);
Task<Result<void>> run_copy(CommandCall& call);

// commands_keyspace.cc
Task<Result<void>> run_scan(CommandCall& call);
Task<Result<void>> run_keys(CommandCall& call);
Task<Result<void>> run_randomkey(CommandCall& call);
Task<Result<void>> run_dbsize(CommandCall& call);
Task<Result<void>> run_flushall(CommandCall& call);

// commands_hashes.cc
Task<Result<void>> run_hset(CommandCall& call);
Task<Result<void>> run_hsetnx(CommandCall& call);
Task<Result<void>> run_hget(CommandCall& call);
Task<Result<void>> run_hmget(CommandCall& call);
Task<Result<void>> run_hgetall(CommandCall& call);
Task<Result<void>> run_hdel(CommandCall& call);
Task<Result<void>> run_hexists(CommandCall& call);
Task<Result<void>> run_hlen(CommandCall& call);
Task<Result<void>> run_hkeys(CommandCall& call);
Task<Result<void>> run_hvals(CommandCall& call);
Task<Result<void>> run_hincrby(CommandCall& call);
Task<Result<void>> run_hscan(CommandCall& call);

// commands_cluster.cc
Task<Result<void>> run_cluster_slots(CommandCall& call);
Task<Result<void>> run_cluster_shards(CommandCall& call);
Task<Result<void>> run_cluster_nodes(CommandCall& call);
Task<Result<void>> run_cluster_info(CommandCall& call);
Task<Result<void>> run_cluster_keyslot(CommandCall& call);
Task<Result<void>> run_cluster_myid(CommandCall& call);

// commands_lists.cc
Task<Result<void>> run_lpush(CommandCall& call);
Task<Result<void>> run_rpush(CommandCall& call);
Task<Result<void>> run_lpushx(CommandCall& call);
Task<Result<void>> run_rpushx(CommandCall& call);
Task<Result<void>> run_lpop(CommandCall& call);
Task<Result<void>> run_rpop(CommandCall& call);
Task<Result<void>> run_blpop(CommandCall& call);
Task<Result<void>> run_brpop(CommandCall& call);
Task<Result<void>> run_lmpop(CommandCall& call);
Task<Result<void>> run_blmpop(CommandCall& call);
Task<Result<void>> run_rpoplpush(CommandCall& call);
Task<Result<void>> run_brpoplpush(CommandCall& call);
Task<Result<void>> run_lmove(CommandCall& call);
Task<Result<void>> run_blmove(CommandCall& call);
Task<Result<void>> run_llen(CommandCall& call);
Task<Result<void>> run_lrange(CommandCall& call);
Task<Result<void>> run_lindex(CommandCall& call);
Task<Result<void>> run_lset(CommandCall& call);
Task<Result<void>> run_lrem(CommandCall& call);
Task<Result<void>> run_ltrim(CommandCall& call);
Task<Result<void>> run_linsert(CommandCall& call);
Task<Result<void>> run_lpos(CommandCall& call);

// commands_sets.cc
Task<Result<void>> run_sadd(CommandCall& call);
Task<Result<void>> run_srem(CommandCall& call);
Task<Result<void>> run_smembers(CommandCall& call);
Task<Result<void>> run_sismember(CommandCall& call);
Task<Result<void>> run_smismember(CommandCall& call);
Task<Result<void>> run_scard(CommandCall& call);
Task<Result<void>> run_spop(CommandCall& call);
Task<Result<void>> run_srandmember(CommandCall& call);
Task<Result<void>> run_smove(CommandCall& call);
Task<Result<void>> run_sinter(CommandCall& call);
Task<Result<void>> run_sunion(CommandCall& call);
Task<Result<void>> run_sdiff(CommandCall& call);
Task<Result<void>> run_sintercard(CommandCall& call);
Task<Result<void>> run_sinterstore(CommandCall& call);
Task<Result<void>> run_sunionstore(CommandCall& call);
Task<Result<void>> run_sdiffstore(CommandCall& call);
Task<Result<void>> run_sscan(CommandCall& call);

// commands_streams.cc
Task<Result<void>> run_xadd(CommandCall& call);
Task<Result<void>> run_xlen(CommandCall& call);
Task<Result<void>> run_xrange(CommandCall& call);
Task<Result<void>> run_xrevrange(CommandCall& call);
Task<Result<void>> run_xdel(CommandCall& call);
Task<Result<void>> run_xtrim(CommandCall& call);
Task<Result<void>> run_xsetid(CommandCall& call);
Task<Result<void>> run_xinfo_stream(CommandCall& call);
Task<Result<void>> run_xinfo_groups(CommandCall& call);
Task<Result<void>> run_xinfo_consumers(CommandCall& call);

// commands_stream_reads.cc
Task<Result<void>> run_xread(CommandCall& call);
Task<Result<void>> run_xreadgroup(CommandCall& call);

// commands_stream_groups.cc
Task<Result<void>> run_xgroup_create(CommandCall& call);
Task<Result<void>> run_xgroup_setid(CommandCall& call);
Task<Result<void>> run_xgroup_destroy(CommandCall& call);
Task<Result<void>> run_xgroup_createconsumer(CommandCall& call);
Task<Result<void>> run_xgroup_delconsumer(CommandCall& call);
Task<Result<void>> run_xack(CommandCall& call);
Task<Result<void>> run_xpending(CommandCall& call);
Task<Result<void>> run_xclaim(CommandCall& call);
Task<Result<void>> run_xautoclaim(CommandCall& call);

// commands_connection.cc
Task<Result<void>> run_ping(CommandCall& call);
Task<Result<void>> run_echo(CommandCall& call);
Task<Result<void>> run_hello(CommandCall& call);
Task<Result<void>> run_auth(CommandCall& call);
Task<Result<void>> run_quit(CommandCall& call);
Task<Result<void>> run_reset(CommandCall& call);
Task<Result<void>> run_select(CommandCall& call);
Task<Result<void>> run_client_id(CommandCall& call);
Task<Result<void>> run_client_getname(CommandCall& call);
Task<Result<void>> run_client_setname(CommandCall& call);
Task<Result<void>> run_client_setinfo(CommandCall& call);
Task<Result<void>> run_client_unblock(CommandCall& call);
Task<Result<void>> run_client_info(CommandCall& call);
Task<Result<void>> run_client_list(CommandCall& call);

// commands_server.cc
Task<Result<void>> run_command(CommandCall& call);
Task<Result<void>> run_command_count(CommandCall& call);
Task<Result<void>> run_command_docs(CommandCall& call);
Task<Result<void>> run_command_info(CommandCall& call);
Task<Result<void>> run_command_getkeys(CommandCall& call);
Task<Result<void>> run_command_list(CommandCall& call);
Task<Result<void>> run_config_get(CommandCall& call);
Task<Result<void>> run_info(CommandCall& call);
Task<Result<void>> run_time(CommandCall& call);

// commands_transactions.cc
Task<Result<void>> run_multi(CommandCall& call);
Task<Result<void>> run_exec(CommandCall& call);
Task<Result<void>> run_discard(CommandCall& call);
Task<Result<void>> run_watch(CommandCall& call);
Task<Result<void>> run_unwatch(CommandCall& call);

}  // namespace ff::gateway
