# SPDX-License-Identifier: Apache-2.0
"""encode, synth and check from the command line; what they write is read by the real Energon."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from typing import TYPE_CHECKING, Any

import data_faults as faults
import numpy as np
import pytest
import torch
from PIL import Image

from mxflux.data import DataError, DataSettings, build_loaders, empty_encodings
from mxflux.data.cli import main
from mxflux.data.encoders.blocks import BlockTransform
from mxflux.data.encoders.words import HashedWords
from mxflux.data.parts import encode_part
from mxflux.data.pictures import captioned_pictures, read_captions, square

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = ["--image-size=32", "--text-length=6", "--context-dim=8", "--vec-in-dim=5"]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Ten pictures of several formats and shapes, each with a caption beside it."""
    folder = tmp_path / "pictures"
    (folder / "more").mkdir(parents=True)
    generator = np.random.default_rng(0)
    for index in range(10):
        levels = generator.integers(0, 255, (40 + index, 50, 3), dtype=np.uint8)
        place = folder / "more" if index % 2 else folder
        suffix = ("png", "jpg", "webp")[index % 3]
        Image.fromarray(levels).save(place / f"p{index}.{suffix}")
        (place / f"p{index}.txt").write_text(f"picture\n number {index}\n")
    return folder


def settings(path: Path, **changes: Any) -> DataSettings:
    return DataSettings(
        "energon", 3, 1, path=str(path), num_workers=0, val_num_workers=0, image_size=32,
        text_length=6, context_dim=8, vec_in_dim=5, **changes,
    )  # fmt: skip


