# Form: Megatron-LM examples with --decoder-first-pipeline-num-layers
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py \
    --tensor-model-parallel-size 2 \
    --pipeline-model-parallel-size 4 \
    --decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 8 \
    --seq-length 8192 --micro-batch-size 1 --global-batch-size 64 --bf16
