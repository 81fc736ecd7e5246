/* Encoder of protobuf messages, laid end to end: the same bytes as shapes.py, from the same parts.
 *
 * Each message is written backwards, from its last byte to its first, so that its size is known
 * when its length prefix is written. Up to 8 bytes are stored as one word, whose unused low bytes
 * lie in front of them: the part written next overwrites those. So as many bytes as are stored at
 * once must be free in front of all.
 *
 * Messages of a shape whose numbers take the same bytes differ in these alone. So one of each kind
 * is kept, and the others are copies of it with other numbers. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum kind { END, TEXT, NUMBER, TIME, COLUMN, GROUP, SIZE };

typedef struct part {
    int16_t kind;
    int16_t ends;      /* how many messages end behind it */
    int32_t size;      /* of the text */
    uint64_t text;     /* up to 8 bytes in front of it; the last one is the highest */
    const void *data;  /* numbers, the rows of a column, or the parts of a group's messages */
    const void *more;  /* which numbers there are, if not all; sizes of rows; bounds of groups;
                          of a message: not 0 if it is left out where all its columns are empty */
    int64_t width;     /* of a column: from row to row */
} part;

typedef struct stream {
    const part *parts; /* of each message, the last one first */
    const int64_t *places;
    const uint64_t *times;
    int64_t rows;
} stream;

#define NUMBERS 8
#define LONGEST 128
#define KINDS 64

typedef struct message {
    uint64_t sizes;         /* of its numbers, 4 bits each, and 1 in front; 0 where none is kept */
    int32_t size;
    int32_t ends[NUMBERS];  /* where in ``text`` each number ends, the last one first */
    uint8_t text[LONGEST];  /* ends with the message, its numbers 0 */
} message;

typedef struct numbers {
    int64_t count; /* -1 where a message holds more than that, or other than numbers */
    const uint64_t *values[NUMBERS]; /* the last one first; 0: the time */
    const uint8_t *given[NUMBERS];
    message known[KINDS]; /* by a hash of the sizes */
} numbers;

#define DEPTH 32
#define ROW_BITS 48
#define INLINE static inline __attribute__((always_inline))

/* Make the bytes of a varint, the last one highest in the word; return how many, 0 if it has more. */
INLINE int to_word(uint64_t value, uint64_t *word)
{
    if (value < 128) {
        *word = value << 56;
        return 1;
    }
    if (value >> 56)
        return 0;
    int size = (70 - __builtin_clzll(value)) / 7;
    value = (value & 0x000000000fffffff) | (value & 0x00fffffff0000000) << 4;
    value = (value & 0x00003fff00003fff) | (value & 0x0fffc0000fffc000) << 2;
    value = (value & 0x007f007f007f007f) | (value & 0x3f803f803f803f80) << 1;
    value |= 0x8080808080808080 & (((uint64_t)1 << 8 * (size - 1)) - 1);
    *word = value << (64 - 8 * size);
    return size;
}

INLINE uint8_t *varint(uint8_t *at, uint64_t value)
{
    uint64_t word;
    int size = to_word(value, &word);
    if (size) {
        memcpy(at - 8, &word, 8);
        return at - size;
    }
    uint8_t bytes[10];
    for (; value >> 7; value >>= 7)
        bytes[size++] = (uint8_t)(value | 0x80);
    bytes[size++] = (uint8_t)value;
    memcpy(at - size, bytes, (size_t)size);
    return at - size;
}

/* Write a message that ends at ``at``; return where it begins. ``ends`` gets where numbers end. */
static uint8_t *put(uint8_t *at, const part *part, int64_t row, uint64_t later, uint8_t **ends)
{
    uint8_t *end[DEPTH];
    int around[DEPTH]; /* whether there is anything in the message around this one, so far */
    int depth = 0, any = 0;
    for (; part->kind != END; part++) {
        for (int more = part->ends; more; more--) {
            end[depth] = at;
            around[depth++] = any;
            any = 0;
        }
        uint8_t *before = at;
        if (ends && (part->kind == NUMBER || part->kind == TIME))
            *ends++ = at;
        switch (part->kind) {
        case NUMBER:
            if (!part->more || ((const uint8_t *)part->more)[row]) {
                at = varint(at, ((const uint64_t *)part->data)[row]);
                any = 1;
            }
            break;
        case TIME:
            at = varint(at, later);
            any = 1;
            break;
        case COLUMN:
            at -= ((const int64_t *)part->more)[row];
            memcpy(at, (const uint8_t *)part->data + row * part->width, (size_t)(before - at));
            any |= at != before;
            break;
        case GROUP: {
            const int64_t *bounds = part->more;
            for (int64_t one = bounds[row + 1]; one-- > bounds[row];)
                at = put(at, part->data, one, 0, 0);
            any |= at != before;
            break;
        }
        case SIZE:
            depth--;
            if (!any && part->more) {
                at = end[depth];
                any = around[depth];
                continue;
            }
            at = varint(at, (uint64_t)(end[depth] - at));
            any |= around[depth];
        }
        memcpy(at - 8, &part->text, 8);
        at -= part->size;
    }
    return at;
}

