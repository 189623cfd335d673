"""Hooks tiny models of transformers by `autotuner.use` and writes which of their calls variants can serve, and how far
their logits are from those of the unhooked model.

    python -m benchmarks.inference.hooked [--json docs/results/hooked_models.json]

Each model runs a batch without padding, one padded on the right and one padded on the left, the forwards under
torch.compile too. It generates from the first and the last with a dynamic and with a static cache: what comes after
padding on the right means nothing, and transformers warns of it. Weights are drawn here; nothing is downloaded. Needs
transformers. The file keeps its rows of other versions of torch.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import autotuner
from autotuner.tuning.workbench import Workbench, load_spaces
from autotuner.values.errors import SpaceError
from benchmarks.provenance import command_line

SIZES = {
    "vocab_size": 256,
    "hidden_size": 256,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 64, "pad_token_id": 0}
MODELS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaConfig", GROUPED),
    "Mistral": ("MistralConfig", {**GROUPED, "sliding_window": 8}),
    "Gemma 2": ("Gemma2Config", {**GROUPED, "sliding_window": 8, "query_pre_attn_scalar": 64}),
    "Qwen 3": ("Qwen3Config", GROUPED),
    "gpt-oss": (
        "GptOssConfig",
        {**GROUPED, "sliding_window": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "layer_types": None},
    ),
    "BERT": ("BertConfig", SIZES),
}
"""The class of the configuration, and what it is given."""
LENGTH, SHORT, NEW = 24, 15, 6
"""Tokens of a text, of the shorter text of a padded batch, and tokens that are generated."""
BATCHES = ("none", "right", "left")


def model_of(name: str) -> Any:
    """With random weights, and its own attention: torch's, or its eager one where it has no other."""
    import transformers

    kind, given = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**given)
    return (transformers.AutoModel if name == "BERT" else transformers.AutoModelForCausalLM).from_config(config).eval()


