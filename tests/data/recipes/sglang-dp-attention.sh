# Form: SGLang's documentation for DeepSeek-V3 on one node
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --dp 8 --enable-dp-attention \
  --trust-remote-code --max-running-requests 32
