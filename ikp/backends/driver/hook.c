/* Stands before the CUDA driver: sees what is loaded, and may have another function launched.

   It is built with the driver's own name, libcuda.so.1, and needs the real one by its path. Loaded
   first, it is what every later dlopen("libcuda.so.1") finds; what it does not define, dlsym finds
   in the real one behind it. It calls into Python only for launches that nobody has decided yet, or
   that are recorded; all others pass with one look into a table. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result; /* CUresult: 0 is success */
typedef void *Handle;

#define SEEN(name) __attribute__((visibility("default"))) Result name
#define FATBIN 0xBA55ED50u
#define WRAPPED_FATBIN 0x466243B1u

/* What is known of a handle: a module or library has an image, a function its parent and name. */
typedef struct Known {
    struct Known *next;
    Handle handle, parent;
    uint64_t id; /* of this entry alone: the driver gives a freed handle out again */
    char *name;
    void *image;
    size_t bytes;
    char *origin; /* file of who has it in its data, or of who loaded it */
    uint32_t kind;
    int owned, quiet;
} Known;

enum { MODULE = 1, LIBRARY, FUNCTION, KERNEL };

#define MOST_PARAMETERS 255
#define MOST_BYTES 4096 /* of all parameters */

/* A launch, as Python is asked of it. */
typedef struct {
    Handle function;
    uint64_t id;
    uint32_t grid[3], block[3];
    uint32_t shared, cooperative;
    Handle stream;
    uint32_t extensible; /* whether one more argument can be passed */
    Handle instead;      /* out: what to launch */
    uint32_t decided;    /* out: never ask again for this function */
    uint32_t ordinal, offset, bytes; /* out: of one more argument; of 0 bytes: there is none */
    uint64_t told[9];                /* out: that argument */
    uint32_t done;                   /* out: it has been launched */
    void **params, **extra; /* arguments, as the program passes them: one by one, or in one buffer */
    const void *attributes;
    uint32_t count; /* of attributes */
} Launch;

typedef void (*Asked)(Launch *);

#define BUCKETS 65536
static Known *table[BUCKETS];
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static uint64_t ids = 1;
static Asked volatile asked;
static __thread int inside;
static void *real;

static unsigned bucket(Handle handle) {
    uint64_t bits = (uint64_t)(uintptr_t)handle;
    return (unsigned)((bits * 0x9E3779B97F4A7C15ull) >> 48);
}

static Known *find(Handle handle) {
    for (Known *each = table[bucket(handle)]; each; each = each->next)
        if (each->handle == handle) return each;
    return NULL;
}

static void drop(Known **at) {
    Known *gone = *at;
    *at = gone->next;
    free(gone->name);
    if (gone->owned) free(gone->image);
    free(gone->origin);
    free(gone);
}

static Known *note(Handle handle) { /* with the lock held */
    Known **at = &table[bucket(handle)];
    for (Known **each = at; *each; each = &(*each)->next)
        if ((*each)->handle == handle) {
            drop(each);
            break;
        }
    Known *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->handle = handle;
    made->id = ids++;
    made->quiet = inside > 0;
    made->next = *at;
    return *at = made;
}

static void forget(Handle parent) {
    pthread_rwlock_wrlock(&lock);
    for (unsigned i = 0; i < BUCKETS; i++)
        for (Known **each = &table[i]; *each;)
            if ((*each)->handle == parent || (*each)->parent == parent)
                drop(each);
            else
                each = &(*each)->next;
    pthread_rwlock_unlock(&lock);
}

static size_t elf_bytes(const unsigned char *image) {
    uint64_t programs, sections, end;
    uint16_t size, count;
    memcpy(&programs, image + 32, 8);
    memcpy(&sections, image + 40, 8);
    memcpy(&size, image + 54, 2);
    memcpy(&count, image + 56, 2);
    end = programs + (uint64_t)size * count;
    memcpy(&size, image + 58, 2);
    memcpy(&count, image + 60, 2);
    if (sections + (uint64_t)size * count > end) end = sections + (uint64_t)size * count;
    for (unsigned i = 0; i < count; i++) { /* a compiler may put its tables first */
        uint64_t at, bytes;
        uint32_t kind;
        const unsigned char *section = image + sections + (uint64_t)size * i;
        memcpy(&kind, section + 4, 4);
        memcpy(&at, section + 24, 8);
        memcpy(&bytes, section + 32, 8);
        if (kind != 8 && at + bytes > end) end = at + bytes;
    }
    return end;
}

