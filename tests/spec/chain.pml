/* Model of a chain's replication (storage.md, "Cluster manager" and "Chains"), for Spin: one chunk,
   two writers, a reader that may read at any time, targets whose processes die and return.
   check.sh runs it; -DTARGETS=, -DCRASHES=, -DWRITES= size it, and each -DBUG_... plants a bug.

   What it asserts: every write counts once, as one version, and every version is one write's
   (claim); who reads or is answered never finds less than anybody was told before (floor), so that
   reads are linearizable and nothing acknowledged is lost; a target always is serving or lastsrv
   (publish); when nothing more can happen all writes are answered, and all targets serve and are
   equal (quiet).

   How it is kept small, without leaving a run out:
   - A call is on its way for as long as its caller stands by it; it arrives in one step, which any
     other step may come before. A reply is a step too. What a caller has given up is refused by
     the receiver's chain version, or repeats what has been done.
   - A view of the chain is what a target needs of it: its own state, head or not, successor, tail.
   - A read is one step, when the version is looked up: one that takes longer is promised less.
   - A client's request may arrive any number of times, also after it was answered, but then under
     no newer chain version than the answer.
   - A target is noticed as gone at any time after its process died, and returns only once the
     chain does not count on it; what it had stored is there. Power losses, silent nodes and
     refusals for want of space are not in the model.
   - Content is named by its version: `made` says which write made which.

   A target answers whoever has sent it a write once all that come after it have committed that, and
   commits it itself afterwards.

   A tail that has a pending version itself (a target behind it syncs, or did) answers here as long
   as that came under the view it holds and a target that syncs has not got it, and only else waits
   for its end. The design's tail waits for the chunk lock in all cases (-DTAIL_ALWAYS_WAITS); what
   it does is part of what is searched here. */

#ifndef TARGETS
#define TARGETS 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef WRITES
#define WRITES 2 /* the third is the second writer's next */
#endif

/* States of targets, in the order in which a chain has its targets. */
#define serving 1
#define lastsrv 2
#define syncing 3
#define waiting 4
#define offline 5

/* What the manager holds. */
byte chain_version = 1;
byte order[TARGETS];  /* target at a position */
byte public[TARGETS]; /* state of a target */

/* What each target knows. Its process runs; the rest is of the view it holds. */
bit online[TARGETS];
byte known[TARGETS]; /* chain_version */
byte state[TARGETS];
bit head[TARGETS];
byte successor[TARGETS]; /* itself: none */
byte tail[TARGETS];      /* the last that serves */
byte since[TARGETS];     /* serves since, and not all before it have confirmed that; 0: they have */

/* What each target has stored. */
byte committed[TARGETS];
bit pending[TARGETS]; /* version committed + 1 is */
byte writer[TARGETS]; /* of it: a write */
bit older[TARGETS];   /* it is older than the target's view of the chain */
byte result[TARGETS * 2]; /* of channels: 2 * sequence, committed; one less, pending; 0 none */

/* What goes on between them, under the version that both know. */
bit acknowledged[TARGETS]; /* all that come after have committed the pending version, or the last */
byte copying[TARGETS];     /* resync holds the chunk lock */
byte copied[TARGETS];      /* to this one: 1 the chunk, 2 the channel results too */
#ifdef BUG_OLDER_REPLACES
byte again[TARGETS]; /* a second copy of the chunk that is still on its way here */
#endif

/* What is known from outside. */
byte answered[WRITES + 1]; /* 0: not; else 1, and who would still take a late copy of it */
byte made[WRITES + 1];     /* the version that a write made */
byte floor;                /* the newest version that anybody has been told of */
byte crashes;              /* that are left */
bit over;

hidden byte i, j, k, n, x, next[TARGETS], heir, next_sync, last;
hidden byte serves, returns, gone;

/* Writes 1, 2, 3: the first of the first writer, the first and second of the second. */
#define channel(w) (w != 1)
#define sequence(w) (1 + (w == 3))
#define RESULT(t, w) result[(t) * 2 + channel(w)]
#define PENDING(w) (sequence(w) * 2 - 1)
#define COMMITTED(w) (sequence(w) * 2)

/* Whoever is asked answers for what comes after it: its own commit, which it still has to make, is
   for nobody to know. */
#ifdef BUG_ANSWERS_FOR_OTHERS
#define ACKNOWLEDGED(t) pending[t]
#else
#define ACKNOWLEDGED(t) acknowledged[t]
#endif

/* The successor, which syncs, has what is pending here; nobody else sends it anything. */
#define REPLACED(t) (copied[successor[t]] && committed[successor[t]] == committed[t] + 1)

