/* Nodes and edges of CUDA graphs, as queries return them: without the nodes that ikp adds to a capture.

   Each recorded launch has a write of its launch parameters before it, on which it alone depends; the
   last node moves a replay's records. A program that counts nodes, or walks along edges, sees its own. */
#include "known.h"

enum { KERNEL_NODE = 0, BATCH_MEM_OP_NODE = 12, FEW = 8 };

typedef struct {
    Handle from, to;
    uint64_t data; /* CUgraphEdgeData */
} Edge;

typedef struct {
    Handle func;
    uint32_t sizes[7];
    void **params, **extra;
    Handle kern, context;
} Node; /* CUDA_KERNEL_NODE_PARAMS */

/* The driver's own functions; graphs of a driver before 12.3 have no data of edges. */
static Result (*type_of)(Handle, int *);
static Result (*params_of)(Handle, Node *);
static Result (*before_with)(Handle, Handle *, uint64_t *, size_t *);
static Result (*before)(Handle, Handle *, size_t *);
static Result (*behind_with)(Handle, Handle *, uint64_t *, size_t *);
static Result (*behind)(Handle, Handle *, size_t *);

static void look_up(void) {
    *(void **)&type_of = dlsym(real, "cuGraphNodeGetType");
    *(void **)&params_of = dlsym(real, "cuGraphKernelNodeGetParams_v2");
    *(void **)&before_with = dlsym(real, "cuGraphNodeGetDependencies_v2");
    *(void **)&before = dlsym(real, "cuGraphNodeGetDependencies");
    *(void **)&behind_with = dlsym(real, "cuGraphNodeGetDependentNodes_v2");
    *(void **)&behind = dlsym(real, "cuGraphNodeGetDependentNodes");
}

static int ready(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look_up);
    return type_of && params_of && (before_with || before) && (behind_with || behind);
}

static Result ask_before(Handle node, Handle *nodes, uint64_t *data, size_t *count) {
    return before_with ? before_with(node, nodes, data, count) : before(node, nodes, count);
}

static Result ask_behind(Handle node, Handle *nodes, uint64_t *data, size_t *count) {
    return behind_with ? behind_with(node, nodes, data, count) : behind(node, nodes, count);
}

enum { PROGRAMS, PATCHED, REPLAY };

static int kernel_kind(Handle node) {
    Node params = {0};
    int kind = PROGRAMS;
    if (params_of(node, &params)) return kind;
    pthread_rwlock_rdlock(&lock);
    const Known *each = find(params.func ? params.func : params.kern);
    if (each && each->plain) kind = PATCHED;
    else if (each && each->name && !strcmp(each->name, "ikp_replay")) kind = REPLAY;
    pthread_rwlock_unlock(&lock);
    return kind;
}

/* The recorded launch that a node is the write of; NULL of any other node. */
static Handle launch_of(Handle node) {
    Handle next[FEW];
    uint64_t data[FEW];
    size_t count = FEW;
    int type = -1;
    if (type_of(node, &type) || type != BATCH_MEM_OP_NODE) return NULL;
    if (ask_behind(node, next, data, &count) || count != 1) return NULL;
    return !type_of(next[0], &type) && type == KERNEL_NODE && kernel_kind(next[0]) == PATCHED
               ? next[0] : NULL;
}

static int is_replay(Handle node) {
    int type = -1;
    return !type_of(node, &type) && type == KERNEL_NODE && kernel_kind(node) == REPLAY;
}

/* Lists that grow. */
typedef struct {
    Edge *edges;
    size_t count, room;
    int full; /* of memory: then the driver's own answer is given */
} List;

static void add(List *list, Edge edge) {
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        Edge *more = realloc(list->edges, room * sizeof *more);
        if (!more) {
            list->full = 1;
            return;
        }
        list->edges = more;
        list->room = room;
    }
    list->edges[list->count++] = edge;
}

/* Give a list as the driver does: how many there are, or as many as there is room for, and zeros. */
static void give(const List *list, Handle *from, Handle *to, uint64_t *data, size_t *count) {
    size_t given = 0;
    if (!from && !to) {
        *count = list->count;
        return;
    }
    for (size_t at = 0; at < *count; at++) {
        int there = at < list->count;
        if (from) from[at] = there ? list->edges[at].from : NULL;
        if (to) to[at] = there ? list->edges[at].to : NULL;
        if (data) data[at] = there ? list->edges[at].data : 0;
        given += (size_t)there;
    }
    *count = given;
}

/* What a query of the driver's returns for all there is, and what of it is shown in place of each item. */
typedef Result Asked(Handle of, Handle *from, Handle *to, uint64_t *data, size_t *count);
typedef void Shown(List *list, Edge edge);

