/* Remembers what a disk would hold if the power went now: preloaded into every process of a platform.
 *
 * Below POWER_CUT_ROOT only what was synced survives. At each fsync and fdatasync of a file its bytes
 * are copied to POWER_CUT_SYNCED/<id>, the id being inode and birth; at each fsync of a folder, the names
 * in it with type and id, to <id>.folder. power_cut.py makes the tree from these copies. Files are copied before the call returns, so
 * a write that comes during the call is not promised. The disk itself is not synced. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int identify(int at, const char *name, int flags, char *id, size_t size, struct statx *found)
{
    if (statx(at, name, flags | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, found) != 0)
        return -1;
    return snprintf(id, size, "%llu-%lld.%09u", (unsigned long long)found->stx_ino,
                    (long long)found->stx_btime.tv_sec, found->stx_btime.tv_nsec);
}

/* For power_cut.py: the id of a path; -1 where it has no birth time. */
int power_cut_identify(const char *path, char *id, size_t size)
{
    struct statx found;
    int length = identify(AT_FDCWD, path, 0, id, size, &found);
    return length > 0 && (found.stx_mask & STATX_BTIME) ? length : -1;
}

static int copy_range(int from, int to, off_t place)
{
    char buffer[1 << 16];
    ssize_t count;
    while ((count = pread(from, buffer, sizeof buffer, place)) > 0) {
        if (pwrite(to, buffer, count, place) != count)
            return -1;
        place += count;
    }
    return count < 0 ? -1 : 0;
}

/* An append-only descriptor can't have changed what it synced before: only the tail is copied. */
static void keep_file(int descriptor, const char *path, const char *copy, off_t size)
{
    char draft[PATH_MAX + 32];
    struct stat before;
    int source = open(path, O_RDONLY | O_CLOEXEC);
    if (source < 0)
        return;
    int is_append = (fcntl(descriptor, F_GETFL) & O_APPEND) != 0;
    if (is_append && stat(copy, &before) == 0 && before.st_size <= size) {
        int target = open(copy, O_WRONLY | O_CLOEXEC);
        if (target >= 0) {
            copy_range(source, target, before.st_size);
            close(target);
        }
    } else {
        snprintf(draft, sizeof draft, "%s.%d.draft", copy, (int)gettid());
        int target = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (target >= 0) {
            copy_range(source, target, 0);
            close(target);
            rename(draft, copy);
        }
    }
    close(source);
}

static void keep_folder(const char *path, const char *copy)
{
    char draft[PATH_MAX + 32], id[64];
    struct statx found;
    struct dirent *entry;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return;
    snprintf(draft, sizeof draft, "%s.%d.draft", copy, (int)gettid());
    FILE *target = fopen(draft, "we");
    while (target != NULL && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (identify(dirfd(folder), entry->d_name, 0, id, sizeof id, &found) > 0)
            fprintf(target, "%c %s %s\n", S_ISDIR(found.stx_mode) ? 'd' : 'f', id, entry->d_name);
    }
    closedir(folder);
    if (target != NULL) {
        fclose(target);
        rename(draft, copy);
    }
}

static int keep(int descriptor)
{
    const char *root = getenv("POWER_CUT_ROOT"), *synced = getenv("POWER_CUT_SYNCED");
    char link[64], path[PATH_MAX], copy[PATH_MAX], id[64];
    struct statx found;
    int error = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = root && synced ? readlink(link, path, sizeof path - 1) : -1;
    if (length <= 0)
        return -1;
    path[length] = 0;
    if (strncmp(path, root, strlen(root)) != 0)
        return -1;
    if (identify(descriptor, "", AT_EMPTY_PATH, id, sizeof id, &found) > 0) {
        int is_folder = S_ISDIR(found.stx_mode);
        snprintf(copy, sizeof copy, "%s/%s%s", synced, id, is_folder ? ".folder" : "");
        if (is_folder)
            keep_folder(link, copy);
        else if (S_ISREG(found.stx_mode))
            keep_file(descriptor, link, copy, (off_t)found.stx_size);
    }
    errno = error;
    return 0;
}

int fsync(int descriptor)
{
    static int (*next)(int);
    if (keep(descriptor) == 0)
        return 0;
    if (next == NULL)
        next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return next(descriptor);
}

int fdatasync(int descriptor)
{
    static int (*next)(int);
    if (keep(descriptor) == 0)
        return 0;
    if (next == NULL)
        next = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return next(descriptor);
}
