/*
 * One execution and one effect of it: lease, fence, intent, doubt, decision, outcome.
 *
 * Every `inline` below that bears the word STATEMENT is one SQL statement of airflow_aiflow/storage/sql and one commit;
 * README.md says which. Between two statements anything may happen: another attempt's statement, a crash (`goto gone`), a
 * freeze of any length (nothing but other processes run). A lease lapses whenever that makes trouble: a newcomer may take
 * over at any time. The target applies a call or refuses it, and the answer may be lost.
 *
 *   POLICY      0 ask   1 hold   2 retry   3 reconcile, then ask
 *   MAXP        processes in all: attempts, resumptions, second processes of one attempt
 *   MAXTI       task instances: tries and clears
 *
 * What may be switched on or off, each for one run of tools/verify.py:
 *   NOFENCE     statements do not test the fence              UNLOCKED     the test reads and does not lock
 *   SINGLEROW   an outcome counts on the current intent only  OPENONLY     an outcome counts on an open intent only
 *   MIDKILL     the watchdog ends an attempt in mid-act       NOSEEN       a take-over does not name the fence it saw
 *   ANYDOUBT    a decision names no intent                    FIRSTFORM    the form keeps its first question
 *   NONUMBER    ... and its choices bear no number            SKIPOPEN     recovery skips an open intent
 *   QUIET       a double is not noted                         STRICT       applied at most once, with truthful people
 *   VERIFIED    nobody decides before the owner is dead       DEDUP        the target dedups by our key
 *   RECOVERY    no retries are left: recovery alone brings an execution back
 *   SURE        the probe can always tell
 *   RELEASE     a person may release a success once           NOP5         (with NOFENCE: look for more than P5)
 */
#ifndef POLICY
#define POLICY 0
#endif
#ifndef MAXP
#define MAXP 3
#endif
#ifndef MAXTI
#define MAXTI 3
#endif
#define MAXI 4 /* intents: more than can be written by MAXP processes within the budget of words */

/* The states of an effect, in the order of the database's type. */
#define NONE 0
#define INTENDED 1
#define IN_DOUBT 2
#define FAILED 3
#define SUCCEEDED 4
#define RELEASED 5

/* Outcomes of an intent, decisions about one. */
#define NO 0
#define YES 1
#define NOT_APPLIED 2
#define HAPPENED 1
#define AGAIN 2 /* a person's or a probe's "did not happen", a policy's "retry" */
#define UNSURE 3

#ifdef SKIPOPEN
#define BROUGHT_BACK (state != INTENDED && state != IN_DOUBT)
#else
#define BROUGHT_BACK true
#endif

#ifdef NOFENCE
#define OURS(f) true
#else
#define OURS(f) (fence == f)
#endif

/* --- the ledger --- */
byte fence = 0, last_ti = 0; /* of the execution's row */
bool ended_well = false, ended_badly = false;
byte state = NONE, current = 0, repeated = 0; /* of the effect's row */
bool twice = false;
byte outcome[MAXI + 1], decision[MAXI + 1], of_repeat[MAXI + 1]; /* of the intents' rows */
byte intents = 0;
bool asked = false; /* of the inbox */
byte asked_about = 0;

/* --- around it --- */
byte alive = 0, started = 0, asked_ti = 0, form = 0;

/* --- what only the checker sees --- */
byte allowed = 1, applied = 0, words = 0; /* calls that still may be made; at most 2 counts of the other */
bool called[MAXI + 1], may_call[MAXI + 1], brought[MAXI + 1];
bool released = false, second = false;

/* STATEMENT take_over. P0: the sign was read on the fence that the statement names, so no older try gets in. */
inline take_over(ti, seen, f, ok) {
    d_step {
        ok = false;
        if
#ifdef NOSEEN
        :: true ->
#else
        :: fence == seen ->
#endif
            assert(ti >= last_ti);
            fence++; f = fence; last_ti = ti; ended_well = false; ended_badly = false; ok = true
        :: else
        fi
    }
}

/* STATEMENT intend. P2: never on a success. P5: a superseded attempt starts nothing. */
inline intend(f, seen, own, ok) {
    d_step {
        ok = false;
        if
#ifdef UNLOCKED
        :: held && current == seen && intents < MAXI && (state == NONE || state == FAILED || state == RELEASED) ->
#else
        :: OURS(f) && current == seen && intents < MAXI && (state == NONE || state == FAILED || state == RELEASED) ->
#endif
#ifndef NOP5
            assert(fence == f);
#endif
            assert(state != SUCCEEDED);
            if :: state == RELEASED -> repeated++ :: else fi;
            intents++; own = intents; current = own; state = INTENDED;
            of_repeat[own] = repeated; may_call[own] = true; ok = true
        :: else
        fi
    }
}

/* STATEMENT doubt. */
inline doubt(f, i) {
    d_step { if :: OURS(f) && current == i && state == INTENDED -> state = IN_DOUBT :: else fi }
}

