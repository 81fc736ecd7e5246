/* A CUDA driver without a device: what it is asked to do, it writes down. In another process than
   the one that FAKE_PARENT names, kernels do what FAKE_CHILD says. */
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef int R;
typedef void *H;

static char log_[1 << 20];
static size_t at;
static char handles[4096];
static int used = 1;
static int attributes[4096][32];
static unsigned char patched[4096];
static int off, runs;
static char memory[1 << 16];
static size_t taken = 256;
static int context_ = 7, captured;

#define SAY(...) (at += (size_t)snprintf(log_ + at, sizeof log_ - at, __VA_ARGS__))
#define NUMBER(handle) ((int)((char *)(handle) - handles))

/* What a module's file says of a kernel's parameters: how many, where each is, and how long. */
typedef struct {
    int count, end, at[64], size[64];
} Parameters;
static const char *images[4096];
static Parameters parameters[4096];

static uint64_t number(const char *from, int bytes) {
    uint64_t made = 0;
    memcpy(&made, from, (size_t)bytes);
    return made;
}

static void describe(Parameters *made, const char *image, const char *name) {
    const char *table = image + number(image + 40, 8);
    const char *names = image + number(table + 64 * number(image + 62, 2) + 24, 8);
    for (unsigned i = 0; i < number(image + 60, 2); i++) {
        const char *section = table + 64 * i, *title = names + number(section, 4);
        if (strncmp(title, ".nv.info.", 9) || strcmp(title + 9, name)) continue;
        const char *each = image + number(section + 24, 8), *end = each + number(section + 32, 8);
        while (each < end) {
            int sized = each[0] == 4, value = (int)number(each + 2, 2);
            if (each[1] == 0x17) {
                int which = (int)number(each + 8, 2);
                made->at[which] = (int)number(each + 10, 2);
                made->size[which] = (int)(number(each + 12, 4) >> 18);
                made->count += 1;
            } else if (each[1] == 0x19)
                made->end = value;
            each += 4 + sized * value;
        }
    }
}

/* What is to happen in the other process: "fault patched", "hang plain", "die patched", "taken"... */
static int told(const char *what) {
    const char *wish = getenv("FAKE_CHILD"), *parent = getenv("FAKE_PARENT");
    return wish && parent && atoi(parent) != getpid() && !strncmp(wish, what, strlen(what));
}
static int told_of(const char *what, int ours) {
    return told(what) && strstr(getenv("FAKE_CHILD"), ours ? "patched" : "plain") != NULL;
}
enum { ILLEGAL_ADDRESS = 700, NOT_READY = 600 };
static int broken, hangs; /* a fault stays: nothing works any more */
static sigjmp_buf outside;
static void strayed(int number) { (void)number; siglongjmp(outside, 1); }

static H make(void) { return &handles[used++]; }
static H part(H of) {
    H made = make();
    patched[NUMBER(made)] = patched[NUMBER(of)];
    return made;
}
const char *fake_log(void) { return log_; }
void fake_clear(void) { at = 0; log_[0] = 0; }
void fake_capture(int on) { captured = on; }
void fake_context(int which) { context_ = which; }
char *fake_memory(void) { return memory; }
void fake_run(int on) { runs = on; } /* whether kernels do what they are for */
void fake_off(int much) { off = much; } /* what patched kernels compute beside */

R cuInit(unsigned flags) { return told("no context") ? 46 : (R)flags; }
R cuModuleLoadData(H *made, const void *image) {
    const char *text = image;
    if (!memcmp(text, "\177ELF", 4)) {
        uint64_t end;
        uint16_t size, count;
        memcpy(&end, text + 40, 8);
        memcpy(&size, text + 58, 2);
        memcpy(&count, text + 60, 2);
        int ours = memmem(text, end + (uint64_t)size * count, "ikp_buffer", 10) != NULL;
        *made = make();
        patched[NUMBER(*made)] = ours;
        char *copy = malloc(end + (uint64_t)size * count);
        images[NUMBER(*made)] = memcpy(copy, text, end + (uint64_t)size * count);
        SAY("load %d%s\n", NUMBER(*made), ours ? " patched" : "");
        return 0;
    }
    *made = make();
    SAY("load %d\n", NUMBER(*made));
    return 0;
}
/* It compiles PTX, in a way, for CUPTI to show: to the file that FAKE_COMPILED names. What it was
   asked with, it appends to the file that FAKE_OPTIONS names. */
