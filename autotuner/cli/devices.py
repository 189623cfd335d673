"""Commands on the devices that workers serve."""

from typing import Annotated

import typer

from autotuner.cli.options import JsonOption, StoreOption, stored
from autotuner.cli.output import out, print_json, print_table

Names = Annotated[list[str] | None, typer.Argument(metavar="DEVICE...", help="all in quarantine when left out")]


def devices(context: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """The devices that workers serve: who holds each, and which are in quarantine and why."""
    if context.invoked_subcommand is not None:
        return
    from autotuner.store import device_health
    from autotuner.views.sweep_tables import devices_table

    with stored(store) as opened:
        table = devices_table(device_health.every(opened))
    print_table(table, as_json, empty="No worker has served a device from this store: `autotuner worker` does.")


def devices_clear(
    context: typer.Context, device: Names = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Ends the quarantine of devices: they get sweeps again."""
    from autotuner.store import device_health

    before = context.parent.params if context.parent is not None else {}  # the options that stand before `clear`
    store, as_json = store or before.get("store"), as_json or before.get("as_json", False)
    with stored(store) as opened:
        known = device_health.every(opened)
        names = device or [each.name for each in known if each.health == "quarantined"]
        cleared = device_health.clear(opened, names)
    if as_json:
        print_json(list(cleared))
    else:
        out.print(f"Cleared: {', '.join(cleared)}." if cleared else "None of them is in quarantine.")
