/* The table of modules, libraries, functions and contexts, by handle; and Python's queries of it. */
#include "known.h"

#ifndef BUCKETS
#define BUCKETS 65536 /* a power of two */
#endif
static Known *table[BUCKETS];
pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
uint64_t changes = 1;
static uint64_t dropped;
static uint64_t ids = 1;
__thread int inside;
void *real;

static Known **bucket(Handle handle) {
    uint64_t bits = (uint64_t)(uintptr_t)handle;
    return &table[(bits * 0x9E3779B97F4A7C15ull) >> 48 & (BUCKETS - 1)];
}

Known *find(Handle handle) {
    for (Known *each = *bucket(handle); each; each = each->next)
        if (each->handle == handle) return each;
    return NULL;
}

static void take_out(Known **list, Known *gone, size_t link) {
#define NEXT(each) (*(Known **)((char *)(each) + link))
    while (*list != gone) list = &NEXT(*list);
    *list = NEXT(gone);
#undef NEXT
}

void forget(Known *gone) {
    while (gone->parts) forget(gone->parts);
    if (gone->parent) take_out(&gone->parent->parts, gone, offsetof(Known, sibling));
    take_out(bucket(gone->handle), gone, offsetof(Known, next));
    free(gone->name);
    clear(&gone->image);
    free(gone);
    __atomic_add_fetch(&dropped, 1, __ATOMIC_RELEASE); /* read without the lock */
    __atomic_add_fetch(&changes, 1, __ATOMIC_RELEASE);
}

/* Note a handle that the driver has just given out. A parent that was not seen is noted, too, so that
   its parts are dropped with it. */
Known *note(Handle handle, uint32_t kind, Handle parent, Handle context) {
    Known *had = find(handle), *above = NULL, *made;
    if (had) forget(had);
    if (parent && !(above = find(parent))) above = note(parent, OTHER, NULL, context);
    if (!(made = calloc(1, sizeof *made))) return NULL;
    made->handle = handle;
    made->kind = kind;
    made->context = context;
    made->id = ids++;
    made->quiet = inside > 0 ? FOR_GOOD : 0; /* ikp's own; parts are as their parent */
    memset(made->cache, -1, sizeof made->cache);
    made->banks = -1;
    if (above) {
        made->parent = above;
        made->sibling = above->parts;
        above->parts = made;
        made->quiet = above->quiet;
        made->slot = above->slot;
    }
    made->next = *bucket(handle);
    return *bucket(handle) = made;
}

static int belongs(const Known *each, Handle context) {
    return context ? each->context == context || (each->kind == CONTEXT && each->handle == context)
                   : each->context || each->kind == CONTEXT;
}

/* Dropping one entry may drop others of any bucket: so each bucket is begun anew. */
static void drop_all_of(Handle context) {
    for (unsigned i = 0; i < BUCKETS; i++)
        for (Known *each = table[i]; each;)
            if (belongs(each, context)) {
                forget(each);
                each = table[i];
            } else
                each = each->next;
}

Leaving leave(Handle handle) {
    pthread_rwlock_wrlock(&lock);
    Known *each = find(handle);
    Leaving leaving = {each ? ids++ : 0, handle};
    if (each) each->leaving = leaving.id;
    pthread_rwlock_unlock(&lock);
    return leaving;
}

Leaving leave_context(Handle context) {
    pthread_rwlock_wrlock(&lock);
    Leaving leaving = {ids++, NULL};
    for (unsigned i = 0; i < BUCKETS; i++)
        for (Known *each = table[i]; each; each = each->next)
            if (!each->leaving && belongs(each, context)) each->leaving = leaving.id;
    pthread_rwlock_unlock(&lock);
    return leaving;
}

void launched_for(Handle patched, const Known *plain) {
    Known *each = find(patched);
    if (!each) return;
    each->plain = plain->handle;
    each->plain_id = plain->id;
}

int is_leaving(const Known *each) {
    while (each && !each->leaving) each = each->parent;
    return each != NULL;
}

/* An entry that another thread has made meanwhile has the same handle, but not the mark. */
static int settle_one(Known *each, uint64_t leaving, int gone) {
    if (!each || each->leaving != leaving) return 0;
    each->leaving = 0;
    if (gone) forget(each);
    return gone;
}

void left(Leaving leaving, int gone) {
    if (!leaving.id) return;
    pthread_rwlock_wrlock(&lock);
    if (leaving.handle) settle_one(find(leaving.handle), leaving.id, gone);
    for (unsigned i = 0; i < BUCKETS && !leaving.handle; i++)
        for (Known *each = table[i]; each;)
            each = settle_one(each, leaving.id, gone) ? table[i] : each->next;
    pthread_rwlock_unlock(&lock);
}

