/* Where Python's objects lie that ikp's threads make: in memory of malloc(), and never where the program
   has freed one. A library may still read there (CuPy's cuFFT callbacks), and does so without harm as long
   as no other thread of Python makes an object of that size.

   Python's own allocator gives what is none of its blocks to free() and realloc(): so whichever thread
   frees an object, it goes where it came from. Python's functions come by address, as the library is not
   linked with Python. */
#include <stddef.h>
#include <string.h>

typedef struct {
    void *context;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *);
} Allocator; /* PyMemAllocatorEx */

static Allocator python;
static void *(*raw_malloc)(size_t);
static void *(*raw_calloc)(size_t, size_t);
static __thread int own __attribute__((tls_model("initial-exec"))); /* read for each object of the program */

static void *of_malloc(void *context, size_t size) {
    return own ? raw_malloc(size) : python.malloc(context, size);
}

static void *of_calloc(void *context, size_t count, size_t size) {
    return own ? raw_calloc(count, size) : python.calloc(context, count, size);
}

static void *of_realloc(void *context, void *block, size_t size) {
    return own && !block ? raw_malloc(size) : python.realloc(context, block, size);
}

/* Come before Python's default allocator, once; return whether it is the one that is there. */
__attribute__((visibility("default"))) int ikp_begin(
    const char *(*name)(void), void (*get)(int, Allocator *), void (*set)(int, Allocator *),
    void *(*malloc)(size_t), void *(*calloc)(size_t, size_t)) {
    enum { MEMORY = 1, OBJECTS = 2 }; /* domains; one allocator serves both */
    if (raw_malloc) return 1; /* another thread was first; each holds Python's lock */
    const char *found = name ? name() : NULL;
    if (!found || strcmp(found, "pymalloc")) return 0;
    get(OBJECTS, &python);
    raw_malloc = malloc;
    raw_calloc = calloc;
    Allocator made = {python.context, of_malloc, of_calloc, of_realloc, python.free};
    set(MEMORY, &made);
    set(OBJECTS, &made);
    return 1;
}

__attribute__((visibility("default"))) void ikp_own(void) { own = 1; }
