/* Runs a program that the rest of the machine is hidden from:
 *
 *     confine probe
 *     confine FEATURES [-r PATH]... [-w PATH]... [-a] [-t] [-n COUNT] [-e FD] -- PROGRAM ARGUMENT...
 *
 * "probe" prints the features that this kernel grants to this user, separated by commas. With a list of
 * them the program is started under all of them, or not at all: then the reason is written to FD (which
 * the program does not get) or else to standard error, and the exit status is 125.
 *
 *   landlock=N    no file but those under -r (read, execute) and -w (write, too); no TCP; no signal and
 *                 no abstract socket reaches outside. N is the version of the kernel's interface.
 *   namespaces    user, process, network and IPC namespaces of its own
 *   view          a file system of its own (view.h): outside -r and -w not even names can be seen
 *   capabilities  none, also for root, and none to be had from any program
 *   seccomp       a list of system calls that are refused
 *
 * -a turns address randomisation off; -t is for tools that run others (compilers): they may start and signal
 * children and set modes of files; -n limits the number of processes and threads, where there are
 * namespaces (elsewhere the kernel counts all of the user's) and the user is not root. What the program ends with, this one ends with, signals included. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT = 125 };

static int complaints = STDERR_FILENO;

static int failed(const char *format, ...) {
    const int error = errno;
    va_list list;
    va_start(list, format);
    vdprintf(complaints, format, list);
    va_end(list);
    dprintf(complaints, ": %s\n", strerror(error));
    return -1;
}

/* --- Landlock: the interface is stated here, as kernels are often newer than their headers --------- */

enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446 };
enum { RULE_PATH_BENEATH = 1, RULESET_VERSION = 1 };
#define FS_EXECUTE (1ull << 0)
#define FS_WRITE_FILE (1ull << 1)
#define FS_READ_FILE (1ull << 2)
#define FS_READ_DIR (1ull << 3)
#define FS_REFER (1ull << 13)     /* version 2 */
#define FS_TRUNCATE (1ull << 14)  /* 3 */
#define FS_IOCTL_DEV (1ull << 15) /* 5 */
#define FS_FIRST ((1ull << 13) - 1)
#define NET_TCP 3ull /* 4: bind and connect */
#define SCOPED 3ull  /* 6: abstract sockets and signals */

struct ruleset {
    uint64_t fs, net, scoped;
};
struct beneath {
    uint64_t allowed;
    int32_t parent;
} __attribute__((packed));

static int landlock_version(void) {
    long version = syscall(CREATE_RULESET, NULL, 0, RULESET_VERSION);
    return version > 0 ? (int)version : 0;
}

static uint64_t handled_rights(int version) {
    uint64_t rights = FS_FIRST;
    if (version >= 2) rights |= FS_REFER;
    if (version >= 3) rights |= FS_TRUNCATE;
    if (version >= 5) rights |= FS_IOCTL_DEV;
    return rights;
}

/* A path that is not there needs no rule. */
static int allow(int ruleset, const char *path, uint64_t rights) {
    struct stat found;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? 0 : failed("open %s", path);
    if (fstat(fd, &found) == 0 && !S_ISDIR(found.st_mode))
        rights &= FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV;
    struct beneath rule = {.allowed = rights, .parent = fd};
    long result = syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, &rule, 0);
    close(fd);
    return result ? failed("landlock rule for %s", path) : 0;
}

static int use_landlock(int version, char **paths, const char *modes, int count) {
    const uint64_t all = handled_rights(version), reading = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR;
    struct ruleset rules = {.fs = all, .net = version >= 4 ? NET_TCP : 0, .scoped = version >= 6 ? SCOPED : 0};
    size_t size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
    int ruleset = (int)syscall(CREATE_RULESET, &rules, size, 0);
    if (ruleset < 0) return failed("landlock_create_ruleset");
    for (int i = 0; i < count; i++)
        if (allow(ruleset, paths[i], modes[i] == 'w' ? all & ~FS_IOCTL_DEV : reading)) return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return failed("no_new_privs");
    if (syscall(RESTRICT_SELF, ruleset, 0)) return failed("landlock_restrict_self");
    close(ruleset);
    return 0;
}

/* --- namespaces -------------------------------------------------------------------------------------- */

static int put(const char *path, const char *format, unsigned id) {
    char text[64];
    int length = snprintf(text, sizeof text, format, id), fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return failed("open %s", path);
    bool written = write(fd, text, (size_t)length) == length;
    close(fd);
    return written ? 0 : failed("write %s", path);
}

/* Inside, the user is nobody: not root, whoever started us. */
static int use_namespaces(int more) {
    const unsigned user = geteuid(), group = getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | more)) return failed("unshare");
    if (put("/proc/self/setgroups", "deny", 0)) return -1;
    return put("/proc/self/uid_map", "65534 %u 1", user) || put("/proc/self/gid_map", "65534 %u 1", group) ? -1 : 0;
}

