"""What became of a group, on a real run that has one of each: trained, without signal, buried, stale and open. Buried
ones are tried again while the run goes on, and stored answers go through another reward when it is over.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from broker.archive import Closed, closed_groups
from broker.archive_index import GroupIndex
from broker.errors import Misconfigured, Unavailable
from broker.settings import BrokerSection
from deploy.audit import audit
from deploy.inspection import Records, dead, ledger, open_groups
from deploy.life_in_words import words
from deploy.rescore import parts_of, rescore
from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from deploy.show import show
from tests.command_line import tidemill
from tests.integration.test_launcher import QUICK, Launched, lay_model, left_over, until

RULE = '''
import zlib
from collections import Counter
from pathlib import Path

MENDED = Path(__file__).with_name("mended")
ASKED = Counter()


def odd(*, prompt, completion, answer, meta):
    """Has no opinion on sums whose first number ends in 3; mended, it likes every other answer. Likes everything where
    that number ends in 5.
    """
    if prompt[1] == "3" and not MENDED.exists():
        raise ValueError(f"no opinion on {prompt}")
    if prompt[1] == "3":
        ASKED[prompt] += 1
        return ASKED[prompt] % 2
    return 1.0 if prompt[1] == "5" else zlib.crc32(completion.encode()) % 3 / 2
'''
SETTINGS = (
    "reward.parts=[{name='odd_rule:odd', weight=2.0}]",
    "algorithm.dynamic_sampling=true",
    "train.options={pace_s=0.2}",
    "run.steps=100000",
)


OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
SHOWS = {
    "tidemill show GROUP": r"· train · buried: RuleFailed",
    "tidemill inspect dead": r"group +stage +attempts +reason",
    "tidemill inspect dead replay GROUP": r"done +at prompts again",
    "tidemill inspect dead drop --all": r"done +retired as dropped",
    "tidemill rescore --reward exact_match --newest 100": r"(?s)of 100 groups of .*part exact_match",
}
"""Line of the section "Groups" → what its answer shows."""


def lines_of_operations() -> list[str]:
    section = OPERATIONS.read_text().split("\n## Groups\n", 1)[1].split("\n## ", 1)[0]
    return [line.partition("#")[0].strip() for line in section.split("```", 2)[1].strip().splitlines()]


class Story:
    """One run, its launcher and its rule."""

    def __init__(self, root: Path) -> None:
        (root / "odd_rule.py").write_text(RULE)
        self.rule = root
        os.environ["PYTHONPATH"] = str(root)  # for settings checked here and processes started from here
        sys.path.append(str(root))
        self.folder = new_run_folder(
            load_run("addition", [*QUICK, *SETTINGS]), root / "runs", datetime.now(UTC)
        ).resolve()
        lay_model(self.folder / "model")
        self.launched = Launched(self.folder)

    def tidemill(self, *arguments: str) -> tuple[int, str, str]:
        done = tidemill(*arguments, runs=self.folder.parent)
        return done.returncode, done.stdout, done.stderr

    def show(self, group: str) -> dict[str, Any]:
        return show(self.folder, BrokerSection(), group)

    def records(self) -> Records:
        return Records(f"unix://{self.folder}/redis/redis.sock", self.folder.name)

    def closed(self, **asked: Any) -> list[Closed]:
        """The newest that were closed so."""
        with GroupIndex(self.folder / "groups") as index:
            index.refresh()
            found = [index.read(row.id) for row in index.search(**asked, limit=3).rows]
        return [one for one in found if one is not None]

    def end(self) -> None:
        self.launched.interrupt()
        self.launched.end()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    before, path = os.environ.get("PYTHONPATH"), list(sys.path)
    told = Story(tmp_path_factory.mktemp("groups"))
    try:
        told.launched.reach(2, within_s=60)
        yield told
    finally:
        if told.launched.process.poll() is None:
            told.end()
        sys.path[:] = path
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    assert left_over(told.folder) == []


def test_a_trained_group_tells_its_versions_rewards_way_step_and_advantages(story: Story) -> None:
    line = ledger(story.records())[-1]
    life = story.show(line["groups"][0])
    assert (life["state"], life["version"], life["kind"]) == ("trained", line["version"], "train")
    assert 0 <= life["staleness"] <= 1
    assert [stay["stream"] for stay in life["way"]] == ["prompts", "rollouts", "scored"]
    assert [stay["reader"].split(".")[0] for stay in life["way"]] == ["rollout-0", "reward-0", "trainer-0"]
    assert all(stay["seconds"] >= 0 for stay in life["way"])
    assert len(life["siblings"]) == 8
    for sibling in life["siblings"]:
        assert sibling["reward"] == 2 * sibling["parts"]["odd"]
        assert sibling["spans"][0]["start"] == 0 and sibling["spans"][-1]["end"] == sibling["actions"]
    advantages = [sibling["advantage"] for sibling in life["siblings"]]
    assert abs(sum(advantages)) < 0.01 and max(advantages) > 0.3, "those of GRPO have no mean"
    best = max(life["siblings"], key=lambda one: one["reward"])
    assert best["advantage"] == max(advantages)
    assert any("advantage +" in said for said in words(life, "run"))


def test_a_group_without_signal_tells_why_it_was_retired(story: Story) -> None:
    [group, *_] = story.closed(fate="no_signal", kind="train")
    life = story.show(group.group.id)
    assert (life["state"], life["reason"], life["version"]) == ("retired", "no_signal", None)
    assert len({sibling["reward"] for sibling in life["siblings"]}) == 1
    assert [stay["what"] for stay in life["way"]] == ["forwarded", "retired: no_signal"]


def test_a_buried_group_tells_its_attempts_and_what_to_type(story: Story) -> None:
    line = until(lambda: dead(story.records()))[0]
    life = story.show(line["group"])
    assert (life["state"], life["attempt"], life["stage"]) == ("buried", 2, "rollouts")
    assert "no opinion on" in life["reason"]
    assert [stay["what"].split(":")[0] for stay in life["way"]] == ["forwarded", "tried again", "tried again", "buried"]
    assert len(life["siblings"]) == 8 and life["siblings"][0]["reward"] is None
    said = "\n".join(words(life, "run-1"))
    assert f"tidemill inspect dead replay {line['group']} --run run-1" in said


def test_an_open_group_tells_in_whose_hands_it_is(story: Story) -> None:
    def in_the_trainers_hands() -> dict[str, Any] | None:
        lines = [line for line in open_groups(story.records()) if line["stream"] == "scored"]
        lives = [story.show(line["group"]) for line in lines[:2]]
        return next((life for life in lives if life["state"] == "open" and life.get("reader")), None)

    life = until(in_the_trainers_hands)
    assert (life["stream"], life["reader"]) == ("scored", "trainer")
    assert [stay["what"] for stay in life["way"][:2]] == ["forwarded", "forwarded"]
    assert life["way"][2]["what"].startswith("in hand, last sign of progress")
    assert life["siblings"][0]["reward"] is not None


def test_a_group_nobody_knows_is_answered_with_the_nearest(story: Story) -> None:
    code, said, wrong = story.tidemill("show", "additoin/0/3")
    assert (code, said) == (2, "")
    assert "did you mean addition/0/3" in wrong and f"tidemill show addition/0/3 --run {story.folder.name}" in wrong


@pytest.mark.parametrize("line", lines_of_operations())
def test_a_line_of_the_document_answers_in_words(story: Story, line: str) -> None:
    buried = until(lambda: dead(story.records()))[0]["group"]  # there are always new ones until the rule is mended
    code, said, wrong = story.tidemill(*shlex.split(line.replace("GROUP", buried))[1:])
    assert code == 0 and re.search(SHOWS[line], said), said + wrong


def test_buried_groups_are_tried_again_and_train_once_and_others_are_given_up(story: Story) -> None:
    lines = until(lambda: len(found := dead(story.records())) > 2 and found)
    again, never = lines[1]["group"], lines[2]["group"]
    code, _, wrong = story.tidemill("inspect", "dead", "replay", again, "addition/7/7")
    assert code == 2 and "addition/7/7: not buried" in wrong, "one that is not there stops all"
    (story.rule / "mended").touch()
    code, said, wrong = story.tidemill("inspect", "dead", "replay", again, "--json")
    assert code == 0, wrong
    assert [(row["group"], row["answer"]) for row in json.loads(said)] == [(again, "done")]
    code, said, wrong = story.tidemill("inspect", "dead", "drop", never)
    assert code == 0 and "retired as dropped" in said, wrong
    life = until(lambda: (found := story.show(again))["state"] != "open" and found)
    assert life["state"] == "trained"
    assert [stay["what"].split(":")[0] for stay in life["way"]][3:6] == ["buried", "forwarded", "forwarded"]
    assert life["attempt"] == 0
    closed = [one for one in closed_groups(story.folder / "groups") if one.group.id == again]
    assert [one.fate for one in sorted(closed, key=lambda one: one.at)] == ["buried", "trained"]
    assert {line["group"] for line in dead(story.records())} & {again, never} == set()
    checks = audit(story.records(), story.folder / "store")
    assert checks and all(check.holds for check in checks), checks


def test_a_stale_group_tells_what_was_too_old(story: Story) -> None:
    """The run goes on with a tighter bound than it had: what it still holds comes too late for that."""
    story.end()
    path = story.folder / "settings.json"
    settings = json.loads(path.read_text())
    settings["train"] |= {"staleness": 0, "late": "retire"}
    path.write_text(json.dumps(settings))
    story.launched = Launched(story.folder)
    [group, *_] = until(lambda: story.closed(fate="stale"), 60)
    life = story.show(group.group.id)
    assert (life["state"], life["reason"], life["version"]) == ("retired", "stale", None)
    assert life["siblings"][0]["reward"] is not None and life["way"][-1]["stream"] == "scored"
    story.end()


def test_everything_that_was_closed_is_told_after_the_server_has_gone(story: Story) -> None:
    if story.launched.process.poll() is None:
        story.end()
    shutil.rmtree(story.folder / "redis")
    for asked, state in (("trained", "trained"), ("no_signal", "retired"), ("buried", "buried")):
        [group, *_] = story.closed(fate=asked)
        assert story.show(group.group.id)["state"] == state
    _, said, wrong = story.tidemill("show", story.closed(fate="trained")[0].group.id, "--json")
    assert json.loads(said)["state"] == "trained", wrong
    with pytest.raises(Misconfigured, match="knows no group"):
        story.show("addition/99/99")


def test_where_the_server_is_silent_the_archive_answers_and_says_that_it_is_alone(story: Story) -> None:
    silent = BrokerSection(url="redis://127.0.0.1:1/0")
    life = show(story.folder, silent, story.closed(fate="trained")[0].group.id)
    assert life["state"] == "trained"
    assert "from the archive alone: redis://127.0.0.1:1/0 does not answer" in "\n".join(words(life, "run"))
    with pytest.raises(Unavailable, match=r"only in the archive .* the server may know it: redis://127.0.0.1:1/0 does"):
        show(story.folder, silent, "addition/99/99")


def test_stored_answers_go_through_another_reward(story: Story) -> None:
    scored = {one.group.id: one for one in closed_groups(story.folder / "groups") if one.group.scores is not None}
    seen: list[tuple[int, int]] = []
    same = rescore(
        story.folder,
        parts_of(["{name = 'odd_rule:odd', weight = 2.0}"]),
        kind=None,
        newest=0,
        examples=5,
        progress=lambda done, whole: seen.append((done, whole)),
    )
    assert same["groups"] == len(scored) and seen[-1][0] == len(scored)
    assert (same["changed"], same["correlation"], same["examples"]) == (0, 1, [])
    halved = rescore(
        story.folder, parts_of(["odd_rule:odd"]), kind="train", newest=20, examples=3, progress=lambda *_: None
    )
    assert halved["groups"] == 20 and len(halved["examples"]) == 3
    assert halved["mean"]["after"] == pytest.approx(halved["mean"]["before"] / 2, abs=1e-4)
    assert halved["correlation"] == pytest.approx(1)
    assert halved["parts"][0]["correlation"] == pytest.approx(1)


def test_what_cannot_be_scored_is_counted_and_never_a_zero(story: Story) -> None:
    (story.rule / "mended").unlink(missing_ok=True)
    found = rescore(
        story.folder, parts_of(["odd_rule:odd"]), kind="train", newest=0, examples=0, progress=lambda *_: None
    )
    revived = [
        one for one in closed_groups(story.folder / "groups") if one.group.prompt.text[1] == "3" and one.group.scores
    ]
    assert sum(found["failed"].values()) == len(revived) > 0
    assert all("no opinion on" in reason for reason in found["failed"])
    with pytest.raises(Misconfigured, match='did you mean "exact_match"'):
        rescore(story.folder, parts_of(["exact_mach"]), kind=None, newest=0, examples=0, progress=lambda *_: None)
    code, _, wrong = story.tidemill("rescore")
    assert code == 2 and "say --reward NAME" in wrong
