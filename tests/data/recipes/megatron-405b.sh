#!/bin/bash
# Form: Megatron-LM examples with uneven stages, parts of layers that are repeated, and half of the optimizer on the host
torchrun --nproc_per_node 8 --nnodes 2048 pretrain_gpt.py \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --num-virtual-stages-per-pipeline-rank 8 \
    --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split \
    --use-distributed-optimizer --bf16 --seq-length 8192 --micro-batch-size 1 --global-batch-size 2048 \
    --recompute-granularity selective --recompute-modules layernorm mlp --recompute-method uniform \
    --optimizer-cpu-offload --optimizer-offload-fraction 0.5