#include "view.h"

/* --- capabilities ------------------------------------------------------------------------------------ */

static int drop_capabilities(void) {
    /* Without the capability for it these two fail, and there is nothing that they would take away. */
    for (int c = 0; c <= CAP_LAST_CAP || prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++) prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
    prctl(PR_SET_SECUREBITS, SECURE_ALL_BITS | SECURE_ALL_LOCKS, 0, 0, 0);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    if (syscall(SYS_capset, &head, none)) return failed("capset");
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? failed("no_new_privs") : 0;
}

/* --- seccomp ----------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "no system call numbers for this architecture"
#endif
#define X32_BIT 0x40000000u
/* The newest call that this file knows (futex_requeue): what comes later is not there. */
#define LAST_CALL 456
#define NAMESPACE_FLAGS 0x7e020080u /* CLONE_NEW*, time included */

/* Numbers from 424 on are the same everywhere; older headers lack them. */
enum {
    PIDFD_SEND_SIGNAL = 424, IO_URING_SETUP, IO_URING_ENTER, IO_URING_REGISTER, OPEN_TREE, MOVE_MOUNT, FSOPEN,
    FSCONFIG, FSMOUNT, FSPICK, PIDFD_OPEN, CLONE3, PIDFD_GETFD = 438, PROCESS_MADVISE = 440, MOUNT_SETATTR = 442,
    QUOTACTL_FD = 443, MEMFD_SECRET = 447, PROCESS_MRELEASE = 448, FCHMODAT2 = 452,
};

static const unsigned REFUSED_CALLS[] = {
    /* the network */
    __NR_socket, __NR_socketpair, __NR_bind, __NR_listen, __NR_connect, __NR_accept, __NR_accept4,
    /* other processes */
    __NR_ptrace, __NR_process_vm_readv, __NR_process_vm_writev, __NR_kcmp, __NR_migrate_pages, __NR_move_pages,
    __NR_tkill, __NR_setsid, __NR_setpgid, __NR_setpriority, __NR_ioprio_set, PIDFD_SEND_SIGNAL, PIDFD_OPEN,
    PIDFD_GETFD, PROCESS_MADVISE, PROCESS_MRELEASE,
    /* memory that outlives the process */
    __NR_shmget, __NR_semget, __NR_msgget, __NR_mq_open, __NR_mq_unlink,
    /* files by other means than their path, and mounts */
    __NR_open_by_handle_at, __NR_name_to_handle_at, __NR_chroot, __NR_pivot_root, __NR_mount, __NR_umount2,
    OPEN_TREE, MOVE_MOUNT, FSOPEN, FSCONFIG, FSMOUNT, FSPICK, MOUNT_SETATTR, __NR_fanotify_init, __NR_quotactl,
    QUOTACTL_FD, __NR_swapon, __NR_swapoff, __NR_acct,
    /* namespaces */
    __NR_unshare, __NR_setns,
    /* doors into the kernel */
    __NR_bpf, __NR_perf_event_open, __NR_userfaultfd, IO_URING_SETUP, IO_URING_ENTER, IO_URING_REGISTER,
    __NR_keyctl, __NR_add_key, __NR_request_key, __NR_init_module, __NR_finit_module, __NR_delete_module,
    __NR_kexec_load, __NR_reboot, __NR_syslog, __NR_personality, __NR_vhangup,
#ifdef __x86_64__
    __NR_kexec_file_load, __NR_iopl, __NR_ioperm, __NR_modify_ldt,
#endif
    /* the machine's settings */
    __NR_sethostname, __NR_setdomainname, __NR_settimeofday, __NR_clock_settime, __NR_adjtimex, __NR_clock_adjtime,
};
/* Other processes and files in memory, which no limit on one process's memory counts; owners, modes, times and
 * attributes of files, which Landlock does not guard. Compilers run others, and linkers set modes. */
static const unsigned REFUSED_TO_CANDIDATES[] = {
    __NR_memfd_create, MEMFD_SECRET,
    __NR_fchmod, __NR_fchmodat, FCHMODAT2, __NR_fchown, __NR_fchownat, __NR_utimensat, __NR_setxattr, __NR_lsetxattr,
    __NR_fsetxattr, __NR_removexattr, __NR_lremovexattr, __NR_fremovexattr,
#ifdef __x86_64__
    __NR_fork, __NR_vfork, __NR_chmod, __NR_chown, __NR_lchown, __NR_utime, __NR_utimes, __NR_futimesat,
#endif
};
/* Allowed on the process itself only: its own number or, for these, 0. */
static const unsigned OWN_LIMITS[] = {
    __NR_prlimit64, __NR_sched_setparam, __NR_sched_setscheduler, __NR_sched_setaffinity, __NR_sched_setattr,
};
static const unsigned OWN_SIGNALS[] = {__NR_kill, __NR_tgkill, __NR_rt_sigqueueinfo, __NR_rt_tgsigqueueinfo};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static struct sock_filter program[512];
static unsigned short length;