def digest(folder: Path) -> dict[str, str]:
    """Of every file but Energon's index, which has a random name in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in {"index.sqlite", "index.uuid"}
    }


# -- encode -----------------------------------------------------------------------------------


def test_pictures_become_a_data_set_that_energon_reads(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "encoded"
    arguments = ["encode", *SMALL, "--validation=4", "--shard-size=4", "--dtype=fp32"]
    assert main([*arguments, str(pictures), str(out)]) == 0
    shown = capsys.readouterr()
    assert "10 samples in 3 shards" in shown.out
    assert "data.image_size: 32, data.text_length: 6, data.vae_latent_mode: presampled" in shown.out
    assert "10 of 10 pictures" in shown.err
    batches = list(build_loaders(settings(out), rank=0, world_size=1, training=False))
    assert torch.cat([b["timestep"] for b in batches]).tolist() == [0, 1, 2, 3]
    # sorted by name, more/p* come first: validation takes positions 0, 2, 5 and 7
    names = ["more/p1.jpg", "more/p5.webp", "p0.png", "p4.jpg"]
    stacked = torch.stack([square(pictures / name, 32) for name in names])
    expected = BlockTransform().encode(stacked)
    torch.testing.assert_close(torch.cat([b["latents"] for b in batches]), expected)
    words = HashedWords(6, 8, 5)
    assert torch.equal(batches[0]["prompt_embeds"][2], words.encode("picture number 0")[0])
    empty = empty_encodings(settings(out))
    assert torch.equal(empty.t5[0], words.encode("")[0])
    assert main(["check", "--text-length=6", "--image-size=32", str(out)]) == 0
    assert "no problem" in capsys.readouterr().out


def test_encoding_again_gives_the_same_bytes_and_never_overwrites(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        assert main(["encode", *SMALL, str(pictures), str(tmp_path / name)]) == 0
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert main(["encode", *SMALL, str(pictures), str(tmp_path / "a")]) == 2
    assert "exists: choose another name or remove it" in capsys.readouterr().err


def test_resample_stores_a_mean_without_spread(pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "encoded"
    assert main(["encode", *SMALL, "--latents=resample", str(pictures), str(out)]) == 0
    wanted = settings(out, vae_latent_mode="resample")
    batch = next(build_loaders(wanted, rank=0, world_size=1, training=True))
    assert batch["mean"].shape == batch["logvar"].shape == (3, 16, 4, 4)
    assert (batch["logvar"] == -30).all()


def test_captions_from_a_file(pictures: Path, tmp_path: Path) -> None:
    captions = tmp_path / "captions.csv"
    names = [p.relative_to(pictures).as_posix() for p in pictures.rglob("*") if p.suffix != ".txt"]
    rows = [f'{name},"a, b {name}"' for name in names if "." in name]
    captions.write_text("\n".join(["file_name,text", *rows]))
    out = tmp_path / "encoded"
    assert main(["encode", *SMALL, f"--captions={captions}", str(pictures), str(out)]) == 0
    sidecar = json.loads(dict(faults.members(out / "train-00000.tar"))["00000000.json"])
    assert sidecar == {"caption": "a, b more/p1.jpg", "file": "more/p1.jpg"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.jsonl", '{"file_name": "p0.png", "text": "x"}\n', r"9 problem\(s\)"),
        ("c.jsonl", '{"file_name": "p0.png"}\n', "c.jsonl:1: needs file_name and text"),
        ("c.jsonl", "{\n", "c.jsonl:1: not JSON"),
        ("c.tsv", "file_name\ttext\np0.png\ta\np0.png\tb\n", "c.tsv:3: p0.png has a caption"),
        (
            "c.csv",
            "file_name,text\np0.png,a\np1.jpg,a, b\n",
            "c.csv:3: more columns than the header's 2: quote a text that contains ','",
        ),
        ("c.csv", "file_name,text\np0.png," + "x" * 200_000, r"c.csv: not a table \(field larger"),
        ("c.xml", "", r"captions are read from .jsonl, .csv or .tsv"),
    ],
)
def test_captions_that_do_not_fit(
    pictures: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str,
    message: str,
) -> None:
    (tmp_path / name).write_text(text)
    out = tmp_path / "encoded"
    given = f"--captions={tmp_path / name}"
    assert main(["encode", *SMALL, given, str(pictures), str(out)]) == 2
    shown = capsys.readouterr().err
    assert re.search(message, shown)
    assert not out.exists()


def test_captions_may_begin_with_a_byte_order_mark_and_must_be_utf8(pictures: Path) -> None:
    names = [p.relative_to(pictures).as_posix() for p in pictures.rglob("*") if p.suffix != ".txt"]
    names = [name for name in names if "." in name]
    table = pictures / "captions.csv"
    table.write_text("\n".join(["file_name,text", *(f"{n},caption" for n in names)]), "utf-8-sig")
    assert read_captions(table) == dict.fromkeys(names, "caption")
    (pictures / "p0.txt").write_text("a picture", "utf-8-sig")
    captions = {found.name: found.caption for found in captioned_pictures(pictures)}
    assert captions["p0.png"] == "a picture"
    (pictures / "p0.txt").write_text("gr\u00fcn", "latin-1")
    with pytest.raises(DataError, match=r"p0.txt: not UTF-8 \("):
        captioned_pictures(pictures)


def test_a_picture_too_large_to_be_one_is_named(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match=r"p0.png: cannot be read as a picture \(.*bomb"):
        square(pictures / "p0.png", 32)


def test_a_broken_picture_leaves_nothing_behind(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pictures / "p4.jpg").write_bytes(b"no picture")
    out = tmp_path / "encoded"
    assert main(["encode", *SMALL, str(pictures), str(out)]) == 2
    assert "p4.jpg: cannot be read as a picture" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["pictures"]


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--image-size=40", "image size 40 must be a positive multiple of 16"),
        ("--validation=10", "10 validation picture(s) of 10: there must be some for training"),
        ("--shard-size=0", "shard size 0 must be positive"),
        ("--encoder=diffusers", "--encoder diffusers needs the folders --vae, --clip, --t5"),
        ("--device=cuda", "--device cuda: --encoder builtin runs on the cpu"),
        ("--vae=somewhere", "--vae without --encoder diffusers has no effect"),
    ],
)
def test_options_that_cannot_be(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, message: str
) -> None:
    arguments = [*SMALL, flag, str(pictures), str(tmp_path / "encoded")]
    assert main(["encode", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_sizes_that_pretrained_encoders_would_ignore(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = ["--encoder=diffusers", "--vae=v", "--clip=c", "--t5=t"]
    sizes = ["--channels=16", "--colour=gray", "--context-dim=8", "--vec-in-dim=5"]
    assert main(["encode", *encoder, *sizes, str(pictures), str(tmp_path / "out")]) == 2
    named = "--channels, --colour, --context-dim, --vec-in-dim: --encoder diffusers has these"
    assert named in capsys.readouterr().err
    assert main(["encode", *encoder, str(pictures), str(tmp_path / "out")]) == 2
    assert "has these from its models" not in capsys.readouterr().err


# -- synth ------------------------------------------------------------------------------------


def test_mlperf_form_of_synthetic_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "synthetic"
    form = ["--latents=resample", "--encoding=preencoded_numpy"]
    sizes = ["--samples=6", "--validation=8"]
    assert main(["synth", *SMALL, *form, *sizes, str(out)]) == 0
    names = {name.partition(".")[2] for name, _ in faults.members(out / "val-00000.tar")}
    assert names == {"t5.bytes", "clip.bytes", "mean.bytes", "logvar.bytes", "json"}
    wanted = settings(out, vae_latent_mode="resample")
    batch = next(build_loaders(wanted, rank=0, world_size=1, training=False))
    assert batch["mean"].dtype == torch.bfloat16
    own = torch.Generator().manual_seed(2**31)
    assert torch.equal(batch["mean"][0], torch.randn(16, 4, 4, generator=own).bfloat16())
    assert main(["check", "--json", str(out)]) == 0
    found = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert found["timesteps"] == {"val": {str(level): 1 for level in range(8)}}
    assert found["samples"] == {"train": 6, "val": 8}
    headerless = dict(faults.members(out / "val-00000.tar"))["val00000000.mean.bytes"][-512:]
    faults.rewrite(out / "val-00000.tar", faults.replaced("val00000000.mean.bytes", headerless))
    again = next(build_loaders(wanted, rank=0, world_size=1, training=False))
    assert torch.equal(again["mean"], batch["mean"])


def test_synthetic_data_need_samples_and_parts_that_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["synth", *SMALL, "--samples=0", str(tmp_path / "x")]) == 2
    assert "samples=0 must be positive" in capsys.readouterr().err
    numpy = "--encoding=preencoded_numpy"
    assert main(["synth", *SMALL, "--samples=1", numpy, str(tmp_path / "x")]) == 2
    assert "encoding preencoded_numpy stores no latents" in capsys.readouterr().err


# -- check ------------------------------------------------------------------------------------


def bad(tensor: torch.Tensor) -> bytes:
    return encode_part("x.pth", tensor)


NAN = torch.zeros(16, 4, 4)
NAN[0, 0, 0] = float("nan")
SAMPLE = "train00000003"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (faults.without(f"{SAMPLE}.latents.pth"), f"sample {SAMPLE} lacks latents.pth"),
        (
            faults.replaced(f"{SAMPLE}.latents.pth", bad(NAN)),
            f"sample {SAMPLE}: latents.pth has 1 value(s) that are NaN or infinite",
        ),
        (
            faults.replaced(f"{SAMPLE}.prompt_embeds.pth", bad(torch.zeros(5, 8))),
            f"sample {SAMPLE}: prompt_embeds.pth has shape [5, 8], expected [6, 8]: T5 length 5",
        ),
        (
            faults.replaced(f"{SAMPLE}.latents.pth", bad(torch.zeros(16, 4, 3))),
            "latent sizes must be even",
        ),
        (
            faults.replaced(f"{SAMPLE}.latents.pth", bad(torch.zeros(16, 4, 4).double())),
            f"sample {SAMPLE}: latents.pth has dtype torch.float64",
        ),
        (faults.replaced(f"{SAMPLE}.latents.pth", b"PK"), "cannot be read as a tensor"),
        (lambda found: found + found[:3], "sample train00000000 is in train-00000.tar already"),
        (lambda found: [*found[:3], found[2], *found[3:]], "pooled_prompt_embeds.pth twice"),
        (lambda found: found[:-3], "15 sample(s), .nv-meta/.info.json says 16"),
        (
            lambda found: [*found[:3], ("train00000000.json", b'{"timestep": 1}'), *found[3:]],
            "has a timestep, which training refuses",
        ),
    ],
)
def test_check_names_shard_sample_and_part(
    dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[faults.Members], faults.Members],
    expected: str,
) -> None:
    folder = faults.copy_of(dataset, tmp_path)
    faults.rewrite(folder / "train-00000.tar", change)
    assert main(["check", str(folder)]) == 1
    shown = capsys.readouterr().out
    assert expected in shown
    assert shown.count("train-00000.tar") >= 1
    assert "problem(s)" in shown.splitlines()[-1]


def test_check_of_a_truncated_shard(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = faults.copy_of(dataset, tmp_path)
    shard = folder / "train-00001.tar"
    with tarfile.open(shard) as tar:
        middle = tar.getmembers()[25]
    shard.write_bytes(shard.read_bytes()[: middle.offset_data + 100])
    assert main(["check", str(folder)]) == 1
    shown = capsys.readouterr().out
    assert "train-00001.tar: truncated or damaged after" in shown
    (folder / "val-00001.tar").unlink()
    assert main(["check", str(folder)]) == 1
    assert "val-00001.tar: the file is missing" in capsys.readouterr().out


def test_check_holds_the_data_against_a_run(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(dataset)]) == 0
    assert "samples: train 50, val 25" in capsys.readouterr().out
    assert main(["check", "--text-length=256", str(dataset)]) == 1
    shown = capsys.readouterr().out
    assert "T5 length 6, data.text_length is 256" in shown
    assert "... and 25 more" in shown
    assert main(["check", "--latents=resample", str(dataset)]) == 1
    assert "lacks mean.pth, logvar.pth" in capsys.readouterr().out


def test_check_of_what_is_no_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path)]) == 2
    assert ".nv-meta/.info.json is missing" in capsys.readouterr().err
