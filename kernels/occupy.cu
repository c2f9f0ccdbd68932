// Keeps SMs busy, holds a stream back, and reads the GPU's clock: kernels that pass time and move nothing.
#include "platform.h"

// Keeps SMs busy for a turn of each block, as the tiles of a matrix product do: every thread multiplies until its turn is over, and
// the SM is then free for the next block, or for a kernel that was waiting for it. `side_by_side` threads run at a time.
// `sink` is never written; without it the compiler would leave the work out.
KERNEL occupy(u64 nanoseconds, u64 side_by_side, float *sink)
{
    Turn turn = turn_of(nanoseconds, side_by_side);
    float value = (float)this_thread();
    for (u64 now = turn.begin; now < turn.end; now = clock_nanoseconds()) {
        for (int step = 0; step < 64; step += 1) value = value * 0.999f + 0.5f;
        wait_a_little();
    }
    if (value == -1.0f) *sink = value;
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
