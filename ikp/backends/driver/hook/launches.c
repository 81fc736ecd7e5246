/* cuLaunchKernel and its variants: ask Python, launch the function it chose, with one argument more. */
#include "stock.h"
#include "timing.h"

#define MOST_PARAMETERS 255
#define MOST_BYTES 4096 /* of all parameters */

static uint64_t passed[SLOTS]; /* launches that Python was not asked about; slot 0: not counted */

SEEN(ikp_passed)(uint64_t **counts) {
    *counts = passed;
    return SLOTS;
}

void count(uint32_t slot) {
    if (slot) __atomic_add_fetch(&passed[slot], 1, __ATOMIC_RELAXED);
}

/* A launch, and its arguments with one more. */
typedef struct {
    Launch launch;
    void *params[MOST_PARAMETERS + WORDS], *extra[5];
    unsigned char packed[MOST_BYTES];
    size_t size;
    Stock *stock; /* that its buffer is of; NULL where Python was asked */
    uint32_t number;  /* of the buffer */
    int64_t now;
} Longer;

enum { END, BUFFER, BUFFER_SIZE }; /* CU_LAUNCH_PARAM_... */

/* The buffer in which a program passes all arguments, and its size; NULL for none, or an unknown key. */
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
    if (launch->bytes > sizeof launch->argument || launch->ordinal > MOST_PARAMETERS ||
        launch->replaces * sizeof *launch->argument > launch->bytes ||
        launch->offset + launch->bytes > sizeof made->packed)
        return 0;
    if (launch->params) {
        memcpy(made->params, launch->params, launch->ordinal * sizeof *made->params);
        made->params[launch->ordinal] = launch->argument;
        for (uint32_t i = 1; i < launch->replaces; i++)
            made->params[launch->ordinal + i] = launch->argument + i;
        launch->params = made->params;
        return 1;
    }
    const void *had = packed_by(launch->extra, &made->size);
    if (made->size > launch->offset) made->size = launch->offset;
    memset(made->packed, 0, launch->offset);
    memcpy(made->packed, had, made->size);
    memcpy(made->packed + launch->offset, launch->argument, launch->bytes);
    made->size = launch->offset + launch->bytes;
    void *extra[] = {(void *)BUFFER, made->packed, (void *)BUFFER_SIZE, &made->size, (void *)END};
    memcpy(made->extra, extra, sizeof extra);
    launch->extra = made->extra;
    return 1;
}

/* Return whether a launch passes without a question to Python; note in it its entry's id, and whether
   there are stocks. */
static int passes(Launch *launch, int *has_stock) {
    pthread_rwlock_rdlock(&lock);
    Known *each = find(launch->function);
    launch->id = each ? each->id : 0;
    int leaving = is_leaving(each), quiet = is_quiet(each);
    *has_stock = each && each->stocks;
    if (quiet && !leaving) count(each->slot);
    pthread_rwlock_unlock(&lock);
    return quiet || leaving;
}

uint32_t epoch = FIRST_EPOCH;

SEEN(ikp_wake)(void) {
    pthread_rwlock_wrlock(&lock);
    epoch++;
    pthread_rwlock_unlock(&lock);
    __atomic_add_fetch(&revoked, 1, __ATOMIC_SEQ_CST);
    return 0;
}

/* Bring a function's entry up to date: entries of a context that ended unseen are dropped. The driver is
   asked about a function that the program got unseen. */
static void make_sure(Handle function) {
    Here now = here();
    pthread_rwlock_wrlock(&lock);
    settled(&now);
    Known *each = find(function);
    if (each && (each->kind < FUNCTION || each->kind == CONTEXT)) forget(each);
    each = find(function);
    int known = each != NULL, strange = each && each->context && each->context != now.context;
    pthread_rwlock_unlock(&lock);
    if (!known || (strange && !is_still(function))) introduce(function);
}

/* Keep the decision on a function, and note it as the plain one of the function launched for it. */
static void keep_answer(const Launch *launch) {
    pthread_rwlock_wrlock(&lock);
    Known *each = find(launch->function);
    if (launch->decided && !each) each = note(launch->function, OTHER, NULL, here().context);
    if (launch->decided && each && (!launch->id || each->id == launch->id)) {
        if (each->quiet != FOR_GOOD) each->quiet = epoch;
        each->slot = (launch->decided - 1) % SLOTS;
    }
    if (launch->instead != launch->function && each) launched_for(launch->instead, each);
    pthread_rwlock_unlock(&lock);
}

static void end(Longer *longer, int64_t time) {
    if (longer->stock)
        __atomic_store_n(&longer->stock->times[longer->number], time, __ATOMIC_RELEASE);
    longer->stock = NULL;
}

/* Take a buffer of a stock, where there is one for such launches; return whether. */
static int repeat(Longer *longer) {
    Launch *launch = &longer->launch;
    Stock *found = longer->stock = stocked(launch, &longer->number, &longer->now);
    if (!found) return 0;
    launch->ordinal = found->ordinal, launch->offset = found->offset, launch->bytes = found->bytes;
    launch->replaces = found->replaces;
    memcpy(launch->argument, found->words, sizeof launch->argument);
    launch->argument[0] = found->addresses[longer->number];
    launch->instead = found->instead;
    if (!launch->bytes || lengthen(longer)) return 1;
    launch->instead = launch->function;
    launch->bytes = 0;
    end(longer, REFUSED);
    return 0;
}