/* STATEMENT decide. P6: a decision about an intent moves that intent's effect only while it is the current one. */
inline decide(f, i, what) {
    d_step {
        if
#ifdef ANYDOUBT
        :: OURS(f) && state == IN_DOUBT ->
#else
        :: OURS(f) && state == IN_DOUBT && current == i && decision[i] == NO && outcome[i] == NO ->
#endif
            assert(current == i);
            decision[current] = what;
            if :: what == HAPPENED -> state = SUCCEEDED
               :: else -> state = FAILED; if :: called[i] -> allowed++; called[i] = false :: else fi
            fi
        :: else
        fi
    }
}

/* STATEMENT resolve: a person's word about the intent `i`, needing no lease; `meant` is the intent that was looked at. */
inline resolve(i, meant, what) {
    d_step {
        if
#ifdef ANYDOUBT
        :: state == IN_DOUBT ->
#else
        :: (state == IN_DOUBT || state == INTENDED) && current == i && decision[i] == NO && outcome[i] == NO ->
#endif
            assert(current == meant);
            decision[current] = what;
            if :: what == HAPPENED -> state = SUCCEEDED
               :: else -> state = FAILED; if :: called[current] -> allowed++; called[current] = false :: else fi
            fi
        :: else
        fi
    }
}

/* STATEMENT settle. P3: an outcome that a live process brings is kept, whatever the state, from any fence. */
inline settle(i, what) {
    d_step {
        brought[i] = true;
        if
#ifdef SINGLEROW
        :: current != i -> skip
#endif
#ifdef OPENONLY
        :: !(current == i && state == INTENDED) -> skip
#endif
        :: outcome[i] == NO ->
            outcome[i] = what; brought[i] = false;
#ifndef QUIET
            /* The double first, for it is judged on the state as it was. */
            if
            :: what == YES && (of_repeat[i] != repeated || state >= SUCCEEDED) ->
                if :: decision[i] != HAPPENED -> twice = true :: else fi
            :: what == YES && of_repeat[i] == repeated && state < FAILED && i != current -> twice = true
            :: else
            fi;
#endif
            if
            :: what == YES && of_repeat[i] == repeated && state < SUCCEEDED -> state = SUCCEEDED
            :: what == NOT_APPLIED && i == current && state < FAILED ->
                state = FAILED;
                if :: called[i] -> allowed++; called[i] = false :: else fi
            :: else
            fi
        :: else
        fi
    }
}

/* STATEMENT ask. */
inline ask(f, ti, i) {
    d_step {
        if
        :: OURS(f) ->
#ifdef FIRSTFORM
            if :: form == 0 -> form = i :: else fi;
#else
            form = i;
#endif
            asked = true; asked_about = i; asked_ti = ti
        :: else
        fi
    }
}

/* STATEMENT finish. */
inline finish(f, good) {
    d_step { if :: OURS(f) -> ended_well = good; ended_badly = !good :: else fi }
}

/* STATEMENT release. */
inline release() {
    d_step { if :: state == SUCCEEDED -> state = RELEASED; allowed++ :: else fi }
}

inline start(ti) { started++; alive++; run Attempt(ti) }