static void add(struct sock_filter instruction) { program[length++] = instruction; }
static void load(size_t offset) { add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset)); }
static void answer(unsigned value) { add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, value)); }
/* Goes past the next SKIPPED instructions unless the loaded word equals VALUE. */
static void unless_equal(unsigned value, unsigned char skipped) {
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped));
}

static void refuse(unsigned call, unsigned error) {
    unless_equal(call, 1);
    answer(SECCOMP_RET_ERRNO | error);
}

/* The first argument is loaded in place of the number, so each of these ends in an answer. */
static void only_self(unsigned call, unsigned self, bool or_zero) {
    unless_equal(call, or_zero ? 6 : 4);
    load(offsetof(struct seccomp_data, args[0]));
    unless_equal(self, 1);
    answer(SECCOMP_RET_ALLOW);
    if (or_zero) {
        unless_equal(0, 1);
        answer(SECCOMP_RET_ALLOW);
    }
    answer(SECCOMP_RET_ERRNO | EPERM);
}

static void write_filter(bool tool) {
    const unsigned self = (unsigned)getpid();
    load(offsetof(struct seccomp_data, arch));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCHITECTURE, 1, 0));
    answer(SECCOMP_RET_KILL_PROCESS);
    load(offsetof(struct seccomp_data, nr));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1));
    answer(SECCOMP_RET_KILL_PROCESS);
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, LAST_CALL, 0, 1));
    answer(SECCOMP_RET_ERRNO | ENOSYS);
    refuse(CLONE3, ENOSYS); /* its flags lie in memory; the C library then uses clone */
    for (size_t i = 0; i < COUNT(REFUSED_CALLS); i++) refuse(REFUSED_CALLS[i], EPERM);
    if (!tool) {
        for (size_t i = 0; i < COUNT(REFUSED_TO_CANDIDATES); i++) refuse(REFUSED_TO_CANDIDATES[i], EPERM);
        for (size_t i = 0; i < COUNT(OWN_SIGNALS); i++) only_self(OWN_SIGNALS[i], self, false);
    }
    for (size_t i = 0; i < COUNT(OWN_LIMITS); i++) only_self(OWN_LIMITS[i], self, true);
    unless_equal(__NR_clone, tool ? 3 : 5);
    load(offsetof(struct seccomp_data, args[0]));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NAMESPACE_FLAGS, 0, 1));
    answer(SECCOMP_RET_ERRNO | EPERM);
    if (!tool) { /* threads only */
        add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0));
        answer(SECCOMP_RET_ERRNO | EPERM);
    }
    answer(SECCOMP_RET_ALLOW);
}

/* Kernels before 5.16 would slow down memory accesses of filtered processes unless told not to. */
static int use_seccomp(bool tool) {
    write_filter(tool);
    struct sock_fprog filter = {.len = length, .filter = program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return failed("no_new_privs");
    if (syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &filter) == 0) return 0;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) ? failed("seccomp") : 0;
}

/* --- the program ------------------------------------------------------------------------------------- */

typedef struct {
    int landlock;
    bool namespaces, view, capabilities, seccomp;
    char **paths;
    char *modes;
    int path_count, processes;
    bool fixed_addresses, tool;
    char **command;
} Plan;

static int restrict_self(const Plan *p) {
    if (p->landlock && use_landlock(p->landlock, p->paths, p->modes, p->path_count)) return -1;
    if (p->capabilities && drop_capabilities()) return -1;
    return p->seccomp ? use_seccomp(p->tool) : 0;
}

static void start(const Plan *p) {
    static char *none[] = {NULL};
    int flags = p->fixed_addresses ? personality(0xffffffff) : -1;
    if (flags >= 0) personality((unsigned)flags | ADDR_NO_RANDOMIZE);
    if (restrict_self(p)) _exit(CANNOT);
    execve(p->command[0], p->command, environ ? environ : none);
    failed("%s", p->command[0]);
    _exit(CANNOT);
}

/* End as the program ended: with its status, or by its signal. */
static void end_like(int status) {
    if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    _exit(CANNOT);
}

static int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

static int enter_namespaces(const Plan *p) {
    if (use_namespaces(p->view ? CLONE_NEWNS : 0)) return -1;
    const struct rlimit most = {(rlim_t)p->processes, (rlim_t)p->processes};
    if (p->processes && setrlimit(RLIMIT_NPROC, &most)) return failed("limit of processes");
    return p->view ? use_view(p->paths, p->modes, p->path_count, p->tool ? NULL : p->command) : 0;
}

