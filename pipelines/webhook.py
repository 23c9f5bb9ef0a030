"""Posts a JSON document to a webhook, signed as MLflow signs those of its registry (Standard Webhooks).

    signature = "v1," + base64(HMAC-SHA256(secret, "<id>.<timestamp>.<body>"))

The headers are MLflow's by other names, so that a receiver checks both with the same few lines.
"""

import base64
import hashlib
import hmac
import time

from feature_store.errors import UnavailableError

ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER = "X-Assay-Delivery-Id", "X-Assay-Timestamp", "X-Assay-Signature"


def signature(secret: str, delivery: str, timestamp: str, body: bytes) -> str:
    """Value of the signature's header."""
    signed = b".".join((delivery.encode(), timestamp.encode(), body))
    return "v1," + base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha256).digest()).decode()


def post(url: str, delivery: str, body: bytes, secret: str, timeout_s: float) -> None:
    """Posts the body; without a secret it is not signed.

    Args:
        delivery: names the document; the same where it is posted again.
        timeout_s: to connect, and between two bytes of the answer.

    Raises:
        UnavailableError: nothing answered, or with another status than 2xx. A redirection is not followed.
    """
    import requests

    timestamp = str(int(time.time()))
    headers = {"Content-Type": "application/json", ID_HEADER: delivery, TIMESTAMP_HEADER: timestamp}
    if secret:
        headers[SIGNATURE_HEADER] = signature(secret, delivery, timestamp, body)
    try:
        answer = requests.post(url, data=body, headers=headers, timeout=timeout_s, allow_redirects=False, stream=True)
        answer.close()
    except requests.RequestException as error:
        # not the error's own text: the address may carry a token, and this line goes into logs
        raise UnavailableError(f"notify.webhook must answer, got {type(error).__name__}") from error
    if not 200 <= answer.status_code < 300:
        raise UnavailableError(f"notify.webhook must answer with 2xx, got {answer.status_code}")