proctype Attempt(byte ti)
{
    byte f = 0, own = 0, about = 0, what = 0;
    bool ok = false, held = false;

look_at_execution: /* standing.sql, and the sign; then the wait for the owner, of any length */
    atomic {
        about = fence; ok = (ti >= last_ti);
        if :: ok -> ok = false :: else -> goto gone fi
    };
    atomic {
        take_over(ti, about, f, ok);
        about = 0;
        if :: ok -> ok = false :: else -> goto look_at_execution fi
    };

look: /* effect_by_identity.sql */
    atomic {
        if :: goto gone :: skip fi;
        about = current;
        if
        :: state == SUCCEEDED -> goto end
        :: state == NONE || state == FAILED || state == RELEASED -> goto begin
        :: state == INTENDED -> skip
        :: state == IN_DOUBT -> goto policy
        fi
    };
    atomic { doubt(f, about); about = 0; goto boundary };

end:
    atomic { finish(f, true); goto gone };

policy:
    atomic {
        if :: goto gone :: skip fi;
#if POLICY == 0
        ask(f, ti, about); goto gone /* parked: slot and lease given back */
#elif POLICY == 1
        finish(f, false); goto gone /* a person decides on the command line, then clears */
#elif POLICY == 2
        decide(f, about, AGAIN); about = 0; goto boundary
#else
        /* The probe is a moment of its own, and what it saw may be old when it is written down. */
        if
        :: applied > 0 -> what = HAPPENED
#ifdef VERIFIED
        :: applied == 0 && !may_call[about] -> what = AGAIN
#else
        :: applied == 0 -> what = AGAIN
#endif
#ifndef SURE
        :: what = UNSURE /* it may fail: can't tell */
#endif
#ifdef VERIFIED
        :: applied == 0 && may_call[about] -> what = UNSURE /* its no is not trusted yet */
#endif
        fi
#endif
    };
#if POLICY == 3
    atomic {
        if :: goto gone :: skip fi;
        if
        :: what == UNSURE -> ask(f, ti, about); goto gone
        :: else -> decide(f, about, what); what = 0; about = 0
        fi
    };
#endif

boundary: /* between two units a superseded attempt ends */
    atomic {
        if
        :: fence == f -> goto look
        :: fence != f -> goto gone
#ifdef NOFENCE
        :: goto look
#endif
        fi
    };

begin:
#ifdef UNLOCKED
    held = (fence == f);
#endif
    atomic {
        intend(f, about, own, ok);
        about = 0;
        if :: ok -> ok = false :: else -> goto boundary fi
    };
#ifdef MIDKILL
    if :: fence != f -> goto gone :: skip fi;
#endif
    if
    :: goto gone
    :: atomic { may_call[own] = false; settle(own, NOT_APPLIED); goto boundary } /* the last look: too late to call */
    :: atomic {
        /* The call. P1: each beyond the first has a word for it. P1S: with STRICT, never applied twice. */
        may_call[own] = false;
        if
        :: decision[own] == AGAIN -> skip /* decided while this was frozen: the word is for this call as well */
        :: else -> assert(allowed > 0); allowed--; called[own] = true
        fi;
        if
        :: what = YES;
#ifdef DEDUP
           applied = 1
#else
           if :: applied < 2 -> applied++ :: else fi
#endif
        :: what = NOT_APPLIED /* surely refused */
        fi;
#ifdef STRICT
        assert(applied <= 1)
#endif
        }
    fi;
    if
    :: goto gone /* it dies, the answer with it */
    :: atomic { doubt(f, own); about = own; what = 0; goto policy } /* it lives, and does not know */
#ifdef MIDKILL
    :: atomic { fence != f -> brought[own] = true; goto gone }
#endif
    :: atomic { settle(own, what); what = 0; goto boundary }
    fi;

gone:
    atomic {
        alive--;
        if :: own > 0 -> may_call[own] = false :: else fi;
        f = 0; own = 0; about = 0; what = 0; ok = false; held = false
    }
}

/* Airflow, and people. */
active proctype World()
{
    byte ti = 1, i, n, what;
    atomic { start(1) };
    do
#ifdef RECOVERY
    :: atomic {
        alive == 0 && !ended_well && !ended_badly && !asked && ti < MAXTI && started < MAXP && BROUGHT_BACK ->
        ti++; start(ti)
    }
#else
    /* A retry, a clear of whatever state, a second scheduler, a requeue: at any moment. */
    :: atomic { ti < MAXTI && started < MAXP -> ti++; start(ti) }
#endif
    /* The same try once more, beside the first. */
    :: atomic { !second && started < MAXP -> second = true; start(last_ti) }
#ifdef RELEASE
    :: atomic { state == SUCCEEDED && !released -> released = true; release() }
#endif
    /* A person answers what the form shows; mistaken, unless STRICT. */
    :: atomic {
        asked && started < MAXP && words < 2 ->
        words++;
        if
        :: applied > 0 -> what = HAPPENED
#ifdef STRICT
  #ifdef VERIFIED
        :: applied == 0 && !may_call[form] -> what = AGAIN
  #else
        :: applied == 0 -> what = AGAIN
  #endif
#else
        :: what = AGAIN
#endif
        :: what = UNSURE /* "fail the task" */
        fi;
        asked = false;
        if
        :: what == UNSURE -> ended_badly = true
        :: else ->
#ifdef NONUMBER
            resolve(asked_about, form, what);
#else
            resolve(form, form, what);
#endif
            start(asked_ti)
        fi
    }
#ifdef ANYDOUBT
    /* The same answer once more: a double click, two people, a form sent again. */
    :: atomic { words == 1 && started < MAXP -> words = 2; resolve(form, form, AGAIN) }
#endif
#if POLICY == 1
    :: atomic {
        state == IN_DOUBT ->
        if
        :: applied > 0 -> what = HAPPENED
        :: applied == 0 -> what = AGAIN
        fi;
        resolve(current, current, what);
        if :: ti < MAXTI && started < MAXP -> ti++; start(ti) :: else fi
    }
#endif
    :: timeout -> break
    od;

    /* At rest. P3: nothing that was brought is missing. P7: two successes of one repeat are known as such. */
    atomic {
        for (i : 1 .. MAXI) { assert(!brought[i]) }
        n = 0;
        for (i : 1 .. MAXI) { if :: outcome[i] == YES && of_repeat[i] == 0 -> n++ :: else fi }
        assert(n < 2 || twice);
#ifdef RECOVERY
        /* P4: what is open has been decided, or a person was asked or told, or this model's budget is used up. */
        assert(!((state == INTENDED || (state == IN_DOUBT && POLICY != 1)) && !asked && !ended_badly
                 && started < MAXP && ti < MAXTI))
#endif
    }
}