/* An image's first byte and its size, behind what the runtime wraps it in; 0 for what is none. */
static size_t extent(const void **image) {
    uint32_t magic;
    memcpy(&magic, *image, 4);
    if (magic == WRAPPED_FATBIN) {
        memcpy(image, (const char *)*image + 8, sizeof *image);
        memcpy(&magic, *image, 4);
    }
    if (magic == FATBIN) {
        uint16_t head;
        uint64_t rest;
        memcpy(&head, (const char *)*image + 6, 2);
        memcpy(&rest, (const char *)*image + 8, 8);
        return head + rest;
    }
    if (!memcmp(*image, "\177ELF", 4)) return elf_bytes(*image);
    return strlen(*image) + 1; /* PTX */
}

static char *file_of(const void *address) {
    Dl_info info;
    return address && dladdr(address, &info) && info.dli_fname ? strdup(info.dli_fname) : NULL;
}

static void *contents(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    char *made = NULL;
    if (file && !fseek(file, 0, SEEK_END)) {
        *bytes = (size_t)ftell(file);
        rewind(file);
        made = malloc(*bytes + 1);
        if (made && fread(made, 1, *bytes, file) != *bytes) {
            free(made);
            made = NULL;
        }
    }
    if (file) fclose(file);
    return made;
}

/* What ikp has patched has its cell in it: a launch of that is decided. (What is told by an argument
   has none, but is loaded while Python is asked.) */
static int patched(const void *image, size_t bytes) {
    return image && bytes > 4 && !memcmp(image, "\177ELF", 4) &&
           memmem(image, bytes, "ikp_buffer", 10) != NULL;
}

static void loaded(Handle handle, uint32_t kind, const void *image, const char *path,
                   const void *caller) {
    size_t bytes = 0;
    char *origin = path ? strdup(path) : NULL;
    void *own = NULL; /* a copy, unless it is a part of a library that stays */
    if (path) {
        image = own = contents(path, &bytes);
    } else {
        bytes = extent(&image);
        origin = file_of(image);
        if (!origin && (own = malloc(bytes))) image = memcpy(own, image, bytes);
        if (!origin) origin = file_of(caller);
    }
    int ours = patched(image, bytes);
    pthread_rwlock_wrlock(&lock);
    Known *made = note(handle);
    if (made) {
        made->kind = kind;
        made->image = (void *)image;
        made->bytes = image ? bytes : 0;
        made->owned = own != NULL;
        made->quiet |= ours;
        made->origin = origin;
    }
    pthread_rwlock_unlock(&lock);
}

static void named(Handle handle, uint32_t kind, Handle parent, const char *name) {
    pthread_rwlock_wrlock(&lock);
    Known *had = find(handle), *above = find(parent);
    int known = had && had->parent == parent && (!name || (had->name && !strcmp(had->name, name)));
    if (!known) {
        int quiet = above && above->quiet;
        Known *made = note(handle);
        if (made) {
            made->kind = kind;
            made->parent = parent;
            made->name = name ? strdup(name) : NULL;
            made->quiet |= quiet;
        }
    }
    pthread_rwlock_unlock(&lock);
}

/* --- what Python calls ------------------------------------------------------------------------ */

typedef struct {
    uint64_t id;
    Handle parent;
    const char *name;
    const void *image;
    size_t bytes;
    const char *origin;
    uint32_t kind;
} About;

SEEN(ikp_about)(Handle handle, About *about) {
    pthread_rwlock_rdlock(&lock);
    Known *each = find(handle);
    if (each)
        *about = (About){each->id,    each->parent, each->name, each->image,
                         each->bytes, each->origin, each->kind};
    pthread_rwlock_unlock(&lock);
    return each ? 0 : 1;
}

SEEN(ikp_ask)(Asked whom) {
    asked = whom;
    return 0;
}

static void in_child(void) { asked = NULL; }

__attribute__((constructor)) static void begin(void) {
    real = dlopen(IKP_REAL, RTLD_LAZY | RTLD_NOLOAD);
    pthread_atfork(NULL, NULL, in_child);
}

