"""Tuning: what a person asks for, from a space on this machine to the trial to use.

| module | does |
|---|---|
| `workbench` | one space on this machine: device, valid points, compiler, executor |
| `plan` | what a run is to do, and what makes a study the one it is |
| `driver` | a run: propose, find, submit, wait, record, tell |
| `flights`, `device_lane` | the variants in flight, and the devices that judge them |
| `outcomes` | what the study has found so far, and which variant the others race against |
| `optuna_study` | the same study as Optuna keeps it |
| `transfer` | where a new study starts: related studies in the store |
| `finals`, `standings` | the best again in fresh processes, and which trial is the one to use |
| `validation` | variants on problems that were not tuned |
| `retrials` | trials judged and timed again, as finals and validation do |
| `gate_one`, `race_again` | one variant through the gate, or timed again |
| `gate_summary`, `trial_report` | what the gate found, for those who use a variant and for programs |
| `time_left` | how long a run will still take |

It uses every room below and knows nobody who is shown or given its results.
"""
