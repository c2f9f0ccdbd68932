// The data that collectives carry, element by element: the formulas of src/pattern, which says why they are so.
// Every element is the low bits of a 64-bit number, so that what matters of an element type is how many bytes it has.
#pragma once
#include "platform.h"

// Which copies of a buffer a launch walks over, in the order in which calls use them. Data continue from copy to copy, so that an element's
// place from the first copy on is also its place in the data.
struct Walk {
    // Elements from one copy to the next, and copies in all.
    u64 stride;
    u64 copies;
    // The copy of the first call, and how far on that of the next one is, modulo all of them.
    u64 copy;
    u64 step;
    u64 calls;
};

// Where the `index`-th element of the walk is, of `elements` in each copy.
ON_DEVICE u64 place_of(const Walk &walk, u64 elements, u64 index)
{
    if (walk.calls == 1) return walk.copy * walk.stride + index;
    u64 call = index / elements;
    return (walk.copy + call * walk.step) % walk.copies * walk.stride + index - call * elements;
}

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
ON_DEVICE u64 scramble(u64 seed)
{
    u64 z = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// Data of a world rank that are moved unchanged.
struct Moved {
    u64 salt;
    u64 first;

    static ON_MEMBER Moved of(u64 seed, u32 rank, u64 first)
    {
        Moved data = {scramble(seed ^ ((u64)rank + 1) * 0xd6e8feb86659fd93ull), first};
        return data;
    }
};

ON_DEVICE u64 bits(const Moved &data, u64 index)
{
    u64 mixed = ((data.first + index) ^ data.salt) * 0x9e3779b97f4a7c15ull;
    return mixed ^ (mixed >> 32);
}

// Data of a reduction: entries of a column that the host made, chosen by a hash of the index.
struct Column {
    u64 salt;
    const u64 *entries;
    u32 length;
    u64 first;

    static ON_MEMBER Column of(u64 seed, const u64 *entries, u32 length, u64 first)
    {
        Column data = {scramble(seed), entries, length, first};
        return data;
    }
};

ON_DEVICE u64 bits(const Column &data, u64 index)
{
    u64 mixed = (((data.first + index) ^ data.salt) * 0x9e3779b97f4a7c15ull) >> 32;
    return data.entries[(mixed * data.length) >> 32];
}