#ifdef BUG_NO_VERSION_CHECK
#define same_version(a, b) (online[a] && online[b])
#else
#define same_version(a, b) (online[a] && online[b] && known[a] == known[b])
#endif

/* Write `w` counts, as `version`: once, and it alone. */
inline claim(w, version) {
  assert(version > 0 && (made[w] == 0 || made[w] == version));
  made[w] = version;
  for (n : 1 .. WRITES) {
    assert(n == w || made[n] != version)
  }
  n = 0
}

inline set_result(t, w, to) {
  if
  :: RESULT(t, w) < to -> RESULT(t, w) = to
  :: else
  fi
}

inline store(t, w) {
  pending[t] = 1;
  writer[t] = w;
  RESULT(t, w) = PENDING(w)
}

inline drop_pending(t) {
  pending[t] = 0;
  writer[t] = 0;
  acknowledged[t] = 0;
  older[t] = 0
}

inline commit(t) {
  committed[t] = committed[t] + 1;
  claim(writer[t], committed[t]);
  set_result(t, writer[t], COMMITTED(writer[t]));
  drop_pending(t)
}

/* Copies of an answered write bear the chain version of that time, or an older one. Until the chain
   changes (2) every target may have it, later (4 << t) those that have not heard of the change. */
inline outdate_copies() {
  for (n : 1 .. WRITES) {
    x = 1;
    for (j : 0 .. TARGETS - 1) {
      x = x | (online[j] && head[j] -> 4 << j : 0)
    }
    answered[n] = (answered[n] & 2 -> x : answered[n])
  }
  x = 0
}

inline refuse_copies(t) {
  for (n : 1 .. WRITES) {
    answered[n] = answered[n] & (255 - (4 << t))
  }
  n = 0
}

/* Who has become serving answers reads once all that serve before it know. */
inline confirm() {
  for (i : 0 .. TARGETS - 1) {
    gone = 0; /* here: somebody before does not know */
    for (j : 0 .. TARGETS - 1) {
      x = order[j];
      if
      :: x == i -> break
      :: else
      fi;
#ifdef BUG_PREDECESSOR_ONLY
      gone = 0;
#endif
      if
      :: public[x] == serving && known[x] < since[i] -> gone = 1
      :: else
      fi
    }
    if
    :: !gone -> since[i] = 0
    :: else
    fi
  }
  x = 0
}

/* Takes the newest view of the chain. */
inline refresh(t) {
#ifdef BUG_PENDING_CANCELLED
  if
  :: pending[t] && !acknowledged[t] && state[t] == serving ->
     RESULT(t, writer[t]) = PENDING(writer[t]) - 1;
     drop_pending(t)
  :: else
  fi;
#endif
  known[t] = chain_version;
  older[t] = pending[t];
  since[t] = (public[t] == serving && state[t] != serving -> chain_version : since[t]);
  state[t] = public[t];
  head[t] = public[t] == serving && order[0] == t;
  successor[t] = t;
  tail[t] = t;
  for (i : 0 .. TARGETS - 1) {
    x = order[i];
    if
    :: public[t] == serving && public[x] == serving -> tail[t] = x
    :: else
    fi;
    if
    :: public[t] == serving && i > 0 && order[i - 1] == t &&
       (public[x] == serving || public[x] == syncing) -> successor[t] = x
    :: else
    fi
  }
  copying[t] = 0;
#ifndef BUG_SYNC_GOES_ON
  copied[t] = 0;
#endif
#ifdef BUG_OLDER_REPLACES
  again[t] = 0;
#endif
  refuse_copies(t);
  confirm()
}

/* A write holds the chunk lock from storing its pending version to the end of that, resync while it
   copies. */
#ifdef BUG_NO_RESYNC_LOCK
#define locked(t) (pending[t])
#define may_copy(t) (!copying[t])
#else
#define locked(t) (pending[t] || copying[t])
#ifdef BUG_PENDING_AS_COMMITTED
#define may_copy(t) (!copying[t])
#else
#define may_copy(t) (!locked(t))
#endif
#endif
#ifdef BUG_PENDING_AS_COMMITTED
#define pending_too(t) pending[t]
#else
#define pending_too(t) 0
#endif

