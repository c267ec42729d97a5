// What tests/tests/clients/c.rs runs, alone, in valgrind and with sanitizers:
//
//     answers file BLOB      looks up the lines of stdin one at a time and in batches, prints 1 or 0 for each
//     answers misuse BLOB    every argument that cannot be is an error with its name
//     answers open FILE      opens it; the code is the exit status, the error is on stderr
//     answers serve STORE    follows the filter rt: a line of stdin is an ID, or `reload`

#undef NDEBUG
#include <assert.h>
#include <bloomsday.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4 };

// IDs as a column: bytes and offsets.
struct column {
    uint8_t *bytes;
    size_t n_bytes, n;
    int32_t *offsets;
    int64_t *offsets64;
};

static struct column read_lines(void) {
    struct column ids = {0};
    size_t room = 0;
    for (;;) {
        if (ids.n_bytes == room) {
            room = room ? 2 * room : 4096;
            ids.bytes = realloc(ids.bytes, room);
            assert(ids.bytes != NULL);
        }
        size_t read = fread(ids.bytes + ids.n_bytes, 1, room - ids.n_bytes, stdin);
        if (read == 0) break;
        ids.n_bytes += read;
    }
    for (size_t i = 0; i < ids.n_bytes; i++) ids.n += ids.bytes[i] == '\n';
    ids.offsets = malloc((ids.n + 1) * sizeof *ids.offsets);
    ids.offsets64 = malloc((ids.n + 1) * sizeof *ids.offsets64);
    assert(ids.offsets != NULL && ids.offsets64 != NULL);
    // The line ends are taken out.
    size_t to = 0, id = 0;
    ids.offsets[0] = 0;
    for (size_t i = 0; i < ids.n_bytes; i++) {
        if (ids.bytes[i] == '\n') {
            ids.offsets[++id] = (int32_t)to;
        } else {
            ids.bytes[to++] = ids.bytes[i];
        }
    }
    ids.n_bytes = to;
    for (size_t i = 0; i <= ids.n; i++) ids.offsets64[i] = ids.offsets[i];
    return ids;
}

static void end(struct column ids) {
    free(ids.bytes);
    free(ids.offsets);
    free(ids.offsets64);
}

struct work {
    const bloomsday_filter_t *filter;
    const struct column *ids;
    uint8_t *answers;
};

static void *look_up_all(void *argument) {
    struct work *work = argument;
    const struct column *ids = work->ids;
    int code = bloomsday_contains_batch(work->filter, ids->bytes, ids->n_bytes, ids->offsets, ids->n,
                                        work->answers);
    assert(code == BLOOMSDAY_OK);
    return NULL;
}

static bloomsday_filter_t *opened(const char *path) {
    bloomsday_filter_t *filter;
    int code = bloomsday_open(path, &filter);
    if (code != BLOOMSDAY_OK) {
        fprintf(stderr, "%s\n", bloomsday_last_error());
        assert(filter == NULL);
        exit(code);
    }
    return filter;
}

