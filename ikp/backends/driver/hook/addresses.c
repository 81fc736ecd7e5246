/* cuGetProcAddress: programs that look up functions of the driver get those of this library. */
#include "known.h"

#define PER_THREAD_FLAG 2

#define BOTH(each) each(cuLaunchKernel) each(cuLaunchKernelEx) each(cuLaunchCooperativeKernel)
#define ONE(each)                                                                            \
    each(cuModuleLoadData) each(cuModuleLoadFatBinary) each(cuModuleLoadDataEx)              \
    each(cuLibraryLoadData) each(cuModuleLoad) each(cuLibraryLoadFromFile)                   \
    each(cuModuleGetFunction) each(cuLibraryGetKernel) each(cuLibraryGetModule)              \
    each(cuKernelGetFunction) each(cuModuleEnumerateFunctions)                               \
    each(cuLibraryEnumerateKernels) each(cuFuncGetModule) each(cuModuleUnload)               \
    each(cuLibraryUnload) each(cuCtxDetach) each(cuDevicePrimaryCtxRetain)                   \
    each(cuCtxFromGreenCtx) each(cuGreenCtxDestroy) each(cuFuncSetCacheConfig)               \
    each(cuKernelSetCacheConfig) each(cuFuncSetSharedMemConfig) each(cuFuncSetAttribute)     \
    each(cuKernelSetAttribute) each(cuGraphNodeGetParams)
/* Functions with a second version, each with the first version of CUDA that has it. */
#define SECOND(each)                                                                         \
    each(cuCtxDestroy, 4000) each(cuDevicePrimaryCtxRelease, 11000)                          \
    each(cuDevicePrimaryCtxReset, 11000) each(cuGraphAddKernelNode, 12000)                   \
    each(cuGraphKernelNodeGetParams, 12000) each(cuGraphAddNode, 12030)

#define DECLARE(name) SEEN(name)(void);
#define DECLARE_BOTH(name) SEEN(name)(void); SEEN(name##_ptsz)(void);
#define DECLARE_SECOND(name, since) SEEN(name)(void); SEEN(name##_v2)(void);
ONE(DECLARE) BOTH(DECLARE_BOTH) SECOND(DECLARE_SECOND)

static const struct {
    const char *name;
    void *plain, *per_thread, *second;
    int since;
} own[] = {
#define ROW(name) {#name, (void *)name, (void *)name, (void *)name, 0},
#define ROW_BOTH(name) {#name, (void *)name, (void *)name##_ptsz, NULL, 0},
#define ROW_SECOND(name, since) {#name, (void *)name, (void *)name, (void *)name##_v2, since},
    ONE(ROW) BOTH(ROW_BOTH) SECOND(ROW_SECOND)
};

static void replace(const char *name, void **made, int version, uint64_t flags) {
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(name, own[i].name))
            *made = own[i].since && version >= own[i].since ? own[i].second
                    : flags & PER_THREAD_FLAG               ? own[i].per_thread
                                                            : own[i].plain;
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
