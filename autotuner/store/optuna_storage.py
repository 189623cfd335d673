"""Optuna's tables as the one driver of a store uses them: read from memory, written in few transactions.

Optuna's own storage commits each parameter and each attribute by itself and reads every running trial again for each
proposal. Here a trial is three short transactions: it begins, its parameters are noted together, it ends.
"""

import copy
import json
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from optuna.distributions import BaseDistribution, check_distribution_compatibility, distribution_to_json
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages._rdb.models import (
    TrialModel,
    TrialParamModel,
    TrialSystemAttributeModel,
    TrialUserAttributeModel,
    TrialValueModel,
)
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Connection, Engine, Insert, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from autotuner.store.database import Database

_TRIALS, _PARAMS, _ATTRIBUTES, _MARKS, _VALUES = (
    model.__table__
    for model in (TrialModel, TrialParamModel, TrialSystemAttributeModel, TrialUserAttributeModel, TrialValueModel)
)


# Made once: to make a statement takes as long as to run it.
_NEWER = select(func.count()).select_from(_TRIALS)
_NEWER = _NEWER.where(_TRIALS.c.study_id == bindparam("study"), _TRIALS.c.trial_id > bindparam("known"))
"""How many trials a study has after one with that key."""
_BEGUN = select(_TRIALS.c.number, _TRIALS.c.trial_id)
_BEGUN = _BEGUN.where(_TRIALS.c.study_id == bindparam("study"), _TRIALS.c.trial_id > bindparam("known"))
_BEGUN = _BEGUN.where(_TRIALS.c.state == TrialState.RUNNING, _TRIALS.c.datetime_start == bindparam("at"))
"""A trial that this driver has begun at that moment."""
_BEGIN = insert(_TRIALS).returning(_TRIALS.c.trial_id)
_END = update(_TRIALS).where(_TRIALS.c.trial_id == bindparam("trial"))
_END = _END.values(state=bindparam("ended"), datetime_complete=bindparam("at"))
_ADD_PARAMS, _ADD_ATTRIBUTES, _ADD_VALUES = insert(_PARAMS), insert(_ATTRIBUTES), insert(_VALUES)
_ADD_MARKS = insert(_MARKS)
_DROP_MARK = delete(_MARKS).where(_MARKS.c.trial_id == bindparam("trial"), _MARKS.c.key == bindparam("mark"))


class _Waiting:
    """Optuna's own storage; each of its calls goes through the one place that waits for a locked or lost store."""

    def __init__(self, database: Database, plain: RDBStorage) -> None:
        self._database, self._plain = database, plain

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._plain, name)
        return lambda *values, **named: self._database.attempt(lambda: call(*values, **named))


class _Kept(FrozenTrial):
    """A trial whose deep copy shares its distributions, which nobody changes: Optuna copies each trial that it is told
    of, and its distributions would take most of that time."""

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenTrial:
        others = {key: value for key, value in vars(self).items() if key != "_distributions"}
        made = copy.copy(self)
        vars(made).update(copy.deepcopy(others, memo), _distributions=dict(self.distributions))
        return made


class _Study:
    """What memory holds of a study. A trial in it is never changed, but replaced, as others may hold it."""

    def __init__(self, trials: list[FrozenTrial]) -> None:
        self.trials = trials
        """By number."""
        self.unfinished = {trial.number for trial in trials if not trial.state.is_finished()}
        self._distributions: dict[str, tuple[BaseDistribution, str]] = {}
        """By the parameter's name, with their JSON."""
        for trial in trials:
            for name, distribution in trial.distributions.items():
                self.text_of(name, distribution)

    def text_of(self, name: str, distribution: BaseDistribution) -> str:
        """The JSON of a parameter's distribution. Raises ValueError where the parameter had another kind before."""
        known, text = self._distributions.get(name, (None, ""))
        if known is not distribution:
            if known is not None:
                check_distribution_compatibility(known, distribution)
            text = distribution_to_json(distribution)
            self._distributions[name] = distribution, text
        return text

    def keep(self, trial: FrozenTrial) -> None:
        """A new trial, or a newer state of one."""
        if trial.number == len(self.trials):
            self.trials.append(trial)
        else:
            self.trials[trial.number] = trial
        if trial.state.is_finished():
            self.unfinished.discard(trial.number)
        else:
            self.unfinished.add(trial.number)


def _passed_on(name: str) -> Any:
    return lambda self, *values, **named: getattr(self._plain, name)(*values, **named)


