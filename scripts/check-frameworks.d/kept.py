"""What a layer keeps for its backward pass: the tensors that transformers' own layers save for it, compared with what `commgauge plan` counts."""

import json
import pathlib
import sys

import torch
import transformers
from planned import memory

DATA = pathlib.Path("tests/data/transformers/kept.json")
# No width of the models, so that activations have not the shape of a weight.
SEQUENCE = 192
# Numbers that a token has once, such as the root of a norm, are not counted.
TOLERANCE = 0.01
# Wide enough that rounding and single numbers do not count.
SHAPE = dict(hidden_size=512, intermediate_size=1408, num_attention_heads=8, num_key_value_heads=4, head_dim=64, vocab_size=320,
             max_position_embeddings=512, tie_word_embeddings=False)
EXPERTS = dict(num_local_experts=8, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=704)
LATENT = dict(num_key_value_heads=8, head_dim=32, q_lora_rank=192, kv_lora_rank=128, qk_rope_head_dim=32, qk_nope_head_dim=64,
              v_head_dim=64)
MODELS = {
    "llama": SHAPE,
    "mistral": SHAPE | dict(sliding_window=None),
    "qwen2": SHAPE,
    "qwen3": SHAPE,
    "olmo3": SHAPE | dict(sliding_window=512),
    "gemma3_text": SHAPE | dict(sliding_window=512),
    "phi3": SHAPE | dict(pad_token_id=0),
    "granite": SHAPE,
    "cohere2": SHAPE | dict(pad_token_id=0),
    "seed_oss": SHAPE | dict(attention_dropout=0.0, residual_dropout=0.0),
    "gpt2": dict(n_embd=512, n_inner=2048, n_head=8, n_positions=512, vocab_size=320),
    "gpt_neox": dict(hidden_size=512, intermediate_size=2048, num_attention_heads=8, vocab_size=320, max_position_embeddings=512),
    "mixtral": SHAPE | EXPERTS | dict(intermediate_size=704),
    "qwen3_moe": SHAPE | EXPERTS,
    "glm4_moe": SHAPE | EXPERTS | dict(n_routed_experts=8, first_k_dense_replace=0, n_group=1, topk_group=1, pad_token_id=0),
    "deepseek_v3": SHAPE | EXPERTS | LATENT | dict(n_routed_experts=8, first_k_dense_replace=0, n_group=1, topk_group=1),
}


def depth_of(kind):
    return "n_layer" if kind == "gpt2" else "num_hidden_layers"


def shapes_of(weight):
    """Those in which a product may take it, as it is and turned round."""
    return [weight.shape, weight.mT.shape] if weight.dim() > 1 else [weight.shape]


def dropout_of_a_gpu(values, p=0.5, training=True, inplace=False):
    return torch.native_dropout(values, p, True)[0] if training and p > 0 else values


def kept_by(kind, fields, layers, computed, attention):
    """Bytes that a model with `layers` layers saves, each storage once, without parameters and buffers. `autocast` is a model in fp32 whose
    products are computed in bfloat16; copies of its weights do not count."""
    dtype = torch.float32 if computed == "autocast" else getattr(torch, computed)
    if kind == "gpt2" and attention == "sdpa":
        fields = fields | dict(attn_pdrop=0.0)
    config = transformers.AutoConfig.for_model(kind, **fields, **{depth_of(kind): layers}, attn_implementation=attention)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype).train()
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    shapes = {shape for weight in model.parameters() for shape in shapes_of(weight)}
    saved = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        is_copy = computed == "autocast" and tensor.dtype != dtype and tensor.shape in shapes
        if storage.data_ptr() not in own and not is_copy:
            saved[storage.data_ptr()] = storage  # held, or its address would be given away again
        return tensor

    torch.nn.functional.dropout = dropout_of_a_gpu
    tokens = torch.arange(SEQUENCE).remainder(320).reshape(1, SEQUENCE)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=computed == "autocast")
    with autocast, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    del loss
    return config, sum(storage.nbytes() for storage in saved.values())


def fields_of(config, layers):
    left_out = {"layer_types", "mlp_layer_types", "transformers_version", "id2label", "label2id"}
    fields = {name: value for name, value in config.to_dict().items() if value is not None and name not in left_out}
    return fields | {depth_of(config.model_type): layers}


def planned(commgauge, config, layers, computed, attention):
    words = {"bfloat16": ["--training", "gradient_element_type=bf16"], "float32": ["--element-type", "float32"], "autocast": []}[computed]
    words += ["--unfused-attention"] if attention == "eager" else []
    parts, problem = memory(commgauge, fields_of(config, layers), 1, SEQUENCE, "hf", *words)
    return parts and parts["activations"], problem


def rows(commgauge):
    """A row for each model, kind of attention and element type: what a layer more keeps, by transformers and by commgauge."""
    for kind, fields in MODELS.items():
        for attention in ("sdpa", "eager"):
            if kind == "deepseek_v3" and attention == "sdpa":
                continue  # the fused kernel of the processor wants values as wide as keys
            for computed in ("bfloat16", "float32", "autocast"):
                if computed == "autocast" and EXPERTS.keys() <= fields.keys():
                    continue  # experts copy what they are sent in ways that are not counted
                config, two = kept_by(kind, fields, 2, computed, attention)
                _, three = kept_by(kind, fields, 3, computed, attention)
                mine, problems = zip(*(planned(commgauge, config, layers, computed, attention) for layers in (2, 3)))
                ours = None if None in mine else mine[1] - mine[0]
                row = dict(model=kind, attention=attention, computed=computed, bytes=three - two)
                yield row, ours, problems[0], fields_of(config, 2)


def main():
    commgauge, write = sys.argv[1], "--write" in sys.argv[2:]
    kept, configs, differ = [], {}, 0
    for row, ours, problem, fields in rows(commgauge):
        kept.append(row)
        configs[row["model"]] = fields
        if ours is None or abs(ours / row["bytes"] - 1) > TOLERANCE:
            differ += 1
            print(f"{row['model']}, {row['attention']}, {row['computed']}: commgauge {ours}, transformers {row['bytes']} {problem}")
    if write:
        what = f"bytes that a layer keeps of {SEQUENCE} tokens for its backward pass, as transformers {transformers.__version__} on PyTorch " \
            f"{torch.__version__.split('+')[0]} saves them"
        DATA.write_text(json.dumps(dict(what=what, sequence=SEQUENCE, kept=kept, configs=configs), indent=1, sort_keys=True) + "\n")
    print(f"check-frameworks: {len(kept) - differ} of {len(kept)} layers keep as many bytes as transformers' own, within {TOLERANCE:.0%}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
