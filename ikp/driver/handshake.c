/* A handshake from its kernel's launch to the last answer, without Python's lock: a thread that
 * computes in Python gives the lock away after 5 ms only, when the kernel has given up. */

#include <stdint.h>
#include <time.h>

typedef int (*launcher)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, void *stream, void **parameters, void **extra);

static int64_t now(clockid_t which) {
    struct timespec read;
    clock_gettime(which, &read);
    return (int64_t)read.tv_sec * 1000000000 + read.tv_nsec;
}

/* Waits until a word is not 0; returns whether it is in time. */
static int comes(const uint64_t *word, int64_t patience_ns) {
    int64_t until = now(CLOCK_MONOTONIC) + patience_ns;
    do {
        for (int spin = 0; spin < 16; spin++)
            if (__atomic_load_n(word, __ATOMIC_ACQUIRE)) return 1;
    } while (now(CLOCK_MONOTONIC) < until);
    return 0;
}

/* Launches the kernel, where there is a launcher, waits until it runs, and asks it: each question
 * stagger_ns later behind the answer before it than the last one was.
 *
 * words: the number of the question, the kernel's start, and an answer to each question.
 * found: CLOCK_REALTIME before each question, and after its answer.
 * Returns how many were answered; -1 - the driver's error where it refuses to launch. */
int64_t ikp_handshake(uint64_t *words, int64_t rounds, int64_t patience_ns, int64_t stagger_ns,
                      launcher launch, void *function, void *stream, void **parameters,
                      int64_t *found) {
    if (launch) {
        int error = launch(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0);
        if (error) return -1 - (int64_t)error;
    }
    if (!comes(words + 1, patience_ns)) return 0;
    for (int64_t round = 0; round < rounds; round++, found += 2) {
        int64_t due = now(CLOCK_MONOTONIC) + round * stagger_ns;
        while (now(CLOCK_MONOTONIC) < due);
        found[0] = now(CLOCK_REALTIME);
        __atomic_store_n(words, (uint64_t)round + 1, __ATOMIC_RELEASE);
        if (!comes(words + 2 + round, patience_ns)) return round;
        found[1] = now(CLOCK_REALTIME);
    }
    return rounds;
}
