"""What a study is: rows of a table, each a config that is trained once per seed. Knows nothing of training."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from gcpsl.config import Config, override
from gcpsl.errors import ConfigError, nearest
from gcpsl.studies.measures import measure

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
OWN_SETTINGS = {
    "seed": "a study trains every row with its seeds: choose them with --seeds",
    "run.name": "a study names its runs itself: leave it out",
}


@dataclass(frozen=True)
class Row:
    """One line of a study's table. The config's seed doesn't count: a study trains it with seeds of its own."""

    name: str
    config: Config
    label: str = ""
    """As a legend has it; none is the name."""
    cells: tuple[str, ...] = ()
    """Under the study's headings; none is the label."""
    group: str = ""
    """The heading of the rows that this one stands among, where a table has such."""
    default: bool = True
    """Whether it is trained without being asked for by name."""

    @property
    def title(self) -> str:
        return self.label or self.name

    def seeded(self, seed: int) -> Config:
        """What is trained for one seed."""
        return override(self.config, f"seed={seed}")


@dataclass(frozen=True)
class Study:
    """Many runs that make a table: what it is about, its rows, and what is measured of each."""

    name: str
    about: str
    rows: tuple[Row, ...]
    measures: tuple[str, ...] = ("accuracy", "participation")
    """The table's columns, by names that `measures.measure` knows."""
    headings: tuple[str, ...] = ("Row",)
    seeds: tuple[int, ...] = (0, 1, 2)
    timed: bool = False
    """Whether seconds are measured: then runs that share a device would spoil each other's."""
    smoke: Callable[[Config], Config] | None = None
    """Makes of a row's config one that trains in a second or so, to see that everything works."""

    def __post_init__(self) -> None:
        _check_names(self)
        for row in self.rows:
            if row.cells and len(row.cells) != len(self.headings):
                raise ConfigError(
                    f"row '{row.name}' of the study '{self.name}' has {len(row.cells)} cells for "
                    f"{len(self.headings)} headings; give as many"
                )
        for name in self.measures:
            measure(name)

    def row(self, name: str) -> Row:
        found = next((row for row in self.rows if row.name == name), None)
        if found is None:
            hint = nearest(name, [row.name for row in self.rows])
            raise ConfigError(f"the study '{self.name}' has no row '{name}': {hint}")
        return found

    def cells(self, row: Row) -> tuple[str, ...]:
        """What stands under the headings."""
        return row.cells or (row.title, *[""] * (len(self.headings) - 1))

    def chosen(self, rows: Iterable[str] | None = None) -> tuple[Row, ...]:
        """The rows of these names, in the study's order; none are those that are trained by default."""
        if rows is None:
            return tuple(row for row in self.rows if row.default)
        names = {self.row(name).name for name in rows}
        return tuple(row for row in self.rows if row.name in names)

    def changed(self, *overrides: str) -> Study:
        """The same rows with `key=value` changes to every one."""
        for change in overrides:
            why_not = OWN_SETTINGS.get(change.partition("=")[0].strip())
            if why_not:
                raise ConfigError(f"'{change}' can't be given to a study; {why_not}")
        return self._mapped(lambda config: override(config, *overrides)) if overrides else self

    def only(self, rows: Iterable[str] | None) -> Study:
        """The same study with these rows alone, or those that are trained by default."""
        return replace(self, rows=self.chosen(rows))

    def smoked(self) -> Study:
        """The variant that shows in seconds that everything works; its numbers mean nothing."""
        if self.smoke is None:
            raise ConfigError(f"the study '{self.name}' has no smoke variant; leave --smoke out, or give it one")
        small = self._mapped(self.smoke)
        return replace(small, about=f"smoke variant: {self.about}", seeds=self.seeds[:1], smoke=None)

    def _mapped(self, change: Callable[[Config], Config]) -> Study:
        mapped: list[Row] = []
        wrong: dict[str, str] = {}
        for row in self.rows:
            try:
                mapped.append(replace(row, config=change(row.config)))
            except ConfigError as error:
                wrong[row.name] = str(error)
        if wrong:
            where = "" if len(wrong) == len(self.rows) else f"; so it is in {', '.join(wrong)}: choose other rows"
            raise ConfigError(f"{next(iter(wrong.values()))}{where}")
        return replace(self, rows=tuple(mapped))


def _check_names(study: Study) -> None:
    names = [row.name for row in study.rows]
    if not names:
        raise ConfigError(f"the study '{study.name}' has no rows; give it at least one")
    for name in (study.name, *names):
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"'{name}' in the study '{study.name}' can't be a name: use letters, digits, '-', '_' and '.', and "
                "begin with a letter or digit"
            )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ConfigError(f"the study '{study.name}' has two rows named '{twice}'; give each a name of its own")
    if not study.seeds or min(study.seeds) < 0 or len(set(study.seeds)) < len(study.seeds):
        raise ConfigError(f"seeds = {list(study.seeds)} of the study '{study.name}': give different ones from 0 up")
