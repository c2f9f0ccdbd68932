python3 -m sglang.launch_server --model Qwen/Qwen3-30B-A3B --tp-size 8 --ep-size 4 --max-running-requests 16
