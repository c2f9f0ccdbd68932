// What the kernels need of the machine that runs them, once for GPUs (NVRTC, without any header) and once for the CPU on
// which the tests run the same sources. Nothing here knows what the kernels do.
//
// On the CPU the threads of a launch run one after another, so kernels may not wait for one another and have no shared
// memory and no __syncthreads.
#pragma once

// When a block begins to keep an SM busy, and when it ends, in nanoseconds.
struct Turn {
    unsigned long long begin;
    unsigned long long end;
};

#if defined(__CUDACC__)

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void
#define ON_DEVICE static __device__ __forceinline__
#define ON_MEMBER __device__ __forceinline__

ON_DEVICE u64 this_thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
ON_DEVICE u64 threads_in_all() { return (u64)gridDim.x * blockDim.x; }
ON_DEVICE void atomic_add(u64 *where, u64 what) { atomicAdd(where, what); }
ON_DEVICE void atomic_min(u64 *where, u64 what) { atomicMin(where, what); }

// The GPU's clock in nanoseconds, the same on all SMs. Volatile, so that no reading is saved.
ON_DEVICE u64 clock_nanoseconds()
{
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// Between two looks at what is waited for. A GPU has nothing else to do.
ON_DEVICE void wait_a_little() {}

// Lets the next kernel of the stream start if it was launched to overlap with this one (programmatic dependent launch), and passes a time
// in which it reaches its first reads. Such a kernel has to wait for the end of this one before it reads what this one writes.
#if __CUDA_ARCH__ >= 900
ON_DEVICE void let_dependents_start(u64 later_nanoseconds)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    for (u64 until = clock_nanoseconds() + later_nanoseconds; clock_nanoseconds() < until;) {
    }
}
#endif

// The turn of this block: it begins when an SM takes it, and ends with those of the others. One that is taken in the second half of a
// turn lasts to the end of the next.
ON_DEVICE Turn turn_of(u64 nanoseconds, u64, u64 *begins, u64 which)
{
    u64 now = clock_nanoseconds();
    if (nanoseconds == 0) return {now, now};
    begins[1 - which] = 0;
    u64 begun = atomicCAS(&begins[which], 0ull, now);
    u64 first = begun == 0 ? now : begun;
    u64 passed = now > first ? now - first : 0;
    return {now, first + ((passed + nanoseconds / 2) / nanoseconds + 1) * nanoseconds};
}

#else

#include <cstdint>
#include <ctime>

typedef std::uint8_t u8;
typedef std::uint16_t u16;
typedef std::uint32_t u32;
typedef unsigned long long u64;

#define KERNEL static void
#define ON_DEVICE static inline
#define ON_MEMBER inline

struct Place {
    u64 thread;
    u64 threads;
    u64 begin;
};
static thread_local Place place;

ON_DEVICE u64 this_thread() { return place.thread; }
ON_DEVICE u64 threads_in_all() { return place.threads; }
ON_DEVICE void atomic_add(u64 *where, u64 what) { __atomic_fetch_add(where, what, __ATOMIC_RELAXED); }
ON_DEVICE void atomic_min(u64 *where, u64 what)
{
    if (what < *where) *where = what;
}

ON_DEVICE u64 clock_nanoseconds()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)now.tv_sec * 1000000000ull + (u64)now.tv_nsec;
}

// The stand-in for the driver has no early starts; a fault of the stand-in for NCCL reads before this kernel begins.
ON_DEVICE void let_dependents_start(u64) {}

// Whoever is waited for may need this processor.
ON_DEVICE void wait_a_little()
{
    timespec moment = {0, 20000};
    nanosleep(&moment, nullptr);
}

// The threads of a launch run one after another but stand for threads of which `side_by_side` run together: the first of them
// takes the turn, the others have had it then.
ON_DEVICE Turn turn_of(u64 nanoseconds, u64 side_by_side, u64 *, u64)
{
    if (place.thread % side_by_side != 0) return {0, 0};
    u64 begin = place.begin + place.thread / side_by_side * nanoseconds;
    return {begin, begin + nanoseconds};
}

#endif
