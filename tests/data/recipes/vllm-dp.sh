vllm serve Qwen/Qwen3-30B-A3B -tp 2 -dp 4 --enable-expert-parallel \
  --all2all-backend deepep_low_latency --max-num-seqs=64 --port 8000
