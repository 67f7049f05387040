"""Versions that were never finished: what a killed trainer left goes, what somebody may still be writing stays."""

from __future__ import annotations

from pathlib import Path

from broker.weights import VersionStore, version_path


def test_only_what_was_abandoned_for_long_is_deleted(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    abandoned = [tmp_path / "versions" / ".000007-e001.4711", tmp_path / "checkpoints" / ".000020-e001.4711"]
    for draft in abandoned:
        draft.mkdir()
    with store.writing(version_path(6, 1)) as folder:
        (folder / "manifest.json").touch()
    left_at = max(draft.stat().st_mtime for draft in abandoned)
    store.clear_drafts(older_than_s=3600, now=left_at + 3500)
    assert all(draft.is_dir() for draft in abandoned)
    store.clear_drafts(older_than_s=3600, now=left_at + 3700)
    assert not any(draft.exists() for draft in abandoned)
    assert (store.folder(version_path(6, 1)) / "manifest.json").is_file()
