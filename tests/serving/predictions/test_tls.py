"""The service over HTTPS, asked by a real client with certificates that are made here."""

import datetime
import ipaddress
import os
import socket
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from feature_store.errors import InputError
from serving.predictions.start import ServeRequest, serve
from serving.predictions.tls import Tls
from serving.state_folder import state_folder
from tests.serving.predictions.running import LIGHT, running, signed_bundle

NOW = datetime.datetime.now(datetime.UTC)


def certificate(folder, name):
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(NOW - datetime.timedelta(hours=1))
            .not_valid_after(NOW + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), True).sign(key, hashes.SHA256()))
    paths = folder / f"{name}.crt", folder / f"{name}.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                           serialization.NoEncryption()))
    return paths


def trusting(issuer, own=None):
    context = ssl.create_default_context(cafile=issuer)
    if own:
        context.load_cert_chain(*own)
    return context


def live(url, context):
    with urllib.request.urlopen(f"{url}/healthz", context=context, timeout=10.0) as answer:
        return answer.status


def shown(url):
    return ssl.get_server_certificate((urlsplit(url).hostname, urlsplit(url).port), timeout=10.0)


def test_a_renewed_certificate_is_taken_over_and_a_broken_one_is_not(tmp_path, keys):
    bundle = signed_bundle(tmp_path / "bundle", keys[0])
    first, second = certificate(tmp_path, "first"), certificate(tmp_path, "second")
    before, after = first[0].read_text(), second[0].read_text()
    command = f"from serving.predictions import tls; tls.RENEWAL_S = 0.1; {LIGHT}"
    with running("--bundle", bundle, "--public-key", keys[1], "--tls-certificate", first[0], "--tls-key", first[1],
                 command=command) as service:
        assert service.url.startswith("https://") and live(service.url, trusting(first[0])) == 200
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            live(service.url, trusting(second[0]))
        (tmp_path / "broken").write_text("no certificate")
        os.replace(tmp_path / "broken", first[0])
        service.wait_for(lambda: any("stays as it was" in line for line in service.lines))
        assert shown(service.url) == before
        os.replace(second[1], first[1])
        os.replace(second[0], first[0])
        service.wait_for(lambda: shown(service.url) == after)
        assert live(service.url, trusting(first[0])) == 200


@pytest.mark.parametrize("error", [OSError(116, "Stale file handle"), ValueError("any")])
def test_a_renewal_that_fails_is_told_once_and_tried_again_without_another_change(tmp_path, monkeypatch, error):
    first, second, told = certificate(tmp_path, "first"), certificate(tmp_path, "second"), []
    tls = Tls(*first, None, told.append)
    os.replace(second[1], first[1])
    os.replace(second[0], first[0])

    def fails(*_, **__):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(tls, "context", SimpleNamespace(load_cert_chain=fails))
        for _ in range(2):
            tls.look()
    for _ in range(2):
        tls.look()
    assert told == [f"TLS certificate stays as it was: {error}", f"TLS certificate was renewed ({first[0]})"]


def test_only_clients_of_the_named_issuer_are_answered(tmp_path, keys):
    bundle = signed_bundle(tmp_path / "bundle", keys[0])
    own, client, other = (certificate(tmp_path, name) for name in ("own", "client", "other"))
    with running("--bundle", bundle, "--public-key", keys[1], "--tls-certificate", own[0], "--tls-key", own[1],
                 "--tls-client-ca", client[0]) as service:
        assert live(service.url, trusting(own[0], client)) == 200
        for stranger in (None, other):
            with pytest.raises((OSError, ssl.SSLError)):
                live(service.url, trusting(own[0], stranger))


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00"], ids=["nothing", "half a hello"])
def test_a_handshake_that_does_not_end_is_hung_up_on(tmp_path, keys, sent):
    bundle, own = signed_bundle(tmp_path / "bundle", keys[0]), certificate(tmp_path, "own")
    command = f"from serving.predictions import limits; limits.MOST_S = 1.0; {LIGHT}"
    with running("--bundle", bundle, "--public-key", keys[1], "--tls-certificate", own[0], "--tls-key", own[1],
                 command=command) as service:
        address = urlsplit(service.url)
        with socket.create_connection((address.hostname, address.port), 10.0) as silent:
            silent.sendall(sent)
            assert live(service.url, trusting(own[0])) == 200
            with suppress(ConnectionResetError):  # hung up on before all that was sent was read
                assert silent.recv(100) == b""  # asyncio's own limit, a minute, runs into the 10 s of this socket


def test_what_cannot_be_used_is_refused_in_a_line(tmp_path):
    first, second = certificate(tmp_path, "first"), certificate(tmp_path, "second")
    locked = tmp_path / "locked.key"
    locked.write_bytes(serialization.load_pem_private_key(first[1].read_bytes(), None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")))
    for files in ((first[0], second[1], None), (first[0], locked, None),
                  (tmp_path / "away", first[1], None), (*first, second[1])):
        with pytest.raises(InputError, match="--tls-") as error:
            Tls(*files, print)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="must be given together"):
        serve(ServeRequest(tls_certificate=first[0]), state_folder(tmp_path), print)
