"""Cores: nobody gets more threads than cores, nothing beyond what the machine allows."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from deploy.cores import LIGHT, Usable, budget, read_quota


def test_two_cores_are_one_for_the_trainer_and_one_for_the_producer() -> None:
    shares = budget(Usable(cores=(2, 5)), ["trainer-0", "rollout-0"])
    assert {name: (share.threads, share.cores) for name, share in shares.items()} == {
        "trainer-0": (1, (2,)),
        "rollout-0": (1, (5,)),
    }


def test_one_core_is_shared_with_one_thread_each() -> None:
    assert budget(Usable(cores=(0,)), ["trainer-0", "rollout-0"]) == {"trainer-0": LIGHT, "rollout-0": LIGHT}


def test_eight_cores_leave_one_to_the_light_processes() -> None:
    shares = budget(Usable(cores=tuple(range(8))), ["trainer-0", "rollout-0", "rollout-1"])
    assert [share.threads for share in shares.values()] == [4, 1, 2]
    assert 7 not in {core for share in shares.values() for core in share.cores}


def test_under_a_quota_below_the_mask_nothing_is_pinned() -> None:
    shares = budget(Usable(cores=tuple(range(64)), quota=2.5), ["trainer-0", "rollout-0"])
    assert [(share.threads, share.cores) for share in shares.values()] == [(1, ()), (1, ())]


def test_ranks_have_equal_parts_of_the_trainers_cores() -> None:
    shares = budget(Usable(cores=tuple(range(8))), ["trainer-0", "rollout-0"], ranks=2)
    assert {name: str(share) for name, share in shares.items()} == {
        "trainer-0": "2 ranks of 2 threads on cores 0,1,2,3",
        "rollout-0": "3 threads on cores 4,5,6",
    }


def test_more_ranks_than_cores_take_turns_with_one_thread_each() -> None:
    shares = budget(Usable(cores=(0, 1)), ["trainer-0", "rollout-0"], ranks=2)
    assert [(share.threads, share.cores, share.ranks) for share in shares.values()] == [(1, (), 2), (1, (), 1)]


@given(
    cores=st.sets(st.integers(0, 300), min_size=1, max_size=96),
    quota=st.none() | st.floats(0.1, 100),
    producers=st.integers(0, 20),
    ranks=st.integers(1, 9),
)
def test_shares_never_overlap_and_never_exceed_the_machine(
    cores: set[int], quota: float | None, producers: int, ranks: int
) -> None:
    usable = Usable(cores=tuple(sorted(cores)), quota=quota)
    shares = budget(usable, ["trainer-0", *(f"rollout-{i}" for i in range(producers))], ranks=ranks)
    placed = [core for share in shares.values() for core in share.cores]
    assert len(placed) == len(set(placed))
    assert set(placed) <= cores
    assert all(share.threads >= 1 and len(share.cores) in (0, share.threads * share.ranks) for share in shares.values())
    if usable.count >= ranks + producers:
        threads = sum(share.threads * share.ranks for share in shares.values())
        assert threads <= max(usable.count, ranks + producers)


def test_the_tightest_version_2_limit_of_the_ancestors_counts(tmp_path: Path) -> None:
    (tmp_path / "pod" / "box").mkdir(parents=True)
    (tmp_path / "pod" / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "pod" / "box" / "cpu.max").write_text("max 100000\n")
    (tmp_path / "member").write_text("0::/pod/box\n")
    assert read_quota(tmp_path, tmp_path / "member") == 1.5


def test_a_version_1_limit_is_read_from_its_own_hierarchy(tmp_path: Path) -> None:
    (tmp_path / "cpu,cpuacct" / "box").mkdir(parents=True)
    (tmp_path / "cpu,cpuacct" / "box" / "cpu.cfs_quota_us").write_text("300000\n")
    (tmp_path / "cpu,cpuacct" / "box" / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "cpu,cpuacct" / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu,cpuacct" / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "member").write_text("4:memory:/box\n3:cpu,cpuacct:/box\n")
    assert read_quota(tmp_path, tmp_path / "member") == 3.0


def test_without_cgroups_there_is_no_limit(tmp_path: Path) -> None:
    assert read_quota(tmp_path, tmp_path / "none") is None
