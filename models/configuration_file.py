"""What may be written in mlflow.yaml. models/configuration.py makes the `Configuration` of it that all code receives.

This module imports pydantic; what runs beside a controller must not.
"""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from feature_store.written.field_errors import FieldError
from feature_store.written.fields import TaskName, Text
from feature_store.written.model import Written
from models.configuration import EVENTS, LEDGER_DATABASE, Event

# MLflow reserves "latest" and names such as "v3" as aliases.
_ALIAS = re.compile(r"(?!(?:latest|[vV]\d+)$)[A-Za-z][A-Za-z0-9_-]*")
_URI = re.compile(r"[a-z][a-z0-9+.-]*:")
_RESERVED = set("/:{}%'\"")  # in the name of a registered model


def _tracking_uri(uri: str) -> str:
    if not uri.startswith("sqlite:///") and (uri.startswith("file:") or not _URI.match(uri)):
        raise ValueError(f"expected the address of a database or a server, got {uri!r}; MLflow no longer keeps runs in "
                         "a plain folder: write sqlite:///mlflow.db")
    return uri


def _template(template: str) -> str:
    if not all(template.count(part) == 1 for part in ("{task}", "{workload}")):
        raise ValueError(f"expected {{task}} and {{workload}} once each, got {template!r}")
    between = re.split(r"\{task\}|\{workload\}", template)
    if _RESERVED & set("".join(between)) or "." not in between[1]:
        raise ValueError("expected a dot between {task} and {workload}, and none of / : { } % and quotes, got "
                         f"{template!r}")
    return template


def _alias(alias: str) -> str:
    if not _ALIAS.fullmatch(alias):
        raise ValueError("expected a letter, then letters, digits, _ and -, and neither latest nor a version such as "
                         f"v3, got {alias!r}")
    return alias


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError(f"expected a text that is not blank, got {text!r}")
    return text


Name = Annotated[Text, AfterValidator(_not_blank)]
Alias = Annotated[Text, AfterValidator(_alias)]


def _ledger(place: str) -> str:
    if _URI.match(place) and not place.startswith(LEDGER_DATABASE):
        raise ValueError(f"expected a file, or {LEDGER_DATABASE}user@host/database, got {place!r}")
    return place


class TrackingFields(Written):
    """Where MLflow keeps runs, registry and artifacts."""

    uri: Annotated[Name, AfterValidator(_tracking_uri)] = Field(
        description="MLflow's tracking and registry address: `sqlite:///file`, `http://host:5000`, `postgresql://...`")
    artifacts: Name = Field(description="Where artifacts go: a folder, or the address of a store such as s3://bucket/a")


class AliasFields(Written):
    """Aliases in the registry."""

    champion: Alias = Field(description="Alias of the version that controllers load")
    challenger: Alias = Field(description="Alias of the version that passed its gates last")

    @model_validator(mode="after")
    def _distinct(self) -> "AliasFields":
        if self.champion == self.challenger:
            raise FieldError(["challenger"], f"expected another alias than the champion's, got {self.challenger!r}")
        return self


class PromotionFields(Written):
    """What replaces a champion without a person's word."""

    minimum_improvement: float = Field(
        default=0.01, ge=0, json_schema_extra={"unit": "share of the champion's mean"},
        description="Margin for errors and costs (`better: smaller`, no case below 0)")
    minimum_improvement_of_spread: float = Field(
        default=0.01, ge=0, json_schema_extra={"unit": "share of the champion's spread"},
        description="Margin for anything else, such as rewards; the spread is the standard deviation over its cases "
                    "([decision 11](../decisions/0011-margin-of-a-reward.md))")
    minimum_gain: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict, json_schema_extra={"unit": "that of the metric's cases"},
        description="Margins for single metrics, in place of a share: `{mean_reward: 0.5}`")
    confidence: float = Field(
        default=0.99, ge=0.8, lt=1,
        description="Of each end of the interval (one-sided), over all attempts against one champion together: attempt "
                    "k may err with (1 - confidence) / (k (k + 1))")
    specification_leeway: float = Field(
        default=0.0, ge=0, lt=1, json_schema_extra={"unit": "share"},
        description="`specification_not_weaker`: by which share of its width a side of the box may fall short of the "
                    "champion's, and by which share the violation that the tolerance allows, and the numbers of a "
                    "guarantee of the closed loop, may be larger")


