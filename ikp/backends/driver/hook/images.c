/* Images of modules and libraries that a program loads: size, origin, and a copy or a place in a file.

   The driver has its own copy, and the program may free its image at once. An image in a read-only
   segment of a library is the same in the library's file. It is read again from there when Python
   asks for it, and no library of many hundred megabytes is held or copied. Other images are copied. */
#include "known.h"

#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#define FATBIN 0xBA55ED50u
#define WRAPPED_FATBIN 0x466243B1u
#define COMPARED 4096 /* bytes at both ends */

static size_t elf_bytes(const unsigned char *image) {
    uint64_t programs, sections, end;
    uint16_t size, count;
    memcpy(&programs, image + 32, 8);
    memcpy(&sections, image + 40, 8);
    memcpy(&size, image + 54, 2);
    memcpy(&count, image + 56, 2);
    end = programs + (uint64_t)size * count;
    memcpy(&size, image + 58, 2);
    memcpy(&count, image + 60, 2);
    if (sections + (uint64_t)size * count > end) end = sections + (uint64_t)size * count;
    for (unsigned i = 0; i < count; i++) { /* a compiler may put its tables first */
        uint64_t at, bytes;
        uint32_t kind;
        const unsigned char *section = image + sections + (uint64_t)size * i;
        memcpy(&kind, section + 4, 4);
        memcpy(&at, section + 24, 8);
        memcpy(&bytes, section + 32, 8);
        if (kind != 8 && at + bytes > end) end = at + bytes;
    }
    return end;
}

/* An image's size; *image* is moved to its first byte, past the runtime's wrapper. */
static size_t extent(const void **image) {
    uint32_t magic;
    memcpy(&magic, *image, 4);
    if (magic == WRAPPED_FATBIN) {
        memcpy(image, (const char *)*image + 8, sizeof *image);
        memcpy(&magic, *image, 4);
    }
    if (magic == FATBIN) {
        uint16_t head;
        uint64_t rest;
        memcpy(&head, (const char *)*image + 6, 2);
        memcpy(&rest, (const char *)*image + 8, 8);
        return head + rest;
    }
    if (!memcmp(*image, "\177ELF", 4)) return elf_bytes(*image);
    return strlen(*image) + 1; /* PTX */
}

static char *file_of(const void *address) {
    Dl_info info;
    return address && dladdr(address, &info) && info.dli_fname ? strdup(info.dli_fname) : NULL;
}

/* The offset of an address in the file that is mapped there, read-only. */
typedef struct {
    uintptr_t address;
    size_t bytes;
    uint64_t offset;
    int found;
} Place;

static int look(struct dl_phdr_info *info, size_t size, void *about) {
    Place *place = about;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *each = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + each->p_vaddr;
        if (each->p_type != PT_LOAD || place->address < begin ||
            place->address + place->bytes > begin + each->p_filesz)
            continue;
        place->offset = each->p_offset + (place->address - begin);
        place->found = !(each->p_flags & PF_W);
        return 1;
    }
    return 0;
}

static int unchanged(const Image *image, const struct stat *now) {
    return image->device == now->st_dev && image->inode == now->st_ino &&
           image->size == (uint64_t)now->st_size && image->seconds == now->st_mtim.tv_sec &&
           image->nanoseconds == now->st_mtim.tv_nsec;
}

static int pread_all(int file, void *to, size_t bytes, uint64_t offset) {
    for (char *at = to; bytes;) {
        ssize_t got = pread(file, at, bytes, (off_t)offset);
        if (got <= 0) return 0;
        at += got, bytes -= (size_t)got, offset += (uint64_t)got;
    }
    return 1;
}

static int same_as(int file, const void *image, size_t bytes, uint64_t offset) {
    char had[COMPARED];
    return pread_all(file, had, bytes, offset) && !memcmp(had, image, bytes);
}

/* Note an image's offset in its file; 0 where it is in none, or the file differs from memory. */
static int in_file(Image *made, const void *image, const char *path) {
    Place place = {(uintptr_t)image, made->bytes, 0, 0};
    struct stat now;
    size_t ends = made->bytes < COMPARED ? made->bytes : COMPARED;
    if (!path || !dl_iterate_phdr(look, &place) || !place.found) return 0;
    char *whole = realpath(path, NULL);
    int file = whole ? open(whole, O_RDONLY | O_CLOEXEC) : -1;
    int same = file >= 0 && !fstat(file, &now) && same_as(file, image, ends, place.offset) &&
               same_as(file, (const char *)image + made->bytes - ends, ends,
                       place.offset + made->bytes - ends);
    if (file >= 0) close(file);
    if (!same) {
        free(whole);
        return 0;
    }
    made->file = whole;
    made->offset = place.offset;
    made->device = now.st_dev, made->inode = now.st_ino, made->size = (uint64_t)now.st_size;
    made->seconds = now.st_mtim.tv_sec, made->nanoseconds = now.st_mtim.tv_nsec;
    return 1;
}

int read_image(const Image *from, void *to, size_t bytes) {
    struct stat now;
    int file = open(from->file, O_RDONLY | O_CLOEXEC);
    int done = file >= 0 && !fstat(file, &now) && unchanged(from, &now) && bytes == from->bytes &&
               pread_all(file, to, bytes, from->offset);
    if (file >= 0) close(file);
    return done;
}

static void *contents(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    char *made = NULL;
    if (file && !fseek(file, 0, SEEK_END)) {
        *bytes = (size_t)ftell(file);
        rewind(file);
        made = malloc(*bytes + 1);
        if (made && fread(made, 1, *bytes, file) != *bytes) {
            free(made);
            made = NULL;
        }
    }
    if (file) fclose(file);
    return made;
}

void describe(Image *made, const void *image, const char *path, const void *caller) {
    memset(made, 0, sizeof *made);
    if (path) {
        made->origin = strdup(path);
        made->copy = contents(path, &made->bytes);
    } else {
        made->bytes = extent(&image);
        made->origin = file_of(image);
        if (!in_file(made, image, made->origin) && (made->copy = malloc(made->bytes)))
            memcpy(made->copy, image, made->bytes);
        if (!made->origin) made->origin = file_of(caller);
    }
    if (!made->copy && !made->file) made->bytes = 0;
}

void clear(Image *image) {
    free(image->copy);
    free(image->file);
    free(image->origin);
    free(image->options.pairs);
}

/* Whether an image is ikp's own: PTX that says so in its first line, or a cubin that ikp patched, by the
   name of its launch parameters in constant memory. Its launches are decided. (A cubin that takes them as
   an argument has no such name, but is loaded while Python is asked.) */
int has_records(const void *code, size_t bytes) {
    if (!code || bytes <= 5) return 0;
    if (!memcmp(code, "//ikp", 5)) return 1;
    return !memcmp(code, "\177ELF", 4) && memmem(code, bytes, "ikp_buffer", 10) != NULL;
}
