/* What the model of the driver, and programs that run on it, have in common. */
#pragma once
#include <stdint.h>

typedef int R;
enum { INVALID = 400, NO_RESOURCES = 701, FAILS = 999, MOST = 1 << 12 };
enum { CONTEXT = 1, GREEN, LIBRARY, MODULE, KERNEL, FUNCTION };

typedef struct Thing {
    int kind; /* 0: it is gone */
    struct Thing *of, *context, *inner;
    uint64_t number;
    int code, patched, cache, banks;
    int attributes[16];
    char name[8];
} Thing;

/* The last launch of a thread, and how many it has made. */
typedef struct {
    uint64_t times;
    int code, patched;
    Thing *function;
    char name[8];
    unsigned shared, attributes; /* by bits */
    void *stream;
} Ran;

/* CUlaunchConfig. */
typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    const unsigned (*attributes)[18];
    unsigned count;
} Config;
