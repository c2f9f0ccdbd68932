"""Parameters of every config.json as transformers' own classes count them, compared with what `commgauge show model` says."""

import importlib
import json
import pathlib
import subprocess
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

PRESETS = pathlib.Path("suites/models")
DEFAULTS = pathlib.Path("tests/data/transformers")
# Types without a class of their own in transformers, and the class that has the same layers.
LIKE = {
    "deepseek_ref": "deepseek_v4", "kimi_k2": "deepseek_v3", "mimo": "qwen2",
    "minimax_m3": "minimax_m3_vl_text", "minimax_m3_vl": "minimax_m3_vl_text", "step3p7": "step3p5",
}
# Families whose classes have defaults of a whole model.
WRITTEN = """bloom cohere2 deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 dots1 ernie4_5 ernie4_5_moe exaone4 falcon falcon_h1 gemma gemma2
gemma3_text gemma4_text glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt2 gpt_bigcode gpt_neox gpt_oss gptj granite granitemoe hunyuan_v1_dense
jamba llama llama4_text mamba mamba2 minimax_m2 ministral3 mistral mixtral mpt nemotron nemotron_h olmo2 olmo3 olmoe
opt phi phi3 phimoe qwen2 qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_vl_moe_text
qwen3_vl_text seed_oss smollm3 starcoder2""".split()
# Fields that the class has no usable default for, as in the published models.
NEMOTRON_H_8B = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
STATED = {
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "deepseek_v2": {"num_experts_per_tok": 6},
    "glm4_moe": {"head_dim": 128},
    "hunyuan_v1_dense": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "nemotron_h": {"hybrid_override_pattern": NEMOTRON_H_8B},
}
# What no shape follows from.
LEFT_OUT = {"transformers_version", "architectures", "id2label", "label2id", "problem_type", "chunk_size_feed_forward"}
# Learned without gradients, by a rule of its own.
NOT_COUNTED = "e_score_correction_bias"


def config_of(text):
    fields = text.get("text_config", text)
    kind = fields.get("model_type", text.get("model_type"))
    kind = LIKE.get(kind, kind)
    stated = {name: value for name, value in fields.items() if name != "model_type"}
    if "tie_word_embeddings" in text:
        stated["tie_word_embeddings"] = text["tie_word_embeddings"]
    return AutoConfig.for_model(kind, **stated)


def counted(config):
    projection = 0
    with torch.device("meta"):
        if type(config) in AutoModelForCausalLM._model_mapping:
            model = AutoModelForCausalLM.from_config(config)
        else:  # the text part of a multimodal model, which has its output projection next to it
            model = text_model(config)
            projection = 0 if getattr(config, "tie_word_embeddings", False) else config.vocab_size * config.hidden_size
    model.tie_weights()
    return projection + sum(p.numel() for name, p in model.named_parameters() if NOT_COUNTED not in name)


def text_model(config):
    if type(config) in AutoModel._model_mapping:
        return AutoModel.from_config(config)
    module = importlib.import_module(type(config).__module__.replace(".configuration_", ".modeling_"))
    [only] = [one for name, one in vars(module).items() if name.endswith("TextModel") and one.config_class is type(config)]
    return only(config)


def written(kind):
    fields = AutoConfig.for_model(kind, **STATED.get(kind, {})).to_dict()
    return {name: value for name, value in fields.items() if name not in LEFT_OUT and value is not None}


def ours(commgauge, file):
    answer = subprocess.run([commgauge, "show", "model", str(file), "--format", "json"], capture_output=True, text=True)
    if answer.returncode != 0:
        return None, answer.stderr.strip()
    return json.loads(answer.stdout)["parameters_total"], ""


def write_defaults():
    for kind in WRITTEN:
        folder = DEFAULTS / kind
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(written(kind), indent=1, sort_keys=True)
        (folder / "config.json").write_text(text + "\n")


def main():
    commgauge, write = sys.argv[1], "--write" in sys.argv[2:]
    if write:
        write_defaults()
    rows, counts = [], {}
    for file in sorted([*PRESETS.glob("*/config.json"), *DEFAULTS.glob("*/config.json")]):
        mine, problem = ours(commgauge, file)
        try:
            theirs = counted(config_of(json.loads(file.read_text())))
        except Exception as cause:  # whatever the class dislikes is the answer
            theirs, problem = None, f"{problem} transformers: {type(cause).__name__}: {cause}".strip()
        if file.is_relative_to(DEFAULTS) and theirs is not None:
            counts[file.parent.name] = theirs
        rows.append((str(file.parent), mine, theirs, problem))
    if write:
        header = f"parameters as transformers {transformers.__version__} counts them"
        document = {"what": header, "parameters": counts}
        (DEFAULTS / "parameters.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    differ = [row for row in rows if row[1] != row[2] or row[1] is None]
    for name, mine, theirs, problem in differ:
        print(f"{name}: commgauge {mine}, transformers {theirs} {problem}")
    print(f"check-frameworks: {len(rows) - len(differ)} of {len(rows)} config.json have as many parameters as transformers "
          f"{transformers.__version__} gives them")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
