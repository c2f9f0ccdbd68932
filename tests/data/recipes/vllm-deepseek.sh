# Form: recipes of the vLLM project for DeepSeek-V3
vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8 \
  --enable-expert-parallel --max-num-seqs 16 --gpu-memory-utilization 0.92 --trust-remote-code
