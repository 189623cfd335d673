"""The JSON schemas that docs/ has: of the report on a trial, and of best.json."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import DataclassField, FloatSchema, ModelField, TypedDictField

from autotuner.serve.best import BestConfiguration
from autotuner.tuning.trial_report import TrialReport


class AsWritten(GenerateJsonSchema):
    """Every field is written, and since JSON has no infinity and no NaN, a number that may be one of these as null."""

    def field_is_required(self, field: ModelField | DataclassField | TypedDictField, total: bool) -> bool:
        return True

    def float_schema(self, schema: FloatSchema) -> JsonSchemaValue:
        found = super().float_schema(schema)
        return found if schema.get("allow_inf_nan") is False else {**found, "type": ["number", "null"]}


def of_trial_report() -> dict[str, Any]:
    """Of the report as the command line writes it."""
    found = TrialReport.model_json_schema(schema_generator=AsWritten, mode="serialization")
    return {"$schema": GenerateJsonSchema.schema_dialect, **found}


def of_best() -> dict[str, Any]:
    """Of best.json."""
    found = BestConfiguration.model_json_schema(mode="serialization")
    return {"$schema": GenerateJsonSchema.schema_dialect, **found}
