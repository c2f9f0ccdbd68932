// Takes the buffers of a case out of the L2 cache, by reading and writing other memory larger than the cache.
#include "platform.h"

KERNEL flush_cache(u64 *buffer, u64 words)
{
    for (u64 index = this_thread(); index < words; index += threads_in_all()) buffer[index] = buffer[index] + 1;
}
