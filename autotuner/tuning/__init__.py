"""Tuning: what a person asks for, from a space on this machine to the trial to use.

| module | does |
|---|---|
| `workbench` | one space on this machine: device, valid points, compiler, executor |
| `run.plan`, `run.driver` | what a run is to do; a run: propose, find, submit, wait, record, tell |
| `run.flights`, `run.lanes` | the variants in flight, and the devices that judge them |
| `run.quiet` | waiting for a quiet machine, or for a device |
| `run.outcomes` | what the study has found so far |
| `run.optuna_study` | the same study as Optuna keeps it |
| `run.time_left` | how long a run will still take |
| `transfer` | where a new study starts: related studies in the store |
| `finals.retrials`, `finals.heats` | trials judged and timed again in fresh processes |
| `finals.plan`, `finals.rounds` | who is in the finals, and who is left |
| `finals.standings`, `finals.serving` | which trial is the one to use, of a study and on each problem |
| `finals.validation` | variants on problems that were not tuned |
| `gate_one`, `race_again` | one variant through the gate, or timed again |
| `gate_summary`, `trial_report` | what the gate found, for those who use a variant and for programs |

It uses every room below and knows nobody who is shown or given its results.
"""
