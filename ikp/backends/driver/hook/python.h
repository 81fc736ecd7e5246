/* The table of Python's functions that the library calls: it is not linked with Python. */
#pragma once
#include "known.h"

/* Functions of Python's C API, at the addresses that Python passes (_FUNCTIONS in _hook.py). */
typedef struct {
    int (*ensure)(void);
    void (*release)(int);
    void *(*from_address)(void *);
    void *(*call)(void *, ...);
    void (*fetch)(void **, void **, void **);
    void (*normalize)(void **, void **, void **);
    int (*set_traceback)(void *, void *);
    void *(*type_of)(void *);
    void (*decref)(void *);
    void (*set)(void *, void *);
    int (*pending)(int (*)(void *), void *);
    int (*strike)(unsigned long, void *);
    unsigned long (*thread)(void);
    unsigned long main;
} Python;

int asking(void);
int ask(void *about); /* whether it was answered */
void notify(void *about); /* ask, where Python can be asked; no answer is needed */