typedef void (*Shown)(void *user, unsigned domain, unsigned which, const void *about);
static Shown shown;
R cuptiSubscribe(H *made, Shown callback, void *user) {
    (void)user;
    *made = make();
    shown = callback;
    return told("no subscriber") ? 39 : 0;
}
R cuptiEnableCallback(unsigned on, H subscriber, unsigned domain, unsigned which) {
    (void)subscriber;
    return on != 1 || domain != 3 || which != 6;
}
R cuptiGetResultString(int code, const char **name) {
    *name = code == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : NULL;
    return 0;
}
R cuptiUnsubscribe(H subscriber) { (void)subscriber, shown = NULL; return 0; }
static void compile(const char *how, unsigned count, const unsigned *options, void **values) {
    const char *told_to = getenv("FAKE_OPTIONS"), *path = getenv("FAKE_COMPILED");
    FILE *list = shown && told_to ? fopen(told_to, "a") : NULL, *file;
    if (list) {
        fprintf(list, "%s", how);
        for (unsigned i = 0; i < count; i++)
            fprintf(list, " %u=%u", options[i], (unsigned)(uintptr_t)values[i]);
        fprintf(list, "\n");
        fclose(list);
    }
    for (unsigned i = 0; i < count; i++) values[i] = (void *)999; /* as the driver writes some */
    if (!shown || !path || !(file = fopen(path, "rb"))) return;
    static char code[1 << 20];
    struct {
        uint32_t id;
        size_t size;
        const char *code;
    } module = {1, fread(code, 1, sizeof code, file), code};
    fclose(file);
    shown(NULL, 3, 6, (const void *[]){NULL, NULL, &module});
}
R cuModuleLoadDataEx(H *made, const void *image, unsigned count, const unsigned *options,
                     void **values) {
    compile("module", count, options, values);
    return cuModuleLoadData(made, image);
}
R cuModuleUnload(H gone) { SAY("unload %d\n", NUMBER(gone)); return 0; }
R cuModuleGetFunction(H *made, H module, const char *name) {
    *made = part(module);
    const char *image = images[NUMBER(module)];
    if (image) describe(&parameters[NUMBER(*made)], image, name);
    SAY("function %d of %d %s\n", NUMBER(*made), NUMBER(module), name);
    return 0;
}
R cuLibraryLoadData(H *made, const void *image, void *a, void **b, unsigned c, void *d, void **e,
                    unsigned f) {
    (void)image, (void)d, (void)e, (void)f;
    compile("library", c, a, b);
    *made = make();
    SAY("library %d\n", NUMBER(*made));
    return 0;
}
R cuLibraryGetKernel(H *made, H library, const char *name) {
    *made = make();
    SAY("kernel %d of %d %s\n", NUMBER(*made), NUMBER(library), name);
    return 0;
}
R cuKernelGetFunction(H *made, H kernel) {
    *made = part(kernel);
    memcpy(attributes[NUMBER(*made)], attributes[NUMBER(kernel)], sizeof attributes[0]);
    return 0;
}
R cuFuncGetAttribute(int *value, int which, H f) {
    enum { NUM_REGS = 4 };
    *value = which == NUM_REGS ? 255 : attributes[NUMBER(f)][which];
    return 0;
}
R cuFuncSetAttribute(H f, int which, int value) {
    attributes[NUMBER(f)][which] = value;
    SAY("set %d %d=%d\n", NUMBER(f), which, value);
    return 0;
}
R cuCtxGetCurrent(H *made) { *made = &handles[4000 + context_]; return 0; }
R cuCtxGetDevice(int *made) { *made = 0; return 0; }
static int begun; /* this process has a context */
R cuDevicePrimaryCtxRetain(H *made, int device) {
    (void)device;
    *made = &handles[4007];
    begun = 1;
    return 0;
}
R cuDevicePrimaryCtxRelease_v2(int device) { return device; }
static int reset_;
R cuDevicePrimaryCtxReset_v2(int device) { SAY("reset %d\n", device); reset_ = 1; return 0; }
R cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = 1;
    return device;
}
R cuDeviceGetAttribute(int *value, int which, int device) {
    (void)device;
    *value = which == 75 ? 9 : 0;
    return 0;
}
/* Events, each a number from 1 on; the time between two is ten times the difference, in us, and less
   than nothing where the second was recorded first. An idle device has reached each of them. */
