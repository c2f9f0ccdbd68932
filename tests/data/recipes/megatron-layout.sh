# Form: Megatron-LM docs of --pipeline-model-parallel-layout, with two chunks on each of four stages of Llama 3 8B
torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py \
    --tensor-model-parallel-size 2 \
    --pipeline-model-parallel-size 4 \
    --pipeline-model-parallel-layout "Et*3|(t*4|)*6,t*5L" \
    --seq-length 8192 --micro-batch-size 1 --global-batch-size 64 --bf16
