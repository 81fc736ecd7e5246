/* Protobuf messages laid end to end, as shapes.py lays them: the same bytes, from the same parts.
 *
 * Each message is written backwards, from its last byte to its first, so that its size is known when
 * it is due. Up to 8 bytes are stored as one word whose low bytes, which are not theirs, are in
 * front of them: what comes next overwrites those. So 8 bytes must be free in front of all. */

#include <stdint.h>
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

#define DEPTH 32
#define ROW_BITS 48
#define INLINE static inline __attribute__((always_inline))

INLINE uint8_t *varint(uint8_t *at, uint64_t value)
{
    if (value < 128) {
        *--at = (uint8_t)value;
        return at;
    }
    if (value >> 56) {
        uint8_t bytes[10];
        int size = 0;
        for (; value >> 7; value >>= 7)
            bytes[size++] = (uint8_t)(value | 0x80);
        bytes[size++] = (uint8_t)value;
        at -= size;
        memcpy(at, bytes, (size_t)size);
        return at;
    }
    int size = (70 - __builtin_clzll(value)) / 7;
    value = (value & 0x000000000fffffff) | (value & 0x00fffffff0000000) << 4;
    value = (value & 0x00003fff00003fff) | (value & 0x0fffc0000fffc000) << 2;
    value = (value & 0x007f007f007f007f) | (value & 0x3f803f803f803f80) << 1;
    value |= 0x8080808080808080 & (((uint64_t)1 << 8 * (size - 1)) - 1);
    value <<= 64 - 8 * size;
    memcpy(at - 8, &value, 8);
    return at - size;
}

static uint8_t *put(uint8_t *at, const part *part, int64_t row, uint64_t later)
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
                at = put(at, part->data, one, 0);
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
/* Lay the messages of some streams so that the last one ends at ``end``; return their size.
 *
 * ``order`` has room for one number each. ``before`` is the time of what is in front of them. */
int64_t ikp_join(const stream *streams, int64_t count, uint64_t *order, int64_t total,
                 uint64_t before, uint8_t *end)
{
    const uint64_t mask = ((uint64_t)1 << ROW_BITS) - 1;
    for (int64_t i = 0; i < count; i++)
        for (int64_t row = 0; row < streams[i].rows; row++)
            order[streams[i].places[row]] = (uint64_t)i << ROW_BITS | (uint64_t)row;
    uint8_t *at = end;
    for (int64_t i = total; i-- > 0;) {
        const stream *one = &streams[order[i] >> ROW_BITS];
        int64_t row = (int64_t)(order[i] & mask);
        uint64_t later = 0;
        if (one->times) {
            uint64_t last = i ? order[i - 1] : 0;
            later = one->times[row] - (i ? streams[last >> ROW_BITS].times[last & mask] : before);
        }
        at = put(at, one->parts, row, later);
    }
    return end - at;
}
