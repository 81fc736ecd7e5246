/* Table entries of the driver's handles, shared by all files of the interposed driver library. */
#pragma once
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result; /* CUresult: 0 is success */
typedef void *Handle;

#define SEEN(name) __attribute__((visibility("default"))) Result name
#define NOT_FOUND 500 /* CUDA_ERROR_NOT_FOUND */

extern void *real; /* the driver behind */

#define NEED(name)                                                          \
    if (!real_##name) *(void **)&real_##name = dlsym(real, #name);          \
    if (!real_##name) return NOT_FOUND

enum { MODULE = 1, LIBRARY, FUNCTION, KERNEL, CONTEXT, OTHER };

/* Options of the driver's compiler: the number and the value of each, one after the other. */
typedef struct {
    uint64_t *pairs;
    unsigned count;
} Options;

/* Where the bytes of a module's or library's image are: a copy, or a part of a file that is mapped
   and never written to, as it was when the image was loaded. */
typedef struct {
    void *copy;
    size_t bytes;
    char *file;
    uint64_t offset, device, inode, size;
    int64_t seconds, nanoseconds; /* when it was last changed */
    char *origin; /* file of the image, or of the code that loaded it */
    Options options;
} Image;

enum { DEVICES = 32 };

/* An entry is dropped with its parent, and with its context: the driver gives handles out again. So
   an entry's parents are in the table as long as it is. */
typedef struct Known {
    struct Known *next;                      /* in the same bucket */
    struct Known *parent, *parts, *sibling; /* a function is a part of its module or kernel */
    Handle handle, context;                  /* context: 0 for entries that belong to none */
    uint64_t id;                             /* of this entry alone, never given again */
    uint64_t unique;                         /* of a context: the driver's own number for it */
    Handle plain;                            /* of a patched function: for which it was launched */
    uint64_t plain_id;
    uint32_t kind, slot, node_slot;
    char *name;
    Image image;
    uint32_t quiet; /* FOR_GOOD; or the epoch in which Python decided that launches pass */
    uint64_t leaving; /* id of the unloading that drops it, which has begun and may fail */
    signed char cache[DEVICES], banks; /* as a program has set them; -1: it has not */
    struct Stock *stocks;          /* buffers for launches of a function */
} Known;

/* The context that is current: its handle may be given out again, its number is not. */
typedef struct {
    Handle context;
    unsigned long long unique;
} Here;

extern pthread_rwlock_t lock;
extern uint64_t changes; /* of entries, and of settings of functions */
extern __thread int inside;
extern uint32_t epoch; /* since Python last took its decisions back */
enum { FOR_GOOD = 1, FIRST_EPOCH };

static inline int is_quiet(const Known *each) {
    return each && (each->quiet == FOR_GOOD || each->quiet == epoch);
}

Here here(void);

/* With the lock held. */
Known *find(Handle handle);
Known *note(Handle handle, uint32_t kind, Handle parent, Handle context);
Known *settled(const Here *now);
void forget(Known *gone);
void launched_for(Handle patched, const Known *plain); /* queries of a patched function return the plain one */

/* Whether another thread is unloading the module of a function. The driver may have given the function's
   handle out again already, in a way that this library does not see: the entry may be another's. */
int is_leaving(const Known *each);

/* Before the driver unloads or destroys an object, and after: a call may fail. Context 0: all of them. */
typedef struct {
    uint64_t id;
    Handle handle; /* 0: all entries with the mark */
} Leaving;
Leaving leave(Handle handle);
Leaving leave_context(Handle context);
void left(Leaving leaving, int gone);
/* Note a function that the driver has given out unseen, by the module and name that the driver reports. */
void introduce(Handle function);
/* Whether the driver reports the same module and name of a function as its entry; else, drop that. */
int is_still(Handle function);

/* Note a handle that the driver has given out, in a context: NULL for its parent's, or the current one. */
void named(Handle handle, uint32_t kind, Handle parent, const char *name, Handle context);

void describe(Image *made, const void *image, const char *path, const void *caller);
void clear(Image *image);
int read_image(const Image *from, void *to, size_t bytes);
int has_records(const void *code, size_t bytes);
