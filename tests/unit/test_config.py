"""Settings are validated once, and a mistake is answered with the nearest valid name."""

from __future__ import annotations

from pathlib import Path

import pytest

from gcpsl import config as configs
from gcpsl.config import Config
from gcpsl.errors import ConfigError


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("scheduel.workloads=3", "unknown setting 'scheduel.workloads': did you mean 'schedule.workloads'?"),
        ("workloads=3", "did you mean 'schedule.workloads'?"),
        ("schedule.worklods=3", "did you mean 'schedule.workloads'?"),
        ("clusters=3", "unknown setting 'clusters'"),
        ("optimizer.lr=-1", "optimizer.lr = -1: must be above 0"),
        ("optimizer.lr=nan", "optimizer.lr = NaN: must be finite"),
        ("schedule.draw=everyone", "schedule.draw = \"everyone\": must be 'cluster' or 'all'"),
        ("schedule.synchronise=often", "schedule.synchronise = \"often\": must be 'epoch', 'step' or 'never'"),
        ("schedule.synchronise=0", "schedule.synchronise = 0: must be 'epoch', 'step' or 'never', or must"),
        ("schedule.synchronise=true", "schedule.synchronise = true"),
        ("schedule=3", "schedule = 3"),
        ("seed.x=1", "seed"),
        ("train.epochs=1.5", "train.epochs = 1.5"),
        ("train.epochs=", "train.epochs"),
        ("partition.kind=file", "needs partition.file"),
        ("optimizer.momentum=0", "optimizer.nesterov = true needs optimizer.momentum above 0"),
        ("schedule.workloads=65", "more than partition.clients = 64"),
        ("train", "write key=value"),
        ("train.epochs=true", "train.epochs = true: must be a value, not true or false"),
        ("seed=true", "seed = true: must be"),
        ("run.targets=90", "run.targets = 90: must be a list, as in [90, 95]"),
        ("run.targets=[90, 150]", "run.targets = 150: must be at most 100"),
        ("run.name=a/b", "must be the name of a folder"),
        ("data=3", "data = 3: is a section"),
        ("schedule.synchronise=epoc", "did you mean 'epoch'?"),
        ("run.root=", "write key=value"),
        ("clustering.speeds=[1, 1]", "clustering.speeds has 2 speeds and schedule.workloads = 4: give one speed per"),
        ("clustering.speeds=[]", "clustering.speeds has 0 speeds"),
        ("clustering.speeds=[1, 1, 0, 1]", "clustering.speeds = 0: must be at least 1e-06"),
        ("clustering.speeds=[1, 1, -2, 1]", "clustering.speeds = -2: must be at least 1e-06"),
        ("clustering.speeds=[1, 1, inf, 1]", "clustering.speeds = Infinity: must be finite"),
        ("clustering.speeds=2", "clustering.speeds = 2: must be a list"),
        ("=3", "write key=value"),
    ],
)
def test_a_wrong_override_names_the_setting_and_what_is_allowed(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configs.load(None, [override])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("clustering.rule=random", "'random' deals clients out blindly and can't heed clustering.speeds; use 'size_ba"),
        ("schedule.draw=all", "clustering.speeds needs schedule.draw = 'cluster': with 'all' there are no clusters"),
        ("schedule.workloads=3", "has 4 speeds and schedule.workloads = 3"),
    ],
)
def test_speeds_that_nothing_would_heed_are_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configs.load(None, ["clustering.speeds=[1, 1, 1, 0.5]", override])
    assert message in str(caught.value)


def test_one_wrong_value_is_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        configs.load(None, ["schedule.synchronise=often"])
    assert str(caught.value).count("\n") == 0


def test_several_mistakes_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        configs.load(None, ["train.epochs=0", "optimizer.lr=0"])
    assert "train.epochs" in str(caught.value)
    assert "optimizer.lr" in str(caught.value)


def test_a_setting_below_a_plain_value_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("seed = 3\n")
    with pytest.raises(ConfigError, match="'seed' has no settings below it"):
        configs.load(tmp_path / "run.toml", ["seed.x=1"])


def test_overrides_are_toml_values_or_plain_strings() -> None:
    config = configs.load(
        None, ["run.targets=[85, 88.5]", "data.flip=true", "model.cut=layer1.0", "run.name=none", "run.root=/a b/c"]
    )
    assert config.run.targets == (85.0, 88.5)
    assert config.data.flip
    assert config.model.cut == "layer1.0"
    assert config.run.name is None
    assert config.run.root == Path("/a b/c")


def test_files_and_presets_are_read_and_overridden(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("seed = 3\n[schedule]\nworkloads = 8\n")
    config = configs.load(tmp_path / "run.toml", ["schedule.batch_size=4"])
    assert (config.seed, config.schedule.workloads, config.schedule.batch_size) == (3, 8, 4)
    for name in configs.presets():
        assert isinstance(configs.load(name), Config)
    assert configs.load("quickstart") == Config()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a = [", "not valid TOML"), (b"\xff\xfe", "save it as UTF-8"), (None, "and no preset of that name")],
)
def test_an_unreadable_file_is_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        configs.load(path)


def test_the_resolved_file_reads_back_to_the_same_for_every_setting(tmp_path: Path) -> None:
    odd = configs.load(
        None,
        [
            'run.name="a \\"quoted\\" näme 🚀\\u007f"',
            "run.targets=[1e-5]",
            'run.track=["tensorboard"]',
            "schedule.synchronise=7",
            "optimizer.lr=1e-7",
            "runtime.threads=3",
            "clustering.speeds=[1, 0.5, 3, 1]",
        ],
    )
    (tmp_path / "config.toml").write_text(configs.to_toml(odd))
    assert configs.load(tmp_path / "config.toml") == odd


def test_override_validates_again() -> None:
    assert configs.override(Config(), "seed=5").seed == 5
    with pytest.raises(ConfigError):
        configs.override(Config(), "seed=-5")


def test_every_setting_says_what_it_means() -> None:
    for key, section, name in configs.settings():
        assert section.model_fields[name].description, key


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(b"\xef\xbb\xbfseed = 3\n")
    assert configs.load(tmp_path / "run.toml").seed == 3
