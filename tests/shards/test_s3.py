"""Shards in an S3-compatible store, by a small server on loopback. Run by `make ray`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from factories.shard_steps import blocks, sines
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.shards import storage
from icl_curate.engine.shards.over import over_shards
from icl_curate.engine.shards.shard import Engine

server = pytest.importorskip("moto.server")
pytest.importorskip("pyarrow.fs")
pytestmark = pytest.mark.ray


@pytest.fixture
def place(importable: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URI of a prefix in an empty bucket."""
    import boto3

    running = server.ThreadedMotoServer("127.0.0.1", 0)
    running.start()
    host, port = running.get_host_and_port()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1").create_bucket(Bucket="pools")
    yield f"s3://pools/a/b?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    running.stop()


def test_shards_go_through_a_bucket_and_leave_nothing(place: str, tmp_path: Path) -> None:
    def over(engine: Engine) -> dict[int, bytes]:
        found = over_shards(
            partial(sines, tmp_path), blocks(8), stage="sines", total=24, beside=tmp_path / "s", engine=engine
        )
        return {index: arrays["y"].tobytes() for index, arrays in found}

    ray = pytest.importorskip("ray")
    ray.shutdown()  # the workers of a cluster that is started now have the key
    assert over(Engine("ray", storage=place)) == over(Engine())
    ray.shutdown()
    system, _ = storage._system(place)
    from pyarrow import fs

    left = system.get_file_info(fs.FileSelector("pools", recursive=True))
    assert not [info.path for info in left if info.is_file]
    assert not (tmp_path / "s").exists()


def test_an_object_is_written_whole_and_a_refusal_is_one_line(place: str) -> None:
    uri = storage.under(place, "x.out")
    assert storage.present(uri) is None
    arrays = {"x": np.arange(1 << 20, dtype=np.float64)}
    storage.write(uri, arrays)
    found = storage.present(uri)
    assert found is not None and storage.digest_of(found) == storage.digest_of(arrays)
    storage.remove([uri, uri])
    assert storage.present(uri) is None
    with pytest.raises(UsageError) as refused:
        storage.write(uri.replace("pools/", "others/"), arrays)
    assert refused.value.what.startswith("cannot use s3://others/a/b/x.out: ") and "\n" not in refused.value.what
    assert "--engine-storage" in refused.value.fix
