/* A CUDA graph that a test draws, and the driver's queries of its nodes and edges. */
#include "driver.h"
#include <stddef.h>

enum { NODES = 64, EDGES = 512 };

typedef struct {
    Thing *function; /* first: see cuGraphKernelNodeGetParams_v2 */
    int type;
} Drawn;

static __thread Drawn drawn[NODES];
static __thread struct {
    Drawn *from, *to;
    uint64_t data;
} edges[EDGES];
static __thread size_t nodes, count_edges;

void model_draw(size_t count, Thing *const *functions, const int *types, size_t many,
                const int *from, const int *to, const uint64_t *data) {
    nodes = count, count_edges = many;
    for (size_t i = 0; i < count; i++) drawn[i] = (Drawn){functions[i], types[i]};
    for (size_t i = 0; i < many; i++)
        edges[i].from = &drawn[from[i]], edges[i].to = &drawn[to[i]], edges[i].data = data[i];
}
Drawn *model_node(size_t at) { return &drawn[at]; }

/* Fill what there is room for, and the rest with zeros, as the driver does. */
typedef struct {
    Drawn **first, **second;
    uint64_t *data;
    size_t *size, found;
} Answer;

static void put(Answer *to, Drawn *first, Drawn *second, uint64_t data) {
    if (to->found < *to->size) {
        if (to->first) to->first[to->found] = first;
        if (to->second) to->second[to->found] = second;
        if (to->data) to->data[to->found] = data;
    }
    to->found++;
}
static R over(Answer *to) {
    if (!to->first && !to->second) {
        *to->size = to->found;
        return 0;
    }
    size_t there = to->found < *to->size ? to->found : *to->size;
    while (to->found < *to->size) put(to, NULL, NULL, 0);
    *to->size = there;
    return 0;
}

R cuGraphNodeGetType(Drawn *node, int *type) { *type = node->type; return 0; }
R cuGraphGetNodes(void *graph, Drawn **made, size_t *size) {
    (void)graph;
    Answer answer = {made, NULL, NULL, size, 0};
    for (size_t i = 0; i < nodes; i++) put(&answer, &drawn[i], NULL, 0);
    return over(&answer);
}
R cuGraphGetRootNodes(void *graph, Drawn **made, size_t *size) {
    (void)graph;
    Answer answer = {made, NULL, NULL, size, 0};
    for (size_t i = 0; i < nodes; i++) {
        int depends = 0;
        for (size_t k = 0; k < count_edges; k++) depends |= edges[k].to == &drawn[i];
        if (!depends) put(&answer, &drawn[i], NULL, 0);
    }
    return over(&answer);
}
R cuGraphGetEdges_v2(void *graph, Drawn **from, Drawn **to, uint64_t *data, size_t *size) {
    (void)graph;
    Answer answer = {from, to, data, size, 0};
    for (size_t k = 0; k < count_edges; k++) put(&answer, edges[k].from, edges[k].to, edges[k].data);
    return over(&answer);
}
R cuGraphNodeGetDependencies_v2(Drawn *node, Drawn **made, uint64_t *data, size_t *size) {
    Answer answer = {made, NULL, data, size, 0};
    for (size_t k = 0; k < count_edges; k++)
        if (edges[k].to == node) put(&answer, edges[k].from, NULL, edges[k].data);
    return over(&answer);
}
R cuGraphNodeGetDependentNodes_v2(Drawn *node, Drawn **made, uint64_t *data, size_t *size) {
    Answer answer = {made, NULL, data, size, 0};
    for (size_t k = 0; k < count_edges; k++)
        if (edges[k].from == node) put(&answer, edges[k].to, NULL, edges[k].data);
    return over(&answer);
}
