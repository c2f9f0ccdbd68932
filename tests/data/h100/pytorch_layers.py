"""Times decoder layers of Llama 3 8B in PyTorch on a GPU, forward and backward, and prints them as JSON: what pytorch-layers.json is."""

import json
import statistics

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SEQUENCES, LAYERS = (2048, 4096, 8192), (1, 3)
WARM_UP = 2


def build(layers):
    config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256,
                         num_hidden_layers=layers, max_position_embeddings=8192, rope_theta=500000.0, use_cache=False)
    config._attn_implementation = "sdpa"
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = LlamaForCausalLM(config)
        torch.set_default_dtype(torch.float32)
    return model.train()


def milliseconds(work, times):
    """The median by CUDA events, without the first ones."""
    taken = []
    for _ in range(times + WARM_UP):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end))
    return statistics.median(taken[WARM_UP:])


def main():
    found = {"torch": torch.__version__, "device": torch.cuda.get_device_name(0)}
    for sequence in SEQUENCES:
        for layers in LAYERS:
            torch.manual_seed(0)
            model, tokens = build(layers), torch.randint(0, 128256, (1, sequence), device="cuda")

            def decoder():
                return model.model(tokens).last_hidden_state

            def passes():
                states = decoder()
                states.backward(torch.ones_like(states))
                model.zero_grad(set_to_none=True)

            def whole():
                model(tokens, labels=tokens).loss.backward()
                model.zero_grad(set_to_none=True)

            with torch.no_grad():
                forward = milliseconds(decoder, 8)
            found[f"{sequence}/{layers}"] = {"forward_ms": forward, "forward_backward_ms": milliseconds(passes, 8)}
            if sequence == SEQUENCES[-1]:
                if layers == 1:
                    found["head_and_one_layer_ms"] = milliseconds(whole, 4)
                parameters = list(model.model.layers.parameters())
                for parameter in parameters:
                    parameter.grad = torch.zeros_like(parameter)
                step = torch.optim.AdamW(parameters, fused=True).step
                found[f"adamw_{layers}"] = {"parameters": sum(part.numel() for part in parameters), "ms": milliseconds(step, 5)}
            del model
            torch.cuda.empty_cache()
    print(json.dumps(found, indent=4))


if __name__ == "__main__":
    main()
