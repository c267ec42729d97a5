// Looks up IDs in a blob file:
//
//     cc first.c $(pkg-config --cflags --libs bloomsday) -o first
//     ./first rt.bloom 0f8fad5bd9cb469fa16570867728950e

#include <bloomsday.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s BLOB [ID...]\n", argv[0]);
        return BLOOMSDAY_USAGE;
    }
    bloomsday_filter_t *filter;
    int code = bloomsday_open(argv[1], &filter);
    if (code != BLOOMSDAY_OK) {
        fprintf(stderr, "%s\n", bloomsday_last_error());
        return code;
    }
    char *about = bloomsday_describe(filter);
    printf("%s\n", about);
    bloomsday_free(about);
    for (int i = 2; i < argc; i++) {
        const uint8_t *id = (const uint8_t *)argv[i];
        printf("%d %s\n", bloomsday_contains(filter, id, strlen(argv[i])), argv[i]);
    }
    bloomsday_close(filter);
    return 0;
}
