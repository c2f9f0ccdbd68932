/* Faults of a machine for the tests, put before the C library by LD_PRELOAD. A variable asks for each: a disk that fails to sync or is full,
 * a process that is killed at an operation on files, a log of these operations for tests that cut the power after any of them, a rank that leaves with code 0, a wall clock that is wrong and steps. Faults of ranks
 * are those of the rank in FAULT_RANK. Names that begin with `late-` are known once the file in FAULT_LATE_NAMES exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int asked(const char *name, long *value) {
    const char *text = getenv(name), *wanted = getenv("FAULT_RANK");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank) rank = getenv("PMI_RANK");
    if (!text || !wanted || !rank || atoi(wanted) != atoi(rank)) return 0;
    *value = atol(text);
    return 1;
}

#define REAL(name, ...) ((int (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

/* Operations that change files, counted from 1. At number FAULT_KILL_AT the process is killed; number FAULT_FAIL_AT fails, and from number
 * FAULT_FULL_AT on the disk is full. */
static int disk_fails(void) {
    static long operations;
    const char *kill_at = getenv("FAULT_KILL_AT"), *fail_at = getenv("FAULT_FAIL_AT"), *full_at = getenv("FAULT_FULL_AT");
    long number = __atomic_add_fetch(&operations, 1, __ATOMIC_SEQ_CST);
    if (kill_at && number == atol(kill_at)) raise(SIGKILL);
    int fails = fail_at && number == atol(fail_at);
    if (!fails && (!full_at || number < atol(full_at))) return 0;
    errno = fails ? EIO : ENOSPC;
    return 1;
}

/* Appends an operation to the log FAULT_LOG: its name, a number and a text or two, and the bytes of a write after the line. */
static void note(const char *operation, unsigned long inode, const char *text, const char *other, const void *content, size_t bytes) {
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    const char *name = getenv("FAULT_LOG");
    char line[2 * 4096 + 100];
    if (!name) return;
    int length = snprintf(line, sizeof line, "%s\t%lu\t%s\t%s\n", operation, inode, text, other), before = errno;
    pthread_mutex_lock(&one_at_a_time);
    int log = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (syscall(SYS_write, log, line, (size_t)length) != length || syscall(SYS_write, log, content, bytes) != (long)bytes) abort();
    syscall(SYS_close, log);
    pthread_mutex_unlock(&one_at_a_time);
    errno = before;
}

static int noted(int answer, const char *operation, int file, long length) {
    struct stat facts;
    char text[30];
    snprintf(text, sizeof text, "%ld", length);
    if (answer == 0 && fstat(file, &facts) == 0 && (S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode))) {
        note(operation, facts.st_ino, text, "", "", 0);
    }
    return answer;
}

static int noted_name(int answer, const char *operation, const char *path, const char *other) {
    struct stat facts = {0};
    if (answer == 0 && getenv("FAULT_LOG")) {
        (void)stat(path, &facts);
        note(operation, facts.st_ino, path, other, "", 0);
    }
    return answer;
}

int open64(const char *path, int flags, ...) {
    struct stat facts;
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    int is_new = flags & O_CREAT && lstat(path, &facts) != 0;
    int file = REAL(open64, const char *, int, ...)(path, flags, mode);
    if (file >= 0 && is_new) noted_name(0, "create", path, "");
    if (file >= 0 && !is_new && flags & O_TRUNC) noted(0, "cut", file, 0);
    return file;
}

ssize_t write(int file, const void *content, size_t bytes) {
    ssize_t (*real)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    struct stat facts;
    char at[30];
    if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) return real(file, content, bytes);
    int fails = disk_fails(), cause = errno;
    /* A disk that fills up takes a part. */
    ssize_t written = real(file, content, fails ? bytes / 2 : bytes);
    if (written > 0) {
        snprintf(at, sizeof at, "%ld", (long)(lseek(file, 0, SEEK_CUR) - written));
        char length[30];
        snprintf(length, sizeof length, "%ld", (long)written);
        note("write", facts.st_ino, at, length, content, (size_t)written);
    }
    errno = fails ? cause : errno;
    return fails ? -1 : written;
}

int ftruncate64(int file, off64_t bytes) {
    return disk_fails() ? -1 : noted(REAL(ftruncate64, int, off64_t)(file, bytes), "cut", file, (long)bytes);
}
int unlink(const char *path) { return disk_fails() ? -1 : noted_name(REAL(unlink, const char *)(path), "remove", path, ""); }
int fsync(int file) { return disk_fails() ? -1 : noted(REAL(fsync, int)(file), "sync", file, 0); }
int mkdir(const char *path, mode_t mode) {
    return disk_fails() ? -1 : noted_name(REAL(mkdir, const char *, mode_t)(path, mode), "folder", path, "");
}
int rename(const char *from, const char *to) {
    return disk_fails() ? -1 : noted_name(REAL(rename, const char *, const char *)(from, to), "rename", from, to);
}
int linkat(int from, const char *old, int to, const char *new, int flags) {
    return disk_fails() ? -1 : noted_name(REAL(linkat, int, const char *, int, const char *, int)(from, old, to, new, flags), "link", old, new);
}

int fdatasync(int file) {
    long code;
    if (asked("FAULT_SYNC_ERRNO", &code)) { errno = (int)code; return -1; }
    return disk_fails() ? -1 : noted(REAL(fdatasync, int)(file), "sync", file, 0);
}

/* Wrong by so many seconds, and every tenth reading by the same to the other side. */
static long wrong_by(void) {
    static long readings;
    long seconds;
    if (!asked("FAULT_CLOCK_SECONDS", &seconds)) return 0;
    return ++readings % 10 == 0 ? -seconds : seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    if (answer == 0 && clock == CLOCK_REALTIME) now->tv_sec += wrong_by();
    return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int (*real)(struct timeval *, void *) = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int answer = real(now, zone);
    if (answer == 0) now->tv_sec += wrong_by();
    return answer;
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(RTLD_NEXT, "getaddrinfo");
    const char *file = getenv("FAULT_LATE_NAMES");
    if (!file || !name || strncmp(name, "late-", 5) != 0) return real(name, service, hints, found);
    return access(file, F_OK) == 0 ? real("127.0.0.1", service, hints, found) : EAI_NONAME;
}

static void *leave(void *milliseconds) {
    usleep(1000 * (useconds_t)(long)milliseconds);
    _exit(0);
}

__attribute__((constructor)) static void begin(void) {
    long milliseconds;
    pthread_t thread;
    if (asked("FAULT_LEAVE_MILLISECONDS", &milliseconds)) pthread_create(&thread, NULL, leave, (void *)milliseconds);
}
