/* cuGetProcAddress: programs that look up functions of the driver get those of this library. */
#include "known.h"

#define PER_THREAD_FLAG 2

#define BOTH(each)                                                                           \
    each(cuLaunchKernel) each(cuLaunchKernelEx) each(cuLaunchCooperativeKernel)              \
    each(cuStreamEndCapture) each(cuStreamBeginCaptureToGraph)
#define ONE(each)                                                                            \
    each(cuModuleLoadData) each(cuModuleLoadFatBinary) each(cuModuleLoadDataEx)              \
    each(cuLibraryLoadData) each(cuModuleLoad) each(cuLibraryLoadFromFile)                   \
    each(cuModuleGetFunction) each(cuLibraryGetKernel) each(cuLibraryGetModule)              \
    each(cuKernelGetFunction) each(cuModuleEnumerateFunctions)                               \
    each(cuLibraryEnumerateKernels) each(cuFuncGetModule) each(cuModuleUnload)               \
    each(cuLibraryUnload) each(cuCtxDetach) each(cuDevicePrimaryCtxRetain)                   \
    each(cuCtxFromGreenCtx) each(cuGreenCtxDestroy) each(cuFuncSetCacheConfig)               \
    each(cuKernelSetCacheConfig) each(cuFuncSetSharedMemConfig) each(cuFuncSetAttribute)     \
    each(cuKernelSetAttribute) each(cuGraphNodeGetParams) each(cuProfilerStart)              \
    each(cuProfilerStop) each(cuGraphGetNodes) each(cuGraphGetRootNodes)
/* Functions with a second version, each with the first version of CUDA that has it. */
#define SECOND(each)                                                                         \
    each(cuCtxDestroy, 4000) each(cuDevicePrimaryCtxRelease, 11000)                          \
    each(cuDevicePrimaryCtxReset, 11000) each(cuGraphAddKernelNode, 12000)                   \
    each(cuGraphKernelNodeGetParams, 12000) each(cuGraphAddNode, 12030)                      \
    each(cuGraphGetEdges, 12030) each(cuGraphNodeGetDependencies, 12030)                     \
    each(cuGraphNodeGetDependentNodes, 12030)

/* Those with both. */
#define ALL_FOUR(each) each(cuStreamBeginCapture, 10010)

#define DECLARE(name) SEEN(name)(void);
#define DECLARE_BOTH(name) SEEN(name)(void); SEEN(name##_ptsz)(void);
#define DECLARE_SECOND(name, since) SEEN(name)(void); SEEN(name##_v2)(void);
#define DECLARE_FOUR(name, since) DECLARE_BOTH(name) SEEN(name##_v2)(void); SEEN(name##_v2_ptsz)(void);
ONE(DECLARE) BOTH(DECLARE_BOTH) SECOND(DECLARE_SECOND) ALL_FOUR(DECLARE_FOUR)

static const struct {
    const char *name;
    void *plain, *per_thread, *second;
    int since;
    void *second_per_thread;
} own[] = {
#define ROW(name) {#name, (void *)name, (void *)name, (void *)name, 0, NULL},
#define ROW_BOTH(name) {#name, (void *)name, (void *)name##_ptsz, NULL, 0, NULL},
#define ROW_SECOND(name, since) {#name, (void *)name, (void *)name, (void *)name##_v2, since, (void *)name##_v2},
#define ROW_FOUR(name, since) {#name, (void *)name, (void *)name##_ptsz, (void *)name##_v2, since, (void *)name##_v2_ptsz},
    ONE(ROW) BOTH(ROW_BOTH) SECOND(ROW_SECOND) ALL_FOUR(ROW_FOUR)
};

static void replace(const char *name, void **made, int version, uint64_t flags) {
    int per_thread = (flags & PER_THREAD_FLAG) != 0;
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(name, own[i].name)) continue;
        if (own[i].since && version >= own[i].since)
            *made = per_thread ? own[i].second_per_thread : own[i].second;
        else
            *made = per_thread ? own[i].per_thread : own[i].plain;
    }
}

SEEN(cuGetProcAddress_v2)(const char *, void **, int, uint64_t, int *);

static Result (*real_cuGetProcAddress)(const char *, void **, int, uint64_t);
SEEN(cuGetProcAddress)(const char *name, void **made, int version, uint64_t flags) {
    NEED(cuGetProcAddress);
    Result result = real_cuGetProcAddress(name, made, version, flags);
    if (result || !made || !*made) return result;
    replace(name, made, version, flags);
    if (!strcmp(name, "cuGetProcAddress"))
        *made = version < 12000 ? (void *)cuGetProcAddress : (void *)cuGetProcAddress_v2;
    return result;
}

static Result (*real_cuGetProcAddress_v2)(const char *, void **, int, uint64_t, int *);
SEEN(cuGetProcAddress_v2)(const char *name, void **made, int version, uint64_t flags, int *status) {
    NEED(cuGetProcAddress_v2);
    Result result = real_cuGetProcAddress_v2(name, made, version, flags, status);
    if (result || !made || !*made) return result;
    replace(name, made, version, flags);
    if (!strcmp(name, "cuGetProcAddress"))
        *made = version < 12000 ? (void *)cuGetProcAddress : (void *)cuGetProcAddress_v2;
    return result;
}
