"""What a new version promises otherwise than the champion, for whoever decides: written into the evidence by `gate`.

What is less is told by specification_change.py, as registration holds it against the version; beside it stand what is
new, the box, the limits of the champion's gates and its data. Pure.
"""

from collections.abc import Iterator
from typing import Any

from serving.bundle import Bundle
from serving.promise import Promise
from serving.specification_change import weaker_in


def changes(new: Promise, champion: Bundle) -> dict[str, Any]:
    """As JSON.

    Returns:
        weaker: in what it promises less, a line each. added: properties that the champion does not have. box: inputs
        whose range is another. gates: limits of the champion's, {name: [comparison, threshold]}. data_version: the
        champion's.
    """
    before = champion.promise
    known = _statements(before)
    return {"weaker": list(weaker_in(new, before)), "added": [one for one in _statements(new) if one not in known],
            "box": list(_box(new, before)),
            "gates": {gate.name: [gate.comparison, gate.threshold] for gate in champion.gates.gates},
            "data_version": champion.contract.data_version}


def _statements(promise: Promise) -> list[str]:
    given = promise.specification
    return [rule.statement(given.feature_names, given.output_names) for rule in given.properties]


def _box(new: Promise, champion: Promise) -> Iterator[str]:
    known = {item.name: item for item in champion.contract.inputs}
    for item in new.contract.inputs:
        old = known.get(item.name)
        if old is not None and (item.minimum, item.maximum) != (old.minimum, old.maximum):
            yield (f"{item.name} {item.minimum:.4g} to {item.maximum:.4g} {item.unit}, "
                   f"the champion's {old.minimum:.4g} to {old.maximum:.4g}")