/* One target: drives its pending version to its end, and copies to a successor that syncs. */
proctype target(byte t) {
  do
  :: over -> break
  :: d_step { online[t] && known[t] != chain_version -> refresh(t) }

  /* The end of the chain chooses the commit. */
  :: d_step { pending[t] && state[t] == serving && successor[t] == t -> commit(t) }
  /* The successor stores it as pending. */
  :: d_step {
       pending[t] && !acknowledged[t] && successor[t] != t &&
       same_version(t, successor[t]) && state[successor[t]] == serving &&
       committed[successor[t]] == committed[t] && !locked(successor[t]) ->
       k = successor[t];
       store(k, writer[t])
     }
  /* It answers: it has committed it, or all that come after it have. */
  :: d_step {
       pending[t] && !acknowledged[t] && successor[t] != t &&
       same_version(t, successor[t]) && state[successor[t]] == serving &&
       (committed[successor[t]] > committed[t] ||
        committed[successor[t]] == committed[t] && ACKNOWLEDGED(successor[t])) ->
       k = successor[t];
       if
       :: committed[k] == committed[t] ->
          assert(pending[k] && writer[k] == writer[t])         /* else another writer's */
       :: else ->
          assert(committed[k] == committed[t] + 1);            /* else an update is missing */
          assert(RESULT(k, writer[t]) >= COMMITTED(writer[t])) /* else another writer's */
       fi;
       acknowledged[t] = 1
     }
  /* It syncs: the whole chunk takes the place of what it had, and is committed there. */
  :: d_step {
       pending[t] && !acknowledged[t] && successor[t] != t &&
       same_version(t, successor[t]) && state[successor[t]] == syncing && !REPLACED(t) ->
       k = successor[t];
       drop_pending(k);
       committed[k] = committed[t] + 1;
       claim(writer[t], committed[k]);
#ifndef BUG_WHOLE_WITHOUT_RESULT
       set_result(k, writer[t], COMMITTED(writer[t]));
#endif
       copied[k] = (copied[k] == 0 -> 1 : copied[k])
     }
  :: d_step {
       pending[t] && !acknowledged[t] && successor[t] != t &&
       same_version(t, successor[t]) && state[successor[t]] == syncing && REPLACED(t) ->
       acknowledged[t] = 1
     }
  :: d_step { acknowledged[t] -> commit(t) }

  /* Resync: the chunk, under its lock; then the channel results. */
  :: d_step {
       state[t] == serving && successor[t] != t && same_version(t, successor[t]) &&
       state[successor[t]] == syncing && copied[successor[t]] == 0 && may_copy(t) ->
       copying[t] = 1 + committed[t] + pending_too(t)
     }
  :: d_step {
       copying[t] && same_version(t, successor[t]) && state[successor[t]] == syncing ->
       k = successor[t];
       drop_pending(k);
       /* An older one than this sync has brought is refused. */
       committed[k] = (copied[k] && copying[t] <= committed[k] -> committed[k] : copying[t] - 1);
       copied[k] = 1;
#ifdef BUG_OLDER_REPLACES
       again[k] = copying[t];
#endif
       copying[t] = 0
     }
#ifdef BUG_OLDER_REPLACES
  :: d_step { again[t] && state[t] == syncing -> committed[t] = again[t] - 1; again[t] = 0 }
#endif
#ifdef BUG_SKIPPED_WHILE_PENDING
  /* It has the same version and nothing pending: skipped, without the chunk lock. */
  :: d_step {
       state[t] == serving && successor[t] != t && same_version(t, successor[t]) &&
       state[successor[t]] == syncing && copied[successor[t]] == 0 &&
       committed[successor[t]] == committed[t] && !pending[successor[t]] ->
       copied[successor[t]] = 1
     }
#endif
  :: d_step {
       state[t] == serving && successor[t] != t && same_version(t, successor[t]) &&
       state[successor[t]] == syncing && copied[successor[t]] == 1 ->
       k = successor[t];
#ifndef BUG_RESULTS_NOT_COPIED
       for (n : 0 .. 1) {
         if
         :: result[t * 2 + n] % 2 == 0 && result[t * 2 + n] > result[k * 2 + n] ->
            result[k * 2 + n] = result[t * 2 + n]
         :: else
         fi
       }
#endif
       copied[k] = 2
     }
  od
}

/* What planted bugs let a head answer that nobody has committed yet. */
#ifdef BUG_EARLY_ACK
#define EARLY(t, w) \
  :: d_step { \
       online[t] && head[t] && !answered[w] && pending[t] && writer[t] == w -> \
       answer(w, committed[t] + 1) \
     }
#elif defined(BUG_OTHER_WRITER_AS_SAME)
#define EARLY(t, w) \
  :: d_step { \
       online[t] && head[t] && !answered[w] && started && acknowledged[t] -> \
       answer(w, committed[t] + 1) \
     }
#else
#define EARLY(t, w)
#endif

