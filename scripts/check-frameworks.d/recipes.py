"""Holds the tables of suites/recipes against the sources of their frameworks: every setting that a table names is one of theirs, every default that it gives is the
one that they declare, and every setting of theirs whose name is about calls is in the table, since a recipe that has it is refused else. Nothing of them is run.

Sources are those of this Python and of the folder that is given."""

import ast
import fnmatch
import sys
import tomllib
from pathlib import Path

TABLES = Path("suites/recipes")
# Where each framework declares its settings.
SOURCES = {
    "accelerate": ["accelerate/commands/config/config_args.py", "accelerate/commands/launch.py", "accelerate/utils/dataclasses.py"],
    "axolotl": ["axolotl/utils/schemas/*.py", "transformers/training_args.py"],
    "deepspeed": ["deepspeed/runtime/*.py", "deepspeed/runtime/*/config.py", "deepspeed/monitor/config.py", "deepspeed/profiling/*.py"],
    "llamafactory": ["llamafactory/hparams/*.py", "transformers/training_args.py"],
    "megatron": ["megatron/training/arguments.py", "megatron/training/config/*.py", "megatron/core/*_config.py", "megatron/core/*/*_config.py", "torch/distributed/run.py"],
    "nemo": ["nemo/collections/nlp/*/*/*.py", "nemo/collections/nlp/*/*/*/*.py", "megatron/bridge/training/*.py", "megatron/bridge/models/*.py", "megatron/core/*_config.py", "megatron/core/*/*_config.py"],
    "sglang": ["sglang/srt/server_args.py", "sglang/srt/arg_groups/fields/*.py"],
    "slime": ["slime/utils/arguments.py", "slime/backends/sglang_utils/arguments.py"],
    "torchtitan": ["torchtitan/config/job_config.py"],
    "verl": ["verl/trainer/config/*.yaml", "verl/trainer/config/*/*.yaml"],
    "vllm": ["vllm/engine/arg_utils.py", "vllm/config/*.py", "vllm/entrypoints/cli/*.py", "vllm/entrypoints/openai/*.py", "vllm/entrypoints/serve/*/*.py"],
}
# What a table names that no file of these declares: what stands for several settings, what earlier versions have, what Ray, Hydra, Megatron-LM, PyTorch Lightning and
# files outside of the package declare, and settings that are no flags.
DECLARED_ELSEWHERE = {
    "axolotl": ["fsdp_config.fsdp_*"],
    "megatron": ["micro_batches"],
    "nemo": ["micro_batches", "trainer.*", "*restore_from_path", "model.resume_*"],
    "sglang": ["enable_deepep_moe"],
    "slime": ["address", "runtime_env_json", "bf16", "use_distributed_optimizer"],
    "verl": ["config_name"],
    "vllm": ["enable_auto_tool_choice", "tool_call_parser", "api_server_count", "uvicorn_log_level"],
}
NO_FLAGS = {
    "megatron": ["model_parallel_size", "no_data_sharding", "virtual_pipeline_model_parallel_size"],
    "vllm": ["_*", "*_parallel_config", "parallel_config", "draft_tensor_parallel_size", "overlap_chunk_second"],
}
# Words by which a name is about calls, as the program has them.
ABOUT_CALLS = {"parallel", "parallelism", "zero", "shard", "sharding", "overlap", "bucket", "allreduce", "dispatcher", "all2all"}


def literal(node):
    """The value of a default, or None where it is computed."""
    if isinstance(node, ast.Call):
        named = [word.value for word in node.keywords if word.arg == "default"]
        return literal((named + node.args + [None])[0])
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.value if isinstance(node, ast.Constant) else None


def of_python(text):
    """The names of fields and flags with their defaults, and every other word that may name a setting."""
    settings, words = {}, set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            fields = [line for line in node.body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)]
            for field in fields:
                settings.setdefault(field.target.id, []).append(literal(field.value))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            flags = [word.value for word in node.args if isinstance(word, ast.Constant)]
            default = [word.value for word in node.keywords if word.arg == "default"]
            for flag in flags:
                settings.setdefault(flag.lstrip("-").replace("-", "_"), []).append(literal((default + [None])[0]))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 80:
            words.add(node.value.lstrip("-").replace("-", "_"))
        elif isinstance(node, ast.arg):
            words.add(node.arg)
    return settings, words


def of_yaml(text):
    lines = [line.split("#")[0].strip().split(":", 1) for line in text.splitlines()]
    settings = {}
    for key, value in (line for line in lines if len(line) == 2):
        settings.setdefault(key, []).append(value.strip())
    return settings, set()


def declared(patterns, folders):
    """Settings with their defaults, and words, of the files that are there."""
    settings, words, files = {}, set(), 0
    for folder in folders:
        for file in (file for pattern in patterns for file in sorted(Path(folder).glob(pattern))):
            files += 1
            found, more = (of_yaml if file.suffix == ".yaml" else of_python)(file.read_text())
            words |= more
            for name, defaults in found.items():
                settings.setdefault(name, []).extend(defaults)
    return settings, words | set(settings), files


def named(table):
    """All settings of a table, by what it says of them."""
    return {
        "keys": list(table.get("keys", {})),
        "rows": list(table["rows"]),
        "also": list(table.get("also", {})),
        "defaults": list(table.get("defaults", {})),
        "of_model": table.get("of_model", []),
        "no_effect": table.get("no_effect", []),
        "not_modelled": [name for reason in table.get("not_modelled", {}).values() for name in reason],
    }


def last(name):
    return name.removesuffix("[]").split(".")[-1]


def is_among(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def compared(framework, table, settings, words):
    """What differs."""
    known = named(table)
    elsewhere = DECLARED_ELSEWHERE.get(framework, [])
    for part, names in known.items():
        for name in names:
            word = last(name)
            is_there = any(fnmatch.fnmatchcase(one, word) for one in words) or is_among(name, elsewhere)
            # A command line takes the beginning of a flag.
            is_begun = table.get("commands") and any(one.startswith(word) for one in settings)
            if not is_there and not is_begun:
                yield f"{part}: {name} is no setting of it"
    for name, value in table.get("defaults", {}).items():
        theirs = {str(default).lower() for default in settings.get(last(name), []) if default is not None}
        if theirs and value.lower() not in theirs:
            yield f"defaults: {name} = {value}, declared {', '.join(sorted(theirs))}"
    patterns = [last(name) for names in known.values() for name in names] + NO_FLAGS.get(framework, [])
    for name in sorted(settings):
        about = not ABOUT_CALLS.isdisjoint(name.replace(".", "_").split("_"))
        if about and not is_among(name, patterns):
            yield f"without {name}, declared {settings[name][:3]}"


def main():
    folders = [*sys.argv[1:], *(folder for folder in sys.path if folder.endswith("packages"))]
    differ = 0
    for name, patterns in SOURCES.items():
        settings, words, files = declared(patterns, folders)
        table = tomllib.loads((TABLES / f"{name}.toml").read_text())
        if not files:
            print(f"{name}: skipped, its sources are not there", file=sys.stderr)
            continue
        wrong = list(compared(name, table, settings, words))
        differ += len(wrong)
        print(f"{name}, checked with {table['title']}: {len(settings)} settings in {files} files, {len(wrong)} differ")
        for line in wrong:
            print(f"  {line}")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
