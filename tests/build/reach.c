/* What a compiler that a candidate has taken over could reach: prints one word for each thing reached.
 * Arguments: a secret file, a directory to write to, the process that judges. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

extern char** environ;

static void opened(const char* word, const char* path, int flags) {
    if (open(path, flags | O_CREAT * ((flags & O_ACCMODE) != O_RDONLY), 0600) >= 0) puts(word);
}

int main(int argc, char** argv) {
    char path[4096];
    struct stat found;
    if (argc != 4) return 2;
    opened("secret", argv[1], O_RDONLY);
    opened("passwords", "/etc/passwd", O_RDONLY);
    opened("environment", "/proc/self/environ", O_RDONLY);
    opened("devices", "/dev/zero", O_RDONLY);
    snprintf(path, sizeof path, "%s/left-behind", argv[2]);
    opened("elsewhere", path, O_WRONLY);
    opened("sources", "solution.cu", O_WRONLY);
    opened("temporary", "/tmp/hercules-left-behind", O_WRONLY);
    opened("toolchain", "/usr/include/stdio.h", O_WRONLY);
    if (getenv("HOME") || getenv("HERCULES_TEST_SECRET")) puts("variables");
    struct sockaddr_in local = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && (connect(fd, (struct sockaddr*)&local, sizeof local) == 0 || errno == ECONNREFUSED)) puts("network");
    const int judge = atoi(argv[3]);
    if (judge != getppid() && kill(judge, 0) == 0) puts("signals");
    snprintf(path, sizeof path, "/proc/%d/mem", judge);
    opened("memory", path, O_RDWR);
    if (ptrace(PTRACE_ATTACH, judge, 0, 0) == 0) puts("ptrace");
    if (seteuid(0) == 0 && chroot("/") == 0) puts("root");
    if (stat(argv[1], &found) == 0) puts("names"); /* not even that it exists */
    return 0;
}
