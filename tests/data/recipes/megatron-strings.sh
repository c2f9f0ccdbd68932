# Form: older examples of Megatron-LM and Pai-Megatron-Patch, whose arguments are strings
TP=4
PP=2
CP=2
OPTIONS=" \
    --bf16 \
    --sequence-parallel \
    --use-distributed-optimizer --overlap-grad-reduce"
run_cmd="torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py ${OPTIONS}
    --tensor-model-parallel-size ${TP}
    --pipeline-model-parallel-size ${PP}
    --context-parallel-size ${CP}
    --num-layers-per-virtual-pipeline-stage 4
    --cp-comm-type a2a
    --seq-length 8192 --micro-batch-size 1 --global-batch-size 128
    --recompute-granularity selective"
echo ${run_cmd}
eval ${run_cmd}