static int events_, recorded_, order_[4096];
int fake_events, fake_idle_;
void fake_have_events(int on) { fake_events = on; }
void fake_idle(int on) { fake_idle_ = on; }
R cuEventCreate(H *made, unsigned flags) {
    (void)flags;
    if (!fake_events) return 1;
    *made = (H)(uintptr_t)++events_;
    return 0;
}
R cuEventRecord(H event, H stream) {
    SAY("event %d on %d\n", (int)(uintptr_t)event, (int)(uintptr_t)stream);
    order_[(uintptr_t)event % 4096] = ++recorded_;
    return 0;
}
/* The device waits for a function of the host, which runs once somebody waits for the device. */
static void (*held_by_)(void *);
static void *held_with_;
static int holds_ = 1, launch_waits_;
void fake_holds(int on) { holds_ = on; }
void fake_launch_waits(int on) { launch_waits_ = on; }
R cuLaunchHostFunc(H stream, void (*function)(void *), void *with) {
    if (!holds_) return 1;
    SAY("held on %d\n", (int)(uintptr_t)stream);
    held_by_ = function, held_with_ = with;
    return 0;
}
/* Wait for the device; return for how many us it was held. */
int fake_wait(void) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (held_by_) held_by_(held_with_);
    held_by_ = NULL;
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (int)((to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000);
}
static int busy_(void) { return !fake_idle_ || held_by_; }
R cuEventQuery(H event) { (void)event; return busy_() ? 600 : 0; }
int fake_destroyed;
R cuEventDestroy_v2(H event) { (void)event; fake_destroyed++; return 0; }
R cuEventElapsedTime(float *took, H from, H to) {
    if (reset_) SAY("an event that is gone\n");
    *took = 0.01f * (float)((uintptr_t)to - (uintptr_t)from);
    if (order_[(uintptr_t)to % 4096] < order_[(uintptr_t)from % 4096]) *took = -*took;
    return 0;
}
R cuStreamIsCapturing(H stream, int *status) { (void)stream; *status = captured; return 0; }
R cuStreamGetCaptureInfo_v2(H stream, int *status, uint64_t *number, H *graph, const H **before,
                            size_t *edges) {
    (void)stream, (void)graph, (void)before, (void)edges;
    *status = captured != 0;
    *number = (uint64_t)captured;
    return 0;
}
R cuThreadExchangeStreamCaptureMode(int *mode) {
    SAY("capture mode %d\n", *mode);
    *mode = 0;
    return 0;
}
static uint64_t cell; /* where a patched kernel reads the address of its buffer */
R cuModuleGetGlobal_v2(uint64_t *address, size_t *size, H module, const char *name) {
    (void)module;
    *address = (uint64_t)(uintptr_t)(memory + taken);
    *size = 16;
    taken = taken < 1 << 14 ? taken + 256 : 256;
    if (!strcmp(name, "ikp_buffer")) cell = *address;
    SAY("global %s\n", name);
    return 0;
}
R cuLibraryGetGlobal(uint64_t *address, size_t *size, H library, const char *name) {
    return cuModuleGetGlobal_v2(address, size, library, name);
}
R cuStreamBatchMemOp_v2(H stream, unsigned count, const uint64_t *operations, unsigned flags) {
    (void)flags;
    for (unsigned i = 0; i < count; i++) *(uint64_t *)(uintptr_t)operations[6 * i + 1] = operations[6 * i + 2];
    uint64_t last = operations[6 * (count - 1) + 2];
    SAY("write %u %u in stream %d\n", (uint32_t)last, (uint32_t)(last >> 32), (int)(intptr_t)stream);
    return (R)(operations[0] & 0xFFFFFFFF) - 5;
}
R cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, H stream) {
    memcpy((void *)(uintptr_t)to, from, size);
    uint64_t last;
    memcpy(&last, (const char *)from + size - 8, 8);
    SAY("copy %u %u to stream %d\n", (uint32_t)last, (uint32_t)(last >> 32), (int)(intptr_t)stream);
    return 0;
}
R cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, H stream) {
    if (broken) return ILLEGAL_ADDRESS;
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
    SAY("copy within %zu to stream %d\n", size, (int)(intptr_t)stream);
    return 0;
}
R cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
    memcpy((void *)(uintptr_t)to, from, size);
    return 0;
}
R cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
    if (broken) return ILLEGAL_ADDRESS;
    memcpy(to, (const void *)(uintptr_t)from, size);
    return 0;
}
R cuMemAlloc_v2(uint64_t *made, size_t size) {
    if (size > 1 << 20) return 2;
    *made = (uint64_t)(uintptr_t)malloc(size);
    return 0;
}
R cuMemFree_v2(uint64_t gone) { free((void *)(uintptr_t)gone); return 0; }
/* A session's memory is the host's. */
typedef struct {
    size_t x, y;
    int kind;
    char *host, *device;
    H array;
    size_t pitch;
} Side;
typedef struct {
    Side source, target;
    size_t width, height;
} Rows;
R cuMemPoolCreate(H *made, const void *wish) { (void)wish; *made = make(); return 0; }
R cuMemAllocFromPoolAsync(uint64_t *made, size_t size, H pool, H stream) {
    (void)pool, (void)stream;
    *made = (uint64_t)(uintptr_t)aligned_alloc(512, (size + 511) / 512 * 512);
    return *made ? 0 : 2;
}
R cuMemFreeAsync(uint64_t gone, H stream) { (void)stream; free((void *)(uintptr_t)gone); return 0; }
R cuMemAllocHost_v2(H *made, size_t size) { *made = malloc(size); return *made ? 0 : 2; }
R cuMemcpy2DAsync_v2(const Rows *rows, H stream) {
    (void)stream;
    const char *from = rows->source.kind == 1 ? rows->source.host : rows->source.device;
    char *to = rows->target.kind == 1 ? rows->target.host : rows->target.device;
    for (size_t i = 0; i < rows->height; i++)
        memcpy(to + i * rows->target.pitch, from + i * rows->source.pitch, rows->width);
    return 0;
}
R cuStreamSynchronize(H stream) { (void)stream; return 0; }
R cuMemGetInfo_v2(size_t *left, size_t *all) { *left = *all = (size_t)1 << 30; return 0; }
R cuDeviceGet(int *made, int ordinal) { *made = ordinal; return 0; }
R cuDeviceGetName(char *made, int size, int device) {
    snprintf(made, (size_t)size, "Model %d", device);
    return 0;
}
R cuCtxPushCurrent_v2(H context) { (void)context; return 0; }
R cuCtxPopCurrent_v2(H *made) { *made = NULL; return 0; }
/* A patched kernel writes what FAKE_RECORDS has to where its buffer is. */
static void record(H f) {
    const char *path = getenv("FAKE_RECORDS");
    FILE *file = path && cell && patched[NUMBER(f)] ? fopen(path, "rb") : NULL;
    if (!file) return;
    uint64_t to;
    memcpy(&to, (const void *)(uintptr_t)cell, 8);
    if (!fread((void *)(uintptr_t)to, 1, (size_t)1 << 26, file)) abort();
    fclose(file);
}
R cuCtxSynchronize(void) { return broken ? ILLEGAL_ADDRESS : 0; }
R cuDeviceGetCount(int *count) { *count = 1; return 0; }
R cuDeviceGetUuid_v2(char *made, int device) {
    (void)device;
    memcpy(made, told("other device") ? "another device!!" : "the only device!", 16);
    return 0;
}
R cuCtxSetCurrent(H context) { (void)context; return 0; }
static size_t limits[3] = {1024, 1 << 20, 8 << 20};
R cuCtxGetLimit(size_t *value, int which) { *value = limits[which]; return 0; }
R cuCtxSetLimit(int which, size_t value) { limits[which] = value; return 0; }
R cuStreamCreate(H *made, unsigned flags) { (void)flags; *made = make(); return 0; }
R cuStreamDestroy_v2(H gone) { (void)gone; return 0; }
R cuStreamQuery(H stream) {
    (void)stream;
    return broken ? ILLEGAL_ADDRESS : hangs || (fake_events && busy_()) ? NOT_READY : 0;
}
/* Memory at chosen addresses: the host's. */
R cuMemGetAllocationGranularity(size_t *size, const void *wish, int which) {
    (void)wish, (void)which;
    *size = 4096;
    return 0;
}
R cuMemAddressReserve(uint64_t *made, size_t size, size_t align, uint64_t wish, uint64_t flags) {
    (void)align, (void)flags;
    int fixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    int other = MAP_PRIVATE | MAP_ANONYMOUS;
    int taken = told("taken") || (told("claims") && begun); /* by what the context has for itself */
    if (wish % (32 << 20)) taken = 1; /* a driver moves it up */
    char *at = mmap((void *)(uintptr_t)wish, size, PROT_NONE, taken ? other : fixed, -1, 0);
    if (at == MAP_FAILED || taken) at = mmap(NULL, size, PROT_NONE, other, -1, 0);
    *made = (uint64_t)(uintptr_t)at;
    return 0;
}
R cuMemCreate(uint64_t *made, size_t size, const void *wish, uint64_t flags) {
    (void)wish, (void)flags;
    *made = size;
    return told("no room") ? 2 : 0;
}
R cuMemMap(uint64_t at, size_t size, size_t offset, uint64_t handle, uint64_t flags) {
    (void)offset, (void)handle, (void)flags;
    return mprotect((void *)(uintptr_t)at, size, PROT_READ | PROT_WRITE) ? 1 : 0;
}
R cuMemSetAccess(uint64_t at, size_t size, const void *access, size_t count) {
    (void)at, (void)size, (void)access, (void)count;
    return 0;
}
R cuMemUnmap(uint64_t at, size_t size) { (void)at, (void)size; return broken ? ILLEGAL_ADDRESS : 0; }
R cuMemRelease(uint64_t handle) { (void)handle; return 0; }
R cuMemAddressFree(uint64_t at, size_t size) { return munmap((void *)(uintptr_t)at, size); }
/* The last 4096 bytes are an allocation of the program's own. */
static char *const own = memory + sizeof memory - 4096;
static int is_own(uint64_t address) {
    return address >= (uint64_t)(uintptr_t)own && address < (uint64_t)(uintptr_t)own + 4096;
}
R cuPointerGetAttribute(unsigned *kind, int which, uint64_t address) {
    *kind = 2;
    return is_own(address) && which == 2 ? 0 : 1;
}
R cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t address) {
    *base = (uint64_t)(uintptr_t)own;
    *size = 4096;
    return is_own(address) ? 0 : 1;
}
R cuGetErrorName(int code, const char **name) {
    *name = code == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "FAKE";
    return 0;
}
/* Each kernel adds 1 to 32 bytes at four places: where its first parameter, a struct, points to
   with its second and fourth word, where its third parameter does, and where the memory behind the
   second of these does. Patched ones may do more at that second place. */
