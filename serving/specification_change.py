"""What a new version promises less than the champion does: gate `specification_not_weaker`.

Flow: `register` asks before a version replaces the champion by itself, `promote` shows the answer and writes it into
the ledger. Both contracts come from bundles that were checked. Pure.

A controller that changes to the new version must get everything that the champion's proof gave it: for the same inputs
in the same units, over at least the same box, at least the same properties, with at most the same violation allowed. A
tolerance is a share of the output's range, so what it comes to in the output's own unit counts as well. What stands in
a contract and is not known here must be equal.
"""

from collections.abc import Iterator, Mapping

from serving.canonical import canonical_json
from serving.contract import Contract, InputSpec, OutputSpec

GATE = "specification_not_weaker"
# A tolerance times a range is rounded; what differs by less is equal.
_ROUNDING = 1e-12


def weaker_in(new: Contract, champion: Contract, leeway: float = 0.0) -> tuple[str, ...]:
    """In what the new contract is weaker than the champion's: a line each, in words; none: it is not weaker.

    Args:
        leeway: by how much a side of the box may fall short (share of the width of the champion's), and by which share
            the violation that the tolerance allows may be larger.
    """
    return (*_inputs(new, champion, leeway), *_properties(new, champion), *_tolerance(new, champion, leeway),
            *_outputs(new, champion), *_embedding(new, champion))


def _inputs(new: Contract, champion: Contract, leeway: float) -> Iterator[str]:
    found, known = ({item.name: item for item in contract.inputs} for contract in (new, champion))
    for name, old in known.items():
        item = found.get(name)
        if item is None:
            yield f"input {name} is not taken any more"
            continue
        yield from _quantity("input", item, old)
        short = leeway * (old.maximum - old.minimum)
        if item.minimum > old.minimum + short or item.maximum < old.maximum - short:
            yield (f"box of {name} is {item.minimum:.6g} to {item.maximum:.6g} {item.unit}, the champion's is "
                   f"{old.minimum:.6g} to {old.maximum:.6g} {old.unit}: not all of it is covered")
    for name in found.keys() - known.keys():
        yield f"input {name} is new: what feeds the champion does not give it"
    if list(found) != list(known) and found.keys() == known.keys():
        yield f"inputs stand in another order: {', '.join(found)}, the champion's {', '.join(known)}"


def _quantity(what: str, new: InputSpec | OutputSpec, old: InputSpec | OutputSpec) -> Iterator[str]:
    """Unit and physical limits, which say what a number means and which ones are refused."""
    if new.unit != old.unit:
        yield f"unit of {what} {new.name} is {new.unit or 'none'}, the champion's is {old.unit or 'none'}"
    limits, known = ((item.physical_minimum, item.physical_maximum) for item in (new, old))
    if limits != known:
        yield f"physical limits of {what} {new.name} are {_range(*limits)}, the champion's are {_range(*known)}"


def _properties(new: Contract, champion: Contract) -> Iterator[str]:
    demanded, known = _demands(new), _demands(champion)
    for key, words in known.items():
        if key not in demanded:
            yield f"{words} is not proved any more"
    specification, old = (contract.to_json()["specification"] for contract in (new, champion))
    for key in sorted({*specification, *old} - {"tolerance", "properties", "statement"}):
        if canonical_json(specification.get(key)) != canonical_json(old.get(key)):
            yield f"{key} of the specification is another than the champion's"


def _demands(contract: Contract) -> dict[bytes, str]:
    """What is proved, one demand each, with its words: a monotone property is one for each of its features."""
    demands = {}
    for rule in contract.to_json()["specification"]["properties"]:
        monotone = rule.get("monotone")
        if isinstance(monotone, Mapping) and len(rule) == 1 and {"features", "direction"} <= monotone.keys():
            rest = {key: value for key, value in monotone.items() if key != "features"}
            for feature in monotone["features"]:
                words = f"{contract.model.output} {monotone['direction']} in {feature}"
                demands[canonical_json({"monotone": rest, "feature": feature})] = words
        else:
            demands[canonical_json(rule)] = f"property {canonical_json(rule).decode()}"
    return demands


def _tolerance(new: Contract, champion: Contract, leeway: float) -> Iterator[str]:
    tolerance, known = (float(contract.specification["tolerance"]) for contract in (new, champion))
    if tolerance > known:
        yield f"tolerance is {tolerance:.6g} of the output's range, the champion's is {known:.6g}"
    old = {item.name: item for item in champion.outputs}
    for item in new.outputs:
        before = old.get(item.name)
        if before is None:
            continue
        allowed, limit = (share * (output.maximum - output.minimum)
                          for share, output in ((tolerance, item), (known, before)))
        if allowed > limit * (1 + leeway) * (1 + _ROUNDING):
            yield (f"{item.name} may violate the order by {allowed:.6g} {item.unit} over the box, the champion's by "
                   f"{limit:.6g} {before.unit} (output range {_range(item.minimum, item.maximum)}, the champion's "
                   f"{_range(before.minimum, before.maximum)})")


def _outputs(new: Contract, champion: Contract) -> Iterator[str]:
    found, known = ({item.name: item for item in contract.outputs} for contract in (new, champion))
    for name, old in known.items():
        if name in found:
            yield from _quantity("output", found[name], old)
        else:
            yield f"output {name} is not given any more"
    if new.model.output != champion.model.output:
        yield f"what is predicted is {new.model.output}, the champion predicts {champion.model.output}"


def _embedding(new: Contract, champion: Contract) -> Iterator[str]:
    """How a few-shot model is fed: other columns are another interface; no less may be out of distribution."""
    sides = [None if contract.embedding is None else
             (contract.embedding.inputs, contract.embedding.configuration, contract.embedding.target)
             for contract in (new, champion)]
    if sides[0] != sides[1]:
        yield "what the encoder of runs takes and gives is another than the champion's"
    after, before = new.embedding, champion.embedding
    if after is None or before is None:
        return
    if after.runs < before.runs:
        yield f"encoder takes up to {after.runs} runs, the champion's up to {before.runs}"
    if after.threshold < before.threshold:
        yield (f"a workload is out of distribution where its similarity is below {after.threshold:.6g}, by the "
               f"champion's encoder below {before.threshold:.6g}: less is flagged")


def _range(low: float | None, high: float | None) -> str:
    return f"{'unbounded' if low is None else f'{low:.6g}'} to {'unbounded' if high is None else f'{high:.6g}'}"
