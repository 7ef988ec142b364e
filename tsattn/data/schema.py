"""Which column plays which role, and what a panel remembers of the table it came from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tsattn.data.calendar import CALENDAR_FEATURES, Frequency, feature_names
from tsattn.errors import ConfigError, DataError, listed, unknown_name
from tsattn.typed import typed

CALENDAR = "calendar."
RESERVED = {"target", "forecast", "origin", "step", "actual", "model", "naive", "seasonal_naive", "horizon"}
RESERVED |= {"mae", "mse", "rmse", "smape", "mase", "rmsse", "weighted_quantile_loss"}
_RESERVED_FORMS = re.compile(r"(q|quantile_loss_)0?\.\d+|coverage_[\d.]+")


@dataclass(frozen=True)
class Roles:
    """The columns of a long table by role.

    ``known`` columns are known in the future as well; names of the form ``calendar.hour`` are computed from the
    stamps (in local time) and need no column. ``past`` columns are observed up to the origin only. ``static`` columns
    hold one value per series. ``id=None`` means a single series without an id column.
    """

    id: str | None = "unique_id"
    time: str = "ds"
    target: tuple[str, ...] = ("y",)
    known: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    static: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        id: str | None,
        time: str,
        target: str | Sequence[str],
        known: str | Sequence[str] = (),
        past: str | Sequence[str] = (),
        static: str | Sequence[str] = (),
    ) -> Roles:
        """Roles from names or lists of names; raises ConfigError when a column has two roles or a name is unknown."""
        roles = cls(id, time, _names(target), _names(known), _names(past), _names(static))
        for role in ("id", "time", "target", "known", "past", "static"):
            value = getattr(roles, role)
            for name in value if isinstance(value, tuple) else (value,):
                if not (isinstance(name, str) or (role == "id" and name is None)):
                    raise ConfigError(
                        f"The names of columns must be text, found {role}={name!r} ({type(name).__name__}). Rename the "
                        f"columns of the table, for example df.columns = df.columns.astype(str), and name that text."
                    )
        if not roles.target:
            raise ConfigError("No target: name at least one column to forecast.")
        for name in roles.calendar:
            if name not in CALENDAR_FEATURES:
                raise unknown_name("calendar feature", CALENDAR + name, [CALENDAR + n for n in CALENDAR_FEATURES])
        for column in (id, time):
            if column in RESERVED or _RESERVED_FORMS.fullmatch(str(column)):
                raise ConfigError(f"Tables of results have a column {column!r} of their own: rename it in your table.")
        seen: dict[str, str] = {}
        for role in ("id", "time", "target", "known", "past", "static"):
            value = getattr(roles, role)
            for name in (value,) if isinstance(value, str) else value or ():
                if name in seen:
                    raise ConfigError(f"Column {name!r} is both {seen[name]} and {role}; give it one role.")
                seen[name] = role
        return roles

    @property
    def calendar(self) -> tuple[str, ...]:
        """Names of the calendar features among ``known``, without their prefix."""
        return tuple(name.removeprefix(CALENDAR) for name in self.known if name.startswith(CALENDAR))

    @property
    def known_columns(self) -> tuple[str, ...]:
        """The ``known`` covariates that are columns of the table."""
        return tuple(name for name in self.known if not name.startswith(CALENDAR))

    @property
    def covariates(self) -> tuple[str, ...]:
        """Columns of the table that are read beside the target: past, known and static."""
        return (*self.past, *self.known_columns, *self.static)

    def columns(self) -> list[str]:
        """Every column the table must have."""
        head = [] if self.id is None else [self.id]
        return [*head, self.time, *self.target, *self.covariates]


@dataclass(frozen=True)
class Schema:
    """Roles, frequency and categories: enough to read another table the same way. Plain data, kept as JSON."""

    roles: Roles
    freq: Frequency
    time_unit: str  # "s", "ms", "us", "ns" (resolution of the stamps) or "integer"
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)  # categorical column -> labels, coded from 1

    @property
    def tz(self) -> str | None:
        """Zone of the stamps; None for naive stamps and integers."""
        return self.freq.tz

    @property
    def integer_time(self) -> bool:
        """Whether time is counted in integers."""
        return self.time_unit == "integer"

    def numeric(self, role: str) -> list[str]:
        """Names of the numeric covariates of ``past``, ``known`` (calendar pairs last) or ``static``."""
        if role == "known":
            plain = [name for name in self.roles.known_columns if name not in self.categories]
            return plain + feature_names(self.roles.calendar)
        return [name for name in getattr(self.roles, role) if name not in self.categories]

    def categorical(self, role: str) -> list[str]:
        """Names of the categorical covariates of a role."""
        return [name for name in getattr(self.roles, role) if name in self.categories]

    def sizes(self, role: str) -> tuple[int, ...]:
        """Number of codes of each categorical covariate of a role, the unknown code included."""
        return tuple(len(self.categories[name]) + 1 for name in self.categorical(role))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Schema:
        """Inverse of ``to_dict``; raises TypeError or ValueError where the data are no schema."""
        schema = typed(cls, data, "schema")
        if Roles.of(**asdict(schema.roles)) != schema.roles:
            raise ValueError(f"the roles are not in order: {schema.roles}")
        if Frequency.parse(schema.freq.alias, tz=schema.tz) != schema.freq:
            raise ValueError(f"the frequency {schema.freq.alias!r} is not {schema.freq}")
        if schema.time_unit not in ("s", "ms", "us", "ns", "integer"):
            raise ValueError(f"schema.time_unit must be s, ms, us, ns or integer, found {schema.time_unit!r}")
        if schema.integer_time != (schema.freq.kind == "integer"):
            raise ValueError(f"time in {schema.time_unit} does not go with the frequency {schema.freq.alias!r}")
        return schema


def require_no_duplicates(names: Sequence[str]) -> None:
    """Raises DataError when the table has two columns of one name."""
    twice = sorted((name for name, count in Counter(names).items() if count > 1), key=str)
    if twice:
        raise DataError(f"The table has more than one column named {listed(map(repr, twice))}. Keep one of each.")


def _names(value: str | Iterable[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