/* --- launches --------------------------------------------------------------------------------- */

/* A launch, and its arguments with one more. */
typedef struct {
    Launch launch;
    void *params[MOST_PARAMETERS + 1], *extra[5];
    unsigned char packed[MOST_BYTES];
    size_t size;
} Longer;

enum { END, BUFFER, BUFFER_SIZE }; /* CU_LAUNCH_PARAM_... */

/* The buffer in which a program passes all arguments, and its size; NULL for none, or what else. */
static const void *packed_by(void **extra, size_t *size) {
    const void *buffer = NULL, *bytes = NULL;
    for (; *extra != (void *)END; extra += 2)
        if (*extra == (void *)BUFFER)
            buffer = extra[1];
        else if (*extra == (void *)BUFFER_SIZE)
            bytes = extra[1];
        else
            return NULL;
    if (bytes) memcpy(size, bytes, sizeof *size);
    return bytes ? buffer : NULL;
}

static int extensible(const Launch *launch) {
    size_t size;
    if (launch->params) return !launch->extra;
    return launch->extra && packed_by(launch->extra, &size) != NULL;
}

/* Return whether there is room for one more argument; it is passed then. */
static int lengthen(Longer *made) {
    Launch *launch = &made->launch;
    if (launch->bytes > sizeof launch->told || launch->ordinal > MOST_PARAMETERS ||
        launch->offset + launch->bytes > sizeof made->packed)
        return 0;
    if (launch->params) {
        memcpy(made->params, launch->params, launch->ordinal * sizeof *made->params);
        made->params[launch->ordinal] = launch->told;
        launch->params = made->params;
        return 1;
    }
    const void *had = packed_by(launch->extra, &made->size);
    if (made->size > launch->offset) made->size = launch->offset;
    memset(made->packed, 0, launch->offset);
    memcpy(made->packed, had, made->size);
    memcpy(made->packed + launch->offset, launch->told, launch->bytes);
    made->size = launch->offset + launch->bytes;
    void *extra[] = {(void *)BUFFER, made->packed, (void *)BUFFER_SIZE, &made->size, (void *)END};
    memcpy(made->extra, extra, sizeof extra);
    launch->extra = made->extra;
    return 1;
}

/* Ask what is launched; returns whether that is done. */
static int chosen(Longer *longer) {
    Launch *launch = &longer->launch;
    Handle function = launch->instead = launch->function;
    Asked ask = asked;
    if (!ask || inside) return 0;
    pthread_rwlock_rdlock(&lock);
    Known *each = find(function);
    launch->id = each ? each->id : 0;
    int quiet = each && each->quiet;
    pthread_rwlock_unlock(&lock);
    if (quiet) return 0;
    launch->extensible = (uint32_t)extensible(launch);
    inside++;
    ask(launch);
    inside--;
    if (launch->decided) {
        pthread_rwlock_wrlock(&lock);
        if (!(each = find(function))) each = note(function);
        if (each) each->quiet = 1;
        pthread_rwlock_unlock(&lock);
    }
    if (launch->bytes && launch->instead != function && !launch->done && !lengthen(longer))
        launch->instead = function;
    return launch->done;
}

