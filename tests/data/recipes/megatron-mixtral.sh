#!/bin/bash
# Form: Megatron-LM examples/mixtral/train_mixtral_8x7b_distributed.sh
NNODES=${SLURM_NNODES:-"4"}
GPUS_PER_NODE=8

MOE_ARGS=(
    --num-experts 8
    --moe-router-topk 2
    --moe-router-load-balancing-type aux_loss
    --moe-aux-loss-coeff 1e-2
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
    --overlap-param-gather
    --overlap-grad-reduce
)
MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 4
    --expert-model-parallel-size 8
    --use-distributed-optimizer
    --sequence-parallel
)
if [ -n "${WANDB_API_KEY}" ]; then
    LOGGING_ARGS+=(--wandb-project ${WANDB_PROJECT:-"Mixtral"})
fi
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes ${NNODES} pretrain_gpt.py \
    ${MOE_ARGS[@]} ${MODEL_PARALLEL_ARGS[@]} --seq-length 4096 --num-layers 32 \
    --micro-batch-size 1 --global-batch-size 256 --bf16 ${LOGGING_ARGS[@]} 2>&1 | tee train.log
