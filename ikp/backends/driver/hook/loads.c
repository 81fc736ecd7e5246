/* Calls of the driver that load, look up, configure and unload modules and functions, or end contexts. */
#include "launch.h"

#define CALLER __builtin_return_address(0)

/* Copy the options before the call: the driver writes into some values, and refuses options that are
   not there. */
static Options noted(unsigned count, const unsigned *options, void *const *values) {
    Options made = {count && options ? calloc(count, 2 * sizeof *made.pairs) : NULL, count};
    for (unsigned i = 0; made.pairs && i < count; i++) {
        made.pairs[2 * i] = options[i];
        made.pairs[2 * i + 1] = values ? (uint64_t)(uintptr_t)values[i] : 0;
    }
    return made;
}

static void loaded(Handle handle, uint32_t kind, const void *image, const char *path,
                   Options options, const void *caller) {
    Image made;
    Here now = here();
    describe(&made, image, path, caller);
    made.options = options;
    int ours = has_records(path ? made.copy : image, made.bytes);
    pthread_rwlock_wrlock(&lock);
    settled(&now);
    Known *entry = note(handle, kind, NULL, kind == LIBRARY ? NULL : now.context);
    if (entry) {
        entry->image = made;
        entry->quiet |= ours;
    }
    pthread_rwlock_unlock(&lock);
    if (!entry) clear(&made);
}

