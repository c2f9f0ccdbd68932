/* MPICH polls without ever giving its processor away: with more ranks than processors, each of its steps then waits for the end of a
 * time slice of the system (an all_reduce of 4 KiB over 3 ranks on 2 processors: 8,500 us; with this, 18). Its own variables for that
 * (MPIR_CVAR_POLLS_BEFORE_YIELD, and MPIR_CVAR_CH4_PROGRESS_THROTTLE of 4.3 and newer) are not known to the device ch4:ucx of 4.0 to 4.2,
 * which Debian and Ubuntu ship. All its waiting passes through this function of UCX, which MPICH finds in the program before it finds it
 * in the library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* On until it is known that each rank has a processor: MPI_Init waits too. */
static atomic_int yields = 1;

void commgauge_yield_while_waiting(int on) { atomic_store_explicit(&yields, on, memory_order_relaxed); }

typedef unsigned (*progress_function)(void *);

static progress_function of_the_library(void) {
    void *library = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
    progress_function found = library ? (progress_function)dlsym(library, "ucp_worker_progress") : NULL;
    if (!found) {
        fprintf(stderr, "commgauge: libucp.so.0, through which this MPICH moves its data, has no ucp_worker_progress: %s\n", dlerror());
        abort();
    }
    return found;
}

/* Only one thread calls MPI (MPI_THREAD_FUNNELED), and with it this. */
unsigned ucp_worker_progress(void *worker) {
    static progress_function progress;
    if (!progress) {
        progress = of_the_library();
    }
    unsigned events = progress(worker);
    if (events == 0 && atomic_load_explicit(&yields, memory_order_relaxed)) {
        sched_yield();
    }
    return events;
}
