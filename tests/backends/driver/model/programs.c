/* Random programs on the model of the driver, through the library before it.

   programs HOOK MODEL FIRST COUNT [threads | forks]

   Each loads, looks up, launches, unloads, and ends contexts, in any order, and some calls fail.
   Where the library asks, an answer comes as ikp's does: by what was known of the function's id when
   it was first seen, a copy with records is loaded and launched. What is wrong ends the run: a launch
   of other code than without the library, and a count of launches that is not theirs. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

typedef struct {
    Thing *function;
    uint64_t id;
    unsigned grid[3], block[3], shared, cooperative;
    void *stream;
    unsigned extensible, overlaps, node, refused;
    Thing *instead;
    unsigned decided, ordinal, offset, bytes;
    uint64_t words[9];
} Launch; /* as in launch.h, up to what is looked at here */

/* As in stock.h. */
typedef struct Stock {
    struct Stock *next;
    Thing *function;
    uint64_t id, context, thread;
    void *stream;
    unsigned grid[3], block[3], cooperative, extensible, ordinal, offset, bytes, replaces;
    Thing *instead;
    uint64_t changes, revoked, until;
    unsigned count, taken;
    uint64_t told[9];
    const uint64_t *addresses;
    int64_t *times;
} Stock;

enum { BUFFERS = 3 };

/* A stock, and how many of its buffers were seen to be launched with. */
typedef struct {
    Stock stock;
    uint64_t addresses[BUFFERS];
    int64_t times[BUFFERS + 8];
    unsigned seen;
} Kept;

typedef struct {
    uint64_t id;
    Thing *parent;
    uint64_t name, origin, image;
    unsigned kind;
} About;

enum { UNSEEN = 6 }; /* a context: 5 */
enum { KERN = 7 }; /* where parameters of a node have a kernel, in words of 64 bits */
enum { FEW = 24, SLOT = 7, CHILDREN = 60, ALONE = 200 };
enum { CONTEXTS, GREENS, LIBRARIES, MODULES, PARTS, LISTS };

/* What an answer remembers of a function. */
typedef struct {
    uint64_t id, context;
    int code, decided;
    char name[8];
    Thing *module, *with_records;
} Seen;

typedef struct {
    uint64_t seed, number;
    int step, alone, hidden;
    Thing *held[LISTS][FEW];
    uint64_t numbers[LISTS][FEW]; /* of these: a handle is given out again, a number is not */
    Seen seen[4 * FEW];
    Kept *kept[8 * FEW];
    int count, asked, decided, stocks;
    uint64_t quietly;
} Program;

static __thread Program *now;
static void *hook, *model;
static uint64_t *passed;
static uint64_t recorded, launched, stocked;
static int waking, woken; /* how often all decisions began, and ended, to be void */
static int old; /* contexts have no numbers */

#define CALL(name, ...) ((R(*)())dlsym_once(&name##_at, hook, #name))(__VA_ARGS__)
#define SLOTS_OF(name) static void *name##_at;
static void *dlsym_once(void **at, void *library, const char *name) {
    if (!*at) *at = dlsym(library, name);
    if (!*at) fprintf(stderr, "no %s\n", name), exit(3);
    return *at;
}
#define ALL(each)                                                                                  \
    each(cuCtxCreate) each(cuCtxDestroy_v2) each(cuCtxSetCurrent) each(cuDevicePrimaryCtxRetain)   \
    each(cuDevicePrimaryCtxRelease_v2) each(cuDevicePrimaryCtxReset_v2) each(cuGreenCtxCreate)     \
    each(cuCtxFromGreenCtx) each(cuGreenCtxDestroy) each(cuModuleLoadData)                         \
    each(cuLibraryLoadData) each(cuModuleUnload) each(cuLibraryUnload) each(cuModuleGetFunction)   \
    each(cuLibraryGetKernel) each(cuLibraryGetModule) each(cuKernelGetFunction)                    \
    each(cuFuncGetModule) each(cuModuleEnumerateFunctions) each(cuLibraryEnumerateKernels)         \
    each(cuFuncSetCacheConfig) each(cuKernelSetCacheConfig) each(cuLaunchKernel)                   \
    each(cuLaunchCooperativeKernel) each(cuGraphAddKernelNode_v2)                                  \
    each(cuGraphKernelNodeGetParams_v2) each(ikp_about) each(ikp_copy) each(ikp_options)           \
    each(ikp_context) each(ikp_preferred) each(ikp_wake) each(ikp_stock) each(ikp_stock_end)       \
    each(ikp_revoke) each(ikp_revoked) each(ikp_changes) each(cuGraphGetNodes)
