"""What is wrong with a document, in one line that its author can act on."""

import tomllib
from typing import Annotated, Literal, Self

import pytest
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from autotuner.forge.family import FamilyDocument
from autotuner.values.model import Model
from autotuner.values.validation import explanation, refuse
from tests.helpers.files import refusals


class Problem(Model):
    batch: int = Field(ge=1)
    dtype: Literal["float32", "bfloat16"] = "float32"
    op: str = "rows"


class Limit(Model):
    when: str
    reason: str = Field(min_length=1)


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class Document(Model):
    title: str
    problems: Annotated[tuple[Problem, ...], BeforeValidator(_tuple)] = Field(min_length=1)
    tables: dict[str, Limit] = Field(default_factory=dict)
    limits: list[Limit] = Field(default_factory=list)
    threads: int | Literal["all"] = "all"
    extra: Limit | None = None
    tries: int = 1

    @field_validator("tries")
    @classmethod
    def _few(cls, tries: int) -> int:
        if tries > 9:
            raise ValueError("found more than 9,\n expected fewer")
        return tries

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.title == "none":
            raise refuse("found no title, expected one", "head.title")
        return self


def said(text: str, hidden: tuple[str, ...] = ()) -> str:
    """What is said of a document that is whole but for the given text."""
    keys = {line.partition(" ")[0] for line in text.splitlines()}
    whole = [line for line in ('title = "x"', "problems = [{batch = 1}]") if line.partition(" ")[0] not in keys]
    with pytest.raises(ValidationError) as caught:
        Document.model_validate(tomllib.loads("\n".join([*whole, text])), strict=True)
    return explanation(caught.value, Document, hidden)


@pytest.mark.parametrize(("text", "line"), refusals("document"))
def test_a_complaint_is_one_line_with_key_found_and_expected(text: str, line: str) -> None:
    assert said(text) == line.replace("() ,", "(),")


def test_a_misspelt_key_is_named_before_the_one_that_it_leaves_missing() -> None:
    """Pydantic lists the missing one first."""
    with pytest.raises(ValidationError) as caught:
        Document.model_validate({"titel": "x", "problems": ({"batch": 1},)})
    assert explanation(caught.value, Document) == "titel: unknown key; did you mean title?"


def test_a_kernel_document_is_explained_to_its_innermost_table() -> None:
    table = '[cpu.plain]\nsource = "a.cpp"\ndtypes = ["float32"]\nhead_dims = [64]\n'
    effect = '[[cpu.plain.asserts]]\nreason = "r"\n'

    def line(more: str) -> str:
        document = tomllib.loads(f'family = "f"\nop = "sdpa"\n{table}{more}')
        with pytest.raises(ValidationError) as caught:
            FamilyDocument.model_validate(document)
        return explanation(caught.value, FamilyDocument).removeprefix("devices.")

    assert line('flag = ["-O3"]\n') == "cpu.plain.flag: unknown key; did you mean flags?"
    assert line(f'{effect}contain = "x"\n') == "cpu.plain.asserts[0].contain: unknown key; did you mean contains?"
    assert line("[[cpu.plain.asserts]]\n") == "cpu.plain.asserts[0].reason: missing; this key is required"
    assert line("host = 3\n") == "cpu.plain.host: found 3, expected a string"
