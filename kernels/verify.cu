// Compares buffers with known data, bit for bit. `found[0]` counts the wrong elements and `found[1]` becomes the index of the
// first in the walk, that of the earliest call: before the launch they are 0 and all ones.
#include "pattern.h"

template <typename Element, typename Data>
ON_DEVICE void verify(const Element *buffer, u64 elements, const Data &data, const Walk &walk, u64 *found)
{
    u64 count = 0;
    u64 first = ~0ull;
    for (u64 index = this_thread(); index < elements * walk.calls; index += threads_in_all()) {
        u64 place = place_of(walk, elements, index);
        if (buffer[place] != (Element)bits(data, place)) {
            if (count == 0) first = index;
            count += 1;
        }
    }
    // Sound buffers, which is nearly all of them, write nothing.
    if (count != 0) {
        atomic_add(&found[0], count);
        atomic_min(&found[1], first);
    }
}

#define VERIFIES(bytes, Element)                                                                                       \
    KERNEL verify_moved_##bytes(const Element *buffer, u64 elements, u64 seed, u32 rank, u64 first, Walk walk,         \
                                u64 *found)                                                                            \
    {                                                                                                                  \
        verify(buffer, elements, Moved::of(seed, rank, first), walk, found);                                           \
    }                                                                                                                  \
    KERNEL verify_column_##bytes(const Element *buffer, u64 elements, u64 seed, const u64 *column, u32 length,         \
                                 u64 first, Walk walk, u64 *found)                                                     \
    {                                                                                                                  \
        verify(buffer, elements, Column::of(seed, column, length, first), walk, found);                                \
    }

VERIFIES(1, u8)
VERIFIES(2, u16)
VERIFIES(4, u32)
VERIFIES(8, u64)