/* Find the numbers of a shape's messages. */
static void look(numbers *all, const part *part)
{
    for (; part->kind != END; part++) {
        int is_number = part->kind == NUMBER || part->kind == TIME;
        if (part->kind == COLUMN || part->kind == GROUP || (is_number && all->count == NUMBERS)) {
            all->count = -1;
            return;
        }
        if (is_number) {
            all->values[all->count] = part->data;
            all->given[all->count++] = part->more;
        }
    }
}

/* As ``put`` does, by a copy of a message of the same kind, if there is one. */
INLINE uint8_t *copy(uint8_t *at, const part *part, int64_t row, uint64_t later, numbers *all)
{
    uint64_t words[NUMBERS], sizes = 1;
    int64_t count = all->count;
    for (int64_t i = 0; i < count; i++) {
        sizes <<= 4;
        words[i] = 0;
        if (all->given[i] && !all->given[i][row])
            continue;
        uint64_t value = all->values[i] ? all->values[i][row] : later;
        int size = to_word(value, &words[i]);
        if (!size)
            return put(at, part, row, later, 0);
        sizes |= (uint64_t)size;
    }
    message *one = &all->known[sizes * 0x9e3779b97f4a7c15 >> 58];
    if (one->sizes != sizes) {
        uint8_t *ends[NUMBERS + 1], *begin = put(at, part, row, later, ends);
        if (at - begin > LONGEST - 8)
            return begin;
        one->sizes = sizes;
        one->size = (int32_t)(at - begin);
        memcpy(one->text + LONGEST - one->size, begin, (size_t)one->size);
        for (int64_t i = count; i-- > 0; sizes >>= 4) { /* one that is left out: in front of all */
            one->ends[i] = (int32_t)(LONGEST - (at - (sizes & 15 ? ends[i] : begin)));
            memset(one->text + one->ends[i] - (sizes & 15), 0, sizes & 15);
        }
        return begin;
    }
    if (one->size > LONGEST / 2)
        memcpy(at - LONGEST, one->text, LONGEST / 2);
    memcpy(at - LONGEST / 2, one->text + LONGEST / 2, LONGEST / 2);
    for (int64_t i = 0; i < count; i++) {
        uint64_t around;
        memcpy(&around, one->text + one->ends[i] - 8, 8);
        around |= words[i];
        memcpy(at - LONGEST + one->ends[i] - 8, &around, 8);
    }
    return at - one->size;
}

/* Lay the messages of some streams so that the last one ends at ``end``; return their size, or -1.
 *
 * ``order`` has room for one number each. ``before`` is the time of the message in front. */
int64_t ikp_join(const stream *streams, int64_t count, uint64_t *order, int64_t total,
                 uint64_t before, uint8_t *end)
{
    const uint64_t mask = ((uint64_t)1 << ROW_BITS) - 1;
    for (int64_t i = 0; i < count; i++)
        for (int64_t row = 0; row < streams[i].rows; row++)
            order[streams[i].places[row]] = (uint64_t)i << ROW_BITS | (uint64_t)row;
    numbers *all = calloc((size_t)count, sizeof(numbers));
    if (!all)
        return -1;
    for (int64_t i = 0; i < count; i++)
        look(&all[i], streams[i].parts);
    uint8_t *at = end;
    for (int64_t i = total; i-- > 0;) {
        const stream *one = &streams[order[i] >> ROW_BITS];
        int64_t row = (int64_t)(order[i] & mask);
        uint64_t later = 0;
        if (one->times) {
            uint64_t last = i ? order[i - 1] : 0;
            later = one->times[row] - (i ? streams[last >> ROW_BITS].times[last & mask] : before);
        }
        numbers *its = &all[order[i] >> ROW_BITS];
        at = its->count < 0 ? put(at, one->parts, row, later, 0)
                            : copy(at, one->parts, row, later, its);
    }
    free(all);
    return end - at;
}
