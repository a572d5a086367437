"""The run folder: never written over, never torn, and readable by anything that reads files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gcpsl import config as configs
from gcpsl.config import Config
from gcpsl.errors import RunError
from gcpsl.runs import Checkpoint, RunFolder, list_runs, write_atomically


def checkpoint(value: float) -> Checkpoint:
    return Checkpoint({"0.client.parameters": torch.full((5,), value)}, {"records": [], "at": value})


@pytest.fixture
def folder(small: Callable[..., Config]) -> RunFolder:
    return RunFolder.create(small("run.name=one"), {"python": "3"})


def test_the_resolved_config_reads_back_to_the_same(folder: RunFolder) -> None:
    assert folder.config().partition.clients == 8
    assert configs.load(folder.path / "config.toml") == folder.config()


def test_an_existing_run_is_never_written_over(folder: RunFolder) -> None:
    with pytest.raises(RunError, match="exists already"):
        RunFolder.create(folder.config(), {})


def test_runs_started_in_the_same_second_get_folders_of_their_own(small: Callable[..., Config]) -> None:
    names = {RunFolder.create(small(), {}).name for _ in range(3)}
    assert len(names) == 3


def test_a_root_that_is_a_file_is_refused(small: Callable[..., Config], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="can't create the run folder"):
        RunFolder.create(small(f"run.root={tmp_path / 'file'}"), {})


def test_opening_what_is_no_run_names_the_nearest_one(folder: RunFolder) -> None:
    assert RunFolder.open(folder.path).name == "one"
    with pytest.raises(RunError, match="did you mean 'one'"):
        RunFolder.open(folder.path.with_name("onne"))
    with pytest.raises(RunError, match="no runs there yet"):
        RunFolder.open(folder.path / "checkpoints" / "x")


def save(folder: RunFolder, rounds: int, ranks: int = 1) -> None:
    """A checkpoint of as many shards, in which rank r has a tensor of workload r."""
    made = checkpoint(rounds)
    shards = [{f"{rank}.{name[2:]}": tensor for name, tensor in made.tensors.items()} for rank in range(ranks)]
    digests = [folder.save_shard(rounds, rank, ranks, shard) for rank, shard in enumerate(shards)]
    folder.complete_checkpoint(rounds, digests, made.meta)


def load(folder: RunFolder) -> Checkpoint | None:
    name = folder.newest_checkpoint()
    return None if name is None else folder.load_checkpoint(name)


def test_the_newest_checkpoint_is_read_and_only_two_are_kept(folder: RunFolder) -> None:
    assert load(folder) is None
    for rounds in (5, 10, 15):
        save(folder, rounds)
    loaded = load(folder)
    assert loaded is not None
    assert loaded.meta["at"] == 15
    assert torch.equal(loaded.tensors["0.client.parameters"], torch.full((5,), 15.0))
    assert len(list((folder.path / "checkpoints").iterdir())) == 2
    folder.drop_checkpoints()
    assert load(folder) is None


def test_every_rank_reads_what_it_wants_of_all_shards(folder: RunFolder) -> None:
    save(folder, 7, ranks=3)
    name = folder.newest_checkpoint()
    assert name is not None
    own = folder.load_checkpoint(name, lambda key: key.startswith("2."))
    assert list(own.tensors) == ["2.client.parameters"]
    assert len(folder.load_checkpoint(name).tensors) == 3


NO_META = (2).to_bytes(8, "little") + b"{}"


@pytest.mark.parametrize("damage", [b"", b"nonsense that is no tensor file", NO_META, None])
@pytest.mark.parametrize("file", ["1-of-2.safetensors", "manifest.json"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(folder: RunFolder, file: str, damage: bytes | None) -> None:
    save(folder, 1, ranks=2)
    save(folder, 2, ranks=2)
    target = max((folder.path / "checkpoints").iterdir()) / file
    target.write_bytes(target.read_bytes()[:-3] if damage is None else damage)
    loaded = load(folder)
    assert loaded is not None
    assert loaded.meta["at"] == 1


def test_a_checkpoint_counts_only_with_all_of_its_shards(folder: RunFolder) -> None:
    save(folder, 1, ranks=2)
    save(folder, 2, ranks=2)
    (max((folder.path / "checkpoints").iterdir()) / "0-of-2.safetensors").unlink()
    folder.save_shard(3, 0, 2, checkpoint(3).tensors)
    loaded = load(folder)
    assert loaded is not None
    assert loaded.meta["at"] == 1
    save(folder, 4, ranks=2)
    assert sorted(entry.name[-1] for entry in (folder.path / "checkpoints").iterdir()) == ["2", "4"]


def test_when_no_checkpoint_can_be_read_the_error_names_them(folder: RunFolder) -> None:
    save(folder, 1)
    next((folder.path / "checkpoints").glob("*/*.safetensors")).write_bytes(b"")
    with pytest.raises(RunError, match=r"no checkpoint in .* can be read"):
        load(folder)


def test_a_torn_last_line_of_the_log_does_not_count(folder: RunFolder) -> None:
    assert folder.epochs() == []
    folder.log_epoch({"epoch": 1})
    with (folder.path / "epochs.jsonl").open("a") as log:
        log.write('{"epoch": 2, "lo')
    assert folder.epochs() == [{"epoch": 1}]
    folder.keep_epochs([{"epoch": 1}])
    folder.log_epoch({"epoch": 2})
    assert folder.epochs() == [{"epoch": 1}, {"epoch": 2}]


def test_a_damaged_json_file_is_an_error_that_names_it(folder: RunFolder) -> None:
    assert folder.read_json("summary.json") is None
    (folder.path / "summary.json").write_text("{")
    with pytest.raises(RunError, match=r"summary\.json' is damaged"):
        folder.read_json("summary.json")


def test_only_one_process_trains_in_a_folder(folder: RunFolder) -> None:
    assert not folder.is_running()
    with folder.locked():
        assert folder.is_running()
        with pytest.raises(RunError, match="another process"), folder.locked():
            pass
    assert not folder.is_running()


def test_models_carry_what_they_are(folder: RunFolder) -> None:
    folder.save_model("model", {"fc.weight": torch.ones(2, 3).t()}, {"epoch": "3"})
    raw = (folder.path / "model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert header["__metadata__"] == {"about": '{"epoch": "3"}'}
    assert header["fc.weight"]["shape"] == [3, 2]


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunError, match="no space left on device; mend that"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_runs_are_listed_oldest_first(small: Callable[..., Config]) -> None:
    made = [RunFolder.create(small(f"run.name={name}"), {}) for name in ("b", "a")]
    assert [run.name for run in list_runs(made[0].path.parent)] == ["b", "a"]


def test_what_the_disk_refuses_is_an_error_that_names_the_file(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.path / "epochs.jsonl").mkdir()
    with pytest.raises(RunError, match=r"can't write '.*epochs\.jsonl'"):
        folder.log_epoch({"epoch": 1})


def test_a_missing_checkpoints_folder_is_made_again(folder: RunFolder) -> None:
    (folder.path / "checkpoints").rmdir()
    save(folder, 1)
    assert load(folder) is not None


def test_a_damaged_log_or_a_config_of_another_version_is_an_error_that_names_the_file(folder: RunFolder) -> None:
    (folder.path / "epochs.jsonl").write_text("garbage\n")
    with pytest.raises(RunError, match=r"epochs\.jsonl' is damaged"):
        folder.epochs()
    (folder.path / "config.toml").write_text("[data]\nnewkey = 1\n")
    with pytest.raises(RunError, match=r"config\.toml' can't be used by this version: unknown setting"):
        folder.config()


def test_numbers_that_are_none_never_reach_a_file(folder: RunFolder) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        folder.log_epoch({"loss": float("nan")})
