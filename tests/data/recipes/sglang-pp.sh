# Form: docs/advanced_features/pipeline_parallelism.md of SGLang
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --pp-size 2 --nnodes 2 --node-rank 0 \
  --dist-init-addr 10.0.0.1:20000 --trust-remote-code --max-running-requests 16
