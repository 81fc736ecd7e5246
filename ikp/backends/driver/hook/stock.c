/* Stocks: launches that repeat a recorded one get a buffer without a question to Python.

   What Python asks at each launch is asked here: context, stream, thread, grid, settings, capture. What
   else may change revokes all stocks at once (ikp_revoke). A thread that takes a buffer holds the lock
   then. So after ikp_stock_end, no launch takes one; but one may be under way, of which no time is set. */
#include "stock.h"

#include <time.h>

uint64_t revoked = 1;
/* Python decides on this thread's launches, for so many reasons; but for the one launch of a function
   that it leaves to its stocks. Python's other calls inside that launch must take none. */
static __thread struct {
    uint32_t reasons;
    Handle left;
} aside;

SEEN(ikp_aside)(void **cell) {
    *cell = &aside;
    return 0;
}

SEEN(ikp_revoke)(void) {
    __atomic_add_fetch(&revoked, 1, __ATOMIC_SEQ_CST);
    return 0;
}

SEEN(ikp_revoked)(uint64_t *count) {
    *count = __atomic_load_n(&revoked, __ATOMIC_SEQ_CST);
    return 0;
}

/* Python's audit hook: a program that sets a variable of the environment may switch ikp off. */
SEEN(ikp_audited)(const char *event, void *arguments, void *about) {
    (void)arguments, (void)about;
    if (!strcmp(event, "os.putenv") || !strcmp(event, "os.unsetenv")) ikp_revoke();
    return 0;
}

/* Hold a stock: 0, or 1 where what it is for is gone. */
SEEN(ikp_stock)(Stock *made) {
    pthread_rwlock_wrlock(&lock);
    Known *each = find(made->function);
    int gone = !each || each->id != made->id;
    if (!gone) {
        made->next = each->stocks;
        each->stocks = made;
        launched_for(made->instead, each);
    }
    pthread_rwlock_unlock(&lock);
    return gone;
}

/* Hold a stock no more, as none does once its function's entry is dropped; return how many buffers
   were taken. */
SEEN(ikp_stock_end)(Stock *gone) {
    pthread_rwlock_wrlock(&lock);
    Known *each = find(gone->function);
    Stock **at = each ? &each->stocks : NULL;
    while (at && *at && *at != gone) at = &(*at)->next;
    if (at && *at) *at = gone->next;
    Result taken = (Result)gone->taken;
    pthread_rwlock_unlock(&lock);
    return taken;
}

static int is_like(const Stock *each, const Launch *launch) {
    return each->stream == launch->stream && !memcmp(each->grid, launch->grid, sizeof each->grid) &&
           !memcmp(each->block, launch->block, sizeof each->block) &&
           each->cooperative == launch->cooperative && each->extensible == launch->extensible &&
           each->thread == (uint64_t)pthread_self();
}

static int holds(const Stock *each, uint64_t now) {
    return each->taken < each->count && now < each->until &&
           each->changes == __atomic_load_n(&changes, __ATOMIC_ACQUIRE) &&
           each->revoked == __atomic_load_n(&revoked, __ATOMIC_SEQ_CST);
}

static int captures(Handle stream) {
    static Result (*ask)(Handle, int *);
    int status = 0;
    if (!ask) *(void **)&ask = dlsym(real, "cuStreamIsCapturing");
    return !ask || ask(stream, &status) || status;
}

Stock *stocked(Launch *launch, uint32_t *number, int64_t *time) {
    int left = aside.left && aside.left == launch->function;
    if ((aside.reasons && !left) || launch->overlaps || captures(launch->stream)) return NULL;
    Here at = here(); /* not with the lock: the driver has locks of its own */
    struct timespec clock;
    clock_gettime(CLOCK_MONOTONIC, &clock);
    *time = clock.tv_sec * 1000000000ll + clock.tv_nsec;
    pthread_rwlock_rdlock(&lock);
    Known *function = find(launch->function), *context = at.context ? find(at.context) : NULL;
    int same = function && function->id == launch->id && !is_quiet(function) &&
               !is_leaving(function) && context && context->kind == CONTEXT &&
               context->unique == at.unique && !is_leaving(context);
    Stock *each = same ? function->stocks : NULL;
    while (each && !(each->context == context->id && is_like(each, launch) &&
                     holds(each, (uint64_t)*time)))
        each = each->next;
    if (each) {
        *number = each->taken;
        __atomic_store_n(&each->taken, each->taken + 1, __ATOMIC_RELEASE);
        aside.left = NULL;
    }
    pthread_rwlock_unlock(&lock);
    return each;
}
