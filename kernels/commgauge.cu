// All kernels in one module; scripts/build-kernels makes commgauge.ptx of it.
#include "copy.cu"
#include "fill.cu"
#include "flush.cu"
#include "occupy.cu"
#include "verify.cu"
