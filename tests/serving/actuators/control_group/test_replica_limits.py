"""A decision about one replica as the limits of a group of equal ones."""

import os

from hypothesis import example, given
from hypothesis import strategies as st

from feature_store.control_group_limits import amount
from serving.actuators.control_group.replica_limits import CPU, MEMORY, REPLICAS, ReplicaLimits

BYTES = st.one_of(st.just("max"), st.integers(4096, 2**41).map(str))


@given(st.integers(1, 49), st.one_of(st.just("max"), st.integers(1000, 10**8).map(str)), st.integers(1000, 10**6),
       BYTES, st.one_of(st.none(), BYTES))
@example(1, "max", 100_000, "max", None)  # which has the host, and stays without a limit
@example(1, "50000", 100_000, str(100 * 2**20), str(80 * 2**20))  # version 2: what throttles below what kills
@example(49, "100000", 100_000, str(49 * 2**20 + 4096), None)
@example(3, "500", 1000, "10000", None)  # bytes that are no whole pages
def test_what_is_to_stay_as_it_is_takes_nothing_from_any_limit(replicas, quota, period, memory, high):
    """A shield that lets nothing be taken away says so: the present value is the target."""
    one = ReplicaLimits(replicas, "a group")
    limits = {"cpu": f"{quota} {period}", "memory": memory, **({} if high is None else {"memory_high": high})}
    targets = one.values((CPU, MEMORY, REPLICAS), limits)
    assert one.planned(targets, limits, lambda: 0) == ({}, [])


@given(st.integers(1, 49), st.one_of(st.just("max"), st.integers(1000, 10**8).map(str)), BYTES,
       st.one_of(st.none(), BYTES), st.floats(1.001, 1000.0))
@example(1, "80000", str(2**30), str(50 * 2**20), 1.28)  # systemd's MemoryMax far above its MemoryHigh
@example(1, "80000", str(200 * 2**20), "max", 1.5)
@example(1, "max", "max", "max", 2.0)
def test_a_raise_cuts_no_limit(replicas, quota, memory, high, factor):
    one = ReplicaLimits(replicas, "a group")
    limits = {"cpu": f"{quota} 100000", "memory": memory, **({} if high is None else {"memory_high": high})}
    wanted = {control: factor * value for control, value in one.values((CPU, MEMORY), limits).items()}
    changes, _ = one.planned(wanted, limits, lambda: 2**50)
    assert all(amount(text) > amount(limits[limit]) for limit, text in changes.items())
    after = one.values((CPU, MEMORY), {**limits, **changes})
    for control, names in ((CPU, ["cpu"]), (MEMORY, [name for name in limits if name != "cpu"])):
        if any(limits[name].split()[0] != "max" for name in names):
            assert after[control] >= (1.0 - 1e-6) * wanted[control] - 0.01, "raised, in whole pages"


def test_more_than_the_host_has_sets_no_limit_where_there_is_none_and_is_said():
    limits, cores = {"cpu": "max 100000", "memory": "max"}, float(os.cpu_count() or 1)
    changes, notes = ReplicaLimits(1, "a group").planned({CPU: cores + 2.0, MEMORY: 2.0**30}, limits, lambda: 0)
    assert changes == {}
    assert notes == [f"target_cpu_limit_cores: {cores + 2.0:g} is more than this host has; there is no limit, and none "
                     "is set",
                     "target_memory_limit_mib: 1.07374e+09 is more than this host has; there is no limit, and none is "
                     "set"]
