// Keeps SMs busy, holds a stream back, and reads the GPU's clock: kernels that pass time and move nothing.
#include "platform.h"

// Four numbers, which are one load.
struct alignas(16) Quad {
    float at[4];
};

// Keeps SMs busy for a turn of each block, as the tiles of a matrix product do: every thread reads and multiplies until its turn is over, and
// the SM is then free for the next block, or for a kernel that was waiting for it. `side_by_side` threads run at a time. All blocks end their
// turns at the same moments after `begins[which]`, when the first of them began, so that a kernel whose blocks come as clusters finds
// several SMs free at once; that word is 0 before, and the launch sets the other one to 0 for the next.
//
// Of eight loads seven are of the first `near` quads of `data`, which the cache can keep, and one is of all of them, which it cannot.
// Numbers of `data` are finite, so that `sink` is never written; without it the compiler would leave the work out.
KERNEL occupy(u64 nanoseconds, u64 side_by_side, u64 *begins, u64 which, const Quad *data, u64 quads, u64 near, float *sink)
{
    Turn turn = turn_of(nanoseconds, side_by_side, begins, which);
    float value = (float)this_thread();
    u64 at_near = near == 0 ? 0 : this_thread() % near;
    u64 at_any = quads == 0 ? 0 : this_thread() % quads;
    for (u64 now = turn.begin; now < turn.end; now = clock_nanoseconds()) {
        for (int load = 0; load < 8 && quads != 0; load += 1) {
            Quad quad = data[load == 7 ? at_any : at_near];
            for (int step = 0; step < 16; step += 1) value = value * 0.999f + quad.at[step % 4];
            at_near += threads_in_all();
            if (at_near >= near) at_near %= near;
        }
        at_any += threads_in_all();
        if (at_any >= quads && quads != 0) at_any %= quads;
        wait_a_little();
    }
    if (value != value) *sink = value;
}

// Holds the stream until the GPU's clock shows a time. `late[0]` becomes 1 where that time was past at the beginning.
KERNEL hold_until(u64 until_nanoseconds, u32 *late)
{
    if (clock_nanoseconds() >= until_nanoseconds) {
        late[0] = 1;
        return;
    }
    while (clock_nanoseconds() < until_nanoseconds) wait_a_little();
}

// Holds the stream until the host writes `value` into memory that both see, at most for a time: a host that dies must not
// leave a kernel behind that runs for ever. `late[0]` becomes 1 where the time ran out.
KERNEL hold_for_flag(const volatile u32 *flag, u32 value, u64 most_nanoseconds, u32 *late)
{
    u64 until = clock_nanoseconds() + most_nanoseconds;
    while (*flag != value) {
        if (clock_nanoseconds() >= until) {
            late[0] = 1;
            return;
        }
        wait_a_little();
    }
}

// Writes the GPU's clock, so that the host can find how it lies to its own.
KERNEL read_clock(u64 *nanoseconds) { nanoseconds[0] = clock_nanoseconds(); }