#ifdef BUG_CLIENT_VERSION_UNCHECKED
#define may_arrive(t, w) 1
#else
#define may_arrive(t, w) (!answered[w] || (answered[w] & (2 + (4 << t))))
#endif

/* One write, sent to whoever takes itself for the head until it is answered, and late copies. */
#define AT(t, w) \
  :: d_step { \
       online[t] && head[t] && started && !locked(t) && RESULT(t, w) <= PENDING(w) && \
       may_arrive(t, w) -> \
       store(t, w) \
     } \
  :: d_step { \
       online[t] && head[t] && !answered[w] && RESULT(t, w) == COMMITTED(w) -> \
       answer(w, made[w]) \
     } \
  :: d_step { \
       online[t] && head[t] && !answered[w] && pending[t] && writer[t] == w && acknowledged[t] -> \
       answer(w, committed[t] + 1) \
     } \
  EARLY(t, w)

inline answer(w, version) {
  claim(w, version);
  answered[w] = 3;
  if
  :: floor < made[w] -> floor = made[w]
  :: else
  fi
}

/* A client's next write begins when the one before is answered. */
#define started (w != 3 || answered[2])
proctype write(byte w) {
  do
  :: over -> break
  AT(0, w)
  AT(1, w)
#if TARGETS > 2
  AT(2, w)
#endif
  od
}

#ifdef BUG_UNCONFIRMED_READS
#define may_read(t) (online[t] && state[t] == serving)
#else
#define may_read(t) (online[t] && state[t] == serving && since[t] == 0)
#endif
#ifdef BUG_TAIL_DOES_NOT_WAIT
#define must_wait(t) 0
#elif defined(TAIL_ALWAYS_WAITS)
#define must_wait(t) (pending[t])
#elif defined(BUG_TAIL_SHOWS_WHAT_WAS)
#define must_wait(t) (older[t])
#else
#define must_wait(t) (older[t] || acknowledged[t])
#endif
#ifdef BUG_TAIL_OF_OTHER_VERSION
#define may_ask(t, of) (online[of] && state[of] == serving)
#else
#define may_ask(t, of) same_version(t, of)
#endif
#ifdef BUG_TAIL_UNCONFIRMED
#define may_be_asked(t) (online[t] && state[t] == serving)
#else
#define may_be_asked(t) may_read(t)
#endif
#define must_ask(t) (pending[t] && tail[t] != t)

/* Reads at one target: the committed version, or with a pending one what the tail says. Those that
   would say nothing new are left out. */
proctype read(byte t) {
  do
  :: over -> break
  :: d_step {
       may_read(t) && !must_ask(t) && !must_wait(t) && committed[t] != floor ->
       assert(committed[t] > floor);
       floor = committed[t]
     }
  :: d_step {
       may_read(t) && must_ask(t) && may_ask(t, tail[t]) &&
       may_be_asked(tail[t]) && !must_wait(tail[t]) && committed[tail[t]] != floor ->
       k = tail[t];
       assert(committed[k] == committed[t] || committed[k] == committed[t] + 1);
       assert(committed[k] > floor);
       floor = committed[k]
     }
  od
}

/* What the manager takes for a target's local state: offline; uptodate or online. */
#define fresh(t) (online[t] && known[t] == chain_version)
#ifdef BUG_OLD_PROCESS_SERVES
#define lives(t) (online[t] && crashes == 0)
#define is_offline(t, only) \
  (only == t || online[t] && !fresh(t) && (public[t] == lastsrv || public[t] == offline) || \
   !online[t] && (only == TARGETS || public[t] == lastsrv || public[t] == offline))
#else
#define lives(t) online[t]
#define is_offline(t, only) \
  (!online[t] && (only == TARGETS || only == t || public[t] == lastsrv || public[t] == offline) \
   || online[t] && !fresh(t) && (public[t] == lastsrv || public[t] == offline))
#endif
#define is_uptodate(t) (public[t] == serving || fresh(t) && copied[t] == 2)

