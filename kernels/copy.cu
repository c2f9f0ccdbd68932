// Copies by kernels, and reads that wait for one another. Memory may be that of the host or of another GPU.
#include "platform.h"

// 16 bytes, which are one load.
struct alignas(16) Line {
    u64 at[2];
};

// Loads that a thread has on their way before its first store: a link needs many to be busy.
static const int ON_THE_WAY = 8;

// Copies `bytes` bytes. Both ends are aligned to 16 bytes.
KERNEL copy_bytes(u8 *to, const u8 *from, u64 bytes)
{
    Line *lines_to = (Line *)to;
    const Line *lines_from = (const Line *)from;
    u64 lines = bytes / sizeof(Line), step = threads_in_all(), at = this_thread();
    for (; at + (ON_THE_WAY - 1) * step < lines; at += ON_THE_WAY * step) {
        Line held[ON_THE_WAY];
        for (int load = 0; load < ON_THE_WAY; load += 1) held[load] = lines_from[at + load * step];
        for (int store = 0; store < ON_THE_WAY; store += 1) lines_to[at + store * step] = held[store];
    }
    for (; at < lines; at += step) lines_to[at] = lines_from[at];
    for (u64 rest = lines * sizeof(Line) + this_thread(); rest < bytes; rest += step) to[rest] = from[rest];
}

// Follows a chain of addresses for `reads` reads and writes the last word read. Volatile, so that none comes from the cache of an SM.
KERNEL follow(u64 *last, const volatile u64 *first, u64 reads)
{
    if (this_thread() != 0) return;
    u64 word = (u64)first;
    for (u64 read = 0; read < reads; read += 1) word = *(const volatile u64 *)word;
    *last = word;
}
