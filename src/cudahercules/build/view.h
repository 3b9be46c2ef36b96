/* A file system of the program's own, for confine.c: the given paths at their places, links on the way to
 * them as they are, and nothing else. Of /proc there are two links: /proc/self/cwd, as sources are named by it,
 * and for a program that runs no others /proc/self/exe, by which the loader finds libraries beside it. What is
 * not there outside is not there inside; what is not for writing is mounted read-only. */
#include <limits.h>
#include <sys/mount.h>

#define OUTSIDE "/.outside"
#define MOST_LINKS 40
/* The interface is stated here, as headers may be older than the kernel. */
enum { SET_MOUNT_ATTRIBUTES = 442 };
#define ATTR_RDONLY 1ull
#define ATTR_NOSUID 2ull
#define ATTR_NODEV 4ull
#define WITH_SUBMOUNTS 0x8000u /* AT_RECURSIVE */

struct mount_attributes {
    uint64_t set, cleared, propagation, user_namespace;
};

static int set_attributes(const char *path, unsigned flags, uint64_t set) {
    struct mount_attributes attributes = {.set = set};
    long result = syscall(SET_MOUNT_ATTRIBUTES, AT_FDCWD, path, flags, &attributes, sizeof attributes);
    return result ? failed("mount_setattr %s", path) : 0;
}

static bool exists_already(int result) { return result == 0 || errno == EEXIST; }

/* Follows PATH outside and makes inside what it meets: directories, links, and an empty file at the end.
 * RESOLVED gets the place without links; 1 if there is one, 0 if there is nothing outside, -1 on failure. */
static int prepare_place(const char *path, char *resolved, struct stat *found) {
    char rest[2 * PATH_MAX], outside[PATH_MAX + sizeof OUTSIDE], link[PATH_MAX], longer[2 * PATH_MAX];
    size_t done = 0;
    if (snprintf(rest, sizeof rest, "%s", path) >= PATH_MAX) return 0;
    resolved[0] = 0;
    memset(found, 0, sizeof *found);
    found->st_mode = S_IFDIR;
    for (int links = 0; rest[0];) {
        char *name = rest + strspn(rest, "/"), *end = name + strcspn(name, "/");
        const size_t size = (size_t)(end - name);
        char *const after = strdup(end);
        if (!after) return failed("memory");
        if (size == 0 || (size == 1 && name[0] == '.')) {
        } else if (size == 2 && !strncmp(name, "..", 2)) {
            while (done && resolved[--done] != '/') {}
            resolved[done] = 0;
        } else {
            if (done + size + 2 > PATH_MAX) return free(after), 0;
            snprintf(resolved + done, size + 2, "/%.*s", (int)size, name);
            snprintf(outside, sizeof outside, OUTSIDE "%s", resolved);
            if (lstat(outside, found)) return free(after), 0;
            if (S_ISLNK(found->st_mode)) {
                ssize_t length = readlink(outside, link, sizeof link - 1);
                if (length < 0 || ++links > MOST_LINKS) return free(after), 0;
                link[length] = 0;
                if (!exists_already(symlink(link, resolved))) return free(after), failed("symlink %s", resolved);
                if (link[0] == '/') done = 0;
                resolved[done] = 0;
                if (snprintf(longer, sizeof longer, "%s%s", link, after) >= (int)sizeof longer) return free(after), 0;
                free(after);
                strcpy(rest, longer);
                continue;
            }
            done += size + 1;
            if (S_ISDIR(found->st_mode)) {
                if (!exists_already(mkdir(resolved, 0755))) return free(after), failed("mkdir %s", resolved);
            } else {
                const bool last = !after[strspn(after, "/")];
                free(after);
                if (!last) return 0;
                return exists_already(mknod(resolved, S_IFREG | 0444, 0)) ? 1 : failed("mknod %s", resolved);
            }
        }
        strcpy(rest, after);
        free(after);
    }
    return done ? 1 : 0;
}

static int show(const char *path, char mode) {
    char place[PATH_MAX], outside[PATH_MAX + sizeof OUTSIDE];
    struct stat found, inside;
    int there = prepare_place(path, place, &found);
    if (there <= 0) return there;
    if (mode == 'r' && stat(place, &inside) == 0 && inside.st_dev == found.st_dev && inside.st_ino == found.st_ino)
        return 0; /* in a directory that was shown before */
    snprintf(outside, sizeof outside, OUTSIDE "%s", place);
    if (mount(outside, place, NULL, MS_BIND | MS_REC, NULL)) return failed("bind %s", place);
    const uint64_t device = S_ISDIR(found.st_mode) ? ATTR_NODEV : 0;
    return set_attributes(place, WITH_SUBMOUNTS, ATTR_NOSUID | device | (mode == 'r' ? ATTR_RDONLY : 0));
}

/* In a mount namespace of our own, with the capabilities that belong to it. */
static int use_view(char **paths, const char *modes, int count, char **command) {
    char directory[PATH_MAX];
    if (!getcwd(directory, sizeof directory)) return failed("getcwd");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return failed("private mounts");
    const char *over = access("/tmp", F_OK) ? "/dev" : "/tmp"; /* any directory serves */
    if (mount("tmpfs", over, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=4m")) return failed("mount tmpfs");
    if (chdir(over) || mkdir(OUTSIDE + 1, 0755)) return failed("enter tmpfs");
    if (syscall(SYS_pivot_root, ".", OUTSIDE + 1) || chdir("/")) return failed("pivot_root");
    for (int i = 0; i < count; i++)
        if (show(paths[i], modes[i])) return -1;
    if (exists_already(mkdir("/proc", 0755)) && exists_already(mkdir("/proc/self", 0755)))
        if (!exists_already(symlink(directory, "/proc/self/cwd"))
            || (command && !exists_already(symlink(command[0], "/proc/self/exe"))))
            return failed("links in /proc/self");
    if (umount2(OUTSIDE, MNT_DETACH) || rmdir(OUTSIDE)) return failed("umount");
    if (set_attributes("/", 0, ATTR_RDONLY)) return -1;
    return chdir(directory) && chdir("/") ? failed("chdir") : 0;
}
