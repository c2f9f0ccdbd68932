// The kernels of kernels/, compiled for the CPU and listed by name, so that a launch finds them as it would in a module.
#include <tuple>
#include <utility>

#include "commgauge.cu"

struct Kernel {
    const char *name;
    // Runs a launch of so many threads to its end; begun now. The parameters are as those of cuLaunchKernel.
    void (*run)(void *const *parameters, u64 threads);
    u32 parameters;
    // Bytes of each parameter.
    u32 bytes[8];
};

template <auto kernel> struct Launch;

template <typename... Types, void (*kernel)(Types...)> struct Launch<kernel> {
    template <std::size_t... index> static void call(void *const *parameters, std::index_sequence<index...>)
    {
        kernel(*static_cast<Types *>(parameters[index])...);
    }

    static void run(void *const *parameters, u64 threads)
    {
        place.threads = threads;
        place.begin = clock_nanoseconds();
        for (place.thread = 0; place.thread < threads; place.thread += 1)
            call(parameters, std::index_sequence_for<Types...>{});
    }

    static constexpr Kernel named(const char *name) { return {name, run, sizeof...(Types), {sizeof(Types)...}}; }
};

#define NAMED(kernel) Launch<kernel>::named(#kernel)

static const Kernel kernels[] = {
    NAMED(fill_moved_1),    NAMED(fill_moved_2),    NAMED(fill_moved_4),    NAMED(fill_moved_8),
    NAMED(fill_column_1),   NAMED(fill_column_2),   NAMED(fill_column_4),   NAMED(fill_column_8),
    NAMED(produce_moved_1), NAMED(produce_moved_2), NAMED(produce_moved_4), NAMED(produce_moved_8),
    NAMED(produce_column_1), NAMED(produce_column_2), NAMED(produce_column_4), NAMED(produce_column_8),
    NAMED(verify_moved_1),  NAMED(verify_moved_2),  NAMED(verify_moved_4),  NAMED(verify_moved_8),
    NAMED(verify_column_1), NAMED(verify_column_2), NAMED(verify_column_4), NAMED(verify_column_8),
    NAMED(occupy),          NAMED(hold_until),      NAMED(hold_for_flag),   NAMED(read_clock),
    NAMED(flush_cache),     NAMED(copy_bytes),      NAMED(follow),
};

extern "C" const Kernel *commgauge_kernels(u64 *count)
{
    *count = sizeof kernels / sizeof kernels[0];
    return kernels;
}
