/* The kernel of handshakes, as a thread: launch starts it, serve runs it. A state is four words:
 * whether it is launched, whether no more will be, whether a thread holds Python's lock, and 1
 * where a launch waits for that, 2 once it is made. */

#include <stdint.h>
#include <time.h>
#include <unistd.h>

#define GET(word) __atomic_load_n(word, __ATOMIC_ACQUIRE)
#define SET(word, value) __atomic_store_n(word, (uint64_t)(value), __ATOMIC_RELEASE)

static int64_t now(void) {
    struct timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    return (int64_t)read.tv_sec * 1000000000 + read.tv_nsec;
}

/* What stands for cuLaunchKernel; the function says whether Python's lock is to be held first. */
int launch(void *function, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f,
           unsigned g, uint64_t *state, void **parameters, void **extra) {
    if (GET(state + 1)) return 700;
    SET(state + 3, 1);
    while (function && !GET(state + 2)) usleep(100);
    SET(state, 1);
    SET(state + 3, 2);
    return 0;
}

/* Holds Python's lock, if called with it, until so many ns after the kernel was launched. */
void hold(uint64_t *state, int64_t lasts_ns) {
    SET(state + 2, 1);
    while (GET(state + 3) != 2) usleep(100);
    usleep(lasts_ns / 1000);
}

/* Runs each kernel that is launched; it reads the host's word once in poll_ns. */
void serve(uint64_t *words, uint64_t *state, int64_t rounds, int64_t patience_ns, int64_t poll_ns) {
    while (!GET(state + 1)) {
        if (!GET(state)) {
            usleep(20);
            continue;
        }
        int64_t begin = now();
        SET(words + 1, begin);
        for (int64_t n = 1, last = begin; n <= rounds && now() - begin < patience_ns;) {
            for (last += poll_ns; now() < last;);
            if (GET(words) >= (uint64_t)n) SET(words + 1 + n, last = now()), n++;
        }
        SET(state, 0);
    }
}
