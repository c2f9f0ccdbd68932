/* What MPI defines as macros that a binding generator cannot see. */
#include <mpi.h>

void *commgauge_mpi_in_place(void) { return MPI_IN_PLACE; }
MPI_Datatype commgauge_mpi_double_int(void) { return MPI_DOUBLE_INT; }
MPI_Op commgauge_mpi_maxloc(void) { return MPI_MAXLOC; }
MPI_Op commgauge_mpi_minloc(void) { return MPI_MINLOC; }
