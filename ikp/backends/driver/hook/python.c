/* The call of ikp's Python code for a launch; exceptions raised meanwhile (Ctrl-C, signal handlers) are
   raised anew later.

   Python has no way to raise through the C and C++ that launches a kernel. An exception that was raised
   meanwhile is raised anew where the thread is back in Python. In the main thread, in which handlers of
   signals run, it is the same object. In another thread, to which another one has sent it, it is a new
   one of its type. */
#include "launch.h"

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

/* Have Python know that the program has called C's exit(): Python's own end asks no more, and does
   not come here. Handlers run in the opposite order of their registration: before destructors of
   what was loaded earlier. */
static void at_exit(void) {
    notify(&(Launch){.node = EXIT});
}

SEEN(ikp_watch_exit)(void) { return atexit(at_exit); }

/* --- forks ------------------------------------------------------------------------------------ */

/* Another thread may be changing the table, or hold the lock, as this one forks. */
static void before_fork(void) { pthread_rwlock_wrlock(&lock); }
static void in_parent(void) { pthread_rwlock_unlock(&lock); }
static void in_child(void) {
    static const pthread_rwlock_t fresh = PTHREAD_RWLOCK_INITIALIZER;
    lock = fresh;
    whom = NULL;
}

__attribute__((constructor)) static void begin(void) {
    real = dlopen(IKP_REAL, RTLD_LAZY | RTLD_NOLOAD);
    pthread_atfork(before_fork, in_parent, in_child);
}
