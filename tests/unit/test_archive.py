"""Closed groups on disk: kept within bounds, readable while they are written and after any death, found in a moment."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from broker.archive import Archive, closed_groups
from broker.archive_index import NAME, GroupIndex
from broker.codec import encode_group
from broker.errors import Misconfigured
from broker.messages import Delivery, Entry, Group
from tests.contract.broker_world import group, judged, rolled


def delivery(name: str, stream: str = "scored", **said: object) -> Delivery:
    entry = Entry(group=name, kind="train", task="story", size=2, floor=3, last_version=4)
    return Delivery(stream=stream, entry_id="1764518400000-0", entry=replace(entry, **said))  # pyright: ignore[reportArgumentType]


def whole(name: str, *, version: int = 3, prompt: str = "", rewards: tuple[float, ...] = (0.0, 1.0)) -> Group:
    found = judged(rolled(group(name), at=version))
    assert found.scores is not None
    scores = replace(found.scores, rewards=np.array(rewards, np.float32))
    return replace(found, prompt=replace(found.prompt, text=prompt or found.prompt.text), scores=scores)


def trained(archive: Archive, found: Group, version: int = 4) -> None:
    advantages = np.array([-1, 1], np.float32)
    archive.append(found, delivery(found.id), fate="trained", version=version, advantages=advantages)


def index_of(folder: Path) -> GroupIndex:
    index = GroupIndex(folder)
    index.refresh()
    return index


def test_what_was_closed_is_read_again_with_its_end(tmp_path: Path) -> None:
    archive = Archive(tmp_path, "trainer-0")
    entry = delivery("story/0/1", attempt=2, trace="prompts 1764518399000 rollout-0.1 forwarded")
    archive.append(whole("story/0/1"), entry, fate="trained", version=4, advantages=np.array([-1, 1], np.float32))
    [found] = closed_groups(tmp_path)
    assert (found.fate, found.version, found.by, found.stage) == ("trained", 4, "trainer-0", "scored")
    assert found.entry == entry.entry and found.entry_id == entry.entry_id
    assert found.advantages is not None and found.advantages.tolist() == [-1, 1]
    assert found.group.rollouts is not None and found.group.rollouts.texts == ("text 0", "text 1")


def test_a_file_is_read_while_it_grows(tmp_path: Path) -> None:
    archive, index = Archive(tmp_path, "trainer-0"), GroupIndex(tmp_path)
    for number in range(3):
        trained(archive, whole(f"story/0/{number}"))
        assert index.refresh() == 1
        assert len(list(closed_groups(tmp_path))) == number + 1
        assert index.read(f"story/0/{number}") is not None
    assert index.refresh() == 0


def test_a_batch_archived_at_once_is_read_group_by_group(tmp_path: Path) -> None:
    archive, index = Archive(tmp_path, "trainer-0"), GroupIndex(tmp_path)
    prompts = [random.Random(number).randbytes(60_000).hex() for number in range(8)]  # two or three fill a frame
    batch = [whole(f"story/0/{number}", prompt=prompt) for number, prompt in enumerate(prompts)]
    credit = [np.array([number, -number], np.float32) for number in range(8)]
    packed, taken = [encode_group(one) for one in batch], [delivery(one.id) for one in batch]
    archive.append_trained(batch, packed, taken, credit, version=4)
    assert index.refresh() == 8
    for number in (6, 0, 7):
        found = index.read(f"story/0/{number}")
        assert found is not None and found.group.prompt.text == prompts[number]
        assert (found.fate, found.version, found.stage) == ("trained", 4, "scored")
        assert found.advantages is not None and found.advantages.tolist() == [number, -number]
    archive.withdraw("story/0/3")
    assert "story/0/3" not in {one.group.id for one in closed_groups(tmp_path)}


def test_a_file_goes_on_across_frames(tmp_path: Path) -> None:
    archive, index = Archive(tmp_path, "trainer-0"), GroupIndex(tmp_path)
    prompts = [random.Random(number).randbytes(60_000).hex() for number in range(12)]  # two or three fill a frame
    for number, prompt in enumerate(prompts):
        trained(archive, whole(f"story/0/{number}", prompt=prompt))
        assert index.refresh() == 1
    assert [one.group.prompt.text for one in closed_groups(tmp_path)] == prompts
    for number in (7, 0, 11):
        found = index.read(f"story/0/{number}")
        assert found is not None and found.group.prompt.text == prompts[number]


def test_a_writer_killed_in_the_middle_spoils_nothing(tmp_path: Path) -> None:
    first = Archive(tmp_path, "trainer-0")
    for number in range(3):
        trained(first, whole(f"story/0/{number}"))
    [path] = tmp_path.glob("*.zst")
    path.write_bytes(path.read_bytes()[:-5])
    again = Archive(tmp_path, "trainer-0")
    trained(again, whole("story/0/9"))
    assert [one.group.id for one in closed_groups(tmp_path)] == ["story/0/0", "story/0/1", "story/0/9"]
    assert index_of(tmp_path).ids() == ["story/0/0", "story/0/1", "story/0/9"]


def test_a_damaged_file_is_said_and_costs_only_what_follows_in_it(tmp_path: Path) -> None:
    for process in ("reward-0", "trainer-0"):
        archive = Archive(tmp_path, process)
        trained(archive, whole(process))
        archive.close()
    path = tmp_path / "reward-0.000001.zst"
    path.write_bytes(b"\0" * 40 + path.read_bytes()[40:])
    with capture_logs() as logs:
        assert [one.group.id for one in closed_groups(tmp_path)] == ["trainer-0"]
    assert any(line["file"] == path.name and "damaged" in line["event"] for line in logs)
    assert index_of(tmp_path).ids() == ["trainer-0"]


def test_the_oldest_files_go_when_the_room_is_full_and_it_is_said(tmp_path: Path) -> None:
    archive = Archive(tmp_path, "trainer-0", limit_mb=16)
    index, seed = GroupIndex(tmp_path), 5
    with capture_logs() as logs:
        for number in range(60):
            noise = random.Random(seed + number).randbytes(400_000).hex()
            trained(archive, whole(f"story/0/{number}", prompt=noise))
            index.refresh()
    assert sum(path.stat().st_size for path in tmp_path.glob("*.zst")) <= 17 * 1024 * 1024
    assert {line["event"] for line in logs} == {"the oldest closed groups were deleted: the archive is full"}
    left = [one.group.id for one in closed_groups(tmp_path)]
    assert 10 < len(left) < 50 and left[-1] == "story/0/59", f"seed {seed}"
    assert index.ids() == left
    assert index.read("story/0/0") is None


def test_the_newest_file_of_each_process_stays(tmp_path: Path) -> None:
    quiet = Archive(tmp_path, "rollout-0", limit_mb=16)
    quiet.append(group("story/0/0"), delivery("story/0/0", "prompts"), fate="buried", reason="odd")
    busy = Archive(tmp_path, "trainer-0", limit_mb=16)
    for number in range(1, 60):
        trained(busy, whole(f"story/0/{number}", prompt=random.Random(number).randbytes(400_000).hex()))
    quiet.append(group("story/1/0"), delivery("story/1/0", "prompts"), fate="buried", reason="odd")
    buried = [one.group.id for one in closed_groups(tmp_path) if one.fate == "buried"]
    assert buried == ["story/0/0", "story/1/0"]


def test_of_several_records_of_a_group_the_last_counts(tmp_path: Path) -> None:
    first, second = Archive(tmp_path, "trainer-1"), Archive(tmp_path, "trainer-0")
    trained(first, whole("story/0/1"), version=4)
    trained(second, whole("story/0/1"), version=5)
    index = index_of(tmp_path)
    found = index.read("story/0/1")
    assert found is not None and found.version == 5
    assert index.search().total == 1


def test_what_was_withdrawn_does_not_count(tmp_path: Path) -> None:
    slow, quick, index = Archive(tmp_path, "reward-0"), Archive(tmp_path, "trainer-0"), GroupIndex(tmp_path)
    trained(quick, whole("story/0/1"))
    slow.append(whole("story/0/1"), delivery("story/0/1", "rollouts"), fate="retired", reason="no_signal")
    index.refresh()
    slow.close()  # the word may come in the next file
    slow.withdraw("story/0/1")
    index.refresh()
    for found in (index, index_of(tmp_path)):
        [row] = found.search().rows
        assert (row.fate, row.trained) == ("trained", 4)
    assert [one.fate for one in closed_groups(tmp_path)] == ["trained"]


@pytest.fixture
def many(tmp_path: Path) -> GroupIndex:
    archive = Archive(tmp_path, "trainer-0")
    for number in range(30):
        found = whole(
            f"story/0/{number}", version=number // 3, prompt=f"{number} + 1 = 100%?", rewards=(0, number / 30)
        )
        if number % 3:
            trained(archive, found, number // 3 + 1)
        else:
            archive.append(found, delivery(found.id, "rollouts"), fate="retired", reason="no_signal")
    archive.append(group("story/0/99"), delivery("story/0/99", "prompts", attempt=2), fate="buried", reason="it broke")
    return index_of(tmp_path)


def test_groups_are_found_by_what_they_say(many: GroupIndex) -> None:
    assert [row.id for row in many.search(text="17 + 1").rows] == ["story/0/17"]
    assert many.search(text="TEXT 1").total == 30
    assert many.search(text="story/0/99").rows[0].reason == "it broke"
    assert many.search(text="100%?").total == 30
    assert many.search(text="1_ +").total == 0, "no sign is a wildcard"
    assert many.search(text="'; DROP TABLE groups; --").total == 0


def test_groups_are_found_by_reward_length_version_and_fate(many: GroupIndex) -> None:
    assert many.search(reward=(0.25, None), sort="reward", ascending=True).rows[0].id == "story/0/15"
    assert many.search(reward=(None, 0.11)).total == 7
    assert many.search(version=(2, 3), fate="trained").total == 4
    assert many.search(trained=(3, 4)).total == 4
    assert (many.search(length=(3, 3)).total, many.search(length=(4, None)).total) == (30, 0)
    assert many.search(fate="no_signal").total == many.search(fate="retired").total == 10
    assert many.search(fate="buried", kind="train").rows[0].attempt == 2
    assert many.counts() == {"trained": 20, "retired no_signal": 10, "buried": 1}


def test_pages_follow_one_another(many: GroupIndex) -> None:
    pages = [many.search(sort="length", offset=start, limit=10) for start in (0, 10, 20, 30)]
    assert [page.total for page in pages] == [31] * 4
    assert len({row.id for page in pages for row in page.rows}) == 31
    with pytest.raises(Misconfigured, match="known: at, reward"):
        many.search(sort="at; DROP TABLE groups")  # pyright: ignore[reportArgumentType]


def test_who_waits_for_the_index_hears_how_far_it_is(tmp_path: Path) -> None:
    archive, told = Archive(tmp_path, "trainer-0"), list[tuple[int, int]]()
    for number in range(12):  # two or three fill a frame
        trained(archive, whole(f"story/0/{number}", prompt=random.Random(number).randbytes(60_000).hex()))
    archive.close()
    with GroupIndex(tmp_path) as index:
        index.refresh(lambda read, whole: told.append((read, whole)))
    read = [one for one, _ in told]
    assert read == sorted(read) and len(set(read)) >= 4, told
    assert {whole for _, whole in told} == {read[-1]}


def test_an_index_that_is_spoilt_or_of_another_version_is_made_anew(many: GroupIndex) -> None:
    path = many.folder / NAME
    for spoil in (lambda: path.write_bytes(b"no index" * 1000), lambda: aged(path)):
        many.close()
        spoil()
        with GroupIndex(many.folder) as index:
            assert index.refresh() == 31
            assert index.search().total == 31


def aged(path: Path) -> None:
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA user_version = 77")


def test_a_folder_that_is_not_there_yet_holds_nothing(tmp_path: Path) -> None:
    index = index_of(tmp_path / "groups")
    assert (index.search().total, index.read("story/0/0"), list(closed_groups(tmp_path / "groups"))) == (0, None, [])


def test_several_processes_keep_one_index(tmp_path: Path) -> None:
    archive = Archive(tmp_path, "trainer-0")
    for number in range(200):
        trained(archive, whole(f"story/0/{number}"))
    program = "import sys, pathlib, broker.archive_index as a; a.GroupIndex(pathlib.Path(sys.argv[1])).refresh()"
    readers = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) for _ in range(2)]
    assert [reader.wait(60) for reader in readers] == [0, 0]
    index = index_of(tmp_path)
    assert index.search().total == len(index.ids()) == 200
    assert index.base.execute("SELECT COUNT(*) FROM groups").fetchone() == (200,)
