"""The options and arguments that several commands share, and how a store is opened."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.values import config
from autotuner.values.errors import OlderStoreError

if TYPE_CHECKING:
    from autotuner.store import Store

SpaceName = Annotated[str, typer.Argument(help="a space file, or the name of one that is shipped")]
AnySpaceName = Annotated[str | None, typer.Argument(help="a space file or name; this machine's default if left out")]
StudyName = Annotated[str | None, typer.Argument(help="a study, by name or unique prefix; the latest when left out")]
StoreOption = Annotated[str | None, typer.Option("--store", help=f"path or URL of the study store [${config.STORE}]")]
MOST = 2**31 - 1
"""Of any number that is given: what every database keeps."""
ThreadsOption = Annotated[
    int | None, typer.Option(min=1, max=MOST, help="threads both sides may use, instead of the file's")
]
ArchOption = Annotated[
    str | None, typer.Option("--arch", help="GPU architecture, such as sm_89, instead of that of the GPU here")
]
ProblemOption = Annotated[
    list[str] | None,
    typer.Option("--problem", help="a problem as the tables write it, instead of the space's own; can be repeated"),
]
ProblemsOption = Annotated[
    Path | None, typer.Option("--problems", help="the same, from the tables `problems` of a TOML file")
]
PatienceOption = Annotated[
    float, typer.Option(min=0, help="minutes to wait for a calm machine, or one that another run times, at a time")
]
SeedOption = Annotated[int, typer.Option(min=0, max=MOST, help="seed of what is drawn")]
SamplerOption = Annotated[
    str, typer.Option(help="evolution, random, tpe, nsga2, cmaes, gp, exhaustive, or one of another package")
]
LikeOption = Annotated[str | None, typer.Option("--from", help="start from this study, its best points first")]
ColdOption = Annotated[bool, typer.Option("--cold", help="start without what related studies know")]
ConvergedOption = Annotated[
    bool, typer.Option("--until-converged", help="stop when what is left promises less than a tie")
]
FinalsOption = Annotated[bool, typer.Option("--finals/--no-finals", help="confirm the best in fresh processes")]
FINALS_MINUTES = "minutes that finals may take on a calm machine; waiting for one comes on top"
FinalsMinutes = Annotated[float, typer.Option("--finals-minutes", min=0.01, help=FINALS_MINUTES)]
CalmOption = Annotated[bool, typer.Option("--calm", help="believe that nobody disturbs the machine")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]


def open_store(store: str | None) -> Store:
    """The store that is there. Raises StoreError when there is none: a question makes none."""
    from autotuner.store import Store

    return Store.open(store or config.store_url(), create=False)


def opened_to_read(store: str | None) -> Store:
    """The same, and nothing is written to it but a newer schema where it has an older one, as every question does."""
    from autotuner.store import Store

    with suppress(OlderStoreError):
        return Store.open(store or config.store_url(), read_only=True)
    open_store(store).close()
    return Store.open(store or config.store_url(), read_only=True)