/* The transition table. `only`: of those that died this one is noticed; TARGETS: all are. */
inline step(only) {
  serves = 0;
  returns = 0;
  heir = TARGETS;
  next_sync = TARGETS;
  for (i : 0 .. TARGETS - 1) {
    x = order[i];
    gone = is_offline(x, only);
    serves = serves || (public[x] == serving && !gone) ||
             (public[x] == syncing && !gone && is_uptodate(x));
    heir = (public[x] == serving && heir == TARGETS -> x : heir);
    returns = returns || (public[x] == lastsrv && !gone);
    next_sync = (next_sync == TARGETS && !gone && !is_uptodate(x) &&
                 (public[x] == syncing || public[x] == waiting) -> x : next_sync)
  }
  next_sync = (serves || returns -> next_sync : TARGETS);
  for (i : 0 .. TARGETS - 1) {
    gone = is_offline(i, only);
    if
    :: public[i] == lastsrv -> next[i] = (serves -> offline : (gone -> lastsrv : serving))
    :: public[i] == serving ->
       next[i] = (!gone -> serving : (!serves && i == heir -> lastsrv : offline))
    :: public[i] == syncing || public[i] == waiting ->
       next[i] = (gone -> offline : (is_uptodate(i) && public[i] == syncing -> serving :
                  (i == next_sync -> syncing : waiting)))
    :: public[i] == offline -> next[i] = (gone -> offline : waiting)
    fi
  }
  publish()
}

inline publish() {
  gone = 0; /* here: something has changed */
  heir = 0; /* here: how many serve or are lastsrv */
  next_sync = 0;
  for (i : 0 .. TARGETS - 1) {
    gone = gone || public[i] != next[i];
    public[i] = next[i];
    next[i] = order[i];
    heir = heir + (public[i] == serving || public[i] == lastsrv);
    next_sync = next_sync + (public[i] == syncing)
  }
  assert(heir > 0 && next_sync <= 1);
  last = 0;
  for (j : serving .. offline) {
    for (i : 0 .. TARGETS - 1) {
      if
      :: public[next[i]] == j -> order[last] = next[i]; last++
      :: else
      fi
    }
  }
  if
  :: gone -> chain_version++; outdate_copies()
  :: else
  fi;
  confirm()
}

#define is(t, what) (public[t] == what)
#define died(t) (!lives(t) && (is(t, serving) || is(t, syncing) || is(t, waiting)))
#define news(t) \
  (fresh(t) && (is(t, lastsrv) || is(t, offline)) || is(t, syncing) && is_uptodate(t) || \
   is(t, waiting) && none(syncing) && !none(serving))
#if TARGETS > 2
#define none(what) (!is(0, what) && !is(1, what) && !is(2, what))
#define several_died (died(0) + died(1) + died(2) > 1)
#define any_news (news(0) || news(1) || news(2))
#else
#define none(what) (!is(0, what) && !is(1, what))
#define several_died (died(0) && died(1))
#define any_news (news(0) || news(1))
#endif

proctype manager() {
  do
  :: over -> break
  :: d_step { any_news -> step(TARGETS + 1) }
  :: d_step { several_died -> step(TARGETS) }
  :: d_step { died(0) -> step(0) }
  :: d_step { died(1) -> step(1) }
#if TARGETS > 2
  :: d_step { died(2) -> step(2) }
#endif
  od
}

/* The process of a target dies, and another takes its place once nobody counts on the old one. */
proctype process(byte t) {
  do
  :: over -> break
  :: d_step {
       crashes > 0 && online[t] ->
       crashes--;
       online[t] = 0;
       known[t] = 0;
       state[t] = offline;
       head[t] = 0;
       successor[t] = t;
       tail[t] = t;
       since[t] = 0;
       acknowledged[t] = 0;
       copying[t] = 0;
       copied[t] = 0;
       refuse_copies(t);
#ifdef BUG_RESULTS_FORGOTTEN
       result[t * 2] = 0;
       result[t * 2 + 1] = 0;
#endif
     }
  :: d_step {
       !online[t] && (is(t, lastsrv) || is(t, offline)) ->
       online[t] = 1;
       refresh(t);
#ifdef BUG_LASTSRV_DROPS_PENDING
       drop_pending(t)
#endif
     }
  od
}

/* When nothing can happen any more: all is done, and all are equal. */
proctype quiet() {
  timeout ->
  d_step {
    for (i : 0 .. TARGETS - 1) {
      assert(online[i] && public[i] == serving && since[i] == 0);
      assert(committed[i] == WRITES && !pending[i]);
      for (j : 1 .. WRITES) {
        assert(answered[j] && RESULT(i, j) >= COMMITTED(j))
      }
    }
    over = 1
  }
}

init {
  atomic {
    d_step {
      for (last : 0 .. TARGETS - 1) {
        order[last] = last;
        public[last] = serving;
        online[last] = 1;
        state[last] = serving
      }
      for (last : 0 .. TARGETS - 1) {
        refresh(last)
      }
      last = 0
    }
    select(crashes : 0 .. CRASHES);
    for (n : 0 .. TARGETS - 1) {
      run target(n);
      run read(n);
      run process(n)
    }
    for (n : 1 .. WRITES) {
      run write(n)
    }
    run manager();
    run quiet()
  }
}