static void run(H f, void **params, void **extra) {
    const uint64_t *first, *third;
    if (getenv("FAKE_RUN")) runs = 1;
    if (getenv("FAKE_OFF") && told("")) off = atoi(getenv("FAKE_OFF"));
    if (!runs) return;
    int ours = patched[NUMBER(f)] || parameters[NUMBER(f)].count > 3;
    if (told_of("die", ours)) abort();
    hangs = told_of("hang", ours);
    if (told_of("fault", ours)) broken = 1;
    if (broken || hangs) return;
    if (params) {
        first = params[0];
        third = params[2];
    } else if (extra) {
        first = extra[1];
        third = (const uint64_t *)extra[1] + 5;
    } else {
        return;
    }
    char *places[] = {(char *)(uintptr_t)first[1], (char *)(uintptr_t)first[3],
                      (char *)(uintptr_t)third[0], NULL};
    void (*before)(int) = signal(SIGSEGV, strayed);
    if (sigsetjmp(outside, 1)) { /* as a kernel that reaches where nothing is */
        broken = 1;
        signal(SIGSEGV, before);
        return;
    }
    memcpy(&places[3], places[1] + 32, 8);
    for (int i = 0; i < 4; i++)
        for (int byte = 0; byte < 32; byte++) places[i][byte]++;
    if (ours) places[1][7] += off;
    if (ours) places[1][9] += off;
    signal(SIGSEGV, before);
}
/* What is launched on a stream that is captured, and does not run. */
typedef struct {
    H function;
    unsigned grid[3], block[3], shared;
    void **params;
    void *rest[3];
} Node;
static Node nodes[8];
static void *copies[8][64];
static unsigned cluster[8][3];
static const unsigned *launching_with;
static int count;
static H capturing;
R cuStreamBeginCapture_v2(H stream, int mode) { capturing = stream, count = 0; return mode - 2; }
R cuStreamEndCapture(H stream, H *graph) { capturing = NULL, *graph = stream; return 0; }
R cuGraphDestroy(H graph) { (void)graph; return 0; }
R cuGraphGetNodes(H graph, H *made, size_t *size) {
    (void)graph;
    for (int i = 0; made && i < count; i++) made[i] = &nodes[i];
    *size = (size_t)count;
    return 0;
}
R cuGraphNodeGetType(Node *node, int *kind) { *kind = node->function ? 0 : 2; return 0; }
R cuGraphKernelNodeGetParams_v2(Node *node, Node *made) { *made = *node; return 0; }
R cuGraphKernelNodeGetAttribute(Node *node, int which, void *value) {
    if (which == 4) memcpy(value, cluster[node - nodes], sizeof cluster[0]);
    return which < 8 ? 0 : 1;
}
R cuMemsetD8Async(uint64_t at, unsigned char value, size_t size, H stream) {
    (void)at, (void)value, (void)size;
    if (stream == capturing) nodes[count++].function = NULL;
    return 0;
}
static void keep(H f, const unsigned *grid, const unsigned *block, unsigned shared, void **params) {
    const Parameters *known = &parameters[NUMBER(f)];
    Node *node = &nodes[count];
    *node = (Node){f, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared,
                   copies[count], {0}};
    for (int i = 0; i < known->count; i++) {
        copies[count][i] = malloc((size_t)known->size[i]);
        memcpy(copies[count][i], params[i], (size_t)known->size[i]);
    }
    memset(cluster[count], 0, sizeof cluster[0]);
    if (launching_with && *launching_with == 4) memcpy(cluster[count], launching_with + 2, 12);
    count++;
}
/* Nothing is launched but one function. */
static int refuses;
static H launches_;
void fake_refuse(int on, H but) { refuses = on, launches_ = but; }
R cuLaunchKernel(H f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                 unsigned shared, H stream, void **params, void **extra) {
    (void)gy, (void)gz, (void)by, (void)bz, (void)shared;
    if (refuses && f != launches_) {
        SAY("refuses %d\n", NUMBER(f));
        return 1;
    }
    const Parameters *known = &parameters[NUMBER(f)];
    unsigned char given[4096] = {0};
    size_t size = 0;
    if (params && extra) return 1;
    if (capturing && stream == capturing) {
        keep(f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, params);
        return 0;
    }
    for (int i = 0; params && i < known->count; i++)
        memcpy(given + known->at[i], params[i], (size_t)known->size[i]), size = (size_t)known->end;
    const void *packed = NULL;
    for (void **each = extra; each && *each; each += 2)
        if (*each == (void *)1) packed = each[1];
        else if (*each == (void *)2) memcpy(&size, each[1], sizeof size);
        else return 1;
    if (size > sizeof given) return 1;
    if (packed) memcpy(given, packed, size);
    if (size && size < (size_t)known->end) return 1;
    if (launch_waits_) fake_wait();
    SAY("launch %d %ux%u on %d", NUMBER(f), gx, bx, (int)(intptr_t)stream);
    for (size_t i = 0; i < size; i++) SAY(i ? "%02x" : " given %02x", given[i]);
    SAY("\n");
    run(f, params, extra);
    record(f);
    return 0;
}
typedef struct {
    unsigned grid[3], block[3], shared;
    H stream;
    const unsigned *attributes;
    unsigned count;
} Config;
R cuLaunchKernelEx(const Config *config, H f, void **params, void **extra) {
    const unsigned *grid = config->grid, *block = config->block;
    for (unsigned i = 0; i < config->count; i++) SAY("with %u ", config->attributes[18 * i]);
    launching_with = config->count ? config->attributes : NULL;
    return cuLaunchKernel(f, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                          config->shared, config->stream, params, extra);
}
R cuLaunchCooperativeKernel(H f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned shared, H stream, void **params) {
    SAY("together ");
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, NULL);
}
R cuProfilerStart(void) { SAY("profiler starts\n"); return 0; }
R cuProfilerStop(void) { SAY("profiler stops\n"); return 3; }
R cuGetProcAddress_v2(const char *name, void **made, int version, uint64_t flags, int *status) {
    (void)version, (void)flags, (void)status;
    *made = NULL;
    if (!strcmp(name, "cuLaunchKernel")) *made = (void *)cuLaunchKernel;
    if (!strcmp(name, "cuProfilerStart")) *made = (void *)cuProfilerStart;
    if (!strcmp(name, "cuGetProcAddress")) *made = (void *)cuGetProcAddress_v2;
    return *made ? 0 : 500;
}