static Result shown(Asked *all, Shown *show, Handle of, Handle *from, Handle *to, uint64_t *data,
                    size_t *count) {
    size_t most = 0;
    List list = {0};
    Result result;
    if (!count || inside || !ready() || (result = all(of, NULL, NULL, NULL, &most)) || !most)
        return all(of, from, to, data, count);
    Handle *first = calloc(2 * most, sizeof *first);
    uint64_t *with = calloc(most, sizeof *with);
    /* without room for data, an edge that has some is an error */
    if (first && with && !(result = all(of, first, first + most, data ? with : NULL, &most))) {
        for (size_t at = 0; at < most; at++)
            show(&list, (Edge){first[at], first[at + most], with[at]});
    }
    if (first && with && !result && !list.full) give(&list, from, to, data, count);
    else result = all(of, from, to, data, count);
    free(first);
    free(with);
    free(list.edges);
    return result;
}

/* --- queries: nodes are in `to` ----------------------------------------------------------------- */

static void show_node(List *list, Edge edge) {
    if (!launch_of(edge.to) && !is_replay(edge.to)) add(list, edge);
}

static void show_behind(List *list, Edge edge) { /* also the first nodes of a graph */
    Handle launch = launch_of(edge.to);
    if (launch) edge.to = launch;
    if (!is_replay(edge.to)) add(list, edge);
}

static void show_before(List *list, Edge edge) {
    size_t most = 0;
    if (!launch_of(edge.to)) {
        add(list, edge);
        return;
    }
    if (ask_before(edge.to, NULL, NULL, &most) || !most) return;
    Handle *nodes = calloc(most, sizeof *nodes);
    uint64_t *data = calloc(most, sizeof *data);
    if (!nodes || !data || ask_before(edge.to, nodes, data, &most)) list->full = 1;
    for (size_t at = 0; !list->full && at < most; at++)
        add(list, (Edge){edge.from, nodes[at], data[at]});
    free(nodes);
    free(data);
}

static void show_edge(List *list, Edge edge) {
    if (launch_of(edge.to) || is_replay(edge.to)) return;
    size_t at = list->count;
    Handle to = edge.to;
    show_before(list, (Edge){NULL, edge.from, edge.data}); /* what it depends on, in `to` */
    for (; at < list->count; at++) {
        list->edges[at].from = list->edges[at].to;
        list->edges[at].to = to;
    }
}

#define LIST(name, show)                                                                               \
    static Result (*real_##name)(Handle, Handle *, size_t *);                                          \
    static Result all_##name(Handle of, Handle *from, Handle *to, uint64_t *data, size_t *count) {     \
        (void)from, (void)data;                                                                        \
        return real_##name(of, to, count);                                                             \
    }                                                                                                  \
    SEEN(name)(Handle of, Handle *nodes, size_t *count) {                                              \
        NEED(name);                                                                                    \
        return shown(all_##name, show, of, NULL, nodes, NULL, count);                                  \
    }

LIST(cuGraphGetNodes, show_node)
LIST(cuGraphGetRootNodes, show_behind)
LIST(cuGraphNodeGetDependencies, show_before)
LIST(cuGraphNodeGetDependentNodes, show_behind)

#define LIST_WITH(name, show)                                                                          \
    static Result (*real_##name)(Handle, Handle *, uint64_t *, size_t *);                              \
    static Result all_##name(Handle of, Handle *from, Handle *to, uint64_t *data, size_t *count) {     \
        (void)from;                                                                                    \
        return real_##name(of, to, data, count);                                                       \
    }                                                                                                  \
    SEEN(name)(Handle of, Handle *nodes, uint64_t *data, size_t *count) {                              \
        NEED(name);                                                                                    \
        return shown(all_##name, show, of, NULL, nodes, data, count);                                  \
    }

LIST_WITH(cuGraphNodeGetDependencies_v2, show_before)
LIST_WITH(cuGraphNodeGetDependentNodes_v2, show_behind)

static Result (*real_cuGraphGetEdges)(Handle, Handle *, Handle *, size_t *);
static Result all_edges(Handle of, Handle *from, Handle *to, uint64_t *data, size_t *count) {
    (void)data;
    return real_cuGraphGetEdges(of, from, to, count);
}
SEEN(cuGraphGetEdges)(Handle graph, Handle *from, Handle *to, size_t *count) {
    NEED(cuGraphGetEdges);
    return shown(all_edges, show_edge, graph, from, to, NULL, count);
}

static Result (*real_cuGraphGetEdges_v2)(Handle, Handle *, Handle *, uint64_t *, size_t *);
SEEN(cuGraphGetEdges_v2)(Handle graph, Handle *from, Handle *to, uint64_t *data, size_t *count) {
    NEED(cuGraphGetEdges_v2);
    return shown(real_cuGraphGetEdges_v2, show_edge, graph, from, to, data, count);
}
