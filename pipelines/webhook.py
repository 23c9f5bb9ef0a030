"""Posts a JSON document to a webhook, signed as MLflow signs those of its registry (Standard Webhooks).

    signature = "v1," + base64(HMAC-SHA256(secret, "<id>.<timestamp>.<body>"))

The headers are MLflow's by other names, so that a receiver checks both with the same few lines.
"""

import base64
import hashlib
import hmac
import queue
import threading
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
        timeout_s: for all of it. A receiver that drips its answer is left to a thread that ends with this process.

    Raises:
        UnavailableError: nothing answered in time, or with another status than 2xx. A redirection is not followed.
    """
    import requests

    timestamp = str(int(time.time()))
    headers = {"Content-Type": "application/json", ID_HEADER: delivery, TIMESTAMP_HEADER: timestamp}
    if secret:
        headers[SIGNATURE_HEADER] = signature(secret, delivery, timestamp, body)
    answers = queue.SimpleQueue[int | Exception]()

    def ask() -> None:
        try:
            # this timeout begins again with each byte that comes, so it alone bounds nothing
            with requests.post(url, data=body, headers=headers, timeout=timeout_s, allow_redirects=False,
                               stream=True) as answer:
                answers.put(answer.status_code)
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, name="webhook", daemon=True).start()
    try:
        status = answers.get(timeout=timeout_s)
    except queue.Empty:
        raise UnavailableError(f"notify.webhook must answer within {timeout_s:g} s, got no whole answer") from None
    if isinstance(status, Exception):
        # not the error's own text: the address may carry a token, and this line goes into logs
        raise UnavailableError(f"notify.webhook must answer, got {type(status).__name__}") from status
    if not 200 <= status < 300:
        raise UnavailableError(f"notify.webhook must answer with 2xx, got {status}")
