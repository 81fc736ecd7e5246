/* A model of the CUDA driver: contexts, libraries, modules, kernels, functions, nodes of graphs.

   What is freed is given out again at once, whatever it was. What it launches, it notes. A file of
   128 bytes stands for machine code: its number, and whether ikp has put records into it. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

static Thing things[MOST];
static Thing *unused[MOST];
static int never_used, count_unused;
static uint64_t numbers = 1;
static Thing *primary;
static int retained;
static __thread Thing *current;
static __thread Ran ran;
static __thread int fail_in;

/* The lock of the model, which a thread may take again. The sanitizer does not see it: where the library
   rested on it, and not on its own, that is found. */
static char *owner;
static int depth;
static __thread char me;

static void take(void) {
    char *none = NULL;
    if (__atomic_load_n(&owner, __ATOMIC_RELAXED) != &me)
        while (!__atomic_compare_exchange_n(&owner, &none, &me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            none = NULL;
            sched_yield();
        }
    depth++;
}

static void give(void) {
    if (!--depth) __atomic_store_n(&owner, NULL, __ATOMIC_RELEASE);
}

static void in_child(void) {
    depth = 0;
    __atomic_store_n(&owner, NULL, __ATOMIC_RELEASE);
}
__attribute__((constructor)) static void begin(void) {
    pthread_atfork(take, give, in_child);
}

static int fails(void) { return fail_in && !--fail_in; }
void model_fail(int in) { fail_in = in; }
Ran *model_ran(void) { return &ran; }
Thing *model_current(void) { return current; }

static Thing *make(int kind, Thing *of, Thing *context) {
    take();
    if (!count_unused && never_used == MOST) abort();
    Thing *made = count_unused ? unused[--count_unused] : &things[never_used++];
    *made = (Thing){.kind = kind, .of = of, .context = context, .number = numbers++};
    memset(made->attributes, 0, sizeof made->attributes);
    made->cache = made->banks = -1;
    if (of) made->code = of->code, made->patched = of->patched;
    give();
    return made;
}

static void end(Thing *gone) {
    for (int i = 0; i < never_used; i++)
        if (things[i].kind && things[i].of == gone) end(&things[i]);
    gone->kind = 0;
    unused[count_unused++] = gone;
}

static void end_all_of(Thing *context) {
    for (int i = 0; i < never_used; i++)
        if (things[i].kind && things[i].context == context) end(&things[i]);
}

static void end_whole(Thing *thing) {
    take();
    if (thing->kind == CONTEXT) end_all_of(thing);
    end(thing);
    give();
}

static R gone(Thing *thing, int kind) {
    if (!thing || thing->kind != kind) return INVALID;
    if (fails()) return FAILS;
    end_whole(thing);
    /* Another thread gets the handles before the library knows that they are free. Without numbers, a
       context that has the handle of one that is being destroyed can't be told from it. */
#ifdef OLD
    if (kind == CONTEXT) return 0;
#endif
    sched_yield();
    return 0;
}

/* A signal that comes while no Python runs: as the library looks where it is. */
static __thread int comes;
void model_signal(int number) { comes = number; }

/* --- contexts --- */
R cuCtxGetCurrent(Thing **made) {
    int number = comes;
    comes = 0;
    if (number) raise(number);
    *made = current;
    return 0;
}
R cuCtxSetCurrent(Thing *context) { current = context; return 0; }
#ifndef OLD /* a driver before CUDA 12 */
R cuCtxGetId(Thing *context, unsigned long long *number) {
    if (!context) context = current;
    if (!context) return INVALID;
    *number = context->number;
    return 0;
}
#endif
R cuCtxGetDevice(int *device) { *device = 0; return 0; }
R cuCtxCreate(Thing **made, unsigned flags, int device) {
    (void)flags, (void)device;
    if (fails()) return FAILS;
    current = *made = make(CONTEXT, NULL, NULL);
    return 0;
}
R cuCtxDestroy_v2(Thing *context) {
    int others = context->inner || context == primary; /* these end in their own ways */
    R code = others ? INVALID : gone(context, CONTEXT);
    if (!code && current == context) current = NULL;
    return code;
}
R cuDevicePrimaryCtxRetain(Thing **made, int device) {
    (void)device;
    if (!primary) primary = make(CONTEXT, NULL, NULL);
    retained++;
    *made = primary;
    return 0;
}
static R end_primary(void) {
    R code = primary ? gone(primary, CONTEXT) : 0;
    if (code) return code;
    if (current == primary) current = NULL;
    primary = NULL;
    return 0;
}
R cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    if (!retained) return INVALID;
    if (retained > 1) return retained--, 0;
    R code = end_primary();
    if (!code) retained = 0;
    return code;
}
R cuDevicePrimaryCtxReset_v2(int device) {
    (void)device;
    R code = end_primary();
    if (!code) retained = 0;
    return code;
}
R cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = primary != NULL;
    return 0;
}
R cuGreenCtxCreate(Thing **made) { *made = make(GREEN, NULL, NULL); return 0; }
R cuCtxFromGreenCtx(Thing **made, Thing *green) {
    if (!green->inner) green->inner = make(CONTEXT, NULL, NULL), green->inner->inner = green;
    *made = green->inner;
    return 0;
}
R cuGreenCtxDestroy(Thing *green) {
    Thing *inner = green->inner;
    R code = gone(green, GREEN);
    if (code || !inner) return code;
    if (current == inner) current = NULL;
    end_whole(inner);
    return 0;
}