Here here(void) {
    static Result (*current)(Handle *);
    static Result (*number)(Handle, unsigned long long *);
    Here now = {0, 0};
    if (!current) *(void **)&current = dlsym(real, "cuCtxGetCurrent");
    if (!number) *(void **)&number = dlsym(real, "cuCtxGetId"); /* since CUDA 12 */
    if (!current || current(&now.context)) now.context = NULL;
    if (now.context && number && number(now.context, &now.unique)) now.unique = 0;
    return now;
}

/* The entry of the current context. Where the context is new, or its number is, an earlier context of
   this handle has ended, perhaps unseen: its entries are dropped. */
Known *settled(const Here *now) {
    if (!now->context) return NULL;
    Known *each = find(now->context);
    if (each && each->kind == CONTEXT && each->unique == now->unique) return each;
    drop_all_of(now->context);
    each = note(now->context, CONTEXT, NULL, NULL);
    if (each) each->unique = now->unique;
    return each;
}

void named(Handle handle, uint32_t kind, Handle parent, const char *name, Handle context) {
    Here now = here();
    pthread_rwlock_wrlock(&lock);
    settled(&now);
    Known *had = find(handle), *above = find(parent);
    Handle own = context ? context : above && above->context ? above->context : now.context;
    if (kind == KERNEL) own = NULL;
    if (!had || !above || had->parent != above || had->context != own) {
        Known *made = note(handle, kind, parent, own);
        if (made) made->name = name ? strdup(name) : NULL;
    }
    pthread_rwlock_unlock(&lock);
}

/* --- Python's queries ------------------------------------------------------------------------- */

typedef struct {
    uint64_t id;
    Handle parent;
    uint64_t name, origin, image; /* bytes of each */
    uint32_t kind;
} About;

SEEN(ikp_about)(Handle handle, About *about) {
    pthread_rwlock_rdlock(&lock);
    Known *each = find(handle);
    if (each)
        *about = (About){each->id,
                         each->parent ? each->parent->handle : NULL,
                         each->name ? strlen(each->name) : 0,
                         each->image.origin ? strlen(each->image.origin) : 0,
                         each->image.bytes,
                         each->kind};
    pthread_rwlock_unlock(&lock);
    return !each;
}

enum { NAME, ORIGIN, CODE };

/* Copy a part of an entry: 0, or 1 where the handle is another's now, or 2 where the file that had the
   image has changed. */
SEEN(ikp_copy)(Handle handle, uint64_t id, int what, void *to, size_t bytes) {
    Image from = {0};
    Result code = 1;
    pthread_rwlock_rdlock(&lock);
    Known *each = find(handle);
    if (each && each->id == id) {
        code = 0;
        if (what == NAME && each->name)
            memcpy(to, each->name, bytes);
        else if (what == ORIGIN && each->image.origin)
            memcpy(to, each->image.origin, bytes);
        else if (what == CODE && each->image.copy)
            memcpy(to, each->image.copy, bytes);
        else if (what == CODE) {
            from = each->image;
            from.file = strdup(from.file ? from.file : "");
        }
    }
    pthread_rwlock_unlock(&lock);
    if (!from.file) return code;
    code = read_image(&from, to, bytes) ? 0 : 2;
    free(from.file);
    return code;
}

/* Copy the options with which an image was loaded, as far as there is room; 0, or 1 where the handle is
   another's now, or they could not be kept. */
SEEN(ikp_options)(Handle handle, uint64_t id, uint64_t *to, unsigned room, unsigned *count) {
    pthread_rwlock_rdlock(&lock);
    Known *each = find(handle);
    int same = each && each->id == id;
    *count = same ? each->image.options.count : 0;
    same = same && (!*count || each->image.options.pairs);
    for (unsigned i = 0; same && i < 2 * *count && i < 2 * room; i++)
        to[i] = each->image.options.pairs[i];
    pthread_rwlock_unlock(&lock);
    return !same;
}

/* The number of the current context, which no other ever has. */
SEEN(ikp_context)(uint64_t *id) {
    Here now = here();
    pthread_rwlock_wrlock(&lock);
    Known *each = settled(&now);
    *id = each ? each->id : 0;
    pthread_rwlock_unlock(&lock);
    return !each;
}

/* How many entries have been dropped. */
SEEN(ikp_dropped)(uint64_t *count) {
    *count = __atomic_load_n(&dropped, __ATOMIC_ACQUIRE);
    return 0;
}

SEEN(ikp_changes)(uint64_t *count) {
    *count = __atomic_load_n(&changes, __ATOMIC_ACQUIRE);
    return 0;
}