#define NEED(name)                                                          \
    if (!real_##name) *(void **)&real_##name = dlsym(real, #name);          \
    if (!real_##name) return 500 /* CUDA_ERROR_NOT_FOUND */

#define PER_THREAD ((Handle)2)

#define LAUNCH(name, default_stream)                                                                 \
    static Result (*real_##name)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                                 unsigned, Handle, void **, void **);                                \
    SEEN(name)(Handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,            \
               unsigned bz, unsigned shared, Handle stream, void **params, void **extra) {           \
        NEED(name);                                                                                  \
        Longer longer;                                                                               \
        longer.launch = (Launch){f, 0, {gx, gy, gz}, {bx, by, bz}, shared,                           \
                                 .stream = stream ? stream : default_stream,                         \
                                 .params = params, .extra = extra};                                  \
        if (chosen(&longer)) return 0;                                                               \
        return real_##name(longer.launch.instead, gx, gy, gz, bx, by, bz, shared, stream,            \
                           longer.launch.params, longer.launch.extra);                               \
    }

#define COOPERATE(name, default_stream)                                                              \
    static Result (*real_##name)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                                 unsigned, Handle, void **);                                         \
    SEEN(name)(Handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,            \
               unsigned bz, unsigned shared, Handle stream, void **params) {                         \
        NEED(name);                                                                                  \
        Longer longer;                                                                               \
        longer.launch = (Launch){f, 0, {gx, gy, gz}, {bx, by, bz}, shared, 1,                        \
                                 .stream = stream ? stream : default_stream, .params = params};      \
        if (chosen(&longer)) return 0;                                                               \
        return real_##name(longer.launch.instead, gx, gy, gz, bx, by, bz, shared, stream,            \
                           longer.launch.params);                                                    \
    }

typedef struct {
    uint32_t grid[3], block[3], shared;
    Handle stream;
    const void *attributes;
    uint32_t count;
} Config; /* CUlaunchConfig */

enum { COOPERATIVE = 2, ATTRIBUTE = 18 }; /* which attribute that is; 32-bit words of each */

static uint32_t cooperative(const Config *config) {
    const uint32_t *each = config->attributes;
    for (uint32_t i = 0; i < config->count; i++, each += ATTRIBUTE)
        if (each[0] == COOPERATIVE && each[2]) return 1;
    return 0;
}

#define LAUNCH_EX(name, default_stream)                                                              \
    static Result (*real_##name)(const Config *, Handle, void **, void **);                          \
    SEEN(name)(const Config *config, Handle f, void **params, void **extra) {                        \
        NEED(name);                                                                                  \
        const uint32_t *grid = config->grid, *block = config->block;                                 \
        Longer longer;                                                                               \
        longer.launch = (Launch){f, 0, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]},  \
                                 config->shared, cooperative(config),                                \
                                 .stream = config->stream ? config->stream : default_stream,         \
                                 .params = params, .extra = extra,                                   \
                                 .attributes = config->attributes, .count = config->count};          \
        if (chosen(&longer)) return 0;                                                               \
        return real_##name(config, longer.launch.instead, longer.launch.params,                      \
                           longer.launch.extra);                                                     \
    }

LAUNCH(cuLaunchKernel, NULL)
LAUNCH(cuLaunchKernel_ptsz, PER_THREAD)
LAUNCH_EX(cuLaunchKernelEx, NULL)
LAUNCH_EX(cuLaunchKernelEx_ptsz, PER_THREAD)
COOPERATE(cuLaunchCooperativeKernel, NULL)
COOPERATE(cuLaunchCooperativeKernel_ptsz, PER_THREAD)

