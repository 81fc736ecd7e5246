/* The launch that the library asks Python about, and the counts of launches that it does not. */
#pragma once
#include "python.h"

enum { NODE = 1, CAPTURE_BEGINS, CAPTURE_ENDS, CAPTURE_INTO, /* NODE: a program puts it into a graph itself */
       PROFILER_STARTS, PROFILER_STOPS, RESET, EXIT };

#define PER_THREAD ((Handle)2)

/* A launch, as Python sees it (Launch in _hook.py). */
typedef struct {
    Handle function;
    uint64_t id;
    uint32_t grid[3], block[3];
    uint32_t shared, cooperative;
    Handle stream;
    uint32_t extensible; /* whether one more argument can be passed */
    uint32_t overlaps;   /* whether it may begin before the launch before it has ended */
    uint32_t node;       /* it is no launch, but one of these: */
    uint32_t refused;    /* the driver's error, where it did not launch the chosen function */
    Handle instead;      /* out: the function to launch */
    uint32_t decided;    /* out: never ask again for this function; count its launches in a slot: 1 + */
    uint32_t ordinal, offset, bytes; /* out: of one more argument; of 0 bytes: there is none */
    uint64_t argument[9];            /* out: that argument */
    void **params, **extra; /* arguments, as the program passes them: one by one, or in one buffer */
    const void *attributes;
    uint32_t count;     /* of attributes */
    uint32_t otherwise; /* the driver's error for the program's own function then */
    uint32_t replaces; /* out: how many of the kernel's own arguments, of a word each, it replaces */
} Launch;

enum { SLOTS = 1 << 16 };

void count(uint32_t slot);
