/* Before any of the candidate's code runs: no signal and no debugger reaches another process, and no
 * child leaves the process group, so that whoever started the recorder can end all of it. Where the
 * kernel has no seccomp the limits of the process are all there is. */
#include "state.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "no system call numbers for this architecture"
#endif
#define X32_BIT 0x40000000u

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define REFUSED (SECCOMP_RET_ERRNO | 1) /* EPERM */
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
/* Skip one instruction unless the loaded word equals VALUE. */
#define IF_EQUAL(value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, 1)
#define REFUSE(call) IF_EQUAL(__NR_##call), RETURN(REFUSED)
/* Allow CALL only if its first argument is this process; the number is loaded again for what follows. */
#define ONLY_SELF(call, self)                                                                              \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##call, 0, 4), LOAD(args[0]), IF_EQUAL(self),                \
        RETURN(SECCOMP_RET_ALLOW), RETURN(REFUSED)

static void confine(void) {
    const unsigned self = (unsigned)getpid();
    struct sock_filter program[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCHITECTURE, 1, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
#if defined(__x86_64__)
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1),
        RETURN(SECCOMP_RET_KILL_PROCESS),
#endif
        ONLY_SELF(kill, self),
        ONLY_SELF(tgkill, self), /* raise() and abort() */
        ONLY_SELF(rt_tgsigqueueinfo, self),
        ONLY_SELF(rt_sigqueueinfo, self),
        REFUSE(tkill),
        REFUSE(pidfd_send_signal),
        REFUSE(ptrace),
        REFUSE(process_vm_readv),
        REFUSE(process_vm_writev),
        REFUSE(setsid),
        REFUSE(setpgid),
        RETURN(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof program / sizeof *program, .filter = program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
}
