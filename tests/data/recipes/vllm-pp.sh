# Form: docs/serving/parallelism_scaling.md of vLLM
vllm serve deepseek-ai/DeepSeek-V3 \
  --tensor-parallel-size 8 \
  --pipeline-parallel-size 2 \
  --max-num-seqs 16