/* The first process of a process namespace takes no signals that it does not handle, and the namespace
 * ends with it: so the program is its child, and it hands the program's end on through shared memory. */
static void start_in_namespaces(const Plan *p) {
    volatile int *ended = mmap(NULL, sizeof *ended, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (ended == MAP_FAILED) exit((failed("mmap"), CANNOT));
    if (enter_namespaces(p)) exit(CANNOT);
    *ended = -1;
    pid_t first = fork();
    if (first < 0) exit((failed("fork"), CANNOT));
    if (first == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pid_t child = fork();
        if (child == 0) start(p);
        if (child < 0) _exit((failed("fork"), CANNOT));
        int status = 0; /* orphans of the program become ours, too */
        for (pid_t gone; (gone = wait(&status)) != child;)
            if (gone < 0 && errno != EINTR) _exit(CANNOT);
        *ended = status;
        _exit(0);
    }
    int status = wait_for(first);
    end_like(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? *ended : status);
}

static void end_group(int number) {
    (void)number;
    if (getpgrp() == getpid()) kill(0, SIGKILL);
    _exit(CANNOT);
}

/* Without a process namespace, what a tool started would outlive whoever started the tool: so this one
 * stays, and ends all of them with its parent. */
static void start_supervised(const Plan *p) {
    signal(SIGTERM, end_group);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    pid_t child = fork();
    if (child < 0) exit((failed("fork"), CANNOT));
    if (child == 0) {
        signal(SIGTERM, SIG_DFL);
        start(p);
    }
    end_like(wait_for(child));
}

static bool works(int (*use)(const Plan *), const Plan *p) {
    pid_t child = fork();
    if (child == 0) {
        complaints = open("/dev/null", O_WRONLY);
        _exit(use(p) ? 1 : 0);
    }
    int status = child > 0 ? wait_for(child) : 1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int try_namespaces(const Plan *p) {
    if (enter_namespaces(p)) return -1;
    pid_t child = fork();
    if (child == 0) _exit(0);
    return child > 0 ? wait_for(child) : -1;
}

static int probe(void) {
    const int version = landlock_version();
    static char *shown[] = {"/usr", "/bin", "/tmp"};
    const Plan view = {.view = true, .paths = shown, .modes = "rrw", .path_count = 3};
    const Plan landlock = {.landlock = version}, capabilities = {.capabilities = true}, seccomp = {.seccomp = true};
    if (version && works(restrict_self, &landlock)) printf("landlock=%d,", version);
    if (works(try_namespaces, &landlock)) printf("namespaces,");
    if (works(try_namespaces, &view)) printf("view,");
    if (works(restrict_self, &capabilities)) printf("capabilities,");
    if (works(restrict_self, &seccomp)) printf("seccomp,");
    puts("");
    return 0;
}

static bool read_features(char *text, Plan *p) {
    char *save;
    for (char *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        if (sscanf(word, "landlock=%d", &p->landlock) == 1) continue;
        if (!strcmp(word, "namespaces")) p->namespaces = true;
        else if (!strcmp(word, "view")) p->view = true;
        else if (!strcmp(word, "capabilities")) p->capabilities = true;
        else if (!strcmp(word, "seccomp")) p->seccomp = true;
        else return false;
    }
    return p->namespaces || !p->view;
}

static bool read_plan(char **words, Plan *p) {
    char *features = *words;
    if (!features) return false;
    for (words++; *words && strcmp(*words, "--"); words++) {
        if (!strcmp(*words, "-a")) p->fixed_addresses = true;
        else if (!strcmp(*words, "-t")) p->tool = true;
        else if (!strcmp(*words, "-n") && words[1]) p->processes = atoi(*++words);
        else if (!strcmp(*words, "-e") && words[1]) {
            complaints = atoi(*++words);
            fcntl(complaints, F_SETFD, FD_CLOEXEC);
        } else if ((!strcmp(*words, "-r") || !strcmp(*words, "-w")) && words[1]) {
            p->modes[p->path_count] = words[0][1];
            p->paths[p->path_count++] = *++words;
        } else return false;
    }
    if (!words[0] || !words[1]) return false;
    p->command = words + 1;
    return read_features(features, p);
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "probe")) return probe();
    Plan p = {.paths = calloc((size_t)argc, sizeof *p.paths), .modes = calloc((size_t)argc, 1)};
    if (!p.paths || !p.modes || !read_plan(argv + 1, &p)) {
        dprintf(complaints, "confine.c says at its top what it takes\n");
        return CANNOT;
    }
    if (p.namespaces) start_in_namespaces(&p);
    if (p.tool) start_supervised(&p);
    start(&p);
}
