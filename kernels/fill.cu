// Writes known data into buffers, and the complement of them, which poisons a buffer: whatever no message overwrites is
// then found wrong. `complement` is 0 for the data and all ones for the poison.
#include "pattern.h"

template <typename Element, typename Data>
ON_DEVICE void fill(Element *buffer, u64 elements, const Data &data, u64 complement)
{
    for (u64 index = this_thread(); index < elements; index += threads_in_all())
        buffer[index] = (Element)(bits(data, index) ^ complement);
}

#define FILLS(bytes, Element)                                                                                          \
    KERNEL fill_moved_##bytes(Element *buffer, u64 elements, u64 seed, u32 rank, u64 first, u64 complement)            \
    {                                                                                                                  \
        fill(buffer, elements, Moved::of(seed, rank, first), complement);                                              \
    }                                                                                                                  \
    KERNEL fill_column_##bytes(Element *buffer, u64 elements, u64 seed, const u64 *column, u32 length, u64 first,      \
                               u64 complement)                                                                         \
    {                                                                                                                  \
        fill(buffer, elements, Column::of(seed, column, length, first), complement);                                   \
    }

FILLS(1, u8)
FILLS(2, u16)
FILLS(4, u32)
FILLS(8, u64)
