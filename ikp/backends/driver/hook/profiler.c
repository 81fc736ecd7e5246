/* cuProfilerStart and cuProfilerStop: a program says which part of its run a profiler is to record. */
#include "launch.h"

#define CALL(name, what)                        \
    static Result (*real_##name)(void);         \
    SEEN(name)(void) {                          \
        NEED(name);                             \
        notify(&(Launch){.node = what});        \
        return real_##name();                   \
    }

CALL(cuProfilerStart, PROFILER_STARTS)
CALL(cuProfilerStop, PROFILER_STOPS)