def batch_of(padding: str) -> dict[str, Tensor]:
    """Two texts; with padding the second one is shorter, and its padding is on that side."""
    ids = torch.randint(1, 256, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    if padding == "right":
        mask[1, SHORT:] = 0
    elif padding == "left":
        mask[1, : LENGTH - SHORT] = 0
    return {"input_ids": ids, "attention_mask": mask}


def answered(model: Any, padding: str) -> Tensor:
    """The logits, or the hidden states, of the tokens; those of padding mean nothing."""
    batch = batch_of(padding)
    with torch.no_grad():
        found: Tensor = model(**batch)[0]
    return found[batch["attention_mask"].bool()]


def generated(model: Any, padding: str, cache: str | None) -> Tensor:
    """The logits of what is generated."""
    with torch.no_grad():
        said = model.generate(
            **batch_of(padding),
            max_new_tokens=NEW,
            min_new_tokens=NEW,
            do_sample=False,
            cache_implementation=cache,
            return_dict_in_generate=True,
            output_logits=True,
            disable_compile=True,
        )
    return torch.stack(said.logits)


def runs(model: Any) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """What is run with each model, by its name."""
    for padding in BATCHES:
        yield f"forward, padding {padding}", lambda padding=padding: answered(model, padding)  # type: ignore[misc]
        if hasattr(model, "lm_head") and padding != "right":
            for cache in ("dynamic", "static"):
                given = None if cache == "dynamic" else cache
                yield (
                    f"generate, {cache} cache, padding {padding}",
                    lambda padding=padding, given=given: generated(model, padding, given),  # type: ignore[misc]
                )


def compared(name: str) -> Iterator[dict[str, Any]]:
    """Of each run of a model the largest difference of its logits, and what its calls are."""
    model = model_of(name)
    own = model.config._attn_implementation
    for run, forward in runs(model):
        model.set_attn_implementation(own)
        expected = forward()
        autotuner.use(model)
        with autotuner.record() as calls:
            found = forward()
        yield {
            **_beside(name, run, found, expected),
            "calls": len(calls),
            "variants_can_serve": sum(count for each, count in calls.problems.items() if has_variants(str(each))),
            "problems": {str(problem): count for problem, count in calls.problems.items()},
            "torchs": reasons(calls.refused),
        }


def compiled(name: str) -> Iterator[dict[str, Any]]:
    """The same of its compiled forward, whose calls nobody can record. No code is made: the graphs are what counts."""
    model = model_of(name)
    own = model.config._attn_implementation
    torch.compiler.reset()
    for padding in BATCHES:
        model.set_attn_implementation(own)
        expected = answered(model, padding)
        autotuner.use(model)
        found = answered(torch.compile(model, backend="aot_eager"), padding)
        none: dict[str, Any] = {"calls": 0, "variants_can_serve": 0, "problems": {}, "torchs": {}}
        yield {**_beside(name, f"compiled forward, padding {padding}", found, expected), **none}


def _beside(name: str, run: str, found: Tensor, expected: Tensor) -> dict[str, Any]:
    difference, largest = float((found - expected).abs().max()), float(expected.abs().max())
    return {"model": name, "run": run, "difference": difference, "largest": largest}


@cache
def has_variants(problem: str) -> bool:
    """Whether the space of CPUs has a point for a problem."""
    try:
        return all(len(Workbench(file).space) > 0 for file in load_spaces("sdpa_cpu", 1, [problem]))
    except SpaceError:
        return False


def reasons(refused: Mapping[Any, int]) -> dict[str, int]:
    """How many calls torch serves, by the argument that it serves them for."""
    found: Counter[str] = Counter()
    for each, count in refused.items():
        found[each.why.partition(" is not supported")[0]] += count
    return dict(found)


def share(rows: Sequence[Mapping[str, Any]]) -> str:
    """Of these runs the calls that variants can serve."""
    served, calls = (sum(each[key] for each in rows) for key in ("variants_can_serve", "calls"))
    return f"{served}/{calls}"


def table(document: dict[str, Any]) -> str:
    """Of each model and kind of padding the calls that variants can serve, and what torch serves all others for: once
    for all versions of which that is the same."""
    alike: dict[str, list[str]] = {}
    for versions in document["versions"]:
        grid = _grid([row for row in document["rows"] if row["versions"] == versions])
        alike.setdefault(grid, []).append(versions)
    worst = max(each["difference"] / each["largest"] for each in document["rows"])
    said = f"Logits differ from the unhooked model's by {worst:.1e} of the largest at most."
    grids = (f"{grid}\n\nWith {'; '.join(versions)}." for grid, versions in alike.items())
    return "\n\n".join([*grids, f"{said} Made by `python -m benchmarks.inference.hooked`."])


def _grid(found: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| model | no padding | right | left | torch's, for |", "| --- | ---: | ---: | ---: | --- |"]
    for name in dict.fromkeys(row["model"] for row in found):
        rows = [each for each in found if each["model"] == name]
        cells = [share([each for each in rows if each["run"].endswith(padding)]) for padding in BATCHES]
        why = ", ".join(dict.fromkeys(why for each in rows for why in each["torchs"]))
        lines.append(f"| {name} | {' | '.join(cells)} | {why} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    said = parser.parse_args()
    versions = f"torch {torch.__version__}, transformers {version('transformers')}"
    rows: list[dict[str, Any]] = []
    if said.json and said.json.exists():
        rows = [each for each in json.loads(said.json.read_text())["rows"] if each["versions"] != versions]
    rows += [{"versions": versions, **row} for name in MODELS for row in (*compared(name), *compiled(name))]
    document = {
        "command": command_line(),
        "when": time.strftime("%Y-%m-%d"),
        "versions": list(dict.fromkeys(row["versions"] for row in rows)),
        "rows": rows,
    }
    print(table(document))
    if said.json:
        said.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
