#!/bin/bash
# Llama 3 8B in FP8 with per-tensor scales, weights gathered in 8 bits.

GPUS_PER_NODE=8
NNODES=2

MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --swiglu
    --normalization RMSNorm
    --untie-embeddings-and-output-weights
)

torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py \
    "${MODEL_ARGS[@]}" \
    --seq-length 8192 \
    --micro-batch-size 1 \
    --global-batch-size 128 \
    --bf16 \
    --fp8-format hybrid \
    --fp8-recipe tensorwise \
    --fp8-param-gather \
    --use-distributed-optimizer \
    --overlap-grad-reduce \
    --context-parallel-size 2
