/* Buffers that were taken ahead, for launches that repeat a recorded one: Python is not asked about them. */
#pragma once
#include "launch.h"

enum { WORDS = 9 }; /* of the further argument */

/* Python's, which keeps it as long as it is held here (StockedLaunches in _hook.py). */
typedef struct Stock {
    struct Stock *next; /* of the same function's entry */
    Handle function;
    uint64_t id, context; /* of the entries of the function and of the context */
    uint64_t thread;
    Handle stream;
    uint32_t grid[3], block[3];
    uint32_t cooperative, extensible, ordinal, offset, bytes, replaces;
    Handle instead;       /* the copy with records */
    uint64_t changes;     /* at which that has the settings of the function */
    uint64_t revoked;     /* as ikp_revoked said when Python decided */
    uint64_t until;       /* CLOCK_MONOTONIC, in ns */
    uint32_t count, taken; /* buffers */
    uint64_t words[WORDS]; /* the further argument; its first word is a buffer's address */
    const uint64_t *addresses;
    int64_t *times; /* of launches that were made, in ns; REFUSED of those that were not */
} Stock;

enum { REFUSED = -1 };

extern uint64_t revoked;

/* Take a buffer for a launch; NULL where Python is to be asked. */
Stock *stocked(Launch *launch, uint32_t *number, int64_t *now);