class DriverStorage(BaseStorage):
    """Optuna's storage for one thread that is alone in changing the trials of its studies, as a driver is.

    Parameters and attributes of a running trial are in the database after `flush`, or with the trial's next state. A
    trial that another program adds is seen when the next one begins; other changes of theirs are not.
    """

    def __init__(self, database: Database, plain: RDBStorage) -> None:
        """`plain`: Optuna's storage in the same database, which does all that is rare."""
        self._database, self._plain = database, cast(RDBStorage, _Waiting(database, plain))
        self.engine: Engine = plain.engine
        """The engine of Optuna's own storage."""
        self._studies: dict[int, _Study] = {}
        self._places: dict[int, tuple[int, int]] = {}
        """(study, number) by the trial's key."""
        self._directions: dict[int, list[StudyDirection]] = {}
        self._pending: dict[Insert, list[dict[str, Any]]] = {}
        """Rows that are in memory only, by the statement that adds them."""
        self._writes = False  # a transaction of these was begun: Ctrl-C may come when it is committed

    def close(self) -> None:
        """Writes what is not written yet and closes Optuna's connections."""
        try:
            self.flush()
        finally:
            self._plain.remove_session()
            self.engine.dispose()

    def flush(self) -> None:
        """Writes the parameters and attributes that are in memory only."""
        if self._pending:
            self._write(lambda connection: None)

    def _write(self, more: Callable[[Connection], None]) -> None:
        """One transaction: what is in memory only, and more. Rows that are there already when it is tried again were
        written by the attempt whose connection was lost, or that was interrupted."""
        failed, self._writes = [True] * self._writes, True

        def change(connection: Connection) -> None:
            for statement, rows in self._pending.items():
                connection.execute(statement, rows)
            more(connection)

        try:
            self._database.write_plainly(change, lambda: failed.append(True))
        except IntegrityError:
            if not failed:
                raise
        self._pending, self._writes = {}, False

    # Memory -----------------------------------------------------------------------------------------------------

    def forget(self, study_name: str) -> None:
        """Has a study read again: since this process drove it last, another one may have. What could not be written
        then is dropped, as the trials that it is of may be another's."""
        self._pending = {}
        for study_id in self._studies:
            if self.get_study_name_from_id(study_id) == study_name:
                self._drop(study_id)
                return

    def _drop(self, study_id: int) -> None:
        self._studies.pop(study_id, None)
        self._places = {key: place for key, place in self._places.items() if place[0] != study_id}

    def _study(self, study_id: int) -> _Study:
        return self._studies.get(study_id) or self._read(study_id)

    def _read(self, study_id: int) -> _Study:
        self.flush()
        with self._database.records(KeyError, AttributeError):  # of Optuna's, in a row that it did not write
            found = self._plain.get_all_trials(study_id, deepcopy=False)
        study = self._studies[study_id] = _Study(found)
        self._places.update({trial._trial_id: (study_id, trial.number) for trial in study.trials})
        return study

    def _keep(self, study_id: int, trial: FrozenTrial) -> None:
        """Notes a trial as the database has it now; reads all when another program has added some before it."""
        study = self._study(study_id)
        if trial.number > len(study.trials):
            self._read(study_id)
            return
        self._places[trial._trial_id] = (study_id, trial.number)
        study.keep(trial)

    def _changing(self, trial_id: int) -> tuple[_Study, FrozenTrial]:
        """A trial's study and a copy of the trial, to be changed and kept. Raises UpdateFinishedTrialError."""
        trial = self.get_trial(trial_id)
        self.check_trial_is_updatable(trial_id, trial.state)
        return self._studies[self._places[trial_id][0]], copy.copy(trial)

    def _refresh(self, trial_id: int) -> None:
        """Reads a trial again, after Optuna's own storage has changed it."""
        self._keep(self._places[trial_id][0], self._plain.get_trial(trial_id))

    # Trials -----------------------------------------------------------------------------------------------------

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        self.flush()
        if template_trial is not None:
            trial_id = self._plain.create_new_trial(study_id, template_trial)
            self._keep(study_id, self._plain.get_trial(trial_id))
            return trial_id
        known = self._study(study_id).trials
        now = datetime.now(UTC)

        def begin(connection: Connection) -> tuple[int, int]:
            last = known[-1]._trial_id if known else 0
            begun = {"study": study_id, "known": last, "at": _naive(now)}
            lost = connection.execute(_BEGUN, begun).first()
            if lost is not None:  # by an attempt whose connection was lost
                return lost[0], lost[1]
            number = len(known) + (connection.scalar(_NEWER, {"study": study_id, "known": last}) or 0)
            row = {"number": number, "study_id": study_id, "state": TrialState.RUNNING}
            return number, connection.execute(_BEGIN, {**row, "datetime_start": _naive(now)}).scalar_one()

        number, trial_id = self._database.write_plainly(begin)
        nothing = dict.fromkeys(("value", "values", "datetime_complete"))
        empty = ("params", "distributions", "user_attrs", "system_attrs", "intermediate_values")
        more: dict[str, Any] = {**nothing, **{name: {} for name in empty}}
        began = _Kept(number=number, state=TrialState.RUNNING, datetime_start=_local(now), trial_id=trial_id, **more)
        self._keep(study_id, began)
        return int(trial_id)

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        value = distribution.to_external_repr(param_value_internal)
        self.set_trial_params(trial_id, {param_name: value}, {param_name: distribution})

    def set_trial_params(
        self, trial_id: int, params: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]
    ) -> None:
        """Several parameters of a trial at once, each with its distribution, which may hold others as well. Raises
        ValueError where a value or a distribution is not one that the parameter may have."""
        study, trial = self._changing(trial_id)
        rows = [
            {
                "trial_id": trial_id,
                "param_name": name,
                "param_value": distributions[name].to_internal_repr(value),
                "distribution_json": study.text_of(name, distributions[name]),
            }
            for name, value in params.items()
        ]
        trial.params = {**trial.params, **params}
        trial.distributions = {**trial.distributions, **{name: distributions[name] for name in params}}
        study.keep(trial)
        self._pending.setdefault(_ADD_PARAMS, []).extend(rows)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._set_attribute(_ADD_ATTRIBUTES, "system_attrs", trial_id, key, value)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._set_attribute(_ADD_MARKS, "user_attrs", trial_id, key, value)

    def _set_attribute(self, statement: Insert, of: str, trial_id: int, key: str, value: Any) -> None:
        study, trial = self._changing(trial_id)
        known = getattr(trial, of)
        if key in known:
            self.flush()
            getattr(self._plain, f"set_trial_{of.removesuffix('s')}")(trial_id, key, value)
            self._refresh(trial_id)
            return
        text = json.dumps(value)
        setattr(trial, of, {**known, key: json.loads(text)})
        study.keep(trial)
        self._pending.setdefault(statement, []).append({"trial_id": trial_id, "key": key, "value_json": text})

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        study, trial = self._changing(trial_id)
        if not state.is_finished():
            self.flush()
            changed = self._plain.set_trial_state_values(trial_id, state, values)
            self._refresh(trial_id)
            return changed
        now = datetime.now(UTC)

        def end(connection: Connection) -> None:
            if values is not None:
                stored = enumerate(map(TrialValueModel.value_to_stored_repr, values))
                names = ("trial_id", "objective", "value", "value_type")
                rows = [dict(zip(names, (trial_id, place, *each), strict=True)) for place, each in stored]
                connection.execute(_ADD_VALUES, rows)
            connection.execute(_END, {"trial": trial_id, "ended": state, "at": _naive(now)})

        self._write(end)
        trial.state, trial.datetime_complete = state, _local(now)
        trial.values = list(values) if values is not None else None
        study.keep(trial)
        return True

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        self._changing(trial_id)
        self.flush()
        self._plain.set_trial_intermediate_value(trial_id, step, intermediate_value)
        self._refresh(trial_id)

    def mark(self, study_name: str, marks: Mapping[int, Mapping[str, Any]]) -> None:
        """Sets attributes of the user on trials by their number, also on those that have ended, which Optuna itself
        refuses. A value None takes the attribute away. Studies and trials that Optuna does not have are left out."""
        self.flush()
        try:
            study_id = self._plain.get_study_id_from_name(study_name)
        except KeyError:
            return
        changes = [
            (trial._trial_id, key, value, key in trial.user_attrs)
            for trial in self._study(study_id).trials
            for key, value in marks.get(trial.number, {}).items()
            if trial.user_attrs.get(key) != value
        ]
        if not changes:
            return
        gone = [{"trial": trial, "mark": key} for trial, key, _, is_there in changes if is_there]
        new = [
            {"trial_id": trial, "key": key, "value_json": json.dumps(value)}
            for trial, key, value, _ in changes
            if value is not None
        ]

        def change(connection: Connection) -> None:
            for statement, rows in ((_DROP_MARK, gone), (_ADD_MARKS, new)):
                if rows:
                    connection.execute(statement, rows)

        self._write(change)
        self._read(study_id)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        study_id, number = self._places[trial_id]
        return self._studies[study_id].trials[number]

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        study = self._study(study_id)
        if states is None:
            found = list(study.trials)
        elif any(state in states for state in TrialState if state.is_finished()):
            found = [trial for trial in study.trials if trial.state in states]
        else:
            found = [study.trials[n] for n in sorted(study.unfinished) if study.trials[n].state in states]
        return copy.deepcopy(found) if deepcopy else found

    # Studies ----------------------------------------------------------------------------------------------------

    create_new_study = _passed_on("create_new_study")
    set_study_user_attr = _passed_on("set_study_user_attr")
    set_study_system_attr = _passed_on("set_study_system_attr")
    get_study_id_from_name = _passed_on("get_study_id_from_name")
    get_study_name_from_id = _passed_on("get_study_name_from_id")
    get_study_user_attrs = _passed_on("get_study_user_attrs")
    get_study_system_attrs = _passed_on("get_study_system_attrs")
    get_all_studies = _passed_on("get_all_studies")
    remove_session = _passed_on("remove_session")

    def delete_study(self, study_id: int) -> None:
        self.flush()
        self._plain.delete_study(study_id)
        self._drop(study_id)

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        if study_id not in self._directions:
            self._directions[study_id] = self._plain.get_study_directions(study_id)
        return self._directions[study_id]


def _naive(moment: datetime) -> datetime:
    """As Optuna's tables have times: UTC without a zone."""
    return moment.astimezone(UTC).replace(tzinfo=None)


def _local(moment: datetime) -> datetime:
    """As Optuna's trials have times: local, without a zone."""
    return moment.astimezone().replace(tzinfo=None)