def _webhook(address: str) -> str:
    if address and not re.match(r"https?://[^/\s]", address):
        raise ValueError("expected an address such as https://host/path")  # not the address: it may carry a token
    return address


class NotifyFields(Written):
    """Who is told when something happened to a model."""

    command: list[Text] = Field(
        default_factory=list,
        description="Program and arguments; run without a shell for each event, with one JSON document on standard "
                    "input, for at most 10 s")
    webhook: Annotated[str, AfterValidator(_webhook)] = Field(
        default="", description="`https://...` (or `http://...`), to which the same document is posted; signed with "
                                "the secret in $ASSAY_WEBHOOK_SECRET")
    events: list[Event] = Field(default=list(EVENTS), min_length=1, description="Those that are told")

    @model_validator(mode="after")
    def _somebody(self) -> "NotifyFields":
        if not self.command and not self.webhook:
            raise FieldError(["command"], "expected a command, a webhook or both, got neither")
        return self


class KeyFields(Written):
    """EC P-256 key pair, PEM."""

    private: Name = Field(description="Private key, which signs bundles and ledger entries")
    public: Name = Field(description="Public key, which controllers get")


class GateFields(Written):
    """A gate: a metric, which way is better, and one limit. What fits together is seen by models/gates.py."""

    verdict: Literal["PROVED"] | None = Field(
        default=None, description="Of the gate `specification` alone: the verifier's verdict")
    metric: str | None = Field(default=None, description="Name in `metrics` of `evidence.json`")
    better: Literal["smaller", "larger"] | None = Field(
        default=None,
        description="Which values are better; `at_most...` goes with `smaller`, `at_least...` with `larger`")
    relative_to: str | None = Field(
        default=None,
        description="`champion`: the same metric of the champion, measured on the same cases; passes where there is no "
                    "champion, and where cases are beyond the limit by no more than luck explains. Or another metric "
                    "of the evidence, such as a baseline's: `baseline_mse`, `mean_mse`")
    unit: str | None = Field(
        default=None, description="Of the metric; the evidence must have the same. Needed where `models/metrics.py` "
                                  "does not list the metric: an unknown name is refused otherwise")
    at_most: float | None = Field(default=None, description="Absolute limit, in the metric's unit, of either sign")
    at_least: float | None = Field(default=None, description="Absolute limit, in the metric's unit, of either sign")
    at_most_ratio: float | None = Field(
        default=None, description="Limit of metric / reference; fails where one of the two is not above 0")
    at_least_ratio: float | None = Field(
        default=None, description="Limit of metric / reference; fails where one of the two is not above 0")
    at_most_difference: float | None = Field(
        default=None, description="Limit of metric - reference, of either sign: for rewards")
    at_least_difference: float | None = Field(
        default=None, description="Limit of metric - reference, of either sign: for rewards")
    least_cases: int | None = Field(
        default=None, ge=1,
        description="Least number of test rows, configurations or episodes that the metric is a mean of (`case_counts` "
                    "of `evidence.json`); below, or where the evidence does not say, the gate fails; where fewer are "
                    "left that the champion was not trained on, it rejects nobody")


class ConfigurationFile(Written):
    """mlflow.yaml. Relative paths are resolved against the state folder."""

    tracking: TrackingFields = Field(description="Where MLflow keeps runs, registry and artifacts")
    experiment: Name = Field(description="Name of the MLflow experiment")
    model_name: Annotated[Name, AfterValidator(_template)] = Field(
        description="Name of the registered model of one task and workload; holds `{task}` and `{workload}`")
    aliases: AliasFields = Field(description="Aliases in the registry")
    approval: Literal["auto", "manual"] = Field(
        description="`auto`: a version that passes every gate, is better than the champion and promises no less "
                    "becomes champion at once; `manual`: it stays challenger until `assay promote`")
    promotion: PromotionFields = Field(default=PromotionFields(), description="What replaces a champion by itself")
    notify: NotifyFields | None = Field(
        default=None, description="Who is told when something happened to a model; without it nobody")
    ledger: Annotated[Name, AfterValidator(_ledger)] = Field(
        description="Promotion ledger: a file, or `postgresql://user@host/database` for several machines, with the "
                    "password in $PGPASSWORD or a file that $PGPASSFILE names")
    keys: KeyFields = Field(description="Key pair that signs")
    gates: dict[TaskName, Annotated[dict[str, GateFields], Field(min_length=1)]] = Field(
        min_length=1,
        description="Gates of each task by name, all of which must hold; `default` is for tasks that are not named")
