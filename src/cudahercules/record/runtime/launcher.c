/* The process in which a candidate's host code runs: reads the request on stdin, opens the shared object,
 * calls prepare and solve, and writes what was recorded.
 *
 *     launcher RECORDING BLOB FAULT BEGUN
 *
 * are descriptors: three files, and a pipe that gets one byte just before the candidate's code can run.
 * No byte in it is the parent's proof that a failure is not the candidate's; what host code can do with
 * the files and with the exit status proves nothing. */
#include "state.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define MAX_INTEGERS 64
#define MAX_DOUBLES 8

static int fault_file = -1;
static bool finished;

static void note(const char *text) {
    size_t length = strlen(text);
    while (length) {
        ssize_t written = write(fault_file, text, length);
        if (written <= 0) return;
        text += written, length -= (size_t)written;
    }
}

/* What the parent reads if the candidate never comes back: the signal, and the last failed call. */
static void on_signal(int number, siginfo_t *info, void *context) {
    (void)context;
    char text[128];
    unsigned long long address = number == SIGSEGV || number == SIGBUS ? (unsigned long long)info->si_addr : 0;
    snprintf(text, sizeof text, "signal %d %llu\n", number, address);
    note(text);
    if (S.contract[0]) note(S.contract);
    else note(S.failed);
    signal(number, SIG_DFL);
    raise(number);
}

static void on_exit_early(void) {
    if (finished) return;
    note("exit\n");
    if (S.contract[0]) note(S.contract);
    else note(S.failed);
}

static void watch_for_crashes(void) {
    static char stack[64 << 10];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER};
    const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &action, NULL);
    atexit(on_exit_early);
}

typedef struct {
    char name[16];
    uint64_t integers[MAX_INTEGERS];
    double doubles[MAX_DOUBLES];
} Call;

/* One call fits every signature of pointers, integers and up to eight floating-point numbers: on
 * x86-64 and AArch64 Linux the two classes go to registers of their own, in order, integers that do
 * not fit go to the stack in 8-byte slots, and arguments that the callee does not expect are ignored. */
static void call(void *function, const Call *c) {
    typedef uint64_t I;
    typedef double D;
    typedef void Any(I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I,
                     I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I,
                     D, D, D, D, D, D, D, D);
    const I *i = c->integers;
    const D *d = c->doubles;
    ((Any *)function)(i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], i[8], i[9], i[10], i[11], i[12], i[13], i[14],
                      i[15], i[16], i[17], i[18], i[19], i[20], i[21], i[22], i[23], i[24], i[25], i[26], i[27],
                      i[28], i[29], i[30], i[31], i[32], i[33], i[34], i[35], i[36], i[37], i[38], i[39], i[40],
                      i[41], i[42], i[43], i[44], i[45], i[46], i[47], i[48], i[49], i[50], i[51], i[52], i[53],
                      i[54], i[55], i[56], i[57], i[58], i[59], i[60], i[61], i[62], i[63], d[0], d[1], d[2], d[3],
                      d[4], d[5], d[6], d[7]);
}

/* Clears the stack that the candidate is about to use, so that padding it does not set reads as zero
 * and two recordings agree. */
static __attribute__((noinline)) void clear_stack(void) {
    volatile char area[1 << 20];
    for (size_t i = 0; i < sizeof area; i++) area[i] = 0;
}

/* call NAME INTEGERS… | DOUBLES…: integers in decimal, "stream" for the stream, doubles as 64-bit hex. */
static bool read_call(char *line, Call *c) {
    int integers = 0, doubles = 0;
    bool after = false;
    memset(c, 0, sizeof *c);
    char *save, *word = strtok_r(line, " \n", &save);
    if (!word || strcmp(word, "call") || !(word = strtok_r(NULL, " \n", &save))) return false;
    snprintf(c->name, sizeof c->name, "%s", word);
    while ((word = strtok_r(NULL, " \n", &save))) {
        if (!strcmp(word, "|")) {
            after = true;
        } else if (after) {
            uint64_t bits = strtoull(word, NULL, 16);
            if (doubles == MAX_DOUBLES) return false;
            memcpy(&c->doubles[doubles++], &bits, 8);
        } else {
            if (integers == MAX_INTEGERS) return false;
            c->integers[integers++] = strcmp(word, "stream") ? strtoull(word, NULL, 10) : (uint64_t)(uintptr_t)S.given;
        }
    }
    return true;
}

/* The candidate's dlopen lands here. By its plain name the driver's library is the stand-in; a path would
 * be the real one, and a compiler at run time would make device code that the build has not seen. */
EXPORT void *dlopen(const char *name, int flags) {
    static void *(*real)(const char *, int);
    if (!real) real = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    const char *slash = name ? strrchr(name, '/') : NULL, *base = slash ? slash + 1 : name;
    const char *why = NULL;
    if (base && (!strncmp(base, "libnvrtc", 8) || !strncmp(base, "libnvJitLink", 12)))
        why = "device code is compiled by the build only";
    else if (slash && (!strncmp(base, "libcuda.so", 10) || !strncmp(base, "libnvidia", 9)))
        why = "the real driver is not available";
    if (!why) return real(name, flags);
    refuse("dlopen of %.200s: %s", name, why);
    return NULL;
}

static void *open_object(char *line) {
    line[strcspn(line, "\n")] = 0;
    if (strncmp(line, "object ", 7)) _Exit(71);
    void *object = dlopen(line + 7, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        const char *why = dlerror(), *undefined = strstr(why, "undefined symbol: ");
        if (undefined)
            refuse("the host code needs %.300s, which the recording runtime does not have", undefined + 18);
        else
            refuse("the host code cannot be loaded: %.300s", why);
    }
    return object;
}

static int given(const char *text) {
    int fd = atoi(text);
    return fcntl(fd, F_SETFD, FD_CLOEXEC) ? -1 : fd;
}

EXPORT int hercules_record(int argc, char **argv) {
    if (argc != 5) return 71;
    FILE *out = fdopen(given(argv[1]), "w"), *blob = fdopen(given(argv[2]), "w");
    int begun = given(argv[4]);
    fault_file = given(argv[3]);
    if (!out || !blob || fault_file < 0 || begun < 0) return 72;
    read_request();
    S.given = new_stream(cudaStreamDefault, 0, false);
    watch_for_crashes();
    char *line = NULL;
    size_t room = 0;
    if (getline(&line, &room, stdin) <= 0) return 71;
    if (write(begun, "b", 1) != 1 || close(begun)) return 72;
    void *object = open_object(line);
    Call c;
    while (object && getline(&line, &room, stdin) > 0) {
        if (!read_call(line, &c)) return 71;
        void *function = dlsym(object, c.name);
        if (!function) {
            refuse("the host code does not define %s", c.name);
            break;
        }
        begin_phase(strcmp(c.name, "solve") ? 0 : 1);
        clear_stack();
        call(function, &c);
        lock_state();
        end_phase();
        unlock_state(NULL);
    }
    lock_state();
    finished = true;
    write_recording(out, blob);
    bool lost = fclose(out) != 0;
    lost |= fclose(blob) != 0;
    _Exit(lost ? 72 : 0);
}
