/* Faults of a machine for the tests, put before the C library by LD_PRELOAD: a disk that cannot be brought up to date, a rank that
 * leaves with code 0, a wall clock that is wrong and steps. Each is asked for by a variable, and only for the rank in FAULT_RANK.
 * Names that begin with `late-` are known from when on the file in FAULT_LATE_NAMES is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
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

int fdatasync(int file) {
    long code;
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (asked("FAULT_SYNC_ERRNO", &code)) { errno = (int)code; return -1; }
    return real(file);
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
