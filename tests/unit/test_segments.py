"""Spool files: two tiers, names that tell their maker, a directory of one's own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tidegate.errors import SpoolError, SpoolLost
from tidegate.executor.directory import SpoolDirectory
from tidegate.executor.segments import SEGMENT_BYTES, FileRoom, FileSegments, FileSlices, FileWriter
from tidegate.executor.spool import DISK_TIER, MEMORY_TIER, Segments, gather


def view(size: int, fill: bytes = b"x") -> memoryview:
    return memoryview(fill * size)


def writer(tmp_path: Path, memory_bytes: int, name: str = "7-1-42", disk: bool = True) -> FileWriter:
    for folder in ("ram", "disk"):
        (tmp_path / folder).mkdir(exist_ok=True)
    return FileRoom(str(tmp_path / "ram"), memory_bytes, str(tmp_path / "disk") if disk else None).writer(name)


@pytest.fixture
def small_ram(tmp_path: Path) -> Iterator[Path]:
    """A RAM-backed directory of 64 KiB at `<tmp>/ram`, where this machine lets us make one."""
    place = tmp_path / "ram"
    place.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64k,nr_inodes=4", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(["mount", *options], capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("only root may mount a small tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_the_memory_tier_is_filled_first_and_the_rest_goes_to_disk(tmp_path: Path) -> None:
    spool = writer(tmp_path, memory_bytes=100)
    places = [spool.append(view(40))[1:] for _ in range(4)]
    spool.close()
    assert places == [(MEMORY_TIER, 0), (MEMORY_TIER, 40), (DISK_TIER, 0), (DISK_TIER, 40)]
    assert sum(path.stat().st_size for path in (tmp_path / "ram").iterdir()) == 80


def test_without_a_memory_tier_all_goes_to_disk(tmp_path: Path) -> None:
    spool = FileRoom(None, 0, str(tmp_path)).writer("0-0-0")
    assert spool.append(view(10))[1] == DISK_TIER
    spool.close()


def test_a_memory_only_spool_stays_in_memory_past_its_allowance(tmp_path: Path) -> None:
    spool = writer(tmp_path, memory_bytes=10, disk=False)
    assert [spool.append(view(40))[1] for _ in range(2)] == [MEMORY_TIER, MEMORY_TIER]
    spool.close()


def test_a_slice_holds_exactly_what_was_appended(tmp_path: Path) -> None:
    spool = writer(tmp_path, memory_bytes=70)
    pieces = [bytes([65 + n]) * 30 for n in range(5)]
    found = [spool.append(memoryview(piece)) for piece in pieces]
    spool.close()
    for (path, _, offset), piece in zip(found, pieces, strict=True):
        assert Path(path).read_bytes()[offset : offset + 30] == piece


def test_a_segment_is_named_by_batch_partition_and_attempt_and_numbered(tmp_path: Path) -> None:
    spool = writer(tmp_path, memory_bytes=10, name="12-3-99")
    names = [Path(spool.append(view(8))[0]).name for _ in range(2)]
    spool.close()
    assert names == ["12-3-99-0.seg", "12-3-99-1.seg"]


def test_a_full_segment_is_closed_and_the_next_begins(tmp_path: Path) -> None:
    spool = writer(tmp_path, memory_bytes=0)
    large = view(SEGMENT_BYTES // 2 + 1)
    first, second = spool.append(large), spool.append(large)
    spool.close()
    assert first[0] != second[0]
    assert second[2] == 0
    assert all(path.stat().st_size <= SEGMENT_BYTES for path in (tmp_path / "disk").iterdir())


def test_a_segment_is_closed_before_its_items_are_returned(tmp_path: Path) -> None:
    spool = writer(tmp_path, memory_bytes=0)
    path, _, _ = spool.append(view(8))
    spool.close()
    open_files = {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    assert path not in open_files


def test_a_segment_of_the_same_attempt_is_never_appended_to_again(tmp_path: Path) -> None:
    first = writer(tmp_path, memory_bytes=0)
    first.append(view(8))
    first.close()
    with pytest.raises(SpoolError, match=r"7-1-42-0\.seg"):
        writer(tmp_path, memory_bytes=0).append(view(8))


def test_no_space_left_in_memory_goes_over_to_disk(small_ram: Path, tmp_path: Path) -> None:
    spool = writer(tmp_path, memory_bytes=1 << 30)
    found = [spool.append(view(40_000, bytes([65 + n]))) for n in range(3)]
    spool.close()
    assert [tier for _, tier, _ in found] == [MEMORY_TIER, DISK_TIER, DISK_TIER]
    for n, (path, _, offset) in enumerate(found):
        assert Path(path).read_bytes()[offset : offset + 40_000] == bytes([65 + n]) * 40_000
    assert Path(found[0][0]).stat().st_size == 40_000, "the half-written rest is given back"


def test_no_room_for_another_file_in_memory_goes_over_to_disk(small_ram: Path, tmp_path: Path) -> None:
    for n in range(3):
        (small_ram / f"other-{n}").touch()
    spool = writer(tmp_path, memory_bytes=1 << 30)
    assert spool.append(view(10))[1] == DISK_TIER
    spool.close()


@pytest.mark.parametrize("disk", [True, False])
def test_a_full_last_tier_is_an_error_that_names_the_place(small_ram: Path, tmp_path: Path, disk: bool) -> None:
    room = FileRoom(None, 0, str(small_ram)) if disk else FileRoom(str(small_ram), 1 << 30, None)
    spool = room.writer("0-0-0")
    with pytest.raises(SpoolError, match=rf"{small_ram}.*No space left"):
        spool.append(view(100_000))
    spool.close()


def test_a_missing_spool_directory_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match="gone"):
        FileRoom(None, 0, str(tmp_path / "gone")).writer("0-0-0").append(view(1))


# -- reading ---------------------------------------------------------------------------------------------------------


def two_segments(tmp_path: Path) -> tuple[str, str]:
    for name, data in (("a.seg", b"0123456789"), ("b.seg", b"abcdefghij")):
        (tmp_path / name).write_bytes(data)
    return str(tmp_path / "a.seg"), str(tmp_path / "b.seg")


def read(slices: FileSlices, *sizes: int) -> list[bytes]:
    """The bytes of the slices in rooms of these sizes."""
    found = []
    with closing(slices.open()) as stream:
        for size in sizes:
            room = bytearray(size)
            stream.fill(memoryview(room))
            found.append(bytes(room))
    return found


def copied(slices: FileSlices, target: Path) -> bytes:
    with open(target, "wb") as file:
        slices.copy_to(file.fileno(), lambda _: None)
    return target.read_bytes()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_slices_are_read_in_order_however_large_the_rooms_are(tmp_path: Path) -> None:
    one, two = two_segments(tmp_path)
    slices = FileSegments().slices([(two, 2, 3), (one, 0, 0), (one, 0, 2), (one, 8, 2), (two, 0, 1)])
    assert slices.size == 8
    assert read(slices, 8) == [b"cde0189a"]
    assert read(slices, 1, 3, 0, 4) == [b"c", b"de0", b"", b"189a"]
    assert copied(slices, tmp_path / "all") == b"cde0189a"


@pytest.mark.parametrize("name", ["gone.seg", "short.seg"])
def test_a_segment_that_is_gone_or_too_short_is_a_lost_spool_and_no_file_stays_open(tmp_path: Path, name: str) -> None:
    one, _ = two_segments(tmp_path)
    (tmp_path / "short.seg").write_bytes(b"12")
    slices, before = FileSlices([(one, 0, 5), (str(tmp_path / name), 0, 5)]), open_files()
    with pytest.raises(SpoolLost):
        read(slices, 10)
    with pytest.raises(SpoolLost):
        copied(slices, tmp_path / "all")
    assert open_files() == before


def test_slices_that_are_copied_together_say_what_they_said(tmp_path: Path) -> None:
    one, two = two_segments(tmp_path)
    pieces = [(two, 2, 3), (one, 0, 2), (two, 0, 1)]
    found = gather(pieces, FileRoom(None, 0, str(tmp_path)), "move1-0-0")
    assert [(Path(at.segment).name, at.tier, at.offset) for at in found] == [
        ("move1-0-0-0.seg", DISK_TIER, offset) for offset in (0, 3, 5)
    ]
    assert (tmp_path / "move1-0-0-0.seg").read_bytes() == b"cde01a"


# -- the directory ---------------------------------------------------------------------------------------------------


def open_spool(tmp_path: Path, name: str = "feed", spool_type: str = "disk") -> SpoolDirectory:
    return SpoolDirectory.open(str(tmp_path), name, spool_type, 1 << 20)


def test_only_the_changefeeds_own_directory_is_touched(tmp_path: Path) -> None:
    (tmp_path / "precious.seg").write_text("keep")
    (tmp_path / "neighbour").mkdir()
    (tmp_path / "neighbour" / "0-0-0-0.seg").write_text("keep")
    spool = open_spool(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["feed", "neighbour", "precious.seg"]
    spool.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["neighbour", "precious.seg"]
    assert (tmp_path / "neighbour" / "0-0-0-0.seg").exists()


def test_what_is_not_of_a_spool_survives_in_its_directory(tmp_path: Path) -> None:
    (tmp_path / "feed").mkdir()
    (tmp_path / "feed" / "thesis.txt").write_text("keep")
    open_spool(tmp_path).close()
    assert [path.name for path in (tmp_path / "feed").iterdir()] == ["thesis.txt"]


def test_segments_of_a_killed_run_are_wiped_at_start(tmp_path: Path) -> None:
    first = open_spool(tmp_path)
    (first.disk / "0-0-0-0.seg").write_text("old")
    if first.memory is not None:
        (first.memory / "0-0-0-1.seg").write_text("old")
    for locked in first._locked:
        os.close(locked._lock)  # what the kernel does when a process is killed
    second = open_spool(tmp_path)
    assert second.of_batch("0") == []
    second.close()


def test_tables_held_by_a_killed_run_are_not_held_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "feed").mkdir()
    (tmp_path / "feed" / "demand.json").write_text("[7]")
    spool = open_spool(tmp_path)
    assert not (tmp_path / "feed" / "demand.json").exists()
    spool.close()


def test_closing_removes_both_tiers(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, spool_type="memory")
    assert spool.memory is not None
    (spool.memory / "0-0-0-0.seg").write_text("x")
    spool.close()
    assert not spool.memory.exists()
    assert not spool.disk.exists()


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    first = open_spool(tmp_path)
    first.close()
    second = open_spool(tmp_path)
    first.close()
    assert second.disk.exists()
    second.close()


def test_two_changefeeds_share_a_spool_dir_without_meeting(tmp_path: Path) -> None:
    one, two = open_spool(tmp_path, "one"), open_spool(tmp_path, "two")
    assert one.disk != two.disk
    assert one.memory is None or one.memory != two.memory
    one.close()
    assert two.disk.exists()
    two.close()


def test_the_lock_of_another_process_is_respected_until_it_ends(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from tidegate.executor.directory import SpoolDirectory as S;"
            f"S.open({str(tmp_path)!r}, 'feed', 'disk', 1); print('held', flush=True); sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(SpoolError, match=r"in use by another process.*--changefeed-id"):
        open_spool(tmp_path)
    holder.kill()
    holder.wait()
    open_spool(tmp_path).close()


def test_never_two_hold_the_directory_however_fast_it_changes_hands(tmp_path: Path) -> None:
    inside: list[int] = []
    meetings: list[int] = []

    def come_and_go(number: int) -> None:
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            try:
                spool = open_spool(tmp_path)
            except SpoolError:
                continue
            inside.append(number)
            meetings.extend([number] if len(inside) > 1 else [])
            inside.remove(number)
            spool.close()

    threads = [threading.Thread(target=come_and_go, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meetings == []


def test_a_spool_dir_that_cannot_be_made_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match=r"file/feed.*--spool-dir"):
        SpoolDirectory.open(str(tmp_path / "file"), "feed", "disk", 1)


def test_files_of_one_batch_are_told_from_those_of_another(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    for name in ("1-0-0-0.seg", "11-0-0-0.seg"):
        (spool.disk / name).touch()
    assert [path.name for path in spool.of_batch("1")] == ["1-0-0-0.seg"]
    spool.close()


def test_only_what_items_name_is_left_of_a_batch(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    for name in ("1-0-0-0.seg", "1-0-3-0.seg", "11-0-0-0.seg"):
        (spool.disk / name).touch()
    spool.delete_unnamed("1", {str(spool.disk / "1-0-3-0.seg")})
    assert sorted(path.name for path in spool.disk.glob("*.seg")) == ["1-0-3-0.seg", "11-0-0-0.seg"]
    spool.delete_batch("1")
    assert [path.name for path in spool.disk.glob("*.seg")] == ["11-0-0-0.seg"]
    spool.close()


def test_deleting_tells_what_was_gone_already(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    here, gone = spool.disk / "1-0-0-0.seg", spool.disk / "1-0-0-1.seg"
    here.touch()
    assert spool.delete([str(here), str(gone)]) == [str(gone)]
    assert not here.exists()
    spool.close()


def test_tasks_share_what_is_left_of_the_memory_tier(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    spool.memory, spool.memory_limit = tmp_path / "ram", 1_000
    room = spool.room(tasks=3, tier_bytes=[400, 9_999])
    assert (room.memory_dir, room.memory_bytes, room.disk_dir) == (str(tmp_path / "ram"), 200, str(spool.disk))
    assert spool.room(tasks=3, tier_bytes=[2_000, 0]).memory_bytes == 0
    spool.close()


def test_there_is_room_left_until_the_disk_comes_near_its_reserve(tmp_path: Path) -> None:
    on_disk: Segments = (spool := open_spool(tmp_path))
    assert on_disk.shortage() is None
    spool.reserve_bytes = 1 << 60
    assert on_disk.shortage() is not None
    spool.close()
    in_memory = open_spool(tmp_path, spool_type="memory")
    in_memory.reserve_bytes = 1 << 60
    assert in_memory.shortage() is None, "what the disk has left does not matter"
    in_memory.close()