ALL(SLOTS_OF)

static Ran *(*ran)(void);
static Thing *(*current)(void);
static void (*fail)(int);
static void (*draw)(size_t, Thing **, int *, size_t, int *, int *, uint64_t *);

static unsigned roll(unsigned below) { /* xorshift64* */
    uint64_t x = now->seed;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    now->seed = x;
    return (unsigned)((x * 0x2545F4914F6CDD1Dull) >> 33) % below;
}

static void wrong(const char *what) {
    printf("program %llu, step %d: %s\n", (unsigned long long)now->number, now->step, what);
    fflush(stdout);
    _exit(1);
}

static void write_image(char *image, int code, int records) {
    static const unsigned char elf[] = {0x7F, 'E', 'L', 'F'};
    memset(image, 0, 128);
    memcpy(image, elf, 4);
    image[32] = (char)128; /* its table of segments is empty and last */
    memcpy(image + 64, &code, 4);
    if (records) memcpy(image + 80, "ikp_buffer", 10);
}

/* --- what answers -------------------------------------------------------------------------------- */

static int look(Seen *made, Launch *launch) {
    About about = {0};
    char image[128];
    Thing *at = launch->function;
    made->id = launch->id;
    made->name[0] = 0;
    for (int up = 0; up < 4 && at; up++) {
        if (CALL(ikp_about, at, &about)) return 0;
        if (!up && about.id != launch->id) wrong("the id of a launch is not its function's");
        if (!made->name[0] && about.name) {
            memset(made->name, 0, sizeof made->name);
            CALL(ikp_copy, at, about.id, 0, made->name, (size_t)about.name);
        }
        if (!about.parent) break;
        at = about.parent;
    }
    if (!made->name[0] || about.image != 128) return 0;
    if (CALL(ikp_copy, at, about.id, 2, image, (size_t)128)) wrong("an image that is there is gone");
    memcpy(&made->code, image + 64, 4);
    return 1;
}

static Seen *known(Launch *launch) {
    uint64_t context = 0;
    CALL(ikp_context, &context);
    Seen *same = NULL;
    for (int i = 0; i < now->count; i++)
        if (now->seen[i].id == launch->id) {
            if (now->seen[i].context == context) return &now->seen[i];
            same = &now->seen[i];
        }
    if (now->count == 4 * FEW) return NULL;
    Seen *made = &now->seen[now->count];
    if (same)
        *made = *same, made->module = made->with_records = NULL;
    else if (!look(made, launch))
        return NULL;
    made->context = context;
    now->count++;
    return made;
}

/* Take buffers ahead, for launches like one that is recorded. */
static void keep(const Launch *launch, uint64_t context) {
    if (now->stocks == 8 * FEW) return;
    Kept *made = calloc(1, sizeof *made);
    Stock *stock = &made->stock;
    *stock = (Stock){.function = launch->function, .id = launch->id, .context = context,
                         .thread = (uint64_t)pthread_self(), .stream = launch->stream,
                         .cooperative = launch->cooperative, .extensible = launch->extensible,
                         .instead = launch->instead, .until = ~0ull, .count = BUFFERS,
                         .addresses = made->addresses, .times = made->times};
    memcpy(stock->grid, launch->grid, sizeof launch->grid);
    memcpy(stock->block, launch->block, sizeof launch->block);
    CALL(ikp_changes, &stock->changes);
    CALL(ikp_revoked, &stock->revoked);
    if (CALL(ikp_stock, stock)) free(made);
    else now->kept[now->stocks++] = made;
}

