"""DeepSpeed's quantising kernels, which need a GPU, with results of the same shapes and types (csrc/quantization/pt_binding.cpp). Numbers of 8
bits are quantised; those of 4 bits are left out, because what a step sends does not depend on them."""

import torch


class Quantizer:
    """The functions of the compiled module."""

    Symmetric = 0

    def quantize(self, values, groups, bits, kind):
        rows = values.float().view(groups, -1)
        scales = rows.abs().amax(dim=1, keepdim=True).clamp(min=1e-8) / 127
        # The kernels' scales are a column, which gloo does not gather into a row.
        return [(rows / scales).round().to(torch.int8).view(values.shape), scales.view(-1)]

    def dequantize(self, values, scales, groups, bits, kind):
        if bits == 4:
            return torch.zeros(values.numel() * 2, dtype=torch.half)
        return (values.view(groups, -1) * scales.view(-1, 1)).view(values.shape).half()

    def swizzle_quant(self, values, groups, bits, kind, pipeline, nodes, devices):
        return [torch.zeros(values.numel() * bits // 8, dtype=torch.int8), torch.zeros(groups, 1)]

    def quantized_reduction(self, values, scales, groups, fewer, bits, kind, devices):
        return [torch.zeros(values.numel() // devices, dtype=torch.int8), torch.zeros(fewer, 1)]


def replace_quantizer():
    """For the rest of the process."""
    from deepspeed.runtime.comm import coalesced_collectives
    from deepspeed.runtime.zero.partition_parameters import CUDAQuantizer

    coalesced_collectives.quantizer_module = CUDAQuantizer.quantizer_cuda_module = Quantizer()
