/* Time a launch: an event before it and one behind it, both in its stream, with no time of the host between.

   An idle GPU reaches the first event at once, and then waits for the launch. So where a stream is empty,
   a function of the host is queued first, for which the GPU waits: it ends once both events and the launch
   are queued, but no later than HELD_NS. It has to end by itself: the driver may wait for the GPU in the
   launch, to load code, or in another thread, with a lock that the launch needs. */
#include "timing.h"
#include <time.h>

enum { HELD_NS = 1000000, STEP_NS = 10000, HOLDS = 64 };

static __thread Handle before, after; /* events of this thread's next launch */
static __thread uintptr_t held;       /* the number of this thread's hold; 0 for none */
static uintptr_t holds;               /* that were begun */
static uintptr_t let_go[HOLDS];       /* by a hold's number modulo HOLDS: the last one that is to end */

SEEN(ikp_time_next)(Handle first, Handle last) {
    before = first;
    after = last;
    return 0;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Keep a stream until its hold is let go, HELD_NS at most: called by the driver, in a thread of its own. */
static void hold(void *number) {
    uintptr_t *ended = &let_go[(uintptr_t)number % HOLDS];
    int64_t until = now_ns() + HELD_NS;
    while (__atomic_load_n(ended, __ATOMIC_ACQUIRE) < (uintptr_t)number && now_ns() < until)
        nanosleep(&(struct timespec){0, STEP_NS}, NULL);
}

static void release(void) {
    if (held) __atomic_store_n(&let_go[held % HOLDS], held, __ATOMIC_RELEASE);
    held = 0;
}

/* Return whether the driver answers a question about a stream or an event with success; ``otherwise`` where
   it can't be asked. Captures of other threads forbid such questions, unless this thread's are relaxed. */
static int agrees(const char *question, Handle about, int otherwise) {
    Result (*ask)(Handle), (*exchange)(int *);
    int mode = 2; /* CU_STREAM_CAPTURE_MODE_RELAXED */
    *(void **)&ask = dlsym(real, question);
    *(void **)&exchange = dlsym(real, "cuThreadExchangeStreamCaptureMode");
    if (!ask || !exchange || exchange(&mode)) return otherwise;
    int agreed = !ask(about);
    exchange(&mode);
    return agreed;
}

static void hold_if_empty(Handle stream) {
    Result (*call)(Handle, void (*)(void *), void *);
    *(void **)&call = dlsym(real, "cuLaunchHostFunc");
    if (!call || !agrees("cuStreamQuery", stream, 0)) return;
    uintptr_t number = __atomic_add_fetch(&holds, 1, __ATOMIC_RELAXED);
    if (!call(stream, hold, (void *)number)) held = number;
}

static void mark(Handle event, Handle stream) {
    Result (*record)(Handle, Handle);
    *(void **)&record = dlsym(real, "cuEventRecord");
    if (record) record(event, stream);
}

Handle mark_begin(Handle stream) {
    Handle first = before;
    before = NULL;
    if (!first) return NULL;
    hold_if_empty(stream);
    mark(first, stream);
    return first;
}

/* Where the first event has happened, the GPU waited for the launch: the time from there would be the host's,
   too. It is recorded again then, behind the second one: no time. */
void mark_end(Handle first, Handle stream) {
    Handle last = after;
    after = NULL;
    if (!first) return;
    int late = agrees("cuEventQuery", first, 1);
    mark(last, stream);
    if (late) mark(first, stream);
    release();
}