/* Look at what was launched with buffers of stocks since the last call; return how many were. */
static unsigned taken(void) {
    uint64_t changes, revoked;
    unsigned found = 0;
    CALL(ikp_changes, &changes);
    CALL(ikp_revoked, &revoked);
    for (int i = 0; i < now->stocks; i++) {
        Kept *each = now->kept[i];
        unsigned before = each->seen;
        while (each->times[each->seen]) each->seen++;
        if (each->seen > BUFFERS) wrong("more buffers are taken than there are");
        if (each->seen == before) continue;
        found += each->seen - before;
        if (!now->alone) continue;
        if (each->stock.changes != changes) wrong("a buffer is taken after settings changed");
        if (each->stock.revoked != revoked) wrong("a buffer is taken after stocks are revoked");
    }
    return found;
}

static void end_stocks(void) {
    for (int i = 0; i < now->stocks; i++) {
        unsigned count = (unsigned)CALL(ikp_stock_end, &now->kept[i]->stock);
        if (count != now->kept[i]->seen) wrong("a buffer was taken, and not launched with");
        free(now->kept[i]);
    }
    now->stocks = 0;
}

static __thread Seen *deciding;

static void answer(Launch *launch) {
    deciding = NULL;
    now->asked++;
    if (launch->node && launch->id) launch->decided = 1 + SLOT * roll(2);
    if (launch->refused || launch->node || !launch->id) return;
    Seen *seen = known(launch);
    if (!seen) return;
    if (launch->function->code != seen->code || strcmp(launch->function->name, seen->name))
        wrong("what is known of a function is another's");
    if (seen->decided == 1 + __atomic_load_n(&waking, __ATOMIC_SEQ_CST))
        wrong("a function that was decided is asked about again");
    if (!roll(6)) {
        launch->decided = 1 + SLOT * !roll(2);
        deciding = seen;
        return;
    }
    if (!roll(4)) return;
    if (!seen->with_records) {
        char image[128];
        write_image(image, seen->code, 1);
        if (CALL(cuModuleLoadData, &seen->module, image)) return;
        if (CALL(cuModuleGetFunction, &seen->with_records, seen->module, seen->name)) {
            seen->with_records = NULL;
            return;
        }
    }
    launch->instead = seen->with_records;
    if (roll(2)) keep(launch, seen->context);
}

/* What the library calls of Python. */
static int ensure(void) { return 0; }
static void release(int state) { (void)state; }
static void *from_address(void *address) { return address; }
static void *call(void *whom, ...) {
    __builtin_va_list list;
    __builtin_va_start(list, whom);
    Launch *launch = __builtin_va_arg(list, Launch *);
    __builtin_va_end(list);
    answer(launch);
    if (roll(16)) {
        int over = __atomic_load_n(&woken, __ATOMIC_SEQ_CST);
        if (deciding && __atomic_load_n(&waking, __ATOMIC_SEQ_CST) == over) deciding->decided = 1 + over;
        return launch;
    }
    launch->instead = NULL; /* something strikes, wherever that is */
    launch->bytes = 8;
    return NULL;
}
static void fetch(void **type, void **value, void **trace) { *type = &hook, *value = &model, *trace = NULL; }
static void normalize(void **type, void **value, void **trace) { (void)type, (void)value, (void)trace; }
static int set_traceback(void *value, void *trace) { return value == trace; }
static void *type_of(void *value) { return value; }
static void decref(void *value) { (void)value; }
static void set(void *type, void *value) { (void)type, (void)value; }
static int pending(int (*f)(void *), void *value) { (void)f, (void)value; return 0; }
static int strike(unsigned long thread, void *type) { (void)thread, (void)type; return 0; }
static unsigned long thread(void) { return 1; }
static void *const functions[] = {ensure, release, from_address, call, fetch, normalize, set_traceback,
                                  type_of, decref, set, pending, strike, thread, (void *)1};

/* --- what a program does ------------------------------------------------------------------------- */

static void add(int list, Thing *made) {
    unsigned at = roll(FEW);
    for (unsigned i = 0; i < FEW; i++)
        if (!now->held[list][i]) at = i;
    for (unsigned i = 0; i < FEW; i++)
        if (now->held[list][i] == made) at = i;
    now->held[list][at] = made;
    now->numbers[list][at] = made->number;
}

static Thing *any(int list, int kind) {
    for (unsigned i = 0, at = roll(FEW); i < FEW; i++, at = (at + 1) % FEW)
        if (now->held[list][at] && now->held[list][at]->kind == kind) return now->held[list][at];
    return NULL;
}

