/* Faults of a machine for the tests, put before the C library by LD_PRELOAD. A variable asks for each: a disk that fails to sync or is full,
 * a process that is killed at an operation on files, a rank that leaves with code 0, a wall clock that is wrong and steps. Faults of ranks
 * are those of the rank in FAULT_RANK. Names that begin with `late-` are known once the file in FAULT_LATE_NAMES exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* Operations that change files, counted from 1. At number FAULT_KILL_AT the process is killed; from number FAULT_FULL_AT on the disk is
 * full. */
static int disk_is_full(void) {
    static long operations;
    const char *kill_at = getenv("FAULT_KILL_AT"), *full_at = getenv("FAULT_FULL_AT");
    long number = __atomic_add_fetch(&operations, 1, __ATOMIC_SEQ_CST);
    if (kill_at && number == atol(kill_at)) raise(SIGKILL);
    if (!full_at || number < atol(full_at)) return 0;
    errno = ENOSPC;
    return 1;
}

#define REAL(name, ...) ((int (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *content, size_t bytes) {
    ssize_t (*real)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    struct stat facts;
    /* A disk that fills up takes a part. */
    if (fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && disk_is_full()) {
        if (bytes > 1) real(file, content, bytes / 2);
        errno = ENOSPC;
        return -1;
    }
    return real(file, content, bytes);
}

int fsync(int file) { return disk_is_full() ? -1 : REAL(fsync, int)(file); }
int mkdir(const char *path, mode_t mode) { return disk_is_full() ? -1 : REAL(mkdir, const char *, mode_t)(path, mode); }
int rename(const char *from, const char *to) { return disk_is_full() ? -1 : REAL(rename, const char *, const char *)(from, to); }
int linkat(int from, const char *old, int to, const char *new, int flags) {
    return disk_is_full() ? -1 : REAL(linkat, int, const char *, int, const char *, int)(from, old, to, new, flags);
}

int fdatasync(int file) {
    long code;
    if (asked("FAULT_SYNC_ERRNO", &code)) { errno = (int)code; return -1; }
    return disk_is_full() ? -1 : REAL(fdatasync, int)(file);
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
