/* The plain loop that commgauge's streaming cadence is compared with: the same MPI call on the same buffers in the
   same order, and nothing else. Returns the first error code of MPI, or MPI_SUCCESS. */
#include <mpi.h>
#include <stdint.h>

/* The order of `Collective` in the bench. */
enum collective { ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, PING_PONG };

/* `Rotation` of the backend. */
struct rotation { uint64_t copies, stride, step, current; };

int commgauge_raw_loop(int collective, long calls, const char *send, char *receive, struct rotation *rotation,
                       int count, MPI_Datatype type, MPI_Comm comm, int partner, int first)
{
    int code = MPI_SUCCESS;
    for (long i = 0; i < calls && code == MPI_SUCCESS; i++) {
        rotation->current += rotation->step;
        if (rotation->current >= rotation->copies) rotation->current -= rotation->copies;
        const char *from = send + rotation->current * rotation->stride;
        char *to = receive + rotation->current * rotation->stride;
        switch (collective) {
        case ALL_REDUCE:
            code = MPI_Allreduce(from, to, count, type, MPI_SUM, comm);
            break;
        case ALL_GATHER:
            code = MPI_Allgather(from, count, type, to, count, type, comm);
            break;
        case ALL_TO_ALL:
            code = MPI_Alltoall(from, count, type, to, count, type, comm);
            break;
        case PING_PONG:
            if (first) {
                code = MPI_Send(from, count, type, partner, 0, comm);
                if (code == MPI_SUCCESS) code = MPI_Recv(to, count, type, partner, 0, comm, MPI_STATUS_IGNORE);
            } else {
                code = MPI_Recv(to, count, type, partner, 0, comm, MPI_STATUS_IGNORE);
                if (code == MPI_SUCCESS) code = MPI_Send(from, count, type, partner, 0, comm);
            }
            break;
        }
    }
    return code;
}