/* What is gone, a program does not use again. */
static void let_go(void) {
    for (int list = 0; list < LISTS; list++)
        for (int i = 0; i < FEW; i++) {
            Thing *each = now->held[list][i];
            if (each && (!each->kind || each->number != now->numbers[list][i]))
                now->held[list][i] = NULL;
        }
}

/* What Python asks beside, which may be of a handle that is another's by now. */
static void ask_beside(void) {
    Thing *part = any(PARTS, roll(2) ? FUNCTION : KERNEL);
    uint64_t options[2];
    unsigned count;
    int cache, banks;
    if (part && roll(2)) CALL(ikp_options, part, part->number, options, 1, &count);
    else if (part) CALL(ikp_preferred, part, 0, &cache, &banks);
}

static void launch(void) {
    Thing *part = any(PARTS, roll(2) ? FUNCTION : KERNEL), *context = current();
    if (!part || !context || (part->kind == FUNCTION && part->context != context)) return;
    Ran before = *ran();
    int code = part->code, asked = now->asked;
    char name[8];
    memcpy(name, part->name, 8);
    R result = roll(8) ? CALL(cuLaunchKernel, part, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL)
                       : CALL(cuLaunchCooperativeKernel, part, 1, 1, 1, 32, 1, 1, 0, NULL, NULL);
    launched++;
    unsigned by_stock = taken();
    stocked += by_stock;
    if (by_stock > 1) wrong("a launch takes two buffers");
    if (result == FAILS) return;
    Ran after = *ran();
    if (by_stock && asked == now->asked && !after.patched) wrong("a buffer is taken for nothing");
    if (!by_stock && asked == now->asked && after.patched) wrong("records have no buffer");
    if (!after.patched && after.function != part) wrong("another function is launched");
    if (result) wrong("a launch is refused that was none without");
    if (after.times != before.times + 1) wrong("a launch is made twice, or not at all");
    if (after.code != code || memcmp(after.name, name, 8)) wrong("other code is launched");
    recorded += (uint64_t)after.patched;
    if (after.patched) {
        Thing *node = after.function, *shown[16] = {NULL};
        CALL(cuGraphKernelNodeGetParams_v2, &node, shown);
        if (shown[part->kind == KERNEL ? KERN : 0] != part) wrong("a node shows another function");
        Thing *functions[] = {NULL, after.function}; /* a write of launch parameters comes first */
        int types[] = {12, 0}, from = 0, to = 1;
        uint64_t data = 0;
        size_t nodes = 0;
        draw(2, functions, types, 1, &from, &to, &data);
        CALL(cuGraphGetNodes, NULL, NULL, &nodes);
        if (nodes != 1) wrong("a graph shows a node of ikp's");
    }
}

static void load(void) {
    char image[128];
    Thing *made;
    write_image(image, (int)roll(1 << 20), 0);
    if (roll(2)) {
        if (!CALL(cuModuleLoadData, &made, image)) add(MODULES, made);
    } else if (!CALL(cuLibraryLoadData, &made, image, NULL, NULL, 0, NULL, NULL, 0))
        add(LIBRARIES, made);
}

static void look_up(void) {
    Thing *made = NULL, *two[2] = {NULL, NULL}, *module = any(MODULES, MODULE);
    Thing *library = any(LIBRARIES, LIBRARY), *kernel = any(PARTS, KERNEL);
    Thing *function = any(PARTS, FUNCTION);
    const char *name = roll(2) ? "a" : "b";
    R failed = 1;
    static void *hidden;
    switch (roll(10)) {
    case 7: case 8: /* in a way that the library does not see */
        if (!module || now->number % 2) break;
        now->hidden = 1;
        failed = ((R(*)())dlsym_once(&hidden, model, "cuModuleGetFunction"))(&made, module, name);
        break;
    case 0: case 1: if (module) failed = CALL(cuModuleGetFunction, &made, module, name); break;
    case 2: case 3: if (library) failed = CALL(cuLibraryGetKernel, &made, library, name); break;
    case 4: if (kernel) failed = CALL(cuKernelGetFunction, &made, kernel); break;
    case 5: if (library && !CALL(cuLibraryGetModule, &two[0], library)) add(MODULES, two[0]); break;
    case 6:
        if (function && function->context == current() && !CALL(cuFuncGetModule, &two[0], function))
            add(MODULES, two[0]);
        break;
    default:
        if (module && roll(2)) failed = CALL(cuModuleEnumerateFunctions, two, 2, module);
        else if (library) failed = CALL(cuLibraryEnumerateKernels, two, 2, library);
        if (!failed) made = two[roll(2)];
    }
    if (!failed) add(PARTS, made);
}