static void file(const char *path) {
    bloomsday_filter_t *filter = opened(path);
    struct column ids = read_lines();
    uint8_t *answers = malloc(ids.n + 1), *other = malloc(THREADS * ids.n + 1);
    assert(answers != NULL && other != NULL);
    for (size_t i = 0; i < ids.n; i++) {
        const uint8_t *id = ids.bytes + ids.offsets[i];
        int answer = bloomsday_contains(filter, id, (size_t)(ids.offsets[i + 1] - ids.offsets[i]));
        assert(answer == 0 || answer == 1);
        answers[i] = (uint8_t)answer;
        printf("%d\n", answer);
    }
    char *about = bloomsday_describe(filter);
    assert(about != NULL && strstr(about, "\"digest\":") && strstr(about, "\"ids_estimated\":false"));
    bloomsday_free(about);
    int code = bloomsday_contains_batch64(filter, ids.bytes, ids.n_bytes, ids.offsets64, ids.n, other);
    assert(code == BLOOMSDAY_OK);
    assert(memcmp(answers, other, ids.n) == 0);

    pthread_t threads[THREADS];
    struct work works[THREADS];
    for (int i = 0; i < THREADS; i++) {
        works[i] = (struct work){filter, &ids, other + (size_t)i * ids.n};
        assert(pthread_create(&threads[i], NULL, look_up_all, &works[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert(pthread_join(threads[i], NULL) == 0);
        assert(memcmp(answers, works[i].answers, ids.n) == 0);
    }
    free(answers);
    free(other);
    end(ids);
    bloomsday_close(filter);
}

// The call was refused for its argument `name`.
static void refused(int code, const char *name) {
    assert(code == BLOOMSDAY_USAGE || code == -1);
    assert(bloomsday_last_code() == BLOOMSDAY_USAGE);
    const char *error = bloomsday_last_error();
    if (strstr(error, name) == NULL) {
        fprintf(stderr, "expected %s in: %s\n", name, error);
        abort();
    }
}

static void *last_code(void *code) {
    *(int *)code = bloomsday_last_code();
    return NULL;
}

static void misuse(const char *path) {
    assert(bloomsday_last_error() == NULL && bloomsday_last_code() == BLOOMSDAY_OK);
    bloomsday_filter_t *filter = NULL;
    refused(bloomsday_open(NULL, &filter), "path is NULL");
    refused(bloomsday_open(path, NULL), "filter is NULL");
    refused(bloomsday_open("\xff\xfe", &filter), "path has bytes that are no UTF-8");
    assert(bloomsday_open("no-such-file", &filter) == BLOOMSDAY_NOT_FOUND && filter == NULL);
    assert(bloomsday_last_code() == BLOOMSDAY_NOT_FOUND);
    assert(bloomsday_open("/", &filter) != BLOOMSDAY_OK && filter == NULL);
    filter = opened(path);

    bloomsday_filter_t *none;
    uint8_t id[2000] = {0}, answers[3];
    int32_t offsets[] = {0, 3, 5, 9}, backwards[] = {0, 5, 3, 9}, negative[] = {-1, 3, 5, 9};
    int64_t huge[] = {0, 3, 5, INT64_MAX};
    refused(bloomsday_contains(NULL, id, 4), "filter is NULL");
    refused(bloomsday_contains(filter, NULL, 4), "id is NULL");
    refused(bloomsday_contains(filter, id, SIZE_MAX), "id cannot have");
    assert(bloomsday_contains(filter, NULL, 0) == 0 && bloomsday_contains(filter, id, 1025) == 0);
    refused(bloomsday_contains_batch(NULL, id, 9, offsets, 3, answers), "filter is NULL");
    refused(bloomsday_contains_batch(filter, NULL, 9, offsets, 3, answers), "bytes is NULL");
    refused(bloomsday_contains_batch(filter, id, 9, NULL, 3, answers), "offsets is NULL");
    refused(bloomsday_contains_batch(filter, id, 9, NULL, 0, answers), "offsets is NULL");
    refused(bloomsday_contains_batch(filter, id, 9, offsets, 3, NULL), "answers is NULL");
    refused(bloomsday_contains_batch(filter, id, 8, offsets, 3, answers), "offsets 2 and 3");
    refused(bloomsday_contains_batch(filter, id, 9, backwards, 3, answers), "offsets 1 and 2");
    refused(bloomsday_contains_batch(filter, id, 9, negative, 3, answers), "offsets 0 and 1");
    refused(bloomsday_contains_batch64(filter, id, 9, huge, 3, answers), "offsets 2 and 3");
    refused(bloomsday_contains_batch(filter, id, 9, offsets, SIZE_MAX, answers), "n is too large");
    refused(bloomsday_contains_batch(filter, id, 9, (int32_t *)(id + 1), 3, answers), "not aligned");
    assert(bloomsday_contains_batch(filter, id, 9, offsets, 3, answers) == BLOOMSDAY_OK);
    assert(bloomsday_contains_batch(filter, NULL, 0, offsets, 0, NULL) == BLOOMSDAY_OK);
    assert(bloomsday_open("no-such-file", &none) == BLOOMSDAY_NOT_FOUND);
    assert(bloomsday_describe(NULL) == NULL && bloomsday_last_code() == BLOOMSDAY_USAGE);
    // Another thread has its own.
    int of_thread = -1;
    pthread_t thread;
    assert(pthread_create(&thread, NULL, last_code, &of_thread) == 0);
    assert(pthread_join(thread, NULL) == 0 && of_thread == BLOOMSDAY_OK);

    bloomsday_server_t *server;
    refused(bloomsday_start(NULL, &server), "config is NULL");
    refused(bloomsday_start("{", &server), "the configuration: EOF");
    const char *waits = "{\"store\": \"/\", \"filters\": [\"rt\"], \"answer_until_loaded\": true}";
    refused(bloomsday_start(waits, &server), "`answer_until_loaded` needs `wait` to be false");
    refused(bloomsday_start("{\"store\": \"x\"}", &server), "filters");
    refused(bloomsday_start("{\"store\": \"x\", \"filters\": [\"rt\"], \"polls\": 1}", &server), "polls");
    refused(bloomsday_start("{\"store\": \"x\", \"filters\": [\"r t\"]}", &server), "r t");
    refused(bloomsday_start("{\"store\": \"x\", \"filters\": [\"rt\"], \"poll_interval\": -1}", &server),
            "poll_interval");
    refused(bloomsday_start("{\"store\": \"x\", \"filters\": {\"rt\": {\"max_age\": 3}}}", &server),
            "the settings of `rt`: unknown field `max_age`");
    refused(bloomsday_start("{\"store\": \"x\", \"filters\": {\"rt\": {\"id\": \"uuid\"}}}", &server),
            "the `id` of `rt` is `uuid`");
    refused(bloomsday_start("{\"store\": \"x\", \"filters\": 3}", &server), "a list of names");
    refused(bloomsday_start("[\"x\", [\"rt\"], null, null, null, null, null, true, false]", &server), "a JSON object");
    refused(bloomsday_start("{\"store\": \"x\", \"filters\": {\"rt\": [\"bytes\", 3]}}", &server),
            "the settings of `rt` are an object");
    assert(server == NULL);
    bloomsday_filter_t *of_server;
    refused(bloomsday_filter(NULL, "rt", &of_server), "server is NULL");
    assert(of_server == NULL);
    assert(bloomsday_status(NULL) == NULL && bloomsday_reload(NULL, NULL, 0) == NULL);
    bloomsday_close(NULL);
    bloomsday_stop(NULL);
    bloomsday_free(NULL);
    bloomsday_close(filter);
    assert(strcmp(bloomsday_version(), "0.1.0") == 0);
}

static void serve(const char *store) {
    char config[8192];
    snprintf(config, sizeof config, "{\"store\": \"%s\", \"filters\": {\"rt\": {\"id\": \"bytes\", \"guard\": \"off\"}}}",
             store);
    bloomsday_server_t *server;
    bloomsday_filter_t *rt;
    if (bloomsday_start(config, &server) != BLOOMSDAY_OK || bloomsday_filter(server, "rt", &rt) != BLOOMSDAY_OK) {
        fprintf(stderr, "%s\n", bloomsday_last_error());
        exit(1);
    }
    bloomsday_filter_t *other;
    assert(bloomsday_filter(server, "other", &other) == BLOOMSDAY_NOT_FOUND && other == NULL);
    assert(bloomsday_status(NULL) == NULL && bloomsday_last_code() == BLOOMSDAY_USAGE);
    assert(bloomsday_reload(server, "other", 0) == NULL && bloomsday_last_code() == BLOOMSDAY_NOT_FOUND);
    char line[2048];
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (strcmp(line, "reload") == 0) {
            char *report = bloomsday_reload(server, NULL, 0);
            assert(report != NULL);
            printf("%s\n", report);
            bloomsday_free(report);
        } else {
            printf("%d\n", bloomsday_contains(rt, (const uint8_t *)line, strlen(line)));
        }
        fflush(stdout);
    }
    char *status = bloomsday_status(server), *about = bloomsday_describe(rt);
    printf("%s\n%s\n", status, about);
    bloomsday_free(status);
    bloomsday_free(about);
    bloomsday_stop(server);
    // A filter outlives its server.
    assert(bloomsday_contains(rt, (const uint8_t *)"x", 1) >= 0);
    bloomsday_close(rt);
}

int main(int argc, char **argv) {
    assert(argc == 3);
    if (strcmp(argv[1], "file") == 0) file(argv[2]);
    if (strcmp(argv[1], "misuse") == 0) misuse(argv[2]);
    if (strcmp(argv[1], "open") == 0) bloomsday_close(opened(argv[2]));
    if (strcmp(argv[1], "serve") == 0) serve(argv[2]);
    return 0;
}
