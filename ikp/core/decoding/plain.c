/* The decoder of plain records to columns, with the same bits as _records.py and _times.py.
 *
 * Plain records are ranges and instants of a 32-bit clock, in the order in which they ended; behind
 * them comes the whole-warp range, where there is one. Where a slot holds any other record, or a
 * region without a code yet, the result is -1: numpy decodes the slots. */

#include <math.h>
#include <stdint.h>

enum { REGION_BITS = 27, PAYLOAD_SHIFT = 27, KIND_SHIFT = 29, RANGE = 1, INSTANT = 2 };
enum { TURNED = 1, OUTSIDE = 2 };

typedef struct record {
    uint32_t tag, start, end, payload;
} record;

typedef struct slot {
    const record *records; /* 0 where numpy has to decode them */
    int64_t step;          /* from one to the next, in records */
    int64_t count;
    record whole;   /* the last one; its tag is 0 where there is none */
    int64_t init;   /* the clock at init */
    int64_t since;  /* the same, counted from where the SM's line begins */
    int64_t latest; /* the clock after which no record can have ended */
    int64_t launch;
    uint64_t table; /* of names, where the key of a region has it */
    double offset, side;
    int64_t end;    /* in ns: moved to where the last record ends */
    int64_t flags;  /* TURNED, OUTSIDE: read by the caller */
} slot;

typedef struct launch {
    double rate, reach;
    int64_t zero, first, past; /* knots: from first up to past */
} launch;

typedef struct task {
    slot *slots;
    const launch *launches;
    const double *knot, *value, *slope; /* slope: from each knot to the next */
    int32_t *slot, *region;
    uint8_t *kind;
    int64_t *start, *end, *ticks;
    uint8_t *payload_type;
    uint32_t *payload;
} task;

typedef struct codes {
    const int32_t *places; /* of keys, by their hashes */
    const uint64_t *seen;
    uint64_t count, factor, shift;
} codes;

static inline double bend(const task *task, const launch *line, double at, int64_t *near)
{
    const double *knot = task->knot;
    int64_t i = *near;
    if (at <= knot[line->first])
        return task->value[line->first];
    if (at >= knot[line->past - 1])
        return task->value[line->past - 1];
    if (i < 0) { /* a slot's first time: the knot of each later one is near */
        i = line->first;
        for (int64_t past = line->past - 1; past - i > 1;) {
            int64_t middle = (i + past) / 2;
            if (knot[middle] <= at)
                i = middle;
            else
                past = middle;
        }
    }
    while (knot[i] > at)
        i--;
    while (knot[i + 1] <= at)
        i++;
    *near = i;
    return task->slope[i] * (at - knot[i]) + task->value[i];
}

static inline int64_t to_ns(const task *task, const slot *slot, int64_t ticks, int64_t *near)
{
    const launch *line = &task->launches[slot->launch];
    const double most = 4611686018427387904.0;
    double elapsed = (double)ticks, reach = line->reach;
    double placed = elapsed * line->rate;
    placed += slot->offset;
    if (line->past > line->first) {
        double at = elapsed < -reach ? -reach : elapsed > reach ? reach : elapsed;
        placed += bend(task, line, at + slot->side, near);
    }
    placed = placed < -most ? -most : placed > most ? most : placed;
    int64_t ns = llrint(placed) + line->zero;
    return ns < 0 ? 0 : ns;
}

/* Decode some slots into rows from ``row`` on; return the row behind them, or -1. */
int64_t ikp_place(const task *task, const codes *codes, int64_t first, int64_t past, int64_t row)
{
    for (int64_t number = first; number < past; number++) {
        slot *slot = &task->slots[number];
        const record *record = slot->records;
        int64_t count = slot->count + (slot->whole.tag != 0);
        int64_t wraps = 0, elapsed = 0, last = slot->end, flags = 0;
        int64_t near = -1;
        uint32_t before = 0;
        if (!record)
            return -1;
        for (int64_t i = 0; i < count; i++, row++, record += slot->step) {
            if (i == slot->count)
                record = &slot->whole;
            uint32_t kind = record->tag >> KIND_SHIFT, ticks = record->end - record->start;
            uint32_t since_init = record->end - (uint32_t)slot->init;
            uint64_t key = slot->table | (record->tag & ((1u << REGION_BITS) - 1));
            uint64_t code = (uint64_t)codes->places[key * codes->factor >> codes->shift];
            if (kind != RANGE && (kind != INSTANT || ticks))
                return -1;
            if (code >= codes->count || codes->seen[code] != key)
                return -1;
            if (since_init < before) {
                wraps++;
                flags |= TURNED;
            }
            before = since_init;
            elapsed = wraps * ((int64_t)1 << 32) + since_init;
            int64_t start = to_ns(task, slot, elapsed + slot->since - ticks, &near);
            int64_t end = to_ns(task, slot, elapsed + slot->since, &near);
            task->slot[row] = (int32_t)number;
            task->region[row] = (int32_t)code;
            task->kind[row] = (uint8_t)kind;
            task->start[row] = start < end ? start : end;
            task->end[row] = end;
            task->ticks[row] = ticks;
            task->payload_type[row] = record->tag >> PAYLOAD_SHIFT & 3;
            task->payload[row] = record->payload;
            last = end > last ? end : last;
        }
        if (count && elapsed + slot->init > slot->latest)
            flags |= OUTSIDE;
        slot->end = last;
        slot->flags = flags;
    }
    return row;
}
