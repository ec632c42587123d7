"""JSON and safetensors files that may come from strangers, checked when they are read.

JSON is checked by a schema; the parser refuses more than 200 nested levels, numbers of thousands of digits and text
that is not Unicode. Tensors must have a bounded size and one of the types of networks.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from foster.errors import DataError, words_of
from foster.system.files import read_limited
from foster.system.memory import main_memory
from foster.system.output import printable

if TYPE_CHECKING:
    from torch import Tensor

Count = Annotated[int, Field(ge=0, lt=2**63)]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Words = Annotated[str, AfterValidator(printable)]
"""Text without characters that would move a terminal's cursor or change its colours."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

SHARE_OF_MEMORY = 1 / 128
"""The largest JSON file, as a share of the main memory. Its objects take up to 60 times the bytes of the file."""

Schema = TypeVar("Schema")


class Document(BaseModel):
    """The content of a file. Numbers are finite; unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class DocumentError(DataError):
    """A file cannot be read, is damaged or has the wrong content; `problem` is the message without the file's name."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"'{path}' {problem}")
        self.problem = problem


def read_json(path: Path, max_bytes: int) -> Any:
    """Plain data from a JSON file of at most `max_bytes`. Raises DocumentError; the cause may be an OSError."""
    try:
        return from_json(read_limited(path, min(max_bytes, int(SHARE_OF_MEMORY * main_memory()))))
    except OSError as error:
        raise DocumentError(path, f"cannot be read: {words_of(error)}") from error
    except ValueError as error:
        raise DocumentError(path, f"is damaged or cut short: it is not valid JSON ({error})") from None


def checked(data: Any, schema: type[Schema] | TypeAdapter[Schema], path: Path) -> Schema:
    """`data` from the file `path`, converted by the schema. Raises DocumentError with the first wrong place."""
    try:
        adapter = schema if isinstance(schema, TypeAdapter) else TypeAdapter(schema)
        return adapter.validate_python(data)
    except ValidationError as error:
        raise DocumentError(path, f"is damaged: {first_problem(error)}") from None


def first_problem(error: ValidationError) -> str:
    """The location and the reason of the first error, on one line of bounded length."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    key = ".".join(str(part)[:80] for part in first["loc"])
    message = " ".join(first["msg"].removeprefix("Value error, ").split())[:300]
    problem = "is missing" if first["type"] == "missing" else message
    return f"{key}: {problem}" if key else problem


def max_tensor_bytes() -> int:
    """The largest file of tensors that is read: half of the main memory, since tensors are made from its content."""
    return main_memory() // 2


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """The tensors of a safetensors file. Raises DocumentError if it cannot be read."""
    try:
        return tensors_in(read_limited(path, max_tensor_bytes()))
    except (OSError, ValueError) as error:
        raise DocumentError(path, f"cannot be read: {words_of(error)}") from None


def tensors_in(content: bytes) -> "dict[str, Tensor]":
    """The tensors in the content of a safetensors file. Raises ValueError if it is damaged, or has a type of numbers
    that our networks do not have, such as float8."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(content)
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"it is damaged: {error}") from None
    floats = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    integers = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
    for name, tensor in tensors.items():
        if tensor.dtype not in (*floats, *integers):
            wanted = ", ".join(str(each).removeprefix("torch.") for each in floats)
            raise ValueError(f"'{name[:80]}' is {tensor.dtype}; weights are {wanted}")
    return tensors
