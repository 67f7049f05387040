"""Versions that were never finished: what a killed trainer left goes, what somebody may still be writing stays."""

from __future__ import annotations

from pathlib import Path

from broker.weights import VersionStore, version_path


def test_only_what_was_abandoned_for_long_is_deleted(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    old, at_work = store.draft("000007"), store.draft("000008")
    with store.writing(version_path(6, 1)) as folder:
        (folder / "manifest.json").touch()
    changed = old.stat().st_mtime
    (at_work / "model.safetensors").touch()
    store.clear_drafts(older_than_s=3600, now=changed + 3500)
    assert old.is_dir() and at_work.is_dir()
    store.clear_drafts(older_than_s=3600, now=changed + 3700)
    assert not old.exists() and not at_work.exists()
    assert (store.folder(version_path(6, 1)) / "manifest.json").is_file()


def test_a_draft_becomes_the_version_it_is_finished_as(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    draft = store.draft("000003")
    (draft / "model.safetensors").write_bytes(b"tensors")
    with store.writing(version_path(3, 5), draft) as folder:
        (folder / "manifest.json").write_text("{}")
    assert not draft.exists()
    assert (store.folder("versions/000003-e005") / "model.safetensors").read_bytes() == b"tensors"
