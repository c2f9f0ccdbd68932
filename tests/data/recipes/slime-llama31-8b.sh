#!/bin/bash
# Form: slime scripts/run-llama3.1-8B.sh
set -ex
NVLINK_COUNT=$(nvidia-smi | grep -o "NVLink" | wc -l)
SCRIPT_DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"
source "${SCRIPT_DIR}/models/llama3.1-8B-Instruct.sh"
ROLLOUT_ARGS=(
   --prompt-data /root/gsm8k/train.jsonl  # from the hub
   --rollout-shuffle
   --num-rollout 3000
   --rollout-batch-size 64
   --n-samples-per-prompt 8

   --global-batch-size 512
   --balance-data
)
EVAL_ARGS=(
   # --eval-interval 20
)
PERF_ARGS=(
   --tensor-model-parallel-size 2
   --sequence-parallel
   --pipeline-model-parallel-size 1
   --context-parallel-size 1
   --expert-model-parallel-size 1
   --expert-tensor-parallel-size 1

   --recompute-granularity full
   --recompute-method uniform
   --recompute-num-layers 1

   # --micro-batch-size 1
   --use-dynamic-batch-size
   --max-tokens-per-gpu 9216
)
OPTIMIZER_ARGS=(
   --optimizer adam
   --lr 1e-6
   --weight-decay 0.1
)
SGLANG_ARGS=(
   --rollout-num-gpus-per-engine 1
   --sglang-mem-fraction-static 0.8
)
MISC_ARGS=(
   # default dropout in megatron is 0.1
   --attention-dropout 0.0
   --accumulate-allreduce-grads-in-fp32
   --attention-backend flash
)
ray start --head --node-ip-address ${MASTER_ADDR} --num-gpus 4 --disable-usage-stats
ray job submit --address="http://127.0.0.1:8265" \
   -- python3 train.py \
   --actor-num-nodes 1 \
   --actor-num-gpus-per-node 4 \
   --rollout-num-gpus-per-node 4 \
   --colocate \
   ${MODEL_ARGS[@]} \
   ${ROLLOUT_ARGS[@]} \
   ${OPTIMIZER_ARGS[@]} \
   ${PERF_ARGS[@]} \
   ${EVAL_ARGS[@]} \
   ${SGLANG_ARGS[@]} \
   ${MISC_ARGS[@]}
