"""Lightning comes under two package names whose classes do not mix; say so instead of failing strangely.

``pytorch_lightning`` and ``lightning.pytorch`` hold the same code twice. A Trainer of the second asks ``isinstance`` of
its own classes, gets False for ours, and then complains about something else. ``isinstance`` consults ``__class__``
just before it gives up, which is the one moment to name the cause.
"""

from __future__ import annotations

import sys
from typing import Any


def refuse_other_package(thing: object, role: str) -> None:
    """Raises TypeError when ``thing`` comes from ``lightning.pytorch``; the message names both imports."""
    if type(thing).__module__.startswith("lightning."):
        raise TypeError(_message(f"this {role} ({type(thing).__name__})"))


class OnePackage:
    """Mixin: an object that a Trainer of ``lightning.pytorch`` refuses with a message that names both imports."""

    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.startswith("lightning.pytorch."):
            raise TypeError(_message("this Trainer"))
        return type(self)


def _message(what: str) -> str:
    return (
        f"tsattn is built on 'pytorch_lightning', {what} comes from 'lightning.pytorch': the same code under another "
        f"name, whose classes do not mix. Use: import pytorch_lightning as pl."
    )