/* Launch a function as it was asked for, while Python is asked. */
SEEN(ikp_launch)(const Launch *launch, Handle function) {
    NEED(cuLaunchKernelEx);
    const uint32_t *grid = launch->grid, *block = launch->block;
    const uint32_t together[ATTRIBUTE] = {COOPERATIVE, 0, 1};
    Config config = {{grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, launch->shared,
                     launch->stream, launch->attributes, launch->count};
    if (launch->cooperative && !launch->count) {
        config.attributes = together;
        config.count = 1;
    }
    Longer made;
    made.launch = *launch;
    if (function != launch->function && launch->bytes && !lengthen(&made))
        return 1; /* CUDA_ERROR_INVALID_VALUE */
    return real_cuLaunchKernelEx(&config, function, made.launch.params, made.launch.extra);
}

/* --- loads ------------------------------------------------------------------------------------ */

#define CALLER __builtin_return_address(0)

#define LOAD(name, kind, image, path, parameters, arguments)    \
    static Result(*real_##name) parameters;                     \
    SEEN(name) parameters {                                     \
        NEED(name);                                             \
        Result result = real_##name arguments;                  \
        if (!result) loaded(*made, kind, image, path, CALLER);        \
        return result;                                          \
    }

LOAD(cuModuleLoadData, MODULE, image, NULL, (Handle * made, const void *image), (made, image))
LOAD(cuModuleLoadFatBinary, MODULE, image, NULL, (Handle * made, const void *image), (made, image))
LOAD(cuModuleLoadDataEx, MODULE, image, NULL,
     (Handle * made, const void *image, unsigned n, void *options, void **values),
     (made, image, n, options, values))
LOAD(cuLibraryLoadData, LIBRARY, image, NULL,
     (Handle * made, const void *image, void *jit, void **jit_values, unsigned n_jit, void *options,
      void **values, unsigned n),
     (made, image, jit, jit_values, n_jit, options, values, n))
LOAD(cuModuleLoad, MODULE, NULL, path, (Handle * made, const char *path), (made, path))
LOAD(cuLibraryLoadFromFile, LIBRARY, NULL, path,
     (Handle * made, const char *path, void *jit, void **jit_values, unsigned n_jit, void *options,
      void **values, unsigned n),
     (made, path, jit, jit_values, n_jit, options, values, n))

#define PART(name, kind, parent, label, parameters, arguments)         \
    static Result(*real_##name) parameters;                      \
    SEEN(name) parameters {                                      \
        NEED(name);                                              \
        Result result = real_##name arguments;                   \
        if (!result) named(*made, kind, parent, label);                \
        return result;                                           \
    }

PART(cuModuleGetFunction, FUNCTION, module, name, (Handle * made, Handle module, const char *name),
     (made, module, name))
PART(cuLibraryGetKernel, KERNEL, library, name, (Handle * made, Handle library, const char *name),
     (made, library, name))
PART(cuLibraryGetModule, MODULE, library, NULL, (Handle * made, Handle library), (made, library))
PART(cuKernelGetFunction, FUNCTION, kernel, NULL, (Handle * made, Handle kernel), (made, kernel))

#define UNLOAD(name)                          \
    static Result (*real_##name)(Handle);     \
    SEEN(name)(Handle gone) {                 \
        NEED(name);                           \
        forget(gone);                         \
        return real_##name(gone);             \
    }

UNLOAD(cuModuleUnload)
UNLOAD(cuLibraryUnload)

/* --- whoever asks the driver for its functions gets ours ---------------------------------------- */

#define PER_THREAD_FLAG 2

static const struct {
    const char *name;
    void *plain, *per_thread;
} own[] = {
#define BOTH(name) {#name, (void *)name, (void *)name##_ptsz}
#define ONE(name) {#name, (void *)name, (void *)name}
    BOTH(cuLaunchKernel),     BOTH(cuLaunchKernelEx),     BOTH(cuLaunchCooperativeKernel),
    ONE(cuModuleLoadData),    ONE(cuModuleLoadFatBinary), ONE(cuModuleLoadDataEx),
    ONE(cuLibraryLoadData),   ONE(cuModuleLoad),          ONE(cuLibraryLoadFromFile),
    ONE(cuModuleGetFunction), ONE(cuLibraryGetKernel),    ONE(cuLibraryGetModule),
    ONE(cuKernelGetFunction), ONE(cuModuleUnload),        ONE(cuLibraryUnload),
};

static void replace(const char *name, void **made, uint64_t flags) {
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(name, own[i].name))
            *made = flags & PER_THREAD_FLAG ? own[i].per_thread : own[i].plain;
}

SEEN(cuGetProcAddress_v2)(const char *, void **, int, uint64_t, int *);

static Result (*real_cuGetProcAddress)(const char *, void **, int, uint64_t);
SEEN(cuGetProcAddress)(const char *name, void **made, int version, uint64_t flags) {
    NEED(cuGetProcAddress);
    Result result = real_cuGetProcAddress(name, made, version, flags);
    if (result || !made || !*made) return result;
    replace(name, made, flags);
    if (!strcmp(name, "cuGetProcAddress"))
        *made = version < 12000 ? (void *)cuGetProcAddress : (void *)cuGetProcAddress_v2;
    return result;
}

static Result (*real_cuGetProcAddress_v2)(const char *, void **, int, uint64_t, int *);
SEEN(cuGetProcAddress_v2)(const char *name, void **made, int version, uint64_t flags, int *status) {
    NEED(cuGetProcAddress_v2);
    Result result = real_cuGetProcAddress_v2(name, made, version, flags, status);
    if (result || !made || !*made) return result;
    replace(name, made, flags);
    if (!strcmp(name, "cuGetProcAddress"))
        *made = version < 12000 ? (void *)cuGetProcAddress : (void *)cuGetProcAddress_v2;
    return result;
}
