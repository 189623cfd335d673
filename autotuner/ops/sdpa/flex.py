"""torch's flex_attention, for its compiler: what SDPA takes with a mask of every score alone, it does in blocks."""

from typing import Any, cast

import torch
from torch import Tensor

from autotuner.ops.sdpa.masks import given
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.problem import Problem


class _Flex(torch.nn.Module):
    def __init__(self, problem: SdpaProblem, device: str) -> None:
        super().__init__()
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        if problem.sinks != "none" and device == "cpu":
            raise RuntimeError("flex_attention has no log-sum-exps on a CPU")

        self._problem = problem
        offset, right, cap = problem.offset, problem.window_right, problem.softcap
        left = problem.window_left if problem.windowed else problem.seq_q + problem.seq_k

        def seen(batch: Any, head: Any, row: Any, key: Any) -> Any:
            return (key >= row + offset - left) & (key <= row + offset + right)

        def capped(score: Any, batch: Any, head: Any, row: Any, key: Any) -> Any:
            return cap * torch.tanh(score / cap)

        self._function, self._options = flex_attention, cast(dict[str, Any], {"enable_gqa": problem.grouped})
        if problem.causal or problem.windowed:
            self._options["block_mask"] = create_block_mask(
                seen, None, None, problem.seq_q, problem.seq_k, device=device
            )
        if problem.softcapped:
            self._options["score_mod"] = capped

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *more: Tensor) -> Tensor:
        options, of = dict(self._options), given(self._problem, (q, k, v, *more))
        if of.bias is not None:
            options["score_mod"] = self._added(of.bias)
        if of.sinks is None:
            found: Tensor = self._function(q, k, v, **options)
            return found
        o, lse = self._function(q, k, v, **options, return_lse=True)
        drawn: Tensor = o * torch.sigmoid(lse - of.sinks.float().view(-1, 1))[..., None].to(o.dtype)
        return drawn

    def _added(self, bias: Tensor) -> Any:
        """The score with what is capped and added."""
        before, offset, of_all = self._options.get("score_mod"), self._problem.offset, len(bias) == 1

        def slopes(score: Any, batch: Any, head: Any, row: Any, key: Any) -> Any:
            return score + bias[head] * (key - row - offset)

        def numbers(score: Any, batch: Any, head: Any, row: Any, key: Any) -> Any:
            return score + bias[0 if of_all else batch, head, row, key]

        one = slopes if self._problem.bias == "alibi" else numbers
        if before is None:
            return one
        return lambda score, *at: one(before(score, *at), *at)


def module(problem: Problem, device: str) -> torch.nn.Module:
    """What the compiled baseline is made of."""
    return _Flex(cast(SdpaProblem, problem), device)