/* --- what is loaded --- */
static R load(Thing **made, int kind, const char *image) {
    if (fails() || (kind == MODULE && !current)) return FAILS;
    *made = make(kind, NULL, kind == MODULE ? current : NULL);
    memcpy(&(*made)->code, image + 64, 4);
    (*made)->patched = !memcmp(image + 80, "ikp_buffer", 10);
    return 0;
}
R cuModuleLoadData(Thing **made, const void *image) { return load(made, MODULE, image); }
R cuModuleLoadFatBinary(Thing **made, const void *image) { return load(made, MODULE, image); }
R cuModuleLoadDataEx(Thing **made, const void *image, unsigned n, void *options, void **values) {
    (void)values;
    return n && !options ? INVALID : load(made, MODULE, image);
}
R cuLibraryLoadData(Thing **made, const void *image, void *a, void **b, unsigned c, void *d,
                    void **e, unsigned f) {
    (void)b, (void)d, (void)e, (void)f;
    return c && !a ? INVALID : load(made, LIBRARY, image);
}
R cuModuleUnload(Thing *module) { return module->of ? INVALID : gone(module, MODULE); }
R cuLibraryUnload(Thing *library) { return gone(library, LIBRARY); }

/* A part that was given out before is given out again. */
static Thing *part(int kind, Thing *of, Thing *context, const char *name) {
    take();
    for (int i = 0; i < never_used; i++) {
        Thing *each = &things[i];
        if (each->kind == kind && each->of == of && each->context == context &&
            !strcmp(each->name, name)) {
            give();
            return each;
        }
    }
    Thing *made = make(kind, of, context);
    /* No call: the thread sanitizer watches those, and does not know this lock. */
    for (size_t i = 0; i + 1 < sizeof made->name && name[i]; i++) made->name[i] = name[i];
    give();
    return made;
}
R cuModuleGetFunction(Thing **made, Thing *module, const char *name) {
    if (fails()) return FAILS;
    *made = part(FUNCTION, module, module->context, name);
    return 0;
}
R cuLibraryGetKernel(Thing **made, Thing *library, const char *name) {
    if (fails()) return FAILS;
    *made = part(KERNEL, library, NULL, name);
    return 0;
}
R cuLibraryGetModule(Thing **made, Thing *library) {
    if (fails() || !current) return FAILS;
    *made = part(MODULE, library, current, "");
    return 0;
}
R cuKernelGetFunction(Thing **made, Thing *kernel) {
    if (fails() || !current) return FAILS;
    *made = part(FUNCTION, kernel, current, kernel->name);
    return 0;
}
R cuFuncGetModule(Thing **made, Thing *function) {
    if (function->of->kind == MODULE) return *made = function->of, 0;
    return cuLibraryGetModule(made, function->of->of);
}
static R all(Thing **made, unsigned count, int kind, Thing *of) {
    static const char *const names[] = {"a", "b"};
    if (!made && count) return INVALID;
    if (fails()) return FAILS;
    for (unsigned i = 0; i < count && i < 2; i++) made[i] = part(kind, of, of->context, names[i]);
    return 0;
}
R cuModuleEnumerateFunctions(Thing **made, unsigned count, Thing *module) {
    return all(made, count, FUNCTION, module);
}
R cuLibraryEnumerateKernels(Thing **made, unsigned count, Thing *library) {
    return all(made, count, KERNEL, library);
}
R cuFuncGetName(const char **name, Thing *function) {
    sched_yield(); /* another thread comes between what the library asks and what it notes */
    *name = function->name;
    return 0;
}
R cuKernelGetName(const char **name, Thing *kernel) { *name = kernel->name; return 0; }

