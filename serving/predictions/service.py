"""The service as an ASGI application: the Open Inference Protocol v2, a scheduler's extender, /metrics and /healthz.

Every error is {"error": "..."}: 400 what was asked is not as protocol or contract say, 404 no such address or model,
405 wrong method, 408, 413, 415 and 429 a limit (serving/predictions/limits.py), 503 a model that is not served now,
with the reason, 500 a model that answered what is no finite number.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from feature_store.errors import AssayError, InputError, RefusedError, nearest
from serving.predictions.champions import Models, Served
from serving.predictions.extender import Extender, Ranking, filtered, prioritized
from serving.predictions.limits import Limits
from serving.predictions.metrics import Metrics
from serving.predictions.tensors import answer, read_object, read_question
from serving.session import Predictor

HEADER_LENGTH = "inference-header-content-length"  # of the JSON before tensors as bytes
_MOST_DIGITS = 18  # of that length: Python reads a number of thousands of digits no more
_LARGE_BYTES = 16_384  # a body above it is answered in a thread, so that small ones need not wait


@dataclass(frozen=True)
class Service:
    """Endpoints. extender: None: there is none."""

    models: Models
    limits: Limits
    metrics: Metrics
    extender: Extender | None = None

    def application(self) -> ASGIApp:
        """What a server runs."""
        routes = [
            Route("/healthz", self.live), Route("/metrics", self.scraped),
            Route("/v2", self.server), Route("/v2/health/live", self.live), Route("/v2/health/ready", self.ready)]
        for model in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            routes += [Route(model, self.model), Route(f"{model}/ready", self.model_ready),
                       Route(f"{model}/infer", self.infer, methods=["POST"])]
        if self.extender is not None:
            routes += [Route("/scheduler/prioritize", self.prioritize, methods=["POST"]),
                       Route("/scheduler/filter", self.filter, methods=["POST"])]
        app = Starlette(routes=routes, exception_handlers={
            HTTPException: _http_error, AssayError: _own_error, ClientDisconnect: _gone, Exception: _unexpected})
        return _counted(app, self.metrics)

    async def live(self, _: Request) -> Response:
        """The process answers."""
        return _json({"live": True})

    async def ready(self, _: Request) -> Response:
        """At least one model is served; last_good: names of those that are from the service's own copy."""
        models = self.models()
        if not any(one.predictor for one in models.values()):
            reason = next((one.reason for one in models.values()), "")
            raise HTTPException(503, f"at least one model must be served, got none of {len(models)} ({reason})")
        last_good = [name for name, one in models.items() if one.is_last_good]
        told = {"parameters": {"last_good": orjson.dumps(last_good).decode()}} if last_good else {}
        return _json({"ready": True, **told})

    async def server(self, _: Request) -> Response:
        """Server metadata."""
        return _json({"name": "assay", "version": _own_version(), "extensions": ["binary_tensor_data"]})

    async def model(self, request: Request) -> Response:
        """Model metadata; columns and statement are beyond the protocol."""
        name, served, predictor = self._asked(request)
        contract = predictor.contract
        return _json({
            "name": name, "versions": [served.version], "platform": "onnxruntime_onnx",
            "inputs": [{"name": contract.model.input, "datatype": "FP64", "shape": [-1, len(contract.inputs)]}],
            "outputs": [{"name": item.name, "datatype": "FP32", "shape": [-1]} for item in contract.outputs],
            "columns": contract.to_json()["inputs"], "units": {item.name: item.unit for item in contract.outputs},
            "statement": contract.specification.statement, "bundle_sha256": predictor.sha256})

    async def model_ready(self, request: Request) -> Response:
        """Whether it is served; trouble: why what the ledger names cannot take its place."""
        name, served, _ = self._asked(request)
        told = {"parameters": {"trouble": served.reason}} if served.reason else {}
        return _json({"name": name, "ready": True, "version": served.version, **told})

    async def infer(self, request: Request) -> Response:
        """A prediction."""
        name, served, predictor = self._asked(request)
        body = await self.limits.body(request)
        length = request.headers.get(HEADER_LENGTH, str(len(body)))
        if not length.isdecimal() or len(length) > _MOST_DIGITS or int(length) > len(body):
            raise InputError(f"{HEADER_LENGTH} must be at most the body's {len(body)} bytes, got {length!r:.40}")

        def answered() -> Response:
            question = read_question(body, int(length), predictor.contract)
            prediction = predictor.predict(question.rows)
            self.metrics.predicted(name, len(question.rows), prediction.rows_outside)
            content, head = answer(question, prediction, {"model_name": name, "model_version": served.version},
                                   predictor.contract, predictor.sha256)
            if head == len(content):
                return Response(content, media_type="application/json")
            return Response(content, media_type="application/octet-stream", headers={HEADER_LENGTH: str(head)})

        return await run_in_threadpool(answered) if len(body) > _LARGE_BYTES else answered()

    async def prioritize(self, request: Request) -> Response:
        """ExtenderArgs -> HostPriorityList."""
        return await self._ranked(request, prioritized)

    async def filter(self, request: Request) -> Response:
        """ExtenderArgs -> ExtenderFilterResult."""
        return await self._ranked(request, filtered)

    async def scraped(self, _: Request) -> Response:
        """What Prometheus reads."""
        return Response(generate_latest(self.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def _ranked(self, request: Request, told: Callable[[Ranking], Any]) -> Response:
        assert self.extender is not None
        body, extender = await self.limits.body(request), self.extender

        def answered() -> Response:
            ranking = extender.rank(read_object(body, "ExtenderArgs"), self.models())
            if ranking.workload is not None:
                predicted = sum(one.value is not None for one in ranking.verdicts)
                self.metrics.ranked(ranking.workload.model, predicted, len(ranking.verdicts) - predicted)
            return _json(told(ranking))

        return await run_in_threadpool(answered)

    def _asked(self, request: Request) -> tuple[str, Served, Predictor]:
        """The model that an address names. Raises HTTPException: there is none, or it is not served."""
        name, models = request.path_params["name"], self.models()
        if name not in models:
            raise HTTPException(404, f"model must be one that is served, got {name!r:.140}; {nearest(name, models)}")
        served = models[name]
        if served.predictor is None:
            raise HTTPException(503, f"{name} is not served: {served.reason}")
        if (asked := request.path_params.get("version", served.version)) != served.version:
            raise HTTPException(404, f"version must be {served.version}, which is served, got {asked!r:.140} ({name})")
        return name, served, served.predictor


def _counted(app: ASGIApp, metrics: Metrics) -> ASGIApp:
    """The application, each answer of which is counted when it is handed over."""
    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        status, began = 500, time.perf_counter()

        async def sent(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await app(scope, receive, sent)
        finally:
            name = scope.get("path_params", {}).get("name", "")
            metrics.answered(name, status, time.perf_counter() - began)

    return counted


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, headers, "application/json")



async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json({"error": error.detail}, error.status_code, dict(error.headers or {}))


async def _own_error(_: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 500 if isinstance(error, RefusedError) else 400)


async def _gone(_: Request, __: Exception) -> Response:
    return _json({"error": "client hung up"}, 400)  # counted, and read by nobody


async def _unexpected(_: Request, error: Exception) -> Response:
    return _json({"error": f"unexpected {type(error).__name__}; the server's log has it"}, 500)


def _own_version() -> str:
    for distribution in ("assay", "assay-serving"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return "unknown"