/* Find the function to launch, and its further argument: ask Python, unless a stock has a buffer. */
static void choose(Longer *longer, int anew) {
    Launch *launch = &longer->launch;
    Handle function = launch->instead = launch->function;
    int has_stock = 0;
    longer->stock = NULL;
    if (!asking() || passes(launch, &has_stock)) return;
    launch->extensible = (uint32_t)extensible(launch);
    if (has_stock && !anew && repeat(longer)) return;
    make_sure(launch->function);
    if (passes(launch, &has_stock)) return;
    if (!ask(launch)) {
        launch->instead = function;
        launch->decided = launch->bytes = 0;
    }
    if (launch->decided || launch->instead != function) keep_answer(launch);
    if (launch->bytes && launch->instead != function && !lengthen(longer))
        launch->instead = function;
}

/* The driver refused the chosen function, which has not run then. Report that to Python, with the result
   of the program's own function, which was launched in its place. Return that result. */
static Result refused(Launch *launch, Result chosen, Result plain) {
    launch->refused = (uint32_t)chosen;
    launch->otherwise = (uint32_t)plain;
    ask(launch);
    return plain;
}

/* Note that a launch was made with a buffer of a stock; where it was refused, return whether to ask
   Python about it, and make it as if there were no stock. */
static int ask_anew(Longer *longer, Result result, void **params, void **extra) {
    int refused = longer->stock && result;
    end(longer, result ? REFUSED : longer->now);
    if (!refused) return 0;
    longer->launch.params = params;
    longer->launch.extra = extra;
    longer->launch.bytes = longer->launch.replaces = 0;
    choose(longer, 1);
    return 1;
}

/* Choose what to launch, and launch it: CALL is the driver's, of ``longer``. */
#define MAKE(result, params, extra, CALL)                                                            \
    choose(&longer, 0);                                                                              \
    Result result;                                                                                   \
    do {                                                                                             \
        Handle first = mark_begin(longer.launch.stream);                                             \
        result = CALL;                                                                               \
        mark_end(first, longer.launch.stream);                                                       \
    } while (ask_anew(&longer, result, params, extra))

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
        MAKE(result, params, extra,                                                                  \
             real_##name(longer.launch.instead, gx, gy, gz, bx, by, bz, shared, stream,              \
                         longer.launch.params, longer.launch.extra));                                \
        if (!result || longer.launch.instead == f) return result;                                    \
        return refused(&longer.launch, result,                                                       \
                       real_##name(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra));       \
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
        MAKE(result, params, NULL,                                                                   \
             real_##name(longer.launch.instead, gx, gy, gz, bx, by, bz, shared, stream,              \
                         longer.launch.params));                                                     \
        if (!result || longer.launch.instead == f) return result;                                    \
        return refused(&longer.launch, result,                                                       \
                       real_##name(f, gx, gy, gz, bx, by, bz, shared, stream, params));              \
    }

typedef struct {
    uint32_t grid[3], block[3], shared;
    Handle stream;
    const void *attributes;
    uint32_t count;
} Config; /* CUlaunchConfig */

enum { COOPERATIVE = 2, SERIALIZED_BY_PROGRAM = 6 }; /* attributes */
enum { ATTRIBUTE = 18 };                             /* 32-bit words of each */

static uint32_t asked_for(const Config *config, uint32_t attribute) {
    const uint32_t *each = config->attributes;
    for (uint32_t i = 0; i < config->count; i++, each += ATTRIBUTE)
        if (each[0] == attribute && each[2]) return 1;
    return 0;
}

/* Return whether a launch's configuration is there: the driver refuses one that is not. */
static int is_readable(const Config *config) {
    return config && (config->attributes || !config->count);
}

#define LAUNCH_EX(name, default_stream)                                                              \
    static Result (*real_##name)(const Config *, Handle, void **, void **);                          \
    SEEN(name)(const Config *config, Handle f, void **params, void **extra) {                        \
        NEED(name);                                                                                  \
        if (!is_readable(config)) return real_##name(config, f, params, extra);                      \
        const uint32_t *grid = config->grid, *block = config->block;                                 \
        Longer longer;                                                                               \
        longer.launch = (Launch){f, 0, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]},  \
                                 config->shared, asked_for(config, COOPERATIVE),                     \
                                 .stream = config->stream ? config->stream : default_stream,         \
                                 .overlaps = asked_for(config, SERIALIZED_BY_PROGRAM),               \
                                 .params = params, .extra = extra,                                   \
                                 .attributes = config->attributes, .count = config->count};          \
        MAKE(result, params, extra,                                                                  \
             real_##name(config, longer.launch.instead, longer.launch.params,                        \
                         longer.launch.extra));                                                      \
        if (!result || longer.launch.instead == f) return result;                                    \
        return refused(&longer.launch, result, real_##name(config, f, params, extra));               \
    }

LAUNCH(cuLaunchKernel, NULL)
LAUNCH(cuLaunchKernel_ptsz, PER_THREAD)
LAUNCH_EX(cuLaunchKernelEx, NULL)
LAUNCH_EX(cuLaunchKernelEx_ptsz, PER_THREAD)
COOPERATE(cuLaunchCooperativeKernel, NULL)
COOPERATE(cuLaunchCooperativeKernel_ptsz, PER_THREAD)
