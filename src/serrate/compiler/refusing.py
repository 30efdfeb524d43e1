"""Refusing: errors that name the line of the user's program which asked for what a trace cannot know."""

from __future__ import annotations

import linecache
import sys
import traceback
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

import torch

from serrate.errors import TracerError

OURS = str(Path(__file__).resolve().parents[1])
_TORCH = str(Path(torch.__file__).resolve().parent)
_Error = TypeVar("_Error", bound=BaseException)
_FUNCTION = torch.autograd.Function.apply.__code__.co_filename


NOTED: ContextVar[list[BaseException] | None] = ContextVar("serrate refusals", default=None)
"""What ends the trace of this thread, also where the user's function catches it: no other branch is the right one."""


def note(error: _Error) -> _Error:
    """An error that ends the trace in any case."""
    noted = NOTED.get()
    if noted is not None:
        noted.append(error)
    return error


def is_users_frame(frame: FrameType | None) -> bool:
    """Whether a frame, or the one that asks in its place for classes, is of the user's program."""
    while frame is not None and frame.f_code.co_filename.startswith("<frozen"):
        frame = frame.f_back
    return frame is not None and not frame.f_code.co_filename.startswith((OURS, _TORCH, "<serrate", "<string>"))


def users_line() -> tuple[str, int, str]:
    """The file, the number and the text of the line of the user's program that runs now."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if not file.startswith((OURS, _TORCH, "<serrate")) and file != "<string>":
            break
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno, linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()


def is_users_own(error: BaseException) -> bool:
    """Whether an error was raised by a line of the user's program itself, and not by what it called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and not trace.tb_frame.f_code.co_filename.startswith((OURS, _TORCH, "<serrate"))


def is_inside_of_a_function_of_autograd() -> bool:
    """Whether the `forward` of a `torch.autograd.Function` runs now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "apply" and frame.f_code.co_filename == _FUNCTION:
            return True
        frame = frame.f_back
    return False


def refuse(what: str, instead: str) -> NoReturn:
    """Raise a `TracerError` at the user's line."""
    file, number, text = users_line()
    shown = f": {text}" if text else ""
    raise note(TracerError(f"{what} inside of a function that sr.jit traces ({file}:{number}{shown}); {instead}"))


def refuse_at(error: BaseException, what: str, instead: str) -> NoReturn:
    """Raise a `TracerError` at the line of the user's that an error came from."""
    found = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith((OURS, _TORCH))]
    shown = f"{found[-1].filename}:{found[-1].lineno}: {found[-1].line}" if found else "a line that nobody knows"
    raise TracerError(f"{what} inside of a function that sr.jit traces ({shown}); {instead}") from error
