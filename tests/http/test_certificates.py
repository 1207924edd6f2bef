"""The certificates that servers are checked against."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.http.address import certificates


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A file of one certificate of the system's."""
    known = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not known:
        pytest.skip("the system trusts no certificate")
    file = tmp_path / "one.pem"
    file.write_text(ssl.DER_cert_to_PEM_cert(known[0]))
    return file


def test_they_are_loaded_once_and_again_when_others_are_named(monkeypatch: pytest.MonkeyPatch, bundle: Path) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    systems = certificates(True)
    assert certificates(True) is systems
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert len(certificates(True).get_ca_certs()) == 1
    assert len(certificates(False).get_ca_certs()) != 1  # a server of one's own does not depend on the environment
    monkeypatch.delenv("SSL_CERT_FILE")
    assert certificates(True) is systems


def test_servers_must_prove_who_they_are() -> None:
    for trusting in (True, False):
        found = certificates(trusting)
        assert found.verify_mode is ssl.CERT_REQUIRED
        assert found.check_hostname


def test_a_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(UsageError, match="No such file") as raised:
        certificates(True)
    assert raised.value.fix == f"correct SSL_CERT_FILE={tmp_path / 'none.pem'}"
