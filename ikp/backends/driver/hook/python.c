/* The call of ikp's Python code for a launch; exceptions raised meanwhile (Ctrl-C, signal handlers) are
   raised anew later.

   Python has no way to raise through the C and C++ that launches a kernel. An exception that was raised
   meanwhile is raised anew where the thread is back in Python. In the main thread, in which handlers of
   signals run, it is the same object. In another thread, to which another one has sent it, it is a new
   one of its type. */
#include "launch.h"

#include <execinfo.h>

static Python python;
static void *volatile whom;

int asking(void) { return whom != NULL && !inside; }

static int raise_kept(void *exception) {
    void *type = python.type_of(exception);
    python.set(type, exception);
    python.decref(type);
    python.decref(exception);
    return -1;
}

static void keep(void) {
    void *type = NULL, *exception = NULL, *traceback = NULL;
    unsigned long thread = python.thread();
    python.fetch(&type, &exception, &traceback);
    python.normalize(&type, &exception, &traceback);
    if (exception && traceback) python.set_traceback(exception, traceback);
    if (!exception || thread != python.main || python.pending(raise_kept, exception)) {
        python.strike(thread, type);
        if (exception) python.decref(exception);
    }
    if (type) python.decref(type);
    if (traceback) python.decref(traceback);
}

int ask(void *about) {
    int state = python.ensure(), answered = 0;
    inside++;
    if (whom) {
        void *address = python.from_address(about);
        void *answer = address ? python.call(whom, address, NULL) : NULL;
        answered = answer != NULL;
        if (!answer) keep();
        if (answer) python.decref(answer);
        if (address) python.decref(address);
    }
    inside--;
    python.release(state);
    return answered;
}

void notify(void *about) {
    if (asking()) ask(about);
}

SEEN(ikp_ask)(void *callable, const Python *functions) {
    if (functions) python = *functions;
    whom = callable;
    return 0;
}

/* --- the end ---------------------------------------------------------------------------------- */

enum { DEPTH = 12, EACH = 1024 };
extern void *__dso_handle __attribute__((visibility("hidden")));
extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *) __attribute__((weak));

static int reported;

/* Have Python know, once, that the program has called C's exit(): Python's own end asks no more, and does
   not come here. */
static void at_exit(void) {
    Launch about = {.node = EXIT};
    if (asking() && !__atomic_exchange_n(&reported, 1, __ATOMIC_SEQ_CST)) ask(&about);
}

/* Whether exit() ends this thread's variables, and not the end of the thread. */
static int in_exit(void) {
    void *frames[DEPTH];
    Dl_info about;
    int count = backtrace(frames, DEPTH);
    for (int i = 0; i < count; i++)
        if (dladdr((char *)frames[i] - 1, &about) && about.dli_sname &&
            !strcmp(about.dli_sname, "exit"))
            return 1;
    return 0;
}

static void at_end(void *unused) {
    (void)unused;
    if (in_exit()) at_exit();
}

/* exit() ends its thread's variables first; then it calls what atexit() has registered, the latest first.
   So a variable of a thread that launches comes before all destructors. Where another thread calls
   exit(), what was first used after the latest registration is gone then, as each function of torch's
   has such an object: so this registers itself again and again. */
SEEN(ikp_watch_exit)(void) {
    static __thread int watched;
    static unsigned times;
    if (!watched && __cxa_thread_atexit_impl)
        watched = !__cxa_thread_atexit_impl(at_end, NULL, &__dso_handle);
    unsigned now = __atomic_fetch_add(&times, 1, __ATOMIC_RELAXED);
    if (!now) at_quick_exit(at_exit);
    return now % EACH && now > EACH ? 0 : atexit(at_exit);
}

/* --- forks ------------------------------------------------------------------------------------ */

/* Another thread may be changing the table, or hold the lock, as this one forks. */
static void before_fork(void) { pthread_rwlock_wrlock(&lock); }
static void in_parent(void) { pthread_rwlock_unlock(&lock); }
static void in_child(void) {
    static const pthread_rwlock_t fresh = PTHREAD_RWLOCK_INITIALIZER;
    lock = fresh;
    whom = NULL;
    reported = 0;
}

__attribute__((constructor)) static void begin(void) {
    real = dlopen(IKP_REAL, RTLD_LAZY | RTLD_NOLOAD);
    pthread_atfork(before_fork, in_parent, in_child);
}
