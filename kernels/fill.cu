// Writes known data into buffers, and the complement of them, which poisons a buffer: whatever no message overwrites is
// then found wrong. `complement` is 0 for the data and all ones for the poison.
//
// The producers write the data of one call as kernels of a job do that overlap with the next kernel: they let their dependents start
// first, and write `later_nanoseconds` after that. A call that reads without waiting for them finds what was there before.
#include "pattern.h"

template <typename Element, typename Data>
ON_DEVICE void fill(Element *buffer, u64 elements, const Data &data, const Walk &walk, u64 complement)
{
    for (u64 index = this_thread(); index < elements * walk.calls; index += threads_in_all()) {
        u64 place = place_of(walk, elements, index);
        buffer[place] = (Element)(bits(data, place) ^ complement);
    }
}

#define FILLS(bytes, Element)                                                                                          \
    KERNEL fill_moved_##bytes(Element *buffer, u64 elements, u64 seed, u32 rank, u64 first, Walk walk, u64 complement) \
    {                                                                                                                  \
        fill(buffer, elements, Moved::of(seed, rank, first), walk, complement);                                        \
    }                                                                                                                  \
    KERNEL fill_column_##bytes(Element *buffer, u64 elements, u64 seed, const u64 *column, u32 length, u64 first,      \
                               Walk walk, u64 complement)                                                              \
    {                                                                                                                  \
        fill(buffer, elements, Column::of(seed, column, length, first), walk, complement);                             \
    }

#define PRODUCES(bytes, Element)                                                                                       \
    KERNEL produce_moved_##bytes(Element *buffer, u64 elements, u64 seed, u32 rank, u64 first, Walk walk,              \
                                 u64 later_nanoseconds)                                                                \
    {                                                                                                                  \
        let_dependents_start(later_nanoseconds);                                                                       \
        fill(buffer, elements, Moved::of(seed, rank, first), walk, 0);                                                 \
    }                                                                                                                  \
    KERNEL produce_column_##bytes(Element *buffer, u64 elements, u64 seed, const u64 *column, u32 length, u64 first,   \
                                  Walk walk, u64 later_nanoseconds)                                                    \
    {                                                                                                                  \
        let_dependents_start(later_nanoseconds);                                                                       \
        fill(buffer, elements, Column::of(seed, column, length, first), walk, 0);                                      \
    }

// Before compute capability 9.0 no kernel starts early, and FILLS produces as well.
#if !defined(__CUDACC__) || __CUDA_ARCH__ >= 900
PRODUCES(1, u8)
PRODUCES(2, u16)
PRODUCES(4, u32)
PRODUCES(8, u64)
#endif

#if !defined(ONLY_PRODUCERS)
FILLS(1, u8)
FILLS(2, u16)
FILLS(4, u32)
FILLS(8, u64)
#endif