static void change(void) {
    Thing *part = any(PARTS, roll(2) ? FUNCTION : KERNEL);
    Thing *node, *shown[16] = {part};
    int cache, banks, want = 1 + (int)roll(3);
    if (!part) return;
    R failed = part->kind == FUNCTION ? CALL(cuFuncSetCacheConfig, part, want)
                                      : CALL(cuKernelSetCacheConfig, part, want, 0);
    CALL(ikp_preferred, part, 0, &cache, &banks);
    if (roll(2)) CALL(cuGraphAddKernelNode_v2, &node, NULL, NULL, (size_t)0, shown);
    if (!roll(8)) {
        __atomic_add_fetch(&waking, 1, __ATOMIC_SEQ_CST);
        CALL(ikp_wake);
        __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
    }
    if (!failed && cache != want && cache != -1) wrong("another cache is preferred");
}

/* What the driver has just ended is known of no more. */
static void expect_forgotten(void) {
    About about;
    if (!now->alone) return; /* another thread may have been given the handle */
    for (int list = LIBRARIES; list < LISTS; list++) /* the others are not looked up */
        for (int i = 0; i < FEW; i++) {
            Thing *each = now->held[list][i];
            if (!each || each->kind || CALL(ikp_about, each, &about)) continue;
            while (about.parent && !CALL(ikp_about, about.parent, &about)) continue;
            /* It may not have been known at all, and what had its handle have ended unseen. */
            if (about.kind < UNSEEN - 1 && !now->hidden) wrong("what is gone is known");
        }
}

static void unload(void) {
    Thing *library = any(LIBRARIES, LIBRARY), *module = any(MODULES, MODULE);
    if (roll(2) && library) CALL(cuLibraryUnload, library);
    else if (module && !module->of) CALL(cuModuleUnload, module);
    expect_forgotten();
}

static void go_on(void) { /* with some context */
    Thing *context = any(CONTEXTS, CONTEXT), *made;
    if (context && roll(4))
        CALL(cuCtxSetCurrent, context);
    else if (now->alone && roll(2)) {
        if (!CALL(cuDevicePrimaryCtxRetain, &made, 0)) add(CONTEXTS, made), CALL(cuCtxSetCurrent, made);
    } else if ((now->alone || !old) && roll(2)) { /* these came after numbers of contexts */
        Thing *green = any(GREENS, GREEN);
        if (!green && !CALL(cuGreenCtxCreate, &green)) add(GREENS, green);
        if (green && !CALL(cuCtxFromGreenCtx, &made, green)) add(CONTEXTS, made), CALL(cuCtxSetCurrent, made);
    } else if (!CALL(cuCtxCreate, &made, 0, 0))
        add(CONTEXTS, made);
}

/* End a context, and get functions with handles of its own, all unseen. */
static void end_unseen(Thing *context) {
    static void *destroy, *get;
    Thing *module, *made;
    char image[128];
    ((R(*)())dlsym_once(&destroy, model, "cuCtxDestroy_v2"))(context);
    now->hidden = 1;
    let_go(); /* its handle may be another thread's context by now */
    go_on();
    write_image(image, (int)roll(1 << 20), 0);
    if (CALL(cuModuleLoadData, &module, image)) return;
    add(MODULES, module);
    for (unsigned i = 0; i < 2; i++)
        if (!((R(*)())dlsym_once(&get, model, "cuModuleGetFunction"))(&made, module, i ? "b" : "a"))
            add(PARTS, made);
    let_go();
    for (unsigned i = 0; i < 4; i++) launch();
}

