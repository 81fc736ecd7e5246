/* Kernel nodes of CUDA graphs: nodes that a program adds are counted; queries show the plain function. */
#include "launch.h"

typedef struct {
    Handle func;
    uint32_t grid[3], block[3], shared;
    void **params, **extra;
    Handle kern, context; /* since version 2; kern where func is NULL */
} Node; /* CUDA_KERNEL_NODE_PARAMS */

/* A node that a program puts into a graph itself runs plain at each replay: report that to Python, once
   for each function, and count the further ones. */
static void put(Handle function) {
    Launch launch = {function, .node = NODE};
    if (!asking()) return;
    pthread_rwlock_rdlock(&lock);
    Known *each = find(function);
    uint32_t slot = each ? each->node_slot : 0;
    int quiet = is_quiet(each) && !each->slot;
    launch.id = each ? each->id : 0;
    pthread_rwlock_unlock(&lock);
    if (slot) count(slot);
    if (slot || quiet || !ask(&launch) || !launch.decided) return;
    pthread_rwlock_wrlock(&lock);
    if ((each = find(function)) && each->id == launch.id)
        each->node_slot = (launch.decided - 1) % SLOTS;
    pthread_rwlock_unlock(&lock);
}

/* Python hears of a capture when it has begun, and before it ends: it may capture a node of its own. */
static void report(uint32_t what, Handle stream) {
    notify(&(Launch){.node = what, .stream = stream});
}

#define END(name, default_stream)                                  \
    static Result (*real_##name)(Handle, Handle *);                \
    SEEN(name)(Handle stream, Handle * graph) {                    \
        NEED(name);                                                \
        report(CAPTURE_ENDS, stream ? stream : default_stream);    \
        return real_##name(stream, graph);                         \
    }

END(cuStreamEndCapture, NULL)
END(cuStreamEndCapture_ptsz, PER_THREAD)

#define BEGIN(name, default_stream)                                            \
    static Result (*real_##name)(Handle, int);                                 \
    SEEN(name)(Handle stream, int mode) {                                      \
        NEED(name);                                                            \
        Result result = real_##name(stream, mode);                             \
        if (!result) report(CAPTURE_BEGINS, stream ? stream : default_stream); \
        return result;                                                         \
    }

BEGIN(cuStreamBeginCapture, NULL) /* the first version has no mode: it ignores that */
BEGIN(cuStreamBeginCapture_ptsz, PER_THREAD)
BEGIN(cuStreamBeginCapture_v2, NULL)
BEGIN(cuStreamBeginCapture_v2_ptsz, PER_THREAD)

#define INTO(name, default_stream)                                                                \
    static Result (*real_##name)(Handle, Handle, const Handle *, const void *, size_t, int);      \
    SEEN(name)(Handle stream, Handle graph, const Handle *before, const void *data, size_t edges, \
               int mode) {                                                                        \
        NEED(name);                                                                               \
        Result result = real_##name(stream, graph, before, data, edges, mode);                    \
        if (!result) report(CAPTURE_INTO, stream ? stream : default_stream);                      \
        return result;                                                                            \
    }

INTO(cuStreamBeginCaptureToGraph, NULL)
INTO(cuStreamBeginCaptureToGraph_ptsz, PER_THREAD)

#define ADD(name, kernel)                                                                         \
    static Result (*real_##name)(Handle *, Handle, const Handle *, size_t, const Node *);         \
    SEEN(name)(Handle * made, Handle graph, const Handle *before, size_t edges, const Node *node) { \
        NEED(name);                                                                               \
        Result result = real_##name(made, graph, before, edges, node);                            \
        if (!result) put(kernel);                                                                 \
        return result;                                                                            \
    }

ADD(cuGraphAddKernelNode, node->func)
ADD(cuGraphAddKernelNode_v2, node->func ? node->func : node->kern)

enum { KERNEL_NODE = 0 };

typedef struct {
    uint32_t type, reserved[3];
    Node kernel;
} AnyNode; /* CUgraphNodeParams */

static void put_any(const AnyNode *node) {
    const Node *kernel = &node->kernel;
    if (node->type == KERNEL_NODE) put(kernel->func ? kernel->func : kernel->kern);
}

static Result (*real_cuGraphAddNode)(Handle *, Handle, const Handle *, size_t, AnyNode *);
SEEN(cuGraphAddNode)(Handle *made, Handle graph, const Handle *before, size_t edges, AnyNode *node) {
    NEED(cuGraphAddNode);
    Result result = real_cuGraphAddNode(made, graph, before, edges, node);
    if (!result) put_any(node);
    return result;
}

static Result (*real_cuGraphAddNode_v2)(Handle *, Handle, const Handle *, const void *, size_t,
                                        AnyNode *);
SEEN(cuGraphAddNode_v2)(Handle *made, Handle graph, const Handle *before, const void *data,
                        size_t edges, AnyNode *node) {
    NEED(cuGraphAddNode_v2);
    Result result = real_cuGraphAddNode_v2(made, graph, before, data, edges, node);
    if (!result) put_any(node);
    return result;
}

/* Queries of a captured graph's node return the function that the program launched: the CUDA runtime
   knows no other. */
static Handle plain_of(Handle function, uint32_t *kind) {
    Handle plain = NULL;
    pthread_rwlock_rdlock(&lock);
    Known *each = find(function), *for_which = each && each->plain ? find(each->plain) : NULL;
    if (for_which && for_which->id == each->plain_id) {
        plain = for_which->handle;
        *kind = for_which->kind;
    }
    pthread_rwlock_unlock(&lock);
    return plain;
}

static void show_plain(Node *node, int has_kernels) {
    static Result (*function_of)(Handle *, Handle);
    uint32_t kind = 0;
    Handle plain = node->func ? plain_of(node->func, &kind) : NULL;
    if (!plain) return;
    if (kind != KERNEL) {
        node->func = plain;
    } else if (has_kernels) {
        node->func = NULL;
        node->kern = plain;
    } else {
        if (!function_of) *(void **)&function_of = dlsym(real, "cuKernelGetFunction");
        if (function_of) function_of(&node->func, plain);
    }
}

#define GET(name, has_kernels)                                 \
    static Result (*real_##name)(Handle, Node *);              \
    SEEN(name)(Handle graph_node, Node *node) {                \
        NEED(name);                                            \
        Result result = real_##name(graph_node, node);         \
        if (!result) show_plain(node, has_kernels);            \
        return result;                                         \
    }

GET(cuGraphKernelNodeGetParams, 0)
GET(cuGraphKernelNodeGetParams_v2, 1)

static Result (*real_cuGraphNodeGetParams)(Handle, AnyNode *);
SEEN(cuGraphNodeGetParams)(Handle graph_node, AnyNode *node) {
    NEED(cuGraphNodeGetParams);
    Result result = real_cuGraphNodeGetParams(graph_node, node);
    if (!result && node->type == KERNEL_NODE) show_plain(&node->kernel, 1);
    return result;
}