/* --- what is set --- */
R cuFuncSetAttribute(Thing *function, int which, int value) {
    if (which < 8 || which >= 16) return INVALID;
    function->attributes[which] = value;
    return 0;
}
R cuFuncGetAttribute(int *value, int which, Thing *function) {
    if (which >= 16) return INVALID;
    *value = function->attributes[which];
    return 0;
}
R cuKernelSetAttribute(int which, int value, Thing *kernel, int device) {
    (void)device;
    return cuFuncSetAttribute(kernel, which, value);
}
R cuFuncSetCacheConfig(Thing *function, int config) { function->cache = config; return 0; }
R cuKernelSetCacheConfig(Thing *kernel, int config, int device) {
    (void)device;
    kernel->cache = config;
    return 0;
}
R cuFuncSetSharedMemConfig(Thing *function, int config) { function->banks = config; return 0; }

/* --- launches and nodes --- */
static R run(Thing *function) {
    int is_kernel = function->kind == KERNEL;
    if (fails()) return FAILS;
    if (function->patched && function->code >= 1000 && function->code % 5 == 0) return NO_RESOURCES;
    if (!is_kernel && (function->kind != FUNCTION || function->context != current)) return INVALID;
    ran = (Ran){ran.times + 1, function->code, function->patched, function, {0}, 0, 0, NULL};
    memcpy(ran.name, function->name, sizeof ran.name);
    return 0;
}
R cuLaunchKernel(Thing *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g,
                 unsigned shared, void *stream, void **params, void **extra) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)g, (void)params, (void)extra;
    R code = run(f);
    if (!code) ran.shared = shared, ran.stream = stream;
    return code;
}
R cuLaunchKernelEx(const Config *config, Thing *f, void **params, void **extra) {
    (void)params, (void)extra;
    if (!config || (config->count && !config->attributes)) return INVALID;
    R code = run(f);
    if (code) return code;
    ran.shared = config->shared, ran.stream = config->stream;
    for (unsigned i = 0; i < config->count; i++) ran.attributes |= 1u << config->attributes[i][0];
    return 0;
}
R cuLaunchCooperativeKernel(Thing *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e,
                            unsigned g, unsigned shared, void *stream, void **params) {
    return cuLaunchKernel(f, a, b, c, d, e, g, shared, stream, params, NULL);
}
R cuGraphAddKernelNode_v2(void **made, void *graph, const void *before, size_t edges,
                          const void *node) {
    (void)graph, (void)before, (void)edges, (void)node;
    *made = NULL;
    return 0;
}
R cuGraphKernelNodeGetParams_v2(Thing **node, Thing **params) {
    *params = *node; /* a node is where its function is noted */
    return 0;
}

/* --- what ikp asks beside --- */
R cuInit(unsigned flags) { return (R)flags; }
R cuDeviceGetAttribute(int *value, int which, int device) {
    (void)device;
    *value = which == 75 ? 9 : 0;
    return 0;
}
R cuStreamIsCapturing(void *stream, int *status) { (void)stream; *status = 0; return 0; }
R cuModuleGetGlobal_v2(uint64_t *address, size_t *size, Thing *module, const char *name) {
    (void)name;
    *address = (uint64_t)(uintptr_t)module;
    *size = 16;
    return module->kind == MODULE ? 0 : INVALID;
}
R cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) {
    (void)to, (void)from, (void)size, (void)stream;
    return 0;
}
R cuGetErrorName(int code, const char **name) { (void)code; *name = "FAILS"; return 0; }