static void end_context(void) {
    static void *unseen;
    Thing *context = any(CONTEXTS, CONTEXT), *green = any(GREENS, GREEN);
    unsigned how = now->alone ? roll(6 - 2 * (unsigned)old) : (unsigned[]){0, 3, 5}[roll(3 - (unsigned)old)];
    switch (how) {
    case 1: CALL(cuDevicePrimaryCtxRelease_v2, 0); break;
    case 2: CALL(cuDevicePrimaryCtxReset_v2, 0); break;
    case 3:
        fail(!roll(2));
        if (green) CALL(cuGreenCtxDestroy, green);
        break;
    case 4: ((R(*)())dlsym_once(&unseen, model, "cuDevicePrimaryCtxReset_v2"))(0); break;
    case 5: if (context) end_unseen(context); break;
    default: if (context) CALL(cuCtxDestroy_v2, context);
    }
    if (how < 4) expect_forgotten();
}

static void step(void) {
    if (!roll(24)) fail(1 + (int)roll(4));
    if (!roll(48)) CALL(ikp_revoke);
    unsigned what = roll(40);
    if (!current() || what < 3) go_on();
    else if (what < 9) load();
    else if (what < 19) look_up();
    else if (what < 32)
        for (unsigned times = 1 + roll(3); times; times--) launch();
    else if (what < 34) change();
    else if (what < 37) unload();
    else if (what < 38) ask_beside();
    else if (what < 39) end_context();
    fail(0);
    let_go();
}

static void end_all(void) {
    for (int i = 0; i < FEW; i++) {
        if (now->held[LIBRARIES][i]) CALL(cuLibraryUnload, now->held[LIBRARIES][i]);
        if (now->held[GREENS][i]) CALL(cuGreenCtxDestroy, now->held[GREENS][i]);
        let_go();
    }
    if (now->alone) CALL(cuDevicePrimaryCtxReset_v2, 0);
    let_go();
    for (int i = 0; i < FEW; i++)
        if (now->held[CONTEXTS][i] && now->held[CONTEXTS][i]->kind == CONTEXT) {
                    CALL(cuCtxDestroy_v2, now->held[CONTEXTS][i]);
            let_go();
        }
}

static void run(uint64_t number, int alone) {
    Program program = {.seed = (number + 1) * 0x9E3779B97F4A7C15ull, .number = number, .alone = alone};
    now = &program;
    CALL(cuCtxSetCurrent, NULL);
    for (program.step = 0; program.step < 60; program.step++) step();
    end_all();
    end_stocks();
}

static uint64_t first, count;
static void *runs(void *about) {
    for (uint64_t i = 0; i < count; i++) run(first + i + ((uint64_t)(uintptr_t)about << 40), 0);
    return NULL;
}

static int forks(void) { /* each child launches, and ends */
    int hung = 0;
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (!child) {
            alarm(5);
            run(1, 0);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        hung += WIFSIGNALED(status);
    }
    if (hung) printf("%d of %d children hang\n", hung, CHILDREN);
    return hung != 0;
}

int main(int argc, char **argv) {
    hook = dlopen(argv[1], RTLD_NOW);
    model = dlopen(argv[2], RTLD_NOW);
    if (!hook || !model) return fprintf(stderr, "%s\n", dlerror()), 3;
    *(void **)&ran = dlsym(model, "model_ran");
    *(void **)&draw = dlsym(model, "model_draw");
    *(void **)&current = dlsym(model, "model_current");
    *(void **)&fail = dlsym(model, "model_fail");
    first = strtoull(argv[3], NULL, 0), count = strtoull(argv[4], NULL, 0);
    ((R(*)(uint64_t **))dlsym(hook, "ikp_passed"))(&passed);
    ((R(*)(void *, const void *))dlsym(hook, "ikp_ask"))(&hook, functions);
    old = !dlsym(model, "cuCtxGetId");
    const char *how = argc > 5 ? argv[5] : "";
    pthread_t threads[4];
    /* Each thread that looks for a function of the driver finds the same: that is no race to report. */
    for (uint64_t i = 0; *how && i < ALONE; i++) run(first + i, 1);
    if (*how)
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, runs, (void *)(uintptr_t)(i + 1));
    int failed = strcmp(how, "forks") ? 0 : forks();
    if (!strcmp(how, "forks")) _exit(failed);
    if (*how)
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    else
        for (uint64_t i = 0; i < count; i++) run(first + i, 1);
    printf("%llu programs, %llu launches, %llu recorded, %llu by stocks\n",
           (unsigned long long)count, (unsigned long long)launched, (unsigned long long)recorded,
           (unsigned long long)stocked);
    return 0;
}
