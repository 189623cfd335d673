"""Problem: what is to be computed. The fields are the op's: each op has a subclass in its folder (ops/)."""

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import GetJsonSchemaHandler, ModelWrapValidatorHandler, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from autotuner.values.model import Model
from autotuner.values.validation import refuse, show, suggestion
from autotuner.values.variant import Value

Dtype = Literal["float32", "bfloat16", "float16"]
ITEM_BYTES: dict[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}

LONGEST = 2**31 - 1
"""A size, at most: what a variant's 32-bit index holds."""
LARGEST_BYTES = 1 << 40
"""The tensors of a problem together, at most; how much memory is here is asked later."""

SHORT = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32"}
"""Other names of element types, where a person writes them."""

Shape = tuple[int, ...]
"""The sizes that `Problem.DIMS` names, in that order."""


def doublings(one: int, other: int) -> float:
    """How many times the smaller of two numbers doubles until it is the larger."""
    return abs(math.log2(one / other))


class Problem(Model):
    """One call of an op: its sizes and its element type. No tensors here."""

    op: str
    dtype: Dtype

    DIMS: ClassVar[tuple[str, ...]] = ()
    """The fields that a variant is given when it is called, in the order of at_call.dim (kernels/abi/variant.h)."""
    COMPILED: ClassVar[tuple[str, ...]] = ()
    """The fields or properties, beside dtype, that are macros of a variant: one artifact serves one value of each."""
    SAME: ClassVar[Mapping[str, str]] = {}
    """Sizes at the end of DIMS that a shape may leave out, and the one each then equals."""
    ADDED: ClassVar[tuple[str, ...]] = ()
    """Fields that came later: a problem that has their defaults is the one that it was before there were any."""
    SCALARS: ClassVar[tuple[str, ...]] = ()
    """The names of `scalars`, in that order; those at its end may be left out there."""
    LENGTHS: ClassVar[tuple[str, ...]] = ()
    """The fields among DIMS that a variant may serve some values of only, or fix at compile time."""

    TIMES_AS_FAST: ClassVar[float] = 1.0
    """How many times as fast as its dtype a device multiplies what is read, where that has fewer bits."""

    FORM: ClassVar[str] = ""
    """How a problem is written in one line, as `str` writes it and `parse` reads it."""
    NOT_SERVED: ClassVar[Mapping[str, str]] = {}
    """What callers of such ops have and no problem has: its name, and what is the case instead."""

    find: ClassVar[Callable[[str], type[Self]]]
    """The subclass of an op. ops/ sets it; raises KeyError with the names there are."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """Floating-point operations of one call."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """The fewest bytes to move: each input read once, each output written once."""

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """The problem that is written in the form FORM. Raises ValueError with what was found and expected."""

    @classmethod
    def of_words(
        cls,
        text: str,
        sizes: Mapping[str, object],
        words: str,
        read: Callable[[str], Mapping[str, object]],
        names: Iterable[str],
    ) -> Self:
        """The problem that a text says by its sizes and the words behind them, the element type among them. `read` has
        the fields that another word says, none for one that it does not know; `names` are those that it knows. Raises
        ValueError."""
        fields, told = dict(sizes), dict[str, object]()
        for word in re.findall(r"[^\s,]+(?:,-?\d+|,$)?", words):
            name, dtype = word.partition("=")[0], SHORT.get(word.lower(), word.lower())
            cls.refuse_not_served([name.lower()])
            if dtype not in ITEM_BYTES and not (found := read(word)):
                known = [*ITEM_BYTES, *names, *cls.NOT_SERVED]
                hint = suggestion(word, known) or suggestion(name, known)
                raise ValueError(f"{show(text)}: unknown {show(word)}{hint}; the form is {cls.FORM}")
            said = {"dtype": dtype} if dtype in ITEM_BYTES else found
            if any(told.setdefault(name, value) != value for name, value in said.items()):
                raise ValueError(f"{show(text)}: {show(word)} contradicts a word before it")
            fields |= said
        if "dtype" not in fields:
            raise ValueError(
                f"{show(text)}: the dtype is missing; expected one of {', '.join(ITEM_BYTES)},"
                f" such as {show(f'{text.strip()} {next(iter(ITEM_BYTES))}')}"
            )
        return cls.model_validate(fields, strict=True)

    @classmethod
    def refuse_not_served(cls, names: Iterable[str]) -> None:
        """Raises ValueError for the first name that stands for something no problem has."""
        for name in names:
            if name in cls.NOT_SERVED:
                raise ValueError(f"{name} is not supported: {cls.NOT_SERVED[name]}")

    @property
    def scalars(self) -> tuple[float, ...]:
        """What a variant is given beside the sizes, in the order of at_call.scalar."""
        return tuple(float(getattr(self, name)) for name in self.SCALARS)

    @property
    def shape(self) -> Shape:
        """The sizes that DIMS names."""
        return tuple(getattr(self, name) for name in self.DIMS)

    @property
    def growing(self) -> tuple[str, ...]:
        """The lengths that are others at each call: what serves this problem is to serve all that are shorter."""
        return ()

    @property
    def short_shape(self) -> Shape:
        """The sizes that DIMS names, without those at the end that SAME implies."""
        shape = self.shape
        for name, size in zip(reversed(self.DIMS), reversed(self.shape), strict=True):
            if name not in self.SAME or size != getattr(self, self.SAME[name]):
                break
            shape = shape[:-1]
        return shape

    @classmethod
    def takes(cls, shape: Shape) -> bool:
        """Whether a shape has as many sizes as it must."""
        return len(cls.DIMS) - len(cls.SAME) <= len(shape) <= len(cls.DIMS)

    def sized(self, shape: Shape) -> Self:
        """The same problem with other sizes. Raises ValueError when their number is another."""
        if not self.takes(shape):
            raise ValueError(f"found {len(shape)} sizes, expected {', '.join(self.DIMS)}")
        sizes = dict(zip(self.DIMS, shape, strict=False))
        sizes |= {name: sizes[like] for name, like in self.SAME.items() if name not in sizes}
        return self.model_copy(update=sizes)

    def cased(self, shape: Shape) -> Self:
        """A problem of other sizes to judge a variant of this one on: what a variant is given when it is called, and
        would do nothing at such sizes, is as much smaller."""
        return self.sized(shape)

    @property
    def identity(self) -> dict[str, Any]:
        """The fields by which the problem is known, for digests: those of ADDED only where they are not the default."""
        document = self.model_dump(mode="json")
        fields = type(self).model_fields
        for name in self.ADDED:
            usual = fields[name].get_default(call_default_factory=True, validated_data=document)
            if document[name] == usual:
                del document[name]
        return document

    @property
    def compiled(self) -> dict[str, Value]:
        """Name and value of each macro that the problem gives: DTYPE, and the fields that COMPILED names."""
        values = {name.upper(): getattr(self, name) for name in ("dtype", *self.COMPILED)}
        return {name: each if isinstance(each, str) else int(each) for name, each in values.items()}

    @property
    def lengths(self) -> dict[str, int]:
        """The lengths by the names they have as macros and as facts."""
        return {name.upper(): getattr(self, name) for name in self.LENGTHS}

    def facts(self) -> dict[str, Value | bool]:
        """What constraints and domains may say about the problem: the fields but op, and COMPILED, in capitals. They
        are over whole numbers and words, and no kernel depends on another number."""
        known = {name.upper(): getattr(self, name) for name in self.fact_names()}
        return {name: value for name, value in known.items() if not isinstance(value, float)}

    @classmethod
    def fact_names(cls) -> tuple[str, ...]:
        """Those, as they are written here."""
        return tuple(dict.fromkeys(name for name in (*cls.model_fields, *cls.COMPILED) if name != "op"))

    def fixed_in(self, macros: Mapping[str, str]) -> dict[str, int]:
        """The lengths that an artifact with these macros is compiled for, by macro; empty when it serves any."""
        return {name: int(macros[name]) for name in self.lengths if name in macros}

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_op(cls, document: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """A document becomes the subclass of its op."""
        if cls is not Problem or not isinstance(document, Mapping):
            if isinstance(document, Mapping):
                cls.refuse_not_served(document)
            return handler(document)
        try:
            kind = Problem.find(str(document.get("op")))
        except KeyError as error:
            raise refuse(str(error.args[0])) from None
        return kind.model_validate(document, strict=True)  # type: ignore[return-value]

    @model_validator(mode="after")
    def _of_a_size_that_can_be(self) -> Self:
        for name, size in zip(self.DIMS, self.shape, strict=True):
            if size > LONGEST:
                raise refuse(f"{name} is {size}, expected at most {LONGEST}")
        if self.bytes > LARGEST_BYTES:
            raise refuse(f"its tensors have {self.bytes:,} bytes, expected at most {LARGEST_BYTES:,}")
        return self

    @model_serializer(mode="plain")
    def _every_field(self) -> dict[str, Any]:
        """The subclass's fields too: pydantic would write those of the annotation."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """An object whose fields are the op's."""
        return {
            "type": "object",
            "title": "Problem",
            "description": "What is computed: op, dtype and the fields of the op.",
            "properties": {"op": {"type": "string"}, "dtype": {"type": "string"}},
            "required": ["op", "dtype"],
        }