#define LOAD(name, kind, image, path, jit, parameters, arguments)       \
    static Result(*real_##name) parameters;                             \
    SEEN(name) parameters {                                             \
        NEED(name);                                                     \
        Options options_ = jit;                                         \
        Result result = real_##name arguments;                          \
        if (!result) loaded(*made, kind, image, path, options_, CALLER); \
        else free(options_.pairs);                                      \
        return result;                                                  \
    }
#define NONE noted(0, NULL, NULL)

LOAD(cuModuleLoadData, MODULE, image, NULL, NONE, (Handle * made, const void *image), (made, image))
LOAD(cuModuleLoadFatBinary, MODULE, image, NULL, NONE, (Handle * made, const void *image),
     (made, image))
LOAD(cuModuleLoadDataEx, MODULE, image, NULL, noted(n, options, values),
     (Handle * made, const void *image, unsigned n, void *options, void **values),
     (made, image, n, options, values))
LOAD(cuLibraryLoadData, LIBRARY, image, NULL, noted(n_jit, jit, jit_values),
     (Handle * made, const void *image, void *jit, void **jit_values, unsigned n_jit, void *options,
      void **values, unsigned n),
     (made, image, jit, jit_values, n_jit, options, values, n))
LOAD(cuModuleLoad, MODULE, NULL, path, NONE, (Handle * made, const char *path), (made, path))
LOAD(cuLibraryLoadFromFile, LIBRARY, NULL, path, noted(n_jit, jit, jit_values),
     (Handle * made, const char *path, void *jit, void **jit_values, unsigned n_jit, void *options,
      void **values, unsigned n),
     (made, path, jit, jit_values, n_jit, options, values, n))

#define PART(name, kind, parent, label, parameters, arguments) \
    static Result(*real_##name) parameters;                    \
    SEEN(name) parameters {                                    \
        NEED(name);                                            \
        Result result = real_##name arguments;                 \
        if (!result) named(*made, kind, parent, label, NULL);  \
        return result;                                         \
    }

PART(cuModuleGetFunction, FUNCTION, module, name, (Handle * made, Handle module, const char *name),
     (made, module, name))
PART(cuLibraryGetKernel, KERNEL, library, name, (Handle * made, Handle library, const char *name),
     (made, library, name))
PART(cuLibraryGetModule, MODULE, library, NULL, (Handle * made, Handle library), (made, library))
PART(cuKernelGetFunction, FUNCTION, kernel, NULL, (Handle * made, Handle kernel), (made, kernel))

/* Functions that give out many handles: the driver is asked for the name of each. */
static void all_named(const Handle *made, unsigned count, uint32_t kind, Handle parent,
                      const char *asker) {
    Result (*ask)(const char **, Handle);
    const char *name;
    *(void **)&ask = dlsym(real, asker);
    for (unsigned i = 0; i < count; i++)
        if (made[i] && ask && !ask(&name, made[i])) named(made[i], kind, parent, name, NULL);
}

#define MANY(name, kind, asker)                                              \
    static Result (*real_##name)(Handle *, unsigned, Handle);                \
    SEEN(name)(Handle * made, unsigned count, Handle parent) {               \
        NEED(name);                                                          \
        if (made) memset(made, 0, count * sizeof *made); /* it may be fewer */ \
        Result result = real_##name(made, count, parent);                    \
        if (!result) all_named(made, count, kind, parent, asker);            \
        return result;                                                       \
    }

MANY(cuModuleEnumerateFunctions, FUNCTION, "cuFuncGetName")
MANY(cuLibraryEnumerateKernels, KERNEL, "cuKernelGetName")

static Handle module_of(Handle function) {
    static Result (*ask)(Handle *, Handle);
    Handle module = NULL;
    if (!ask) *(void **)&ask = dlsym(real, "cuFuncGetModule");
    return ask && !ask(&module, function) ? module : NULL;
}

static const char *name_of(Handle function) {
    static Result (*ask)(const char **, Handle);
    const char *name = NULL;
    if (!ask) *(void **)&ask = dlsym(real, "cuFuncGetName"); /* since CUDA 12.3 */
    return ask && !ask(&name, function) ? name : NULL;
}

/* Whether an entry is of a context that is not current. Such an entry of what a launch uses now is stale:
   its context ended unseen, and the driver has given its handle out again. */
static int is_elsewhere(Handle module, const Here *now) {
    pthread_rwlock_wrlock(&lock);
    settled(now);
    Known *each = find(module);
    int elsewhere = each && each->context && each->context != now->context;
    pthread_rwlock_unlock(&lock);
    return elsewhere;
}

/* cuFFT has its functions from a table that no header shows. */
void introduce(Handle function) {
    Here now = here();
    Handle module = module_of(function);
    const char *name = module ? name_of(function) : NULL;
    if (!name) return;
    if (is_elsewhere(module, &now)) module = NULL;
    named(function, FUNCTION, module, name, NULL);
}

int is_still(Handle function) {
    Handle handle = module_of(function);
    const char *name = name_of(function);
    pthread_rwlock_wrlock(&lock);
    Known *each = find(function), *module = find(handle), *parent = each ? each->parent : NULL;
    const char *had = each && each->name ? each->name : parent ? parent->name : NULL;
    int same = !handle || !parent || parent == module ||
               (parent->kind == KERNEL && module && module->parent == parent->parent);
    same = same && (!name || !had || !strcmp(name, had));
    if (each && !same) forget(each);
    pthread_rwlock_unlock(&lock);
    return same;
}

/* The module of a library's function is a part of the library. */
static Result (*real_cuFuncGetModule)(Handle *, Handle);
SEEN(cuFuncGetModule)(Handle *made, Handle function) {
    NEED(cuFuncGetModule);
    Result result = real_cuFuncGetModule(made, function);
    Handle library = NULL;
    if (result) return result;
    Here now = here();
    pthread_rwlock_wrlock(&lock);
    settled(&now);
    Known *each = find(function), *kernel = each ? each->parent : NULL;
    /* A function of another context may have ended with it unseen, and its handle be another's. */
    if (kernel && each->context == now.context && kernel->kind == KERNEL && kernel->parent)
        library = kernel->parent->handle;
    pthread_rwlock_unlock(&lock);
    if (library) named(*made, MODULE, library, NULL, now.context);
    return result;
}

#define GONE(name, type, begin)               \
    static Result (*real_##name)(type);       \
    SEEN(name)(type gone) {                   \
        NEED(name);                           \
        Leaving leaving = begin;              \
        Result result = real_##name(gone);    \
        left(leaving, !result);               \
        return result;                        \
    }

GONE(cuModuleUnload, Handle, leave(gone))
GONE(cuLibraryUnload, Handle, leave(gone))

/* --- contexts --------------------------------------------------------------------------------- */

enum { PRIMARIES = 64 };
/* Of each device: its primary context, how often the program retains that, and how often ikp does. */
static struct {
    Handle context;
    int uses, own, unsure; /* it was there before: there may be more uses. A reset ends none */
} primaries[PRIMARIES];

static int numbered(int device) { return device >= 0 && device < PRIMARIES; }

static Handle primary(int device) { return numbered(device) ? primaries[device].context : NULL; }

static Handle current_or(Handle context) { return context ? context : here().context; }

GONE(cuCtxDestroy, Handle, leave_context(current_or(gone)))
GONE(cuCtxDestroy_v2, Handle, leave_context(current_or(gone)))
GONE(cuCtxDetach, Handle, leave_context(current_or(gone)))

/* Python reads what was recorded on a device before a reset frees all memory on it, and that pinned for
   it: ikp's, too. */
static void let_go_of(int device) { notify(&(Launch){.node = RESET, .grid = {(uint32_t)device}}); }

static Leaving begin_reset(int device) {
    let_go_of(device);
    return leave_context(primary(device));
}

GONE(cuDevicePrimaryCtxReset, int, begin_reset(gone))
GONE(cuDevicePrimaryCtxReset_v2, int, begin_reset(gone))

static int is_active(int device) {
    static Result (*state)(int, unsigned *, int *);
    unsigned flags;
    int active = 1;
    if (!state) *(void **)&state = dlsym(real, "cuDevicePrimaryCtxGetState");
    return !state || state(device, &flags, &active) || active;
}

static Result (*real_cuDevicePrimaryCtxRetain)(Handle *, int);

static Result retain(Handle *made, int device, int by_ikp) {
    NEED(cuDevicePrimaryCtxRetain);
    int first = numbered(device) && !primaries[device].context && is_active(device);
    Result result = real_cuDevicePrimaryCtxRetain(made, device);
    if (result || !numbered(device)) return result;
    primaries[device].context = *made;
    if (first) primaries[device].unsure = 1;
    __atomic_add_fetch(by_ikp ? &primaries[device].own : &primaries[device].uses, 1, __ATOMIC_SEQ_CST);
    return result;
}

SEEN(cuDevicePrimaryCtxRetain)(Handle *made, int device) { return retain(made, device, 0); }

/* The same for ikp, which keeps no context that the program has given back. */
SEEN(ikp_retain)(Handle *made, int device) { return retain(made, device, 1); }

static Result (*real_cuDevicePrimaryCtxRelease_v2)(int);

SEEN(ikp_release)(int device) {
    NEED(cuDevicePrimaryCtxRelease_v2);
    if (numbered(device)) __atomic_sub_fetch(&primaries[device].own, 1, __ATOMIC_SEQ_CST);
    return real_cuDevicePrimaryCtxRelease_v2(device);
}

/* Where no caller retains the primary context any more, it has ended. */
static Result release(Result (*of_driver)(int), int device) {
    int last = numbered(device) && primaries[device].uses == 1 && !primaries[device].unsure;
    if (last && primaries[device].own && asking()) {
        let_go_of(device);
        while (primaries[device].own > 0 && !ikp_release(device)) continue;
    }
    Result result = of_driver(device);
    if (result) return result;
    if (numbered(device) && primaries[device].uses)
        __atomic_sub_fetch(&primaries[device].uses, 1, __ATOMIC_SEQ_CST);
    if (is_active(device)) return 0;
    left(leave_context(primary(device)), 1);
    if (numbered(device)) memset(&primaries[device], 0, sizeof primaries[device]);
    return 0;
}

static Result (*real_cuDevicePrimaryCtxRelease)(int);
SEEN(cuDevicePrimaryCtxRelease)(int device) {
    NEED(cuDevicePrimaryCtxRelease);
    return release(real_cuDevicePrimaryCtxRelease, device);
}
SEEN(cuDevicePrimaryCtxRelease_v2)(int device) {
    NEED(cuDevicePrimaryCtxRelease_v2);
    return release(real_cuDevicePrimaryCtxRelease_v2, device);
}

/* The contexts of green contexts. */
typedef struct Green {
    struct Green *next;
    Handle green, context;
} Green;
static Green *greens;

static Green **green_at(Handle green) {
    Green **each = &greens;
    while (*each && (*each)->green != green) each = &(*each)->next;
    return each;
}

static Result (*real_cuCtxFromGreenCtx)(Handle *, Handle);
SEEN(cuCtxFromGreenCtx)(Handle *made, Handle green) {
    NEED(cuCtxFromGreenCtx);
    Result result = real_cuCtxFromGreenCtx(made, green);
    if (result) return result;
    pthread_rwlock_wrlock(&lock);
    Green **at = green_at(green);
    if (!*at) *at = calloc(1, sizeof **at);
    if (*at) (*at)->green = green, (*at)->context = *made;
    pthread_rwlock_unlock(&lock);
    return result;
}

static Result (*real_cuGreenCtxDestroy)(Handle);
SEEN(cuGreenCtxDestroy)(Handle green) {
    NEED(cuGreenCtxDestroy);
    pthread_rwlock_wrlock(&lock);
    Green **at = green_at(green), *gone = *at; /* it may be given out again at once */
    if (gone) *at = gone->next;
    pthread_rwlock_unlock(&lock);
    Leaving leaving = gone ? leave_context(gone->context) : (Leaving){0, NULL};
    Result result = real_cuGreenCtxDestroy(green);
    left(leaving, !result);
    if (result && gone) {
        pthread_rwlock_wrlock(&lock);
        gone->next = greens;
        greens = gone;
        pthread_rwlock_unlock(&lock);
    } else
        free(gone);
    return result;
}

/* --- settings of a function, which can't be read back ------------------------------------------ */

#define SET(name, parameters, arguments, handle, change)            \
    static Result(*real_##name) parameters;                         \
    SEEN(name) parameters {                                         \
        NEED(name);                                                 \
        Result result = real_##name arguments;                      \
        if (result) return result;                                  \
        pthread_rwlock_wrlock(&lock);                               \
        Known *each = find(handle);                                 \
        if (each) { change; }                                       \
        __atomic_add_fetch(&changes, 1, __ATOMIC_RELEASE);          \
        pthread_rwlock_unlock(&lock);                               \
        return result;                                              \
    }

SET(cuFuncSetCacheConfig, (Handle function, int config), (function, config), function,
    memset(each->cache, config, sizeof each->cache))
SET(cuKernelSetCacheConfig, (Handle kernel, int config, int device), (kernel, config, device),
    kernel, if (device >= 0 && device < DEVICES) each->cache[device] = (signed char)config)
SET(cuFuncSetSharedMemConfig, (Handle function, int config), (function, config), function,
    each->banks = (signed char)config)
SET(cuFuncSetAttribute, (Handle function, int which, int value), (function, which, value), function,
    (void)each)
SET(cuKernelSetAttribute, (int which, int value, Handle kernel, int device),
    (which, value, kernel, device), kernel, (void)each)

/* A program's latest settings of a function, or of its kernel: -1 where there are none. */
SEEN(ikp_preferred)(Handle function, int device, int *cache, int *banks) {
    *cache = *banks = -1;
    pthread_rwlock_rdlock(&lock);
    for (Known *each = find(function); each; each = each->parent) {
        int set = device >= 0 && device < DEVICES ? each->cache[device] : -1;
        if (*cache < 0) *cache = set;
        if (*banks < 0) *banks = each->banks;
    }
    pthread_rwlock_unlock(&lock);
    return 0;
}
